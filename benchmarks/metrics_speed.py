"""Speed of the metrics of replies and conversations, and where the time goes.

Two parts. Embedding metrics (average, extrema, greedy) against the obvious implementation, which takes one pair after
the other with a few NumPy calls each: both compute all three metrics and alternate in one run; their figures must agree
to 1e-6. Once both get texts, once words that are looked up already. The obvious implementation cuts each text into
words once, for all three metrics, as ours does; that is little of its time and half of ours. Then all metrics of `judge
conversations`, from texts to scores, with the default resources: conversations are made of the turns of --data in their
order, with a word and a number added to each turn, so that no text is encoded for another. Time is CPU time, which is
robust on a busy machine, beside wall time.
"""

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from common import finish
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.progress import Silent
from tertulia.core.text import words
from tertulia.corpus.load import load_dialogues
from tertulia.judge.conversations import (
    CONVERSATION_METRICS,
    COPIED,
    MORE_METRICS,
    judged_conversations,
    prepare_resources,
    score_conversations,
)
from tertulia.judge.resources import load_resources, word_vectors
from tertulia.metrics.embeddings import NAMES, TextPairs, WordVectors
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.registry import metric_named

Floats = NDArray[np.float64]


def look_up(vectors: WordVectors, text: str) -> list[int]:
    """The rows of a text's words."""
    return [vectors.index[word] for word in words(text) if word in vectors.index]


def cosine(one: Floats, other: Floats) -> float:
    """Of two vectors; 0 if one is zero."""
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / size if size else 0.0


def unit(vectors: Floats) -> Floats:
    """Rows of unit length."""
    sizes = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(sizes > 0, sizes, 1), dtype=np.float64)


def average(one: Floats, other: Floats) -> float:
    """Of one pair."""
    return cosine(one.mean(axis=0), other.mean(axis=0))


def extrema(one: Floats, other: Floats) -> float:
    """Of one pair."""

    def extreme(vectors: Floats) -> Floats:
        most, least = vectors.max(axis=0), vectors.min(axis=0)
        return np.asarray(np.where(most > np.abs(least), most, least), dtype=np.float64)

    return cosine(extreme(one), extreme(other))


def greedy(one: Floats, other: Floats) -> float:
    """Of one pair."""
    cosines = unit(one) @ unit(other).T
    return float((cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2)


def peer(batch: Sequence[ReplyExample], vectors: WordVectors, rows: Mapping[str, list[int]]) -> Floats:
    """All three metrics, pair by pair: (3, pairs). Texts that are not in `rows` are cut into words, once."""
    columns = []
    for example in batch:
        both = [rows.get(text) or look_up(vectors, text) for text in example[:2]]
        one, other = (np.asarray(vectors.matrix[own], dtype=np.float64) for own in both)
        defined = len(one) and len(other)
        columns.append([measure(one, other) if defined else np.nan for measure in (average, extrema, greedy)])
    return np.array(columns).T


def batched(batch: Sequence[ReplyExample], vectors: WordVectors) -> Floats:
    """All three metrics by the registry."""
    return np.array([metric_named(name).measure(batch, {"word_vectors": vectors})[0] for name in NAMES])


def cpu(work: Callable[[], Floats]) -> tuple[float, Floats]:
    """CPU seconds of this process, and the result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def compare_embeddings(
    texts: Sequence[str], vectors: WordVectors, repeats: int, label: str, *, from_texts: bool
) -> dict[str, float]:
    """Ours and the peer, alternating."""
    half = len(texts) // 2
    batch = [ReplyExample(a, b) for a, b in zip(texts[:half], texts[half : 2 * half], strict=True)]
    rows = {} if from_texts else {text: look_up(vectors, text) for text in texts}
    ours, baseline = [], []
    difference = 0.0
    for _ in range(repeats):
        fresh = WordVectors(vectors.index, vectors.matrix)  # remembers nothing of earlier batches
        if not from_texts:
            fresh.encode(TextPairs.of((one.reply, one.reference) for one in batch).texts)
        seconds, figures = cpu(partial(batched, batch, fresh))
        ours.append(seconds)
        seconds, expected = cpu(partial(peer, batch, vectors, rows))
        baseline.append(seconds)
        both = ~np.isnan(expected)
        assert (both == ~np.isnan(figures)).all()
        difference = max(difference, float(np.abs(figures - expected)[both].max()))
    ratios = [theirs / own for theirs, own in zip(baseline, ours, strict=True)]
    print(
        f"{label:38} {len(batch):>7,} pairs: ours {median(ours) / half * 1e6:6.1f} us a pair, "
        f"peer {median(baseline) / half * 1e6:6.1f}; {median(ratios):5.1f} times as fast "
        f"(best of {repeats}: {max(ratios):.1f}); largest difference {difference:.1e}"
    )
    return {"speedup": median(ratios), "difference": difference, "us_per_pair": median(ours) / half * 1e6}


def make_conversations(data: str, count: int, turns: int, seed: int) -> list[tuple[str, Dialogue]]:
    """So many conversations of so many turns from the turns of a corpus, in their order, all texts different."""
    texts = [turn.text for dialogue in load_dialogues(data) for turn in dialogue.turns]
    rng = random.Random(seed)
    dialogues = []
    for i in range(count):
        start = rng.randrange(len(texts))
        own = [texts[(start + j) % len(texts)] for j in range(turns)]
        varied = [f"{text} {rng.choice(words(text) or ['so'])} {i}" for text in own]
        dialogues.append(("all", Dialogue(str(i), tuple(Turn("ab"[j % 2], text) for j, text in enumerate(varied)))))
    return dialogues


def time_conversations(args: argparse.Namespace) -> dict[str, float]:
    """All metrics of conversations, one after the other."""
    metrics = [metric_named(name) for name in (*CONVERSATION_METRICS, *MORE_METRICS, *COPIED)]
    dialogues = make_conversations(args.data, args.conversations, args.turns, args.seed)
    conversations = judged_conversations(dialogues)
    resources = load_resources(metrics, {"training_turns": args.data})
    spent: dict[str, tuple[float, float]] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        wall, used = time.perf_counter(), time.process_time()
        work()
        spent[name] = (time.perf_counter() - wall, time.process_time() - used)

    timed("encoding sentences, once", lambda: prepare_resources(resources, conversations, Silent()))
    for metric in metrics:
        timed(metric.name, lambda metric=metric: score_conversations(conversations, [metric], resources))  # type: ignore[misc]
    wall, used = (sum(column) for column in zip(*spent.values(), strict=True))
    print(f"\n{args.conversations:,} conversations of {args.turns} turns, {len(metrics)} metrics:")
    for name, (wall_seconds, cpu_seconds) in sorted(spent.items(), key=lambda item: -item[1][1]):
        print(f"  {name:28} {cpu_seconds:8.2f} s CPU  {wall_seconds:8.2f} s wall  {cpu_seconds / used:6.1%}")
    print(f"  {'all':28} {used:8.2f} s CPU  {wall:8.2f} s wall; {args.conversations / wall:.1f} conversations/s")
    encoding = spent["encoding sentences, once"]
    return {
        "conversations_per_second": args.conversations / wall,
        "conversations_per_second_without_encoding": args.conversations / (wall - encoding[0]),
        "wall_seconds": wall,
        "cpu_seconds": used,
        "share_of_encoding": encoding[1] / used,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sample", help="dialogues: a file, a folder, or `sample`")
    parser.add_argument("--vectors", type=Path, help="also compare with these word vectors")
    parser.add_argument("--conversations", type=int, default=10_000, help="0: the embedding metrics alone")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything")
    args = parser.parse_args()
    if args.quick:
        args.conversations, args.pairs, args.repeats = args.conversations // 20, args.pairs // 20, 3
    texts = [turn.text for dialogue in load_dialogues(args.data) for turn in dialogue.turns]
    texts = random.Random(args.seed).choices(texts, k=2 * args.pairs)
    figures: dict[str, float] = {}
    for label, spec in (("default", ""), *([("file", str(args.vectors))] if args.vectors else [])):
        vectors = word_vectors(spec)
        vectors.prepare(texts)
        for source in ("words", "texts"):
            title = f"{label}, {vectors.matrix.shape[1]} dimensions, from {source}"
            compared = compare_embeddings(texts, vectors, args.repeats, title, from_texts=source == "texts")
            figures |= {f"embeddings_{label}_from_{source}_{name}": value for name, value in compared.items()}

    if args.conversations:
        figures |= time_conversations(args)
    settings = {"data": Path(args.data).name, "conversations": args.conversations, "turns": args.turns}
    finish("metrics_speed", figures, {**settings, "pairs": args.pairs, "seed": args.seed})


if __name__ == "__main__":
    main()
