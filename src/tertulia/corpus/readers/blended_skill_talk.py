"""BlendedSkillTalk (Smith et al. 2020): dialogues with two personas; a short form, and ParlAI's original.

The short form has `dialogue`, `speaker persona`, `listener persona`. The original has `dialog` (pairs of 0 or 1 and a
text) and `personas`; the context of the conversation (a topic, two utterances of an older corpus) is kept in `meta`.
"""

from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.corpus.readers.base import Reader, check_alternating, content_id, text_of, texts_of

SPEAKERS = ("speaker", "listener")
_CONTEXT = ("context_dataset", "additional_context", "free_turker_utterance", "guided_turker_utterance")


def decode(record: Json) -> Dialogue:
    """Decode a record of either form."""
    if "dialog" in record:
        turns = [(_speaker(pair[0]), text_of(pair[1], "dialog")) for pair in record["dialog"]]
        personas = [texts_of(lines, "personas") for lines in record["personas"]]
    else:
        turns = [(SPEAKERS[i % 2], t) for i, t in enumerate(texts_of(record["dialogue"], "dialogue"))]
        personas = [texts_of(record.get(f"{name} persona") or [], f"{name} persona") for name in SPEAKERS]
    return Dialogue(
        id=content_id(*(text for _, text in turns), *(line for lines in personas for line in lines)),
        turns=tuple(Turn(speaker, text) for speaker, text in turns),
        personas={name: Persona(lines) for name, lines in zip(SPEAKERS, personas, strict=False) if lines},
        meta={name: record[name] for name in _CONTEXT if record.get(name)},
    )


def _speaker(number: Json) -> str:
    if number not in (0, 1):
        raise ValueError(f"expected speaker 0 or 1, got {number!r}")
    return SPEAKERS[int(number)]


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode a dialogue of two who alternate, in the short form."""
    check_alternating(dialogue, format="BlendedSkillTalk")
    speakers = dialogue.speakers
    first, second = (*speakers, *(name for name in SPEAKERS if name not in speakers))[:2]
    return {
        "dialogue": [turn.text for turn in dialogue.turns],
        "speaker persona": _sentences(dialogue, first),
        "listener persona": _sentences(dialogue, second),
    }


def _sentences(dialogue: Dialogue, speaker: str) -> list[str]:
    persona = dialogue.persona_of(speaker)
    return list(persona.sentences) if persona else []


READER = Reader(
    name="blended-skill-talk",
    recognises=lambda record: (
        ("dialogue" in record and "speaker persona" in record) or ("dialog" in record and "personas" in record)
    ),
    decode=decode,
    encode=encode,
)
