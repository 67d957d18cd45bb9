"""Preferences in the JSON that TRL and other trainers read, one object per line.

| kind | fields |
|---|---|
| pair | `prompt`, `chosen`, `rejected`: texts, or lists of messages |
| pair without prompt | `chosen`, `rejected`: lists of messages, or texts with turns, that begin the same |
| label (KTO) | `prompt`, `completion`, `label` (true or false) |

Messages are OpenAI's: {"role", "content"}; a system message is the persona of the one who replies. A text whose turns
begin with "Human:" and "Assistant:" is taken apart (the format of HH-RLHF); any other prompt is one message. Fields of
ours may be added: `id` (of the conversation), `persona` (sentences), `evidence` (texts), `rater` (a pseudonym) and
`withdrawn`. All others, such as scores, are ignored.
"""

import re
from collections.abc import Mapping, Sequence

from tertulia.core.dialogue import Dialogue, Evidence, Json, Persona, Turn
from tertulia.corpus.preferences.values import AnyPreference, LabelledReply, PreferencePair
from tertulia.corpus.readers.messages import SYSTEM_ROLES, persona_of, text_of

ASSISTANT, USER = "assistant", "user"
_SPEAKER = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
Message = tuple[str, str]
"""Role and text."""


def recognises(record: Json) -> bool:
    """Whether a record is a preference in one of these forms."""
    if not isinstance(record, dict):
        return False
    return {"chosen", "rejected"} <= record.keys() or {"prompt", "completion", "label"} <= record.keys()


def decode(record: Mapping[str, Json]) -> AnyPreference:
    """Decode a record.

    >>> pair = decode({"prompt": "Hi!", "chosen": "Hello.", "rejected": "No."})
    >>> pair.context.turns[0].text, pair.chosen, pair.rejected
    ('Hi!', 'Hello.', 'No.')
    >>> decode({"prompt": "Hi!", "completion": [{"role": "assistant", "content": "Hello."}], "label": True}).reply
    'Hello.'
    """
    if "label" in record and "chosen" not in record:
        if not isinstance(record["label"], bool):
            raise TypeError("'label' must be true or false")
        prompt = _messages(record["prompt"], USER)
        prompt, reply = _reply([*prompt, *_messages(record["completion"], ASSISTANT)], "completion")
        return LabelledReply(_context(prompt, record), ASSISTANT, reply, record["label"])
    (prompt, chosen), (other, rejected) = (_reply(_side(record, name), name) for name in ("chosen", "rejected"))
    if prompt != other:
        raise ValueError("'chosen' and 'rejected' must be replies to the same conversation")
    return PreferencePair(_context(prompt, record), ASSISTANT, chosen, rejected)


def _side(record: Mapping[str, Json], name: str) -> list[Message]:
    """The conversation up to one of the two replies."""
    messages, prompt = _messages(record[name], ASSISTANT), record.get("prompt")
    if prompt is None:
        return messages
    before = _messages(prompt, USER)
    # Some data sets repeat the prompt in the messages.
    return messages if len(messages) > 1 and messages[: len(before)] == before else [*before, *messages]


def _reply(messages: Sequence[Message], name: str) -> tuple[list[Message], str]:
    """The messages before the last one, which is the reply, and its text."""
    if not messages or messages[-1][0] != ASSISTANT:
        raise ValueError(f"{name!r} does not end with a reply of the assistant")
    if not messages[-1][1].strip():
        raise ValueError(f"the reply in {name!r} is empty")
    return list(messages[:-1]), messages[-1][1].strip()


def _messages(value: Json, role: str) -> list[Message]:
    if isinstance(value, list):
        return [(str(message["role"]), text_of(message["content"])) for message in value]
    if not isinstance(value, str):
        raise TypeError(f"expected text or a list of messages, got {type(value).__name__}")
    parts = _SPEAKER.split(value)
    if len(parts) == 1:
        return [(role, value)]
    roles = {"Human": USER, "Assistant": ASSISTANT}
    turns = [(roles[name], text.strip()) for name, text in zip(parts[1::2], parts[2::2], strict=True)]
    return turns if turns[-1][1] or role == ASSISTANT else turns[:-1]  # a prompt may end with an empty "Assistant:"


def _context(messages: Sequence[Message], record: Mapping[str, Json]) -> Dialogue:
    persona = persona_of([text for role, text in messages if role in SYSTEM_ROLES])
    if sentences := record.get("persona"):
        persona = Persona((sentences,) if isinstance(sentences, str) else tuple(map(str, sentences)))
    passages = record.get("evidence") or ()
    return Dialogue(
        str(record.get("id") or ""),
        tuple(Turn(role, text) for role, text in messages if role not in SYSTEM_ROLES),
        {ASSISTANT: persona} if persona else {},
        tuple(Evidence(text) for text in ((passages,) if isinstance(passages, str) else passages)),
    )
