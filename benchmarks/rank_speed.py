"""Reply time of a ranking bot over a large pool, compared with a NumPy product of the same query with the same pool.

The baseline is the obvious way: query @ pool.T in float32, then argpartition for as many replies as the bot's search
returns. Both alternate in one run, request by request and batch by batch. With --run, the complete reply of a trained
bot is timed (encoding, search, scoring, selection), and its search alone; with --random, the pool is clustered unit
vectors and encoding costs nothing. Wall time is what a user waits; CPU time is robust on a busy machine. Memory is the
growth of the process when the pool is loaded, texts included.
"""

import argparse
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil
import torch

from common import finish
from tertulia.core.dialogue import Dialogue, Persona, Turn, exchanges
from tertulia.core.reply import Ask
from tertulia.corpus.load import load_dialogues
from tertulia.models.rankers.base import Floats, Queries, Query, dot_scores
from tertulia.talk.bots.ranker import RankerBot, RankerOptions
from tertulia.talk.pool import ReplyPool

SIZE = 131_072


class Spent(NamedTuple):
    """The time of one call, in milliseconds."""

    wall: float
    cpu: float


class FixedVectors:
    """A ranker with given query vectors: the n-th query has the last turn "n"."""

    symmetric = False

    def __init__(self, vectors: Floats) -> None:
        self.vectors = vectors

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Look up the vectors."""
        return Queries(self.vectors[[int(query.turns[-1]) for query in queries]])

    def replies(self, texts: Sequence[str], /) -> Floats:
        """Not needed here."""
        raise NotImplementedError

    scores = staticmethod(dot_scores)


def clustered(count: int, dim: int, centres: Floats, rng: np.random.Generator) -> Floats:
    """Unit vectors around cluster centres."""
    vectors = centres[rng.integers(0, len(centres), count)]
    vectors = vectors + 0.7 * rng.standard_normal((count, dim), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def random_bot(dim: int, asks: int) -> tuple[RankerBot, list[Ask], float]:
    """A bot with a random pool, requests, and the memory of the pool."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((2000, dim), dtype=np.float32)
    words = [f"w{i}" for i in range(5000)]
    draw = random.Random(0)
    texts = tuple(f"{' '.join(draw.choices(words, k=11))} {i}" for i in range(SIZE))
    vectors = clustered(SIZE, dim, centres, rng).astype(np.float16)
    before = resident() - vectors.nbytes / 1e6
    pool = ReplyPool(texts, tuple(f"d{i // 14}#{i % 14}" for i in range(SIZE)), vectors)
    grown = resident() - before
    bot = RankerBot(FixedVectors(clustered(asks, dim, centres, rng)), pool)
    return bot, [Ask(Dialogue("d", (Turn("ana", str(i)),)), seed=i) for i in range(asks)], grown


def trained_bot(run: Path, data: str, split: str | None, asks: int) -> tuple[RankerBot, list[Ask], float]:
    """A trained bot, requests from dialogues, and the memory of the bot."""
    before = resident()
    bot = RankerBot.build(str(run), RankerOptions(threads=1))
    grown = resident() - before
    replies = [e for dialogue in load_dialogues(data, split=split) for e in exchanges(dialogue)]
    chosen = random.Random(0).sample(replies, min(asks, len(replies)))
    shown: list[dict[str, Persona]] = [{e.response.speaker: e.persona} if e.persona else {} for e in chosen]
    requests = [
        Ask(Dialogue(e.id, e.context, personas), e.response.speaker, seed=i)
        for i, (e, personas) in enumerate(zip(chosen, shown, strict=True))
    ]
    return bot, requests, grown


def resident() -> float:
    """Resident memory of this process in MB."""
    return psutil.Process().memory_info().rss / 1e6


def timed(call: Callable[[], object]) -> Spent:
    """Time one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Spent((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)


def brute(vectors: Floats, table: Floats, count: int) -> np.ndarray:
    """The full product, and the indices of the largest entries."""
    return np.argpartition(vectors @ table.T, -count, axis=1)[:, -count:]


def recall(bot: RankerBot, vectors: Floats, table: Floats) -> float:
    """Recall@10 of the search."""
    assert bot.pool
    true = np.argsort(-(vectors @ table.T), axis=1)[:, :10]
    nearest = bot.pool.nearest(vectors, bot.options.breadth).indices
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(true, nearest, strict=True)]))


def main() -> None:
    """Alternate bot and baseline, print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="folder of a trained ranker")
    parser.add_argument("--random", action="store_true", help=f"{SIZE:,} random vectors (the default without --run)")
    parser.add_argument("--dim", type=int, default=384, help="their dimension")
    parser.add_argument("--data", default="sample", help="dialogues to reply to, with --run")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--batch", type=int, default=RankerBot.max_batch)
    parser.add_argument("--quick", action="store_true", help="fewer requests")
    args = parser.parse_args()
    torch.set_num_threads(1)
    singles, many = (30, 128) if args.quick else (200, 1000)
    if args.run and not args.random:
        bot, asks, grown = trained_bot(args.run, args.data, args.split or None, many)
    else:
        bot, asks, grown = random_bot(args.dim, many)
    report(bot, asks, grown, singles=singles, batch=args.batch, source=args.run.name if args.run else "random")


def report(bot: RankerBot, asks: list[Ask], grown: float, *, singles: int, batch: int, source: str) -> None:
    """Measure and print."""
    assert bot.pool
    table, count = bot.pool.vectors.astype(np.float32), bot.options.breadth
    vectors = bot.ranker.queries([bot._query(ask) for ask in asks]).vectors
    bot.reply(asks[:5])
    one: dict[str, list[Spent]] = {"reply": [], "search": [], "floor": []}
    for i in range(singles):
        row, ask = vectors[i : i + 1], asks[i]
        one["reply"].append(timed(lambda: bot.reply([ask])))  # noqa: B023 - called at once
        one["search"].append(timed(lambda: bot.pool.nearest(row, count)))  # type: ignore[union-attr] # noqa: B023
        one["floor"].append(timed(lambda: brute(row, table, count)))  # noqa: B023
    many: dict[str, list[Spent]] = {"reply": [], "search": [], "floor": []}
    for start in range(0, len(asks), batch):
        rows, part = vectors[start : start + batch], asks[start : start + batch]
        many["reply"].append(timed(lambda: bot.reply(part)))  # noqa: B023
        many["search"].append(timed(lambda: bot.pool.nearest(rows, count)))  # type: ignore[union-attr] # noqa: B023
        many["floor"].append(timed(lambda: brute(rows, table, count)))  # noqa: B023
    figures = {"recall_at_10": recall(bot, vectors[:100], table), "pool_mb": grown, "floor_mb": table.nbytes / 1e6}
    print(
        f"{len(bot.pool):,} replies, {table.shape[1]} dimensions, {source}; milliseconds, medians of alternating calls"
    )
    print(f"{'':<34}{'reply':>9}{'search':>9}{'baseline':>9}{'reply/base':>13}{'search/base':>14}")
    for name, spent in (("one", one), (f"batch of {batch}", many)):
        short = "one" if name == "one" else "batch"
        for kind in ("wall", "cpu"):
            value = {what: median(getattr(s, kind) for s in times) for what, times in spent.items()}
            ratios = [value["reply"] / value["floor"], value["search"] / value["floor"]]
            print(
                f"{name + ', ' + kind:<34}"
                + "".join(f"{value[w]:>9.2f}" for w in ("reply", "search", "floor"))
                + f"{ratios[0]:>13.2f}{ratios[1]:>14.2f}"
            )
            figures |= {f"{short}_{what}_{kind}_ms": ms for what, ms in value.items()}
            figures |= {f"{short}_{kind}_ratio": ratios[0], f"{short}_search_{kind}_ratio": ratios[1]}
    figures["asks_seconds"] = sum(s.wall for s in many["reply"]) / 1e3
    print(f"{len(asks)} requests in batches: {figures['asks_seconds']:.2f} seconds")
    print(
        f"recall@10 of the search {figures['recall_at_10']:.4f}; {grown:.0f} MB, baseline {table.nbytes / 1e6:.0f} MB"
    )
    settings = {"replies": len(bot.pool), "dim": int(table.shape[1]), "asks": len(asks), "singles": singles}
    settings |= {"batch": batch, "source": source, "threads": os.environ.get("OMP_NUM_THREADS", "")}
    finish("rank_speed", figures, settings)


if __name__ == "__main__":
    main()
