"""Signs that a participant did not take part in earnest: flags for a researcher to look at, never a verdict."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from tertulia.core.dialogue import Json
from tertulia.core.text import plural
from tertulia.study.config import StudyConfig
from tertulia.study.questions import Answer, is_asked

FlagKind = Literal["too-fast", "straight-lining", "failed-attention", "duplicate"]
FAST_SHARE = 0.2
"""A participant is too fast if the median unit takes less than this share of the planned time."""
MIN_UNITS = 3
"""Units needed to judge someone's speed."""
MIN_ANSWERS = 10
"""Equal answers needed to call them a straight line."""
COMMON_SHARE = 0.8
"""An answer that others give this often is no sign of a straight line."""


@dataclass(frozen=True, slots=True)
class RatedUnit:
    """What one participant answered about one unit."""

    participant: str
    unit: str
    labels: tuple[tuple[str, str, Json], ...]
    """(target, question, value)."""
    seconds: float | None = None
    """Time from the first view to the submission."""


@dataclass(frozen=True, slots=True)
class QualityFlag:
    """One sign, with its reason."""

    participant: str
    kind: FlagKind
    detail: str


def quality_flags(
    config: StudyConfig,
    ratings: Sequence[RatedUnit],
    *,
    attention: Mapping[str, Sequence[bool]] | None = None,
    identities: Mapping[str, Collection[str]] | None = None,
) -> list[QualityFlag]:
    """All flags, by participant. `attention` says which checks were passed, `identities` has digests of identities."""
    flags = [
        *_too_fast(config, ratings),
        *_straight_lines(config, ratings),
        *_failed_attention(attention or {}),
        *_duplicates(identities or {}),
    ]
    return sorted(flags, key=lambda flag: (flag.participant, flag.kind))


def _too_fast(config: StudyConfig, ratings: Sequence[RatedUnit]) -> Iterable[QualityFlag]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for rating in ratings:
        if rating.seconds is not None:
            times[rating.participant].append(rating.seconds)
    limit = config.pay.minutes_per_unit * 60 * FAST_SHARE
    for participant, seconds in times.items():
        if len(seconds) >= MIN_UNITS and median(seconds) < limit:
            detail = f"median of {median(seconds):.1f} seconds per unit over {len(seconds)} units (limit {limit:.1f})"
            yield QualityFlag(participant, "too-fast", detail)


def _straight_lines(config: StudyConfig, ratings: Sequence[RatedUnit]) -> Iterable[QualityFlag]:
    """The same answer to a question every time, unless it is what nearly everybody answers.

    Implied answers were not chosen and do not count.
    """
    chosen: defaultdict[tuple[str, str], Counter[Answer]] = defaultdict(Counter)
    for rating in ratings:
        for _, name, value in _chosen_labels(config, rating):
            chosen[name, rating.participant][value] += 1
    totals: defaultdict[str, Counter[Answer]] = defaultdict(Counter)
    for (name, _), counts in chosen.items():
        totals[name] += counts
    for (name, participant), counts in chosen.items():
        value, n = counts.most_common(1)[0]
        if len(counts) > 1 or n < MIN_ANSWERS:
            continue
        by_others = totals[name].total() - n
        share = (totals[name][value] - n) / by_others if by_others else 0.0
        if share < COMMON_SHARE:
            detail = f"answered {value!r} to {name!r} {n} times out of {n} (others: {share:.0%})"
            yield QualityFlag(participant, "straight-lining", detail)


def _chosen_labels(config: StudyConfig, rating: RatedUnit) -> Iterable[tuple[str, str, Answer]]:
    for target, name, value in rating.labels:
        question = config.question(name)
        if question is None or question.kind in ("text", "vote"):
            continue
        answers = {other: answer for where, other, answer in rating.labels if where == target}
        if is_asked(question, answers):
            yield target, name, value


def _failed_attention(attention: Mapping[str, Sequence[bool]]) -> Iterable[QualityFlag]:
    for participant, passed in attention.items():
        if failures := sum(not one for one in passed):
            yield QualityFlag(participant, "failed-attention", f"{failures} of {plural(len(passed), 'check')} failed")


def _duplicates(identities: Mapping[str, Collection[str]]) -> Iterable[QualityFlag]:
    """Participants who share an identity, such as the same account on two platforms."""
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for participant, digests in identities.items():
        for digest in {*digests}:
            holders[digest].append(participant)
    shared: defaultdict[str, set[str]] = defaultdict(set)
    for group in holders.values():
        for participant in group:
            shared[participant] |= {*group} - {participant}
    for participant, others in shared.items():
        if others:
            yield QualityFlag(participant, "duplicate", f"shares an identity with {', '.join(sorted(others))}")
