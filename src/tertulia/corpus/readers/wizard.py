"""Wizard of Wikipedia (Dinan et al. 2019): a `wizard` who reads, and an `apprentice` who asks.

Passages become the evidence, each once, their sentences on lines of their own; a turn's `passages` (`meta`) are the ids
of those retrieved for it, `checked_sentence` and `checked_passage` what the wizard marked. The persona a topic was
chosen from is nobody's in particular, so it stays in the dialogue's `meta`.
"""

from tertulia.core.dialogue import Dialogue, Evidence, Json, Turn
from tertulia.core.errors import DataError
from tertulia.corpus.readers.base import Reader, name_of, objects_of, text_of, texts_of

TOPIC = "topic"
"""The id of the passage about the chosen topic."""
_META = ("chosen_topic", "persona", "wizard_eval")
_TURN_META = {
    "checked_sentence": "checked_sentence",
    "checked_passage": "checked_passage",
    "retrieved_topics": "retrieved_topics",
    "candidate_responses": "candidates",
}


class Passages:
    """The passages of a dialogue, each with one id however often it was retrieved."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], str] = {}
        self.evidence: list[Evidence] = []

    def add(self, title: str, sentences: tuple[str, ...], name: str = "") -> str:
        """The id of a passage, new or known."""
        text = "\n".join(sentences)
        if (title, text) not in self._ids:
            self._ids[title, text] = name or f"p{len(self.evidence)}"
            self.evidence.append(Evidence(text, source=title, id=self._ids[title, text]))
        return self._ids[title, text]


def decode(record: Json) -> Dialogue:
    """One dialogue of the published JSON."""
    passages = Passages()
    topic = text_of(record["chosen_topic"], "chosen_topic")
    if about := texts_of(record.get("chosen_topic_passage") or [], "chosen_topic_passage"):
        passages.add(topic, about, TOPIC)
    turns = tuple(_turn(entry, passages) for entry in objects_of(record["dialog"], "dialog"))
    return Dialogue(
        id=name_of(topic, *(turn.text for turn in turns)),
        turns=turns,
        evidence=tuple(passages.evidence),
        meta={name: record[name] for name in _META if record.get(name) is not None},
    )


def _turn(entry: dict[str, Json], passages: Passages) -> Turn:
    meta = {name: entry[field] for field, name in _TURN_META.items() if entry.get(field)}
    retrieved = [
        passages.add(title, texts_of(sentences, "retrieved_passages"))
        for passage in objects_of(entry.get("retrieved_passages") or [], "retrieved_passages")
        for title, sentences in passage.items()
    ]
    if retrieved:
        meta["passages"] = retrieved
    return Turn(_who(text_of(entry["speaker"], "speaker")), text_of(entry["text"], "text"), meta=meta)


def _who(speaker: str) -> str:
    """`0_Wizard` is who speaks first, `1_Apprentice` who speaks second; the number says nothing new."""
    for role in ("wizard", "apprentice"):
        if role in speaker.lower():
            return role
    raise ValueError(f"a speaker is a wizard or an apprentice, not {speaker!r}")


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """A dialogue of a wizard and an apprentice; of any other two, who speaks second is the wizard."""
    speakers = dialogue.speakers
    if len(speakers) > 2:
        raise DataError(f"The dialogue {dialogue.id!r} does not fit: Wizard of Wikipedia holds two speakers.")
    named = set(speakers) <= {"wizard", "apprentice"}
    roles = {s: s if named else ("apprentice", "wizard")[i] for i, s in enumerate(speakers)}
    known = {e.id: {e.source: e.text.split("\n")} for e in dialogue.evidence}
    topic = next((e for e in dialogue.evidence if e.id == TOPIC), None)
    return {name: dialogue.meta[name] for name in _META if name in dialogue.meta} | {
        "chosen_topic": dialogue.meta.get("chosen_topic") or (topic.source if topic else ""),
        "chosen_topic_passage": topic.text.split("\n") if topic else [],
        "dialog": [
            {"speaker": f"{speakers.index(turn.speaker)}_{roles[turn.speaker].title()}", "text": turn.text}
            | {field: turn.meta[name] for field, name in _TURN_META.items() if name in turn.meta}
            | {"retrieved_passages": [known[name] for name in turn.meta.get("passages", []) if name in known]}
            for turn in dialogue.turns
        ],
    }


READER = Reader(
    name="wizard",
    recognises=lambda record: "dialog" in record and "chosen_topic" in record,
    decode=decode,
    encode=encode,
)
