"""Persona-Chat (Zhang et al. 2018) as JSON lines: alternating utterances of "first" and "second", both personas."""

from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.corpus.readers.base import Reader, check_alternating, texts_of

SPEAKERS = ("first", "second")


def decode(record: Json) -> Dialogue:
    """Decode a record; personas may be missing."""
    personas = {}
    for speaker in SPEAKERS:
        original = _optional_texts(record, f"{speaker}_speaker_persona_original")
        revised = _optional_texts(record, f"{speaker}_speaker_persona_revised")
        if original or revised:
            personas[speaker] = Persona(sentences=original, revised=revised)
    utterances = texts_of(record["utterances"] or [], "utterances")
    turns = tuple(Turn(SPEAKERS[i % 2], text) for i, text in enumerate(utterances))
    return Dialogue(id=str(record["id"]), turns=turns, personas=personas)


def _optional_texts(record: dict[str, Json], name: str) -> tuple[str, ...]:
    return texts_of(record.get(name) or [], name)


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode a dialogue of two who alternate; no other dialogue fits the format."""
    check_alternating(dialogue, format="Persona-Chat")
    record: dict[str, Json] = {"id": dialogue.id, "utterances": [t.text for t in dialogue.turns]}
    for name, speaker in zip(SPEAKERS, dialogue.speakers, strict=False):
        persona = dialogue.persona_of(speaker)
        if persona:
            record[f"{name}_speaker_persona_original"] = list(persona.sentences)
            record[f"{name}_speaker_persona_revised"] = list(persona.revised)
    return record


READER = Reader(name="personachat", recognises=lambda record: "utterances" in record, decode=decode, encode=encode)
