"""OpenAI's chat format: {"messages": [{"role": ..., "content": ...}]}; the system message becomes a persona."""

import hashlib

from tertulia.core.codec import dump_line
from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.core.text import sentences
from tertulia.corpus.readers.base import Reader

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
    """Encode a dialogue: "assistant", or else the second speaker, becomes the assistant, all others the user."""
    return {"id": dialogue.id, "messages": [{"role": r, "content": text} for r, text in encode_roles(dialogue)]}


def encode_roles(dialogue: Dialogue) -> list[tuple[str, str]]:
    """Roles and texts, the system message (if any) first."""
    speakers = dialogue.speakers
    assistant = "assistant" if "assistant" in speakers or len(speakers) < 2 else speakers[1]
    messages = [("assistant" if t.speaker == assistant else "user", t.text) for t in dialogue.turns]
    persona = dialogue.persona_of(assistant)
    system = dialogue.meta.get("system") or (" ".join(persona.sentences) if persona else "")
    return [("system", system), *messages] if system else messages


READER = Reader(name="messages", recognises=lambda record: "messages" in record, decode=decode, encode=encode)
