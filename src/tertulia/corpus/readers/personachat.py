"""Persona-Chat (Zhang et al. 2018) as JSON lines: utterances of "first" and "second" in turn, and both personas."""

from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.corpus.readers.base import Reader, check_alternating

SPEAKERS = ("first", "second")


def decode(record: Json) -> Dialogue:
    """One record; a persona that the record lacks is left out."""
    personas = {}
    for speaker in SPEAKERS:
        original = _texts(record, f"{speaker}_speaker_persona_original")
        revised = _texts(record, f"{speaker}_speaker_persona_revised")
        if original or revised:
            personas[speaker] = Persona(sentences=original, revised=revised)
    if "utterances" not in record:
        raise KeyError("utterances")
    turns = tuple(Turn(SPEAKERS[i % 2], text) for i, text in enumerate(_texts(record, "utterances")))
    return Dialogue(id=str(record["id"]), turns=turns, personas=personas)


def _texts(record: dict[str, Json], name: str) -> tuple[str, ...]:
    found = record.get(name) or []
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise TypeError(f"{name!r} must be a list of texts")
    return tuple(found)


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """A dialogue of two speakers that take turns; anything else does not fit the format."""
    check_alternating(dialogue, format="Persona-Chat")
    record: dict[str, Json] = {"id": dialogue.id, "utterances": [t.text for t in dialogue.turns]}
    for name, speaker in zip(SPEAKERS, dialogue.speakers, strict=False):
        persona = dialogue.persona_of(speaker)
        if persona:
            record[f"{name}_speaker_persona_original"] = list(persona.sentences)
            record[f"{name}_speaker_persona_revised"] = list(persona.revised)
    return record


READER = Reader(name="personachat", recognises=lambda record: "utterances" in record, decode=decode, encode=encode)
