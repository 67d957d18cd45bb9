"""Generates messages like Reddit's: Zipf words, threads of all sizes, quotes, links, repeats, orphans, reply cycles.

The same number and seed give the same bytes with one version of NumPy. Words are made up, so nobody is quoted.
As a script it writes JSON lines: generate_messages.py N FILE [--seed S].
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

ONSETS = "b c d f g h j k l m n p r s t v w z st tr ch sh th pl br".split()
VOWELS = "a e i o u ea ou ai".split()
CODAS = ["", "", "n", "r", "s", "t", "l", "ng", "ck"]
COMMON = (
    "the to and a of i it is that you in for this was but not on with have be they my so are just like if or what at "
    "me can your we do all he as no get people think one would about an more there know from really good how when out"
).split()
OFTEN = (
    "lol|this|thanks!|[deleted]|same here|nice one|what do you mean by that?|I came here to say this|haha yes|"
    "[removed]|came here for this comment|username checks out"
).split("|")
FOREIGN = (
    "café naïve déjà vu|это просто пример текста|これは日本語のテスト です|schöne Grüße|😂😂😂|it’s “quoted” — yes…|"
    "ﬁne ﬂow ½ ™"
).split("|")
ENDS = [".", "!", "?", "", "...", " :)"]
VOCABULARY = 50_000
BLOCK = 100_000
"""Number of messages whose words are drawn at once."""
PIECE = 2_000_000
"""Messages that are made at once: they are in memory."""
BOTS = ("AutoModeratorBot", "xkcd_bot", "RemindMeBot", "Bottle")


class Forest(NamedTuple):
    """Which message replies to which, without texts."""

    thread: np.ndarray
    parent: list[int]
    """Index of the parent; -1 for the first message of a thread."""
    time: np.ndarray


def vocabulary() -> list[str]:
    """Real frequent words, and made-up rare ones that are longer."""
    rng, words = np.random.default_rng(1), dict.fromkeys(COMMON)
    while len(words) < VOCABULARY:
        common, rare = len(words) <= 800, len(words) > 5000
        syllables = 1 + int(rng.random() < 0.55) + int(not common) + int(rare and rng.random() < 0.35)
        parts = rng.integers(0, (len(ONSETS), len(VOWELS), len(CODAS)), (syllables, 3)).tolist()
        words["".join(ONSETS[a] + VOWELS[b] + CODAS[c] for a, b, c in parts)] = None
    return list(words)


def forest(count: int, rng: np.random.Generator) -> Forest:
    """Threads of power-law sizes; most messages reply to a recent one, a quarter to the first; depth at most 40."""
    most = max(2000, count // 80)
    sizes = np.minimum((rng.pareto(0.9, count) * 4 + 1).astype(np.int64), most)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), count)) + 1]
    thread = np.repeat(np.arange(len(sizes)), sizes)[:count]
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)[:count]
    place = np.arange(count) - start
    kind, where = rng.random(count), rng.random(count)
    recent = start + np.maximum(0, place - 1 - (where * np.minimum(place, 8)).astype(int))
    anywhere = start + (where * place).astype(int)
    parent = np.where(kind < 0.25, start, np.where(kind < 0.80, recent, anywhere))
    parent[place == 0] = -1
    opened = rng.integers(1_300_000_000, 1_303_000_000, len(sizes))
    time = opened[thread] + np.minimum(place * 37, 4_000_000) + (where * 20).astype(int)
    return Forest(thread, _limit_depth(parent.tolist(), start.tolist()), time)


def _limit_depth(parent: list[int], start: list[int]) -> list[int]:
    depth = [0] * len(parent)
    for i, above in enumerate(parent):
        if above >= 0:
            depth[i] = depth[above] + 1
            if depth[i] > 40:
                parent[i], depth[i] = start[i], 1
    return parent


def texts(parent: list[int], rng: np.random.Generator) -> list[str]:
    """The texts of all messages."""
    words, count = vocabulary(), len(parent)
    weights = 1 / (np.arange(VOCABULARY) + 2.7) ** 1.05
    shares = np.cumsum(weights / weights.sum())
    lengths = np.clip(np.exp(rng.normal(2.35, 0.95, count)).astype(int), 1, 600)
    kinds, lots = rng.random(count).tolist(), rng.integers(0, 1 << 30, count).tolist()
    written: list[str] = []
    for first in range(0, count, BLOCK):
        sizes = lengths[first : first + BLOCK].tolist()
        drawn = np.searchsorted(shares, rng.random(sum(sizes))).clip(0, VOCABULARY - 1).tolist()
        offset = 0
        for i, size in enumerate(sizes, first):
            own = [words[w] for w in drawn[offset : offset + size]]
            offset += size
            above = written[parent[i]] if parent[i] >= 0 else ""
            written.append(_text(kinds[i], lots[i], own, above, words))
    return written


def _text(kind: float, lot: int, own: list[str], above: str, words: list[str]) -> str:
    """One message; `kind`, a number from 0 to 1, decides what is special about it, if anything."""
    if kind < 0.05:
        return OFTEN[int((lot % 1000 / 1000) ** 2.2 * len(OFTEN))]
    for j in range(7 + lot % 5, len(own) if len(own) > 12 else 0, 13):
        own[j] += ",.?!"[j % 4]
    text = " ".join(own).capitalize() + ENDS[lot % 6]
    if kind < 0.10:
        links = (
            f" https://example.com/r/{lot:x}",
            f" see www.foo{lot % 999}.org",
            f" [link](http://imgur.com/{lot:x})",
        )
        return text + links[lot % 3]
    if kind < 0.13:
        return f"{lot} {lot % 97}-{lot % 13} = {lot % 1009} ({lot % 100}%) {text[:40]}"
    if kind < 0.16:
        return f"{text} {FOREIGN[lot % len(FOREIGN)]}"
    if kind < 0.24 and above:  # quotes some lines of the parent and replies
        return (
            "\n".join(f">{' ' if lot % 5 else ''}{line}" for line in above.split("\n")[: 1 + lot % 3]) + f"\n\n{text}"
        )
    if kind < 0.25 and above:  # repeats the parent
        return f"{above} {words[lot % 50]}"
    if kind < 0.27:
        return f"{text}\n\n" + " ".join(words[(lot >> shift) % 3000] for shift in range(1, 9))
    if kind < 0.28:  # quotes what the parent never said
        return f"> {text}\nI {words[lot % 700]}"
    return "" if kind < 0.2802 else text


def authors(count: int, rng: np.random.Generator) -> list[str]:
    """A few authors write much, most little; one in 67 is a bot, or named like one."""
    people = max(1000, count // 15)
    words = vocabulary()
    names = [f"{words[60 + (i * 7919) % (VOCABULARY - 60)]}{i}" for i in range(people)]
    names[::67] = [f"{BOTS[i % 4]}{i}" for i in range(0, people, 67)]
    return [names[i] for i in ((rng.pareto(0.8, count) * 50).astype(np.int64) % people).tolist()]


def records(count: int, seed: int = 7, prefix: str = "") -> Iterator[dict[str, object]]:
    """The messages sorted by time; for four in a thousand the parent is missing, a few reply to themselves.

    Ids and threads begin with the prefix, behind a letter.
    """
    rng = np.random.default_rng(seed)
    trees = forest(count, rng)
    written, names = texts(trees.parent, rng), authors(count, rng)
    fate = rng.random(count).tolist()
    threads, times = trees.thread.tolist(), trees.time.tolist()
    for i in np.argsort(trees.time, kind="stable").tolist():
        above = trees.parent[i]
        known = f"c{prefix}{i if fate[i] > 0.9998 else above:08x}"
        parent = None if above < 0 else f"x{prefix}{i:08x}" if fate[i] < 0.004 else known
        yield {
            "id": f"c{prefix}{i:08x}",
            "parent": parent,
            "thread": f"t{prefix}{threads[i]:07x}",
            "author": names[i],
        } | {
            "text": written[i],
            "time": times[i],
        }


def write(count: int, path: Path, seed: int = 7) -> None:
    """Write a corpus as JSON lines. A large one is a sequence of corpora of `PIECE` messages, as months would be."""
    with path.open("wb") as file:
        for piece, start in enumerate(range(0, count, PIECE)):
            prefix = f"{piece:02d}" if count > PIECE else ""
            for record in records(min(PIECE, count - start), seed + piece, prefix):
                file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="number of messages")
    parser.add_argument("file", type=Path, help="file to write")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    write(args.count, args.file, args.seed)
