"""Statistics of a corpus: of dialogues, of exchanges, and of every part of the bundled sample."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia import sample
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Exchange, Json, Message
from tertulia.core.progress import Progress, Silent
from tertulia.core.text import words, words_of_each
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.duplicates import near_duplicates
from tertulia.corpus.load import holds
from tertulia.corpus.parts import CorpusPart, batches, merge_problems, parts_of, read_part
from tertulia.corpus.readers.base import Holds
from tertulia.corpus.rules import URL
from tertulia.corpus.scale import DistinctValues, WorkerConfig, hashes_of, open_engine
from tertulia.corpus.shingles import sorted_unique

_REPEATED_WORDS = 4
"""A turn of fewer words may repeat another one."""
_BATCH = 5000
_NICK = re.compile(r"\[\d\d:\d\d\] <([^>]+)>")


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Counts over dialogues. Means of nothing are nan."""

    dialogues: int
    turns: int
    words: int
    different_words: int
    turns_per_dialogue: float
    words_per_turn: float
    shortest: int
    longest: int
    speakers: int
    personas: int
    duplicate_turns: int
    """Turns of four words or more that repeat an earlier turn word for word."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`; nan becomes null."""
        return _without_nan(asdict(self))


@dataclass(frozen=True, slots=True)
class ExchangeStats:
    """Counts over exchanges. Means of nothing are nan."""

    exchanges: int
    context_turns: float
    """Mean number of turns before the response."""
    words_per_response: float
    evidence: int
    """Exchanges with any evidence."""
    words_per_evidence: float
    duplicate_responses: int
    """Responses that repeat an earlier response word for word."""
    labels: dict[str, int]
    """Frequency of each label, the most frequent first."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`; nan becomes null."""
        return _without_nan(asdict(self))


def corpus_stats(dialogues: Iterable[Dialogue]) -> CorpusStats:
    """Count dialogues, turns and words in one pass; `stats_of` does so for a corpus of any size."""
    with closing(_DialogueTotals()) as totals:
        for batch in batches(dialogues):
            totals.add(_count_dialogues(batch))
        return totals.stats()


def exchange_stats(exchanges: Iterable[Exchange]) -> ExchangeStats:
    """Count exchanges, their evidence and their labels in one pass."""
    with closing(_ExchangeTotals()) as totals:
        for batch in batches(exchanges):
            totals.add(_count_exchanges(batch))
        return totals.stats()


class StatsConfig(ReadConfig, WorkerConfig):
    """Which corpus to compute statistics of."""


class StatsResult(NamedTuple):
    """The statistics of a corpus, and its damaged lines."""

    stats: CorpusStats | ExchangeStats
    problems: Problems


def stats_of(config: StatsConfig, progress: Progress | None = None) -> StatsResult:
    """Statistics of a corpus of any size, read in parts on any engine; of exchanges if it contains those."""
    progress = progress or Silent()
    parts = parts_of(config)
    kind = holds(config.target, split=config.split, format=config.format)
    if kind == "dialogues":
        parts = parts_of(config, wanted="dialogues")
    problems: dict[int, Problems] = {}
    labels: dict[int, Counter[str]] = {}
    progress.step("Counting", total=len(parts))
    with closing(_ExchangeTotals() if kind == "exchanges" else _DialogueTotals()) as totals:
        with open_engine(config, parts) as engine:
            for result in engine.map(_count_part, [(part, kind) for part in parts]):
                totals.add(result.counts)
                problems[result.number], labels[result.number] = result.problems, result.counts.labels
                progress.advance()
        # The order of equally frequent labels is that of the corpus, whichever part was read first.
        totals.counts.labels = sum((labels[part.number] for part in parts), Counter())
        total = Problems()
        for part in parts:
            merge_problems(total, problems[part.number])
        return StatsResult(totals.stats(), total)


@dataclass(slots=True)
class _Counts:
    """What is counted in some items: sums, and hashes of what is counted once."""

    sums: Counter[str] = field(default_factory=Counter)
    shortest: int | None = None
    longest: int = 0
    distinct: dict[str, NDArray[np.uint64]] = field(default_factory=dict)
    labels: Counter[str] = field(default_factory=Counter)

    def add_sums(self, other: "_Counts") -> None:
        """Join with the sums of other items."""
        self.sums.update(other.sums)
        self.labels.update(other.labels)
        self.longest = max(self.longest, other.longest)
        lengths = [length for length in (self.shortest, other.shortest) if length is not None]
        self.shortest = min(lengths, default=None)

    def add(self, other: "_Counts") -> None:
        """Join with the counts of other items."""
        self.add_sums(other)
        for name, values in other.distinct.items():
            own = self.distinct.get(name, values[:0])
            self.distinct[name] = sorted_unique(np.concatenate([own, values]))


class _PartCounts(NamedTuple):
    number: int
    counts: _Counts
    problems: Problems


def _count_part(task: tuple[CorpusPart, Holds]) -> _PartCounts:
    part, kind = task
    problems, counts = Problems(), _Counts()
    for batch in batches(read_part(part, problems), _BATCH):
        exchanges = [item for item in batch if isinstance(item, Exchange)]
        dialogues = [item for item in batch if isinstance(item, Dialogue)]
        counts.add(_count_exchanges(exchanges) if kind == "exchanges" else _count_dialogues(dialogues))
    return _PartCounts(part.number, counts, problems)


def _count_dialogues(dialogues: Sequence[Dialogue]) -> _Counts:
    counts = _Counts()
    lengths = [len(dialogue.turns) for dialogue in dialogues]
    texts = Counter(turn.text for dialogue in dialogues for turn in dialogue.turns)
    vocabulary: set[str] = set()
    long: list[str] = []
    total = long_turns = 0
    for tokens, times in zip(words_of_each(list(texts)), texts.values(), strict=True):
        total += len(tokens) * times
        vocabulary.update(tokens)
        if len(tokens) >= _REPEATED_WORDS:
            long_turns += times
            long.append(" ".join(tokens))
    counts.sums = Counter(dialogues=len(dialogues), turns=sum(lengths), words=total, long_turns=long_turns)
    counts.shortest, counts.longest = min(lengths, default=None), max(lengths, default=0)
    personas = {p.sentences for dialogue in dialogues for p in dialogue.personas.values()}
    counts.distinct = {
        "words": sorted_unique(hashes_of(vocabulary)),
        "long_turns": sorted_unique(hashes_of(long)),
        "speakers": sorted_unique(hashes_of({name for dialogue in dialogues for name in dialogue.speakers})),
        "personas": sorted_unique(hashes_of(json.dumps(sentences) for sentences in personas)),
    }
    return counts


def _count_exchanges(exchanges: Sequence[Exchange]) -> _Counts:
    counts = _Counts()
    grounded = [exchange for exchange in exchanges if exchange.evidence]
    counts.sums = Counter(
        exchanges=len(exchanges),
        context_turns=sum(len(exchange.context) for exchange in exchanges),
        response_words=sum(len(words(exchange.response.text)) for exchange in exchanges),
        evidence=len(grounded),
        evidence_words=sum(len(words(e.text)) for exchange in grounded for e in exchange.evidence),
    )
    counts.distinct = {"responses": sorted_unique(hashes_of({exchange.response.text for exchange in exchanges}))}
    counts.labels = Counter(exchange.label for exchange in exchanges if exchange.label is not None)
    return counts


class _Totals:
    """The counts of all parts so far; what is counted once goes to disk when it gets large."""

    KINDS: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.counts = _Counts()
        self.distinct = {kind: DistinctValues() for kind in self.KINDS}

    def add(self, counts: _Counts) -> None:
        self.counts.add_sums(counts)
        for kind, values in counts.distinct.items():
            self.distinct[kind].add(values)

    def close(self) -> None:
        for values in self.distinct.values():
            values.close()


class _DialogueTotals(_Totals):
    KINDS = ("words", "long_turns", "speakers", "personas")

    def stats(self) -> CorpusStats:
        sums = self.counts.sums
        return CorpusStats(
            dialogues=sums["dialogues"],
            turns=sums["turns"],
            words=sums["words"],
            different_words=self.distinct["words"].count(),
            turns_per_dialogue=_ratio(sums["turns"], sums["dialogues"]),
            words_per_turn=_ratio(sums["words"], sums["turns"]),
            shortest=self.counts.shortest or 0,
            longest=self.counts.longest,
            speakers=self.distinct["speakers"].count(),
            personas=self.distinct["personas"].count(),
            duplicate_turns=sums["long_turns"] - self.distinct["long_turns"].count(),
        )


class _ExchangeTotals(_Totals):
    KINDS = ("responses",)

    def stats(self) -> ExchangeStats:
        sums = self.counts.sums
        return ExchangeStats(
            exchanges=sums["exchanges"],
            context_turns=_ratio(sums["context_turns"], sums["exchanges"]),
            words_per_response=_ratio(sums["response_words"], sums["exchanges"]),
            evidence=sums["evidence"],
            words_per_evidence=_ratio(sums["evidence_words"], sums["evidence"]),
            duplicate_responses=sums["exchanges"] - self.distinct["responses"].count(),
            labels=dict(self.counts.labels.most_common()),
        )


def sample_stats() -> dict[str, Json]:
    """The counts of every part of the sample, as its documentation states them."""
    return {
        "personas": _sample_personas(),
        "dialogues": _sample_dialogues(),
        "threads": _sample_threads(sample.messages()),
        "room": _sample_room(),
        "benchmark": _sample_benchmark(),
        "grounded": _sample_grounded(),
    }


def _sample_personas() -> dict[str, Json]:
    return {"count": len(sample.personas())} | {split: len(sample.personas(split)) for split in sample.SPLITS}


def _sample_dialogues() -> dict[str, Json]:
    stats = corpus_stats(sample.dialogues()).as_json()
    texts = [turn.text for dialogue in sample.dialogues() for turn in dialogue.turns]
    similar = len(near_duplicates(texts))
    splits = {split: len(sample.dialogues(split)) for split in sample.SPLITS}
    return stats | splits | {"near_duplicate_turns": similar, "near_duplicate_rate": round(similar / len(texts), 5)}


def _sample_threads(messages: list[Message]) -> dict[str, Json]:
    parents = {m.id: m.parent for m in messages}
    replies = Counter(m.parent for m in messages if m.parent)
    return {
        "threads": len({m.thread for m in messages}),
        "messages": len(messages),
        "authors": len({m.author for m in messages}),
        "deepest": max(_depth(m.id, parents) for m in messages),
        "answered_twice_or_more": sum(n > 1 for n in replies.values()),
        "with_quotes": sum(any(line.startswith(">") for line in m.text.split("\n")) for m in messages),
        "with_urls": sum(bool(URL.search(m.text)) for m in messages),
        "by_bots": sum("bot" in m.author.lower() for m in messages),
        "rude": sum(bool(m.meta.get("rude")) for m in messages),
    }


def _depth(name: str | None, parents: Mapping[str, str | None]) -> int:
    depth = 0
    while name is not None:
        depth, name = depth + 1, parents[name]
    return depth


def _sample_room() -> dict[str, Json]:
    days = sample.room()
    nicks = {match[1] for day in days for line in day.lines if (match := _NICK.match(line))}
    starts = sum(a == i and not day.lines[i].startswith("===") for day in days for i, a in enumerate(day.answers))
    return {"days": len(days), "lines": sum(len(d.lines) for d in days), "nicks": len(nicks), "threads": starts}


def _sample_benchmark() -> dict[str, Json]:
    items = sample.benchmark()
    lengths = Counter(len(item.context) for item in items)
    kinds = Counter(item.label or "" for item in items)
    return (
        {"count": len(items)} | {f"turns_{n}": lengths[n] for n in (1, 2, 3)} | {"kinds": dict(sorted(kinds.items()))}
    )


def _sample_grounded() -> dict[str, Json]:
    triples = sample.grounded()
    return {"count": len(triples)} | {label: sum(t.label == label for t in triples) for label in sample.LABELS}


def _ratio(total: int, count: int) -> float:
    return total / count if count else float("nan")


def _without_nan(values: dict[str, Json]) -> dict[str, Json]:
    return {name: None if value != value else value for name, value in values.items()}
