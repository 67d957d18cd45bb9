"""Recall and precision of near-duplicate removal by MinHash and banding against comparing all pairs, on real text.

Real texts contain few near-duplicates, so a share of them is copied with words replaced at random (`--planted`), which
gives pairs on both sides of the threshold. The brute force computes the exact Jaccard similarity of the word 3-grams of
every text with every earlier one (through an inverted index, which leaves out only pairs without a common 3-gram).
Recall is the share of its removals that the command also removes, precision the share of the command's removals that it
also has. Intervals are Wilson's. Below that: how many of all pairs of a given similarity share a band, beside what the
theory says; the command compares the candidates exactly, so precision is 1 unless something is wrong.
"""

import argparse
import random
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from common import finish
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.text import words
from tertulia.corpus.dedup import DedupConfig, remove_duplicates
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.shingles import BANDS, SIGNATURE, band_keys, joined_shingle_sets, signatures
from tertulia.corpus.write import save_dialogues


def texts_of(data: Path, n: int, *, planted: float, seed: int) -> list[str]:
    """Turns of at least four words, with changed copies of some of them in random places."""
    rng = random.Random(seed)
    turns = [t.text for d in load_dialogues(data, problems=None) for t in d.turns if len(words(t.text)) >= 4]
    texts = rng.sample(turns, min(n, len(turns)))
    vocabulary = [word for text in texts[:2000] for word in words(text)]
    copies = []
    for text in rng.sample(texts, int(planted * len(texts))):
        rate = rng.choice((0.0, 0.02, 0.05, 0.1, 0.15))
        copies.append(" ".join(rng.choice(vocabulary) if rng.random() < rate else word for word in text.split()))
    texts += copies
    rng.shuffle(texts)
    return texts


def brute_force(texts: list[str]) -> dict[tuple[int, int], float]:
    """The Jaccard similarity of all pairs that have a 3-gram in common, as (earlier, later)."""
    sets = joined_shingle_sets([(text,) for text in texts], min_words=4)
    holding: dict[int, list[int]] = defaultdict(list)
    similarities: dict[tuple[int, int], float] = {}
    for j in range(len(texts)):
        own = sets.of(j).tolist()
        shared = Counter(i for gram in own for i in holding[gram])
        for i, common in shared.items():
            similarity = common / (len(own) + len(sets.of(i)) - common)
            if similarity >= 0.2:
                similarities[i, j] = similarity
        for gram in own:
            holding[gram].append(j)
    return similarities


def wilson(successes: int, n: int) -> tuple[float, float]:
    """A 95 % interval of a share."""
    if not n:
        return float("nan"), float("nan")
    z, p = 1.96, successes / n
    centre, spread = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    return (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)


def main() -> None:
    """Compare, print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="a corpus of dialogues, such as ../shared/data/dailydialog"
    )
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--planted", type=float, default=0.1, help="changed copies, as a share of the texts")
    parser.add_argument("--threshold", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="2,000 texts")
    args = parser.parse_args()
    texts = texts_of(args.data, 2000 if args.quick else args.texts, planted=args.planted, seed=args.seed)
    start = time.process_time()
    similarities = brute_force(texts)
    expected = {j for (_, j), similarity in similarities.items() if similarity >= args.threshold}
    brute_seconds = time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.jsonl"
        save_dialogues((Dialogue(str(i), (Turn("a", text),)) for i, text in enumerate(texts)), file)
        start = time.process_time()
        config = DedupConfig(target=str(file), out=Path(folder) / "out", threshold=args.threshold, ending=".jsonl")
        remove_duplicates(config)
        seconds = time.process_time() - start
        kept = {int(dialogue.id) for dialogue in load_dialogues(Path(folder) / "out")}
    removed = set(range(len(texts))) - kept
    right = len(removed & expected)
    recall, precision = wilson(right, len(expected)), wilson(right, len(removed))
    print(f"{len(texts)} texts of {args.data.name}, {len(expected)} near-duplicates at {args.threshold} by brute force")
    print(f"recall    {right / max(1, len(expected)):.4f} [{recall[0]:.4f}, {recall[1]:.4f}], n = {len(expected)}")
    print(f"precision {right / max(1, len(removed)):.4f} [{precision[0]:.4f}, {precision[1]:.4f}], n = {len(removed)}")
    print(f"CPU seconds: brute force {brute_seconds:.1f}, command {seconds:.1f}")
    keys = band_keys(signatures(joined_shingle_sets([(text,) for text in texts], min_words=4)))
    print(f"{'similarity':<14}{'pairs':>8}{'share a band':>14}{'theory':>9}")
    for low in np.arange(0.2, 1.0, 0.1):
        pairs = [pair for pair, value in similarities.items() if low <= value < low + 0.1 and value < 1]
        if not pairs:
            continue
        sharing = sum(bool((keys[i] == keys[j]).any()) for i, j in pairs)
        theory = np.mean([1 - (1 - similarities[pair] ** (SIGNATURE // BANDS)) ** BANDS for pair in pairs])
        print(f"{low:.1f} to {low + 0.1:.1f}   {len(pairs):>8}{sharing / len(pairs):>14.4f}{theory:>9.4f}")
    figures = {
        "recall": right / max(1, len(expected)),
        "recall_low": recall[0],
        "precision": right / max(1, len(removed)),
        "precision_low": precision[0],
        "near_duplicates": len(expected),
        "cpu_ratio_to_brute_force": seconds / brute_seconds,
    }
    settings = {"data": args.data.name, "texts": len(texts), "planted": args.planted, "seed": args.seed}
    finish("dedup_quality", figures, settings | {"threshold": args.threshold})


if __name__ == "__main__":
    main()
