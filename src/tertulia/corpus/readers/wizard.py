"""Wizard of Wikipedia (Dinan et al. 2019): a `wizard` who reads passages, and an `apprentice` who asks.

Passages become the evidence, each once, with one sentence per line; a turn's `passages` (`meta`) are the ids of those
retrieved for it, `checked_sentence` and `checked_passage` what the wizard selected. The persona from which the topic
was chosen belongs to neither speaker, so it is kept in the dialogue's `meta`.
"""

from tertulia.core.dialogue import Dialogue, Evidence, Json, Turn
from tertulia.corpus.readers.base import Reader, content_id, misfit, objects_of, text_of, texts_of

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
    """The passages of a dialogue; a passage retrieved several times has one id."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], str] = {}
        self.evidence: list[Evidence] = []

    def add(self, title: str, sentences: tuple[str, ...], name: str = "") -> str:
        """Add a passage if it is new; returns its id."""
        text = "\n".join(sentences)
        if (title, text) not in self._ids:
            self._ids[title, text] = name or f"p{len(self.evidence)}"
            self.evidence.append(Evidence(text, source=title, id=self._ids[title, text]))
        return self._ids[title, text]


def decode(record: Json) -> Dialogue:
    """Decode a dialogue of the published JSON."""
    passages = Passages()
    topic = text_of(record["chosen_topic"], "chosen_topic")
    if about := texts_of(record.get("chosen_topic_passage") or [], "chosen_topic_passage"):
        passages.add(topic, about, TOPIC)
    turns = tuple(_turn(entry, passages) for entry in objects_of(record["dialog"], "dialog"))
    return Dialogue(
        id=content_id(topic, *(turn.text for turn in turns)),
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
    return Turn(_role(text_of(entry["speaker"], "speaker")), text_of(entry["text"], "text"), meta=meta)


def _role(speaker: str) -> str:
    """The role of a speaker such as `0_Wizard`; the number is only the order in which they speak."""
    for role in ("wizard", "apprentice"):
        if role in speaker.lower():
            return role
    raise ValueError(f"expected a wizard or an apprentice as speaker, got {speaker!r}")


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode a dialogue of a wizard and an apprentice; of two others, who speaks second is the wizard."""
    speakers = dialogue.speakers
    if len(speakers) > 2:
        raise misfit(dialogue.id, "Wizard of Wikipedia has two speakers")
    named = set(speakers) <= {"wizard", "apprentice"}
    roles = {s: s if named else ("apprentice", "wizard")[i] for i, s in enumerate(speakers)}
    passages = {e.id: {e.source: e.text.split("\n")} for e in dialogue.evidence}
    topic = next((e for e in dialogue.evidence if e.id == TOPIC), None)
    return {name: dialogue.meta[name] for name in _META if name in dialogue.meta} | {
        "chosen_topic": dialogue.meta.get("chosen_topic") or (topic.source if topic else ""),
        "chosen_topic_passage": topic.text.split("\n") if topic else [],
        "dialog": [
            {"speaker": f"{speakers.index(turn.speaker)}_{roles[turn.speaker].title()}", "text": turn.text}
            | {field: turn.meta[name] for field, name in _TURN_META.items() if name in turn.meta}
            | {"retrieved_passages": [passages[name] for name in turn.meta.get("passages", []) if name in passages]}
            for turn in dialogue.turns
        ],
    }


READER = Reader(
    name="wizard",
    recognises=lambda record: "dialog" in record and "chosen_topic" in record,
    decode=decode,
    encode=encode,
)
