"""The adjudication queue: what raters disagree on most, and what a researcher decided about it. Pure.

A decision is an event of the study. It never replaces a label, and a later decision stands beside the earlier one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import NamedTuple

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.store.study_records import LabelRow, StudyEvent
from tertulia.study.config import StudyConfig
from tertulia.study.questions import TIE, Question, allowed_values
from tertulia.web.admin.dashboard import neutral_target, neutral_value

EVENT = "adjudication"
"""The kind of event that a decision is."""
MAX_NOTE = 1000


class ItemKey(NamedTuple):
    """What is decided."""

    unit: str
    target: str
    """Independent of the order of sides."""
    question: str


class Vote(NamedTuple):
    """One rater's answer."""

    participant: str
    assignment: str
    value: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What a researcher decided."""

    who: str
    created: datetime
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class DisputedItem:
    """A target on which raters disagree."""

    key: ItemKey
    bots: tuple[str, ...]
    votes: tuple[Vote, ...]
    disagreement: float
    """Share of pairs of raters who differ; on a scale, their mean distance relative to its length."""
    ambiguous: bool
    """No value has the most votes."""
    decisions: tuple[Decision, ...]
    """The latest one last."""

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Votes by value, the most frequent first."""
        return Counter(vote.value for vote in self.votes).most_common()


def disputed_items(config: StudyConfig, rows: Iterable[LabelRow], events: Sequence[StudyEvent]) -> list[DisputedItem]:
    """Targets with at least two raters who do not agree: undecided first, then ambiguous, then most disagreement."""
    labels: defaultdict[ItemKey, dict[str, LabelRow]] = defaultdict(dict)
    for row in rows:
        question = config.question(row.question)
        if question is not None and question.kind != "text":
            labels[ItemKey(row.unit, neutral_target(row), row.question)][row.participant] = row
    decisions = read_decisions(events)
    items = [
        item
        for key, by_rater in labels.items()
        if len(by_rater) > 1 and (item := _item(config, key, by_rater, decisions.get(key, ()))).disagreement > 0
    ]
    return sorted(items, key=lambda item: (bool(item.decisions), not item.ambiguous, -item.disagreement, item.key))


def read_decisions(events: Sequence[StudyEvent]) -> dict[ItemKey, tuple[Decision, ...]]:
    """The decisions by what was decided, the latest last."""
    decisions: dict[ItemKey, tuple[Decision, ...]] = {}
    for event in events:
        detail: Mapping[str, Json] = event.detail or {}
        key = ItemKey(*(str(detail.get(name, "")) for name in ItemKey._fields))
        value, note = str(detail.get("value", "")), str(detail.get("note", ""))
        decisions[key] = (*decisions.get(key, ()), Decision(event.who, event.created, value, note))
    return decisions


def options(question: Question, bots: Sequence[str]) -> tuple[str, ...]:
    """The values to decide on, independent of the order of sides."""
    match question.kind:
        case "yes-no":
            return ("true", "false")
        case "scale":
            return tuple(str(value) for value in range(question.low, question.high + 1))
        case "side" if len(bots) > 1:
            return (*bots, TIE)
        case "side":
            return ("own", "other", TIE)
        case _:
            return allowed_values(question)


def decision_detail(config: StudyConfig, item: DisputedItem, value: str, note: str) -> dict[str, Json]:
    """What is stored of a decision, after a check of it."""
    question = config.question(item.key.question)
    if question is None or value not in options(question, item.bots):
        raise UsageError("This is not one of the answers.", hint="Choose one of those offered.")
    if len(note) > MAX_NOTE:
        raise UsageError(f"The note is longer than {MAX_NOTE} characters.", hint="Shorten it.")
    return {**item.key._asdict(), "value": value, "note": note, "votes": dict(item.counts)}


def _item(
    config: StudyConfig, key: ItemKey, by_rater: Mapping[str, LabelRow], decisions: tuple[Decision, ...]
) -> DisputedItem:
    question = config.question(key.question)
    assert question is not None
    values = [neutral_value(question, row) for row in by_rater.values()]
    votes = tuple(
        Vote(participant, row.assignment, _text(value))
        for (participant, row), value in zip(by_rater.items(), values, strict=True)
    )
    counts = Counter(vote.value for vote in votes).most_common()
    return DisputedItem(
        key=key,
        bots=next(iter(by_rater.values())).bots,
        votes=votes,
        disagreement=_disagreement(question, values),
        ambiguous=len(counts) > 1 and counts[0][1] == counts[1][1],
        decisions=decisions,
    )


def _disagreement(question: Question, values: Sequence[Json]) -> float:
    pairs = list(combinations(values, 2))
    if question.kind == "scale":
        distances = [abs(float(a) - float(b)) / (question.high - question.low) for a, b in pairs]
    else:
        distances = [float(a != b) for a, b in pairs]
    return sum(distances) / len(distances)


def _text(value: Json) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
