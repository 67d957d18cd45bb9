"""BlendedSkillTalk (Smith et al. 2020): two personas and what the two said; the short form, and ParlAI's original.

The short form is `dialogue`, `speaker persona`, `listener persona`. The original has `dialog` (pairs of 0 or 1 and a
text) and `personas`; where its conversation starts from (a topic, two utterances of an older corpus) stays in `meta`.
"""

from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.corpus.readers.base import Reader, check_alternating, name_of, text_of, texts_of

SPEAKERS = ("speaker", "listener")
_CONTEXT = ("context_dataset", "additional_context", "free_turker_utterance", "guided_turker_utterance")


def decode(record: Json) -> Dialogue:
    """One record of either form."""
    if "dialog" in record:
        said = [(_who(pair[0]), text_of(pair[1], "dialog")) for pair in record["dialog"]]
        personas = [texts_of(lines, "personas") for lines in record["personas"]]
    else:
        said = [(SPEAKERS[i % 2], t) for i, t in enumerate(texts_of(record["dialogue"], "dialogue"))]
        personas = [texts_of(record.get(f"{who} persona") or [], f"{who} persona") for who in SPEAKERS]
    return Dialogue(
        id=name_of(*(text for _, text in said), *(line for lines in personas for line in lines)),
        turns=tuple(Turn(who, text) for who, text in said),
        personas={who: Persona(lines) for who, lines in zip(SPEAKERS, personas, strict=False) if lines},
        meta={name: record[name] for name in _CONTEXT if record.get(name)},
    )


def _who(number: Json) -> str:
    if number not in (0, 1):
        raise ValueError(f"a speaker is 0 or 1, not {number!r}")
    return SPEAKERS[int(number)]


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """The short form: two speakers who alternate."""
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
