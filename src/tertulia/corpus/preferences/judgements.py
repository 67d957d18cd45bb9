"""From single judgements of people to preferences: votes are counted, ratings averaged, and ties dropped.

People disagree. So several votes on the same two replies become one pair, which the majority decides. Ratings of a
reply (SSA labels, Likert scales, up and down votes) are averaged; where several replies to one context were rated, each
two of them that differ are a pair, and a reply that is in no pair is wanted or not by the threshold of its question.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Literal, NamedTuple

from tertulia.core.dialogue import Dialogue
from tertulia.corpus.preferences.values import LabelledReply, PreferencePair, PreferenceSet, context_key

Outcome = Literal["first", "second", "tie", "both bad"]
DEFAULT_THRESHOLDS: Mapping[str, float] = {"yes-no": 0.5, "vote": 0.0}
"""By kind of question; where a scale ends is not part of an export, so scales need a threshold of their own."""


class ReplyChoice(NamedTuple):
    """One person's choice between two replies to the same context."""

    context: Dialogue
    speaker: str
    first: str
    second: str
    outcome: Outcome


class ReplyRating(NamedTuple):
    """One person's answer about one reply, as a number."""

    context: Dialogue
    speaker: str
    reply: str
    question: str
    kind: str
    """Of the question: yes-no, scale or vote."""
    value: float


@dataclass(slots=True)
class _Rated:
    """A reply, and what it got by question."""

    context: Dialogue
    speaker: str
    reply: str
    values: dict[str, list[float]]
    kinds: dict[str, str]

    def means(self) -> dict[str, float]:
        return {question: fmean(values) for question, values in self.values.items()}


def preferences_of(
    choices: Sequence[ReplyChoice], ratings: Sequence[ReplyRating], thresholds: Mapping[str, float]
) -> PreferenceSet:
    """The preferences that judgements amount to; `thresholds` are by question."""
    pairs, tied = _majorities(choices)
    rated_pairs, replies, counts = _from_ratings(_collect(ratings), thresholds)
    counts["tied"] += tied
    return PreferenceSet((*pairs, *rated_pairs), tuple(replies), counts)


def _majorities(choices: Iterable[ReplyChoice]) -> tuple[list[PreferencePair], int]:
    """One pair for each two replies, and the number of those that are tied."""
    balance: dict[tuple[object, str, str], int] = {}
    example: dict[tuple[object, str, str], ReplyChoice] = {}
    for choice in choices:
        swapped = choice.second < choice.first
        low, high = sorted((choice.first, choice.second))
        key = (context_key(LabelledReply(choice.context, choice.speaker, "", True)), low, high)
        vote = {"first": 1, "second": -1}.get(choice.outcome, 0)
        balance[key] = balance.get(key, 0) + (-vote if swapped else vote)
        example.setdefault(key, choice._replace(first=low, second=high))
    pairs = []
    for asked, votes in balance.items():
        context, speaker, low, high, _ = example[asked]
        if votes:
            chosen, rejected = (low, high) if votes > 0 else (high, low)
            pairs.append(PreferencePair(context, speaker, chosen, rejected))
    return pairs, len(balance) - len(pairs)


def _collect(ratings: Iterable[ReplyRating]) -> dict[object, dict[str, _Rated]]:
    """Rated replies by context."""
    contexts: dict[object, dict[str, _Rated]] = {}
    for one in ratings:
        key = context_key(LabelledReply(one.context, one.speaker, "", True))
        replies = contexts.setdefault(key, {})
        rated = replies.setdefault(one.reply, _Rated(one.context, one.speaker, one.reply, {}, {}))
        rated.values.setdefault(one.question, []).append(one.value)
        rated.kinds[one.question] = one.kind
    return contexts


def _from_ratings(
    contexts: Mapping[object, Mapping[str, _Rated]], thresholds: Mapping[str, float]
) -> tuple[list[PreferencePair], list[LabelledReply], dict[str, int]]:
    pairs: list[PreferencePair] = []
    replies: list[LabelledReply] = []
    counts = {"tied": 0, "without_threshold": 0}
    for rated in contexts.values():
        paired: set[str] = set()
        for first, second in combinations(rated.values(), 2):
            difference = _difference(first.means(), second.means())
            if not difference:
                counts["tied"] += 1
                continue
            better, worse = (first, second) if difference > 0 else (second, first)
            pairs.append(PreferencePair(better.context, better.speaker, better.reply, worse.reply))
            paired |= {better.reply, worse.reply}
        for alone in (one for one in rated.values() if one.reply not in paired):
            above = _above_threshold(alone, thresholds)
            if above:
                replies.append(LabelledReply(alone.context, alone.speaker, alone.reply, above > 0))
            else:
                counts["without_threshold" if above is None else "tied"] += 1
    return pairs, replies, counts


def _difference(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The mean difference over the questions that both were asked."""
    shared = [first[question] - second[question] for question in first if question in second]
    return fmean(shared) if shared else 0.0


def _above_threshold(rated: _Rated, thresholds: Mapping[str, float]) -> float | None:
    """How far a reply is above the thresholds of its questions, on average; None if no question has one."""
    limits = {q: thresholds.get(q, DEFAULT_THRESHOLDS.get(kind)) for q, kind in rated.kinds.items()}
    above = [mean - limit for q, mean in rated.means().items() if (limit := limits[q]) is not None]
    return fmean(above) if above else None
