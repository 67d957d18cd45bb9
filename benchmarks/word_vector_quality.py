"""How good word vectors are for the embedding metrics: the default, as many dimensions as it could have, and a file.

Three tests for each of average, extrema and greedy: the AUC of true next turns against random ones of the same split
(--data, DailyDialog), and Spearman's correlation with people's ratings (--ratings): of 500 DailyDialog replies with
their best of several references (Gupta et al. 2019), and of 300 Persona-Chat replies ("maintains context") with the
last turn. --data is read in the split --split only. The ratings have no splits: choices made on them are not tested.
"""

import argparse
import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, spearmanr

from common import finish
from tertulia.corpus.load import load_dialogues
from tertulia.judge import resources
from tertulia.metrics.embeddings import Similarity, TextPairs, WordVectors, pair_similarities

SIMILARITIES: tuple[Similarity, ...] = ("average", "extrema", "greedy")
Pairs = list[tuple[str, str]]


def next_turns(data: str, split: str, count: int, seed: int) -> tuple[Pairs, Pairs]:
    """Adjacent turns, and the same turns with random next ones."""
    dialogues = [d for d in load_dialogues(data) if d.meta.get("split", split) == split]
    pairs = [(a.text, b.text) for d in dialogues for a, b in zip(d.turns, d.turns[1:], strict=False)]
    rng = random.Random(seed)
    true = rng.sample(pairs, min(count, len(pairs)))
    return true, [(turn, rng.choice(true)[1]) for turn, _ in true]


def auc(true: np.ndarray, other: np.ndarray) -> float:
    """How often a true pair is more similar than another, ties being half."""
    true, other = true[~np.isnan(true)], other[~np.isnan(other)]
    ranks = rankdata(np.concatenate([true, other]))[: len(true)]
    return float((ranks.sum() - len(true) * (len(true) + 1) / 2) / (len(true) * len(other)))


def correlation(values: np.ndarray, ratings: Sequence[float]) -> float:
    """Spearman's; a pair without a value is the least similar."""
    return float(spearmanr(np.nan_to_num(values, nan=-1.0), ratings).statistic)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="DailyDialog")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--ratings", type=Path, required=True, help="folder: gupta_ratings.csv, pc_usr_data.json")
    parser.add_argument("--vectors", help="also these word vectors")
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="the default vectors alone")
    args = parser.parse_args()
    true, other = next_turns(args.data, args.split, args.pairs, args.seed)
    with (args.ratings / "gupta_ratings.csv").open(encoding="utf-8") as file:
        gupta = list(csv.DictReader(file))
    references = [(row["response"], ref) for row in gupta for ref in row["all_references"].split("\t")]
    owner = np.array([i for i, row in enumerate(gupta) for _ in row["all_references"].split("\t")])
    chats = json.loads((args.ratings / "pc_usr_data.json").read_text(encoding="utf-8"))
    replies = [(one["response"], c["context"].strip().split("\n")[-1]) for c in chats for one in c["responses"]]
    kept = [float(np.mean(one["Maintains Context"])) for c in chats for one in c["responses"]]
    figures: dict[str, float] = {}
    wanted = (100,) if args.quick else (64, 100, 128, 192, 384)
    named: list[tuple[str, int, str]] = [(f"minilm {size}", size, "") for size in wanted]
    named += [("file", 0, args.vectors)] if args.vectors else []
    print(f"{len(true)} adjacent pairs of {args.split}; AUC / several references / last turn")
    for name, size, spec in named:
        if size:
            resources.MINILM_DIMENSIONS = size
        vectors: WordVectors = resources.word_vectors(spec)
        vectors.prepare(text for pairs in (true, other, references, replies) for pair in pairs for text in pair)
        cells = []
        for similarity in SIMILARITIES:
            similar = [
                pair_similarities(TextPairs.of(p), vectors, similarity) for p in (true, other, references, replies)
            ]
            best = np.full(len(gupta), -1.0)
            np.maximum.at(best, owner, np.nan_to_num(similar[2], nan=-1.0))
            ratings = [float(row["human_average_rating"]) for row in gupta]
            results = (auc(similar[0], similar[1]), correlation(best, ratings), correlation(similar[3], kept))
            cells.append(f"{similarity} {results[0]:.3f} / {results[1]:.3f} / {results[2]:.3f}")
            for test, value in zip(("auc", "references", "last_turn"), results, strict=True):
                figures[f"{name}_{similarity}_{test}".replace(" ", "_")] = value
        print(f"{name:12} " + "   ".join(cells), flush=True)
    finish("word_vector_quality", figures, {"split": args.split, "pairs": len(true), "seed": args.seed})


if __name__ == "__main__":
    main()
