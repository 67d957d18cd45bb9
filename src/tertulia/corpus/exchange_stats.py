"""What a set of exchanges is like, in a few counts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean

from tertulia.core.dialogue import Exchange, Json
from tertulia.core.text import words


@dataclass(frozen=True, slots=True)
class ExchangeStats:
    """Counts over exchanges. Means of nothing are nan."""

    exchanges: int
    context_turns: float
    """Turns before the response, on average."""
    words_per_response: float
    evidence: int
    """Exchanges with any evidence."""
    words_per_evidence: float
    duplicate_responses: int
    """Responses that stood somewhere before, word for word."""
    labels: dict[str, int]
    """How often each label was given, the most frequent first."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`; nan becomes null."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


def exchange_stats(exchanges: Iterable[Exchange]) -> ExchangeStats:
    """Count in one pass."""
    context: list[int] = []
    response_words: list[int] = []
    evidence_words: list[int] = []
    labels: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    for exchange in exchanges:
        context.append(len(exchange.context))
        response_words.append(len(words(exchange.response.text)))
        texts[exchange.response.text] += 1
        if exchange.evidence:
            evidence_words.append(sum(len(words(e.text)) for e in exchange.evidence))
        if exchange.label is not None:
            labels[exchange.label] += 1
    return ExchangeStats(
        exchanges=len(context),
        context_turns=_mean(context),
        words_per_response=_mean(response_words),
        evidence=len(evidence_words),
        words_per_evidence=_mean(evidence_words),
        duplicate_responses=sum(count - 1 for count in texts.values()),
        labels=dict(labels.most_common()),
    )


def _mean(values: list[int]) -> float:
    return fmean(values) if values else float("nan")
