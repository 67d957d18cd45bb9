"""ShareGPT: {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}]}."""

from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.corpus.readers.base import Reader, name_of, objects_of, text_of
from tertulia.corpus.readers.messages import SYSTEM_ROLES, encode_roles, persona_of

SPEAKERS = {"human": "user", "user": "user"} | dict.fromkeys(("gpt", "chatgpt", "assistant", "model"), "assistant")
"""What the data calls the two; anyone else (a tool, another bot) keeps the name."""


def decode(record: Json) -> Dialogue:
    """One record; without an id of its own it gets one from its content."""
    said = [
        (text_of(entry["from"], "from"), text_of(entry["value"], "value"))
        for entry in objects_of(record["conversations"], "conversations")
    ]
    system = [text_of(record["system"], "system")] if record.get("system") else []
    system += [text for role, text in said if role in SYSTEM_ROLES]
    persona = persona_of(system)
    return Dialogue(
        id=str(record.get("id") or name_of(*(text for pair in said for text in pair))),
        turns=tuple(Turn(SPEAKERS.get(role, role), text) for role, text in said if role not in SYSTEM_ROLES),
        personas={"assistant": persona} if persona else {},
        meta={"system": "\n".join(system)} if system else {},
    )


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """The same two roles as in OpenAI's format, under the names used here."""
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    return {
        "id": dialogue.id,
        "conversations": [{"from": names[role], "value": text} for role, text in encode_roles(dialogue)],
    }


def recognises(record: dict[str, Json]) -> bool:
    """Whether the conversation's entries are `from` and `value`."""
    said = record.get("conversations")
    return isinstance(said, list) and (not said or (isinstance(said[0], dict) and "from" in said[0]))


READER = Reader(name="sharegpt", recognises=recognises, decode=decode, encode=encode)
