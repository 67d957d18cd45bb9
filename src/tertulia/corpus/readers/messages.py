"""OpenAI's chat format: {"messages": [{"role": ..., "content": ...}]}; the system message becomes a persona.

It has two roles beside the system, so a dialogue of three people does not fit, unless `merge_turns` makes two of them.
"""

import hashlib
from dataclasses import replace
from itertools import groupby, pairwise

from tertulia.core.codec import dump_line
from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.core.text import sentences
from tertulia.corpus.readers.base import Reader, misfit

SYSTEM_ROLES = ("system", "developer")


def decode(record: Json) -> Dialogue:
    """Decode a record; if it has no id, the id is computed from the content."""
    turns, system = [], []
    for message in record["messages"]:
        text = text_of(message["content"])
        if message["role"] in SYSTEM_ROLES:
            system.append(text)
        else:
            turns.append(Turn(str(message["role"]), text))
    name = record.get("id") or hashlib.sha256(dump_line({"m": record["messages"]}).encode()).hexdigest()[:16]
    persona = persona_of(system)
    meta = {"system": "\n".join(system)} if system else {}
    return Dialogue(str(name), tuple(turns), {"assistant": persona} if persona else {}, meta=meta)


def text_of(content: Json) -> str:
    """The text of a message's content: a string, or a list of text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise TypeError(f"expected text or a list of parts in 'content', got {type(content).__name__}")
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError("expected only parts of type 'text' in 'content'")
    return "".join(part["text"] for part in content)


def persona_of(system: list[str]) -> Persona | None:
    """The system messages as a persona, split into sentences."""
    persona = tuple(s for text in system for s in sentences(text))
    return Persona(persona) if persona else None


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode a dialogue of two: "assistant", or else the second speaker, becomes the assistant, the other the user."""
    return {"id": dialogue.id, "messages": [{"role": r, "content": text} for r, text in encode_roles(dialogue)]}


def encode_roles(dialogue: Dialogue) -> list[tuple[str, str]]:
    """Roles and texts, the system message (if any) first; a dialogue of three or more speakers does not fit."""
    speakers, assistant = dialogue.speakers, assistant_of(dialogue)
    if len(speakers) - (assistant in speakers) > 1:
        raise misfit(
            dialogue.id,
            f"it has two roles, and {len(speakers)} people speak here",
            hint="Merge their turns into two roles with --merge-turns, or write another format, such as tertulia.",
        )
    messages = [("assistant" if t.speaker == assistant else "user", t.text) for t in dialogue.turns]
    persona = dialogue.persona_of(assistant)
    system = dialogue.meta.get("system") or (" ".join(persona.sentences) if persona else "")
    return [("system", system), *messages] if system else messages


def assistant_of(dialogue: Dialogue) -> str:
    """Who is written as the assistant: whoever is called so, or else the second speaker."""
    speakers = dialogue.speakers
    return "assistant" if "assistant" in speakers or len(speakers) < 2 else speakers[1]


def repeats_role(dialogue: Dialogue) -> bool:
    """Whether one role has two turns in a row, which many chat templates reject."""
    assistant = assistant_of(dialogue)
    return any((a.speaker == assistant) == (b.speaker == assistant) for a, b in pairwise(dialogue.turns))


def merge_turns(dialogue: Dialogue) -> Dialogue:
    """The dialogue with two roles that alternate: turns of one role in a row become one, a line each.

    If several people share the role of the user, each of their turns begins with the name.

    >>> turns = (Turn("ana", "hi"), Turn("ben", "hello"), Turn("eva", "me too"), Turn("ana", "ha"))
    >>> [(turn.speaker, turn.text) for turn in merge_turns(Dialogue("d", turns)).turns]
    [('user', 'ana: hi'), ('assistant', 'hello'), ('user', 'eva: me too\\nana: ha')]
    """
    assistant = assistant_of(dialogue)
    named = len([speaker for speaker in dialogue.speakers if speaker != assistant]) > 1
    turns = []
    for is_assistant, group in groupby(dialogue.turns, key=lambda turn: turn.speaker == assistant):
        same = list(group)
        texts = [f"{turn.speaker}: {turn.text}" if named and not is_assistant else turn.text for turn in same]
        sources = tuple(source for turn in same for source in turn.source)
        meta = same[0].meta if len(same) == 1 else {}
        turns.append(Turn("assistant" if is_assistant else "user", "\n".join(texts), sources, meta))
    persona = dialogue.persona_of(assistant)
    return replace(dialogue, turns=tuple(turns), personas={"assistant": persona} if persona else {})


READER = Reader(name="messages", recognises=lambda record: "messages" in record, decode=decode, encode=encode)
