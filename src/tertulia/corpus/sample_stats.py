"""What is in the bundled sample, part by part: the counts that its documentation promises."""

import re
from collections import Counter
from collections.abc import Mapping

from tertulia import sample
from tertulia.core.dialogue import Json, Message
from tertulia.corpus.duplicates import near_duplicates
from tertulia.corpus.rules import URL
from tertulia.corpus.stats import corpus_stats

NICK = re.compile(r"\[\d\d:\d\d\] <([^>]+)>")


def sample_stats() -> dict[str, Json]:
    """All parts."""
    return {
        "personas": _personas(),
        "dialogues": _dialogues(),
        "threads": _threads(sample.messages()),
        "room": _room(),
        "benchmark": _benchmark(),
        "grounded": _grounded(),
    }


def _personas() -> dict[str, Json]:
    return {"count": len(sample.personas())} | {split: len(sample.personas(split)) for split in sample.SPLITS}


def _dialogues() -> dict[str, Json]:
    stats = corpus_stats(sample.dialogues()).as_json()
    texts = [turn.text for dialogue in sample.dialogues() for turn in dialogue.turns]
    alike = len(near_duplicates(texts))
    splits = {split: len(sample.dialogues(split)) for split in sample.SPLITS}
    return stats | splits | {"near_duplicate_turns": alike, "near_duplicate_rate": round(alike / len(texts), 5)}


def _threads(messages: list[Message]) -> dict[str, Json]:
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


def _room() -> dict[str, Json]:
    days = sample.room()
    nicks = {match[1] for day in days for line in day.lines if (match := NICK.match(line))}
    starts = sum(a == i and not day.lines[i].startswith("===") for day in days for i, a in enumerate(day.answers))
    return {"days": len(days), "lines": sum(len(d.lines) for d in days), "nicks": len(nicks), "threads": starts}


def _benchmark() -> dict[str, Json]:
    items = sample.benchmark()
    lengths = Counter(len(item.context) for item in items)
    kinds = Counter(item.label or "" for item in items)
    return (
        {"count": len(items)} | {f"turns_{n}": lengths[n] for n in (1, 2, 3)} | {"kinds": dict(sorted(kinds.items()))}
    )


def _grounded() -> dict[str, Json]:
    triples = sample.grounded()
    return {"count": len(triples)} | {label: sum(t.label == label for t in triples) for label in sample.LABELS}
