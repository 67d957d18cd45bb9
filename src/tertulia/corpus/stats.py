"""Statistics of a corpus: of dialogues, of exchanges, and of every part of the bundled sample."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Exchange, Json, Message
from tertulia.core.text import words
from tertulia.corpus.duplicates import near_duplicates
from tertulia.corpus.rules import URL

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
    """Count dialogues, turns and words in one pass."""
    lengths: list[int] = []
    turn_words: list[int] = []
    vocabulary: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    speakers: set[str] = set()
    personas: set[tuple[str, ...]] = set()
    for dialogue in dialogues:
        lengths.append(len(dialogue.turns))
        speakers.update(dialogue.speakers)
        personas.update(p.sentences for p in dialogue.personas.values())
        for turn in dialogue.turns:
            tokens = words(turn.text)
            turn_words.append(len(tokens))
            vocabulary.update(tokens)
            if len(tokens) >= 4:
                texts[" ".join(tokens)] += 1
    return CorpusStats(
        dialogues=len(lengths),
        turns=sum(lengths),
        words=sum(turn_words),
        different_words=len(vocabulary),
        turns_per_dialogue=_mean(lengths),
        words_per_turn=_mean(turn_words),
        shortest=min(lengths, default=0),
        longest=max(lengths, default=0),
        speakers=len(speakers),
        personas=len(personas),
        duplicate_turns=sum(count - 1 for count in texts.values()),
    )


def exchange_stats(exchanges: Iterable[Exchange]) -> ExchangeStats:
    """Count exchanges, their evidence and their labels in one pass."""
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


def _mean(values: list[int]) -> float:
    return fmean(values) if values else float("nan")


def _without_nan(values: dict[str, Json]) -> dict[str, Json]:
    return {name: None if value != value else value for name, value in values.items()}
