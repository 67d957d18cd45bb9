"""The figures of a study's dashboard, computed from what the store has. Pure: no database, no HTTP.

Only current labels of submitted assignments count. An answer "A" or "B" is translated into the bot that stood there, as
raters saw the two in different orders; so is a question about one side.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.metrics.agreement import Distance, UnitRating, krippendorff_alpha, percent_agreement
from tertulia.metrics.sequential import confidence_sequence, stopping_decision
from tertulia.store.review import AssignmentTimes
from tertulia.store.study_records import LabelRow, ParticipantRecord, Ratings, StudyProgress, UnitCandidate
from tertulia.study.assignment import chosen_index
from tertulia.study.config import StudyConfig
from tertulia.study.estimate import what_it_asks
from tertulia.study.export import chosen_bot, judged_bot, value_as_number
from tertulia.study.quality import QualityFlag, RatedUnit, quality_flags
from tertulia.study.questions import TIE, Question
from tertulia.study.units import Unit

RESAMPLES = 400
"""Of the bootstrap intervals: enough for a screen that is refreshed all the time."""
STEPS = ("consent", "tutorial", "training", "work", "waiting", "done", "screened_out", "withdrawn")
UNITS_SHOWN = 50


class StepCount(NamedTuple):
    """Participants in one step."""

    step: str
    people: int
    dropped_out: int


class Agreement(NamedTuple):
    """How far raters agree on one question."""

    question: str
    percent: Estimate
    alpha: Estimate
    distance: Distance


class SequenceRow(NamedTuple):
    """The confidence sequence of one bot and question."""

    question: str
    bot: str
    estimate: Estimate
    low: float
    """Lower end of the scale."""
    high: float
    may_stop: bool
    """Whether the study's stopping rule is met for this bot."""


class Times(NamedTuple):
    """Minutes per unit."""

    median: float
    p90: float
    n: int


class Spend(NamedTuple):
    """Wages, without the fees of a platform."""

    currency: str
    paid: float
    """Owed to those who have a completion code."""
    open: float
    """Owed to those who are still at work, if they stopped now."""
    planned: float


@dataclass(frozen=True, slots=True)
class Dashboard:
    """All figures."""

    total: Ratings
    by_bot: Mapping[str, Ratings]
    units: tuple[UnitCandidate, ...]
    """Those with the fewest ratings."""
    unit_count: int
    units_by_ratings: Mapping[int, int]
    """How many units have 0, 1, 2 ... ratings."""
    steps: tuple[StepCount, ...]
    participants: int
    agreement: tuple[Agreement, ...]
    times: Times | None
    flags: tuple[QualityFlag, ...]
    spend: Spend
    sequences: tuple[SequenceRow, ...]
    may_stop: bool | None
    """Whether every bot meets the stopping rule; None if the study has none."""
    labels: int


def make_dashboard(
    config: StudyConfig,
    progress: StudyProgress,
    rows: Iterable[LabelRow],
    times: Sequence[AssignmentTimes],
    participants: Sequence[ParticipantRecord],
    identities: Mapping[str, set[str]],
) -> Dashboard:
    """Compute the figures. `times` are in the order in which the assignments ended."""
    labels = list(rows)
    sequences = tuple(_sequences(config, labels, times))
    ruled = [row.may_stop for row in sequences if config.stopping and row.question == config.stopping.question]
    bots = set(progress.by_bot)
    return Dashboard(
        total=progress.total,
        by_bot=progress.by_bot,
        units=tuple(sorted(progress.units, key=lambda unit: (unit.done / unit.wanted, unit.live))[:UNITS_SHOWN]),
        unit_count=len(progress.units),
        units_by_ratings=dict(sorted(Counter(unit.done for unit in progress.units).items())),
        steps=_steps(progress),
        participants=len(participants),
        agreement=tuple(_agreement(config, labels)),
        times=_times(times),
        flags=tuple(_flags(config, labels, times, participants, identities)),
        spend=_spend(config, progress, times, participants),
        sequences=sequences,
        may_stop=(len(ruled) >= len(bots) and bool(ruled) and all(ruled)) if config.stopping else None,
        labels=len(labels),
    )


def neutral_target(label: LabelRow) -> str:
    """What a label is about, independent of the order of sides: "side:A" becomes the bot that stood there."""
    return f"bot:{judged_bot(label)}" if label.target.startswith("side:") else label.target


def neutral_value(question: Question, label: LabelRow) -> Json:
    """An answer, independent of the order of sides: the bot that was preferred, or which of two other things."""
    if question.kind != "side" or label.value == TIE:
        return label.value
    if len(label.bots) > 1:
        return chosen_bot(question, label) or label.value
    index = chosen_index(str(label.value), label.side_order)
    return label.value if index is None else ("own", "other")[index]


def _steps(progress: StudyProgress) -> tuple[StepCount, ...]:
    names = dict.fromkeys((*STEPS, *progress.by_step))
    counts = (StepCount(name, progress.by_step.get(name, 0), progress.dropped_out.get(name, 0)) for name in names)
    return tuple(step for step in counts if step.people or step.step in STEPS[:4] or step.step == "done")


def distance_of(question: Question) -> Distance:
    """How far apart two answers are: scales have an order, other answers are equal or not."""
    return "ordinal" if question.kind == "scale" else "nominal"


def _agreement(config: StudyConfig, labels: Sequence[LabelRow]) -> Iterable[Agreement]:
    for question in config.questions:
        if question.kind == "text":
            continue
        own = [label for label in labels if label.question == question.id]
        ratings = {
            (f"{label.unit} {neutral_target(label)}", label.participant): neutral_value(question, label)
            for label in own
        }
        clusters = {f"{label.unit} {neutral_target(label)}": label.unit for label in own}
        table = [UnitRating(unit, rater, value) for (unit, rater), value in ratings.items()]
        distance = distance_of(question)
        percent = percent_agreement(table, clusters=clusters, resamples=RESAMPLES)
        alpha = krippendorff_alpha(table, distance=distance, clusters=clusters, resamples=RESAMPLES)
        yield Agreement(question.id, percent, alpha, distance)


def _seconds(times: Iterable[AssignmentTimes]) -> dict[str, float]:
    return {
        one.id: (one.ended - one.created).total_seconds() for one in times if one.state == "submitted" and one.ended
    }


def _times(times: Iterable[AssignmentTimes]) -> Times | None:
    minutes = np.array(list(_seconds(times).values())) / 60
    if not len(minutes):
        return None
    return Times(float(np.median(minutes)), float(np.quantile(minutes, 0.9)), len(minutes))


def _flags(
    config: StudyConfig,
    labels: Sequence[LabelRow],
    times: Sequence[AssignmentTimes],
    participants: Sequence[ParticipantRecord],
    identities: Mapping[str, set[str]],
) -> list[QualityFlag]:
    seconds = _seconds(times)
    by_assignment: defaultdict[tuple[str, str, str], list[tuple[str, str, Json]]] = defaultdict(list)
    for label in labels:
        key = (label.participant, label.unit, label.assignment)
        by_assignment[key].append((label.target, label.question, label.value))
    ratings = [
        RatedUnit(participant, unit, tuple(given), seconds.get(assignment))
        for (participant, unit, assignment), given in by_assignment.items()
    ]
    attention = {one.id: checks for one in participants if (checks := attention_checks(one.data))}
    return quality_flags(config, ratings, attention=attention, identities=identities)


def attention_checks(data: Mapping[str, Json]) -> list[bool]:
    """Which attention checks a participant passed, as the study's flow remembers them."""
    return [bool(check["passed"]) for check in data.get("attention", ())]


def _spend(
    config: StudyConfig,
    progress: StudyProgress,
    times: Sequence[AssignmentTimes],
    participants: Sequence[ParticipantRecord],
) -> Spend:
    units = Counter(one.participant for one in times if one.state == "submitted")
    pay = config.pay

    def wage(participant: str) -> float:
        return (pay.minutes_overhead + units[participant] * pay.minutes_per_unit) / 60 * pay.per_hour

    paid = sum(wage(one.id) for one in participants if one.code is not None)
    at_work = sum(wage(one.id) for one in participants if one.code is None and units[one.id])
    planned = what_it_asks(config, [Unit(unit.id, unit.bots, {}) for unit in progress.units])
    return Spend(pay.currency, round(paid, 2), round(at_work, 2), planned.cost)


def _sequences(
    config: StudyConfig, labels: Sequence[LabelRow], times: Sequence[AssignmentTimes]
) -> Iterable[SequenceRow]:
    """One value per assignment (the mean of its answers about a bot), in the order in which they ended."""
    order = {one.id: position for position, one in enumerate(times)}
    for question in config.questions:
        values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for label in labels:
            if label.question == question.id:
                for bot, value in _values_by_bot(question, label):
                    values[bot][label.assignment].append(value)
        low, high = _bounds(question)
        rule = config.stopping if config.stopping and config.stopping.question == question.id else None
        for bot, by_assignment in sorted(values.items()):
            ordered = sorted(by_assignment, key=lambda assignment: order.get(assignment, len(order)))
            means = [float(np.mean(by_assignment[assignment])) for assignment in ordered]
            sequence = confidence_sequence(means, bounds=(low, high))
            stop = rule is not None and stopping_decision(sequence, half_width=rule.half_width, exclude=None).stop
            yield SequenceRow(question.id, bot, sequence.at(len(means)), low, high, stop)


def _bounds(question: Question) -> tuple[float, float]:
    if question.kind == "scale":
        return float(question.low), float(question.high)
    return (-1.0, 1.0) if question.kind == "vote" else (0.0, 1.0)


def _values_by_bot(question: Question, label: LabelRow) -> Iterable[tuple[str, float]]:
    """A choice between two bots is a win (1), a loss (0) or a tie (0.5) of each; other answers are about one bot."""
    if question.kind == "side" and len(label.bots) > 1:
        winner = chosen_bot(question, label)
        for bot in label.bots:
            yield bot, 0.5 if winner is None else float(bot == winner)
    elif question.kind == "side":
        yield (label.bots or ("all",))[0], float(neutral_value(question, label) == "own")
    elif (number := value_as_number(question, label.value)) is not None:
        yield judged_bot(label) or "all", number
