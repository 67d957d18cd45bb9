"""ShareGPT: {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}]}."""

from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.corpus.readers.base import Reader, content_id, objects_of, text_of
from tertulia.corpus.readers.messages import SYSTEM_ROLES, encode_roles, persona_of

SPEAKERS = {"human": "user", "user": "user"} | dict.fromkeys(("gpt", "chatgpt", "assistant", "model"), "assistant")
"""Names of the two roles in the data; anyone else (a tool, another bot) keeps their name."""


def decode(record: Json) -> Dialogue:
    """Decode a record; if it has no id, the id is computed from the content."""
    messages = [
        (text_of(entry["from"], "from"), text_of(entry["value"], "value"))
        for entry in objects_of(record["conversations"], "conversations")
    ]
    system = [text_of(record["system"], "system")] if record.get("system") else []
    system += [text for role, text in messages if role in SYSTEM_ROLES]
    persona = persona_of(system)
    return Dialogue(
        id=str(record.get("id") or content_id(*(text for pair in messages for text in pair))),
        turns=tuple(Turn(SPEAKERS.get(role, role), text) for role, text in messages if role not in SYSTEM_ROLES),
        personas={"assistant": persona} if persona else {},
        meta={"system": "\n".join(system)} if system else {},
    )


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode a dialogue with the roles of OpenAI's format, under ShareGPT's names."""
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    return {
        "id": dialogue.id,
        "conversations": [{"from": names[role], "value": text} for role, text in encode_roles(dialogue)],
    }


def recognises(record: dict[str, Json]) -> bool:
    """Whether the conversation's entries have `from` (and `value`)."""
    entries = record.get("conversations")
    return isinstance(entries, list) and (not entries or (isinstance(entries[0], dict) and "from" in entries[0]))


READER = Reader(name="sharegpt", recognises=recognises, decode=decode, encode=encode)
