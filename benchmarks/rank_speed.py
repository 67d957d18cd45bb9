"""Time of a ranking bot's reply over a large pool, beside the plain NumPy product of the same query with the same pool.

The floor is what one would write down first: query @ pool.T in float32, then argpartition for as many replies as the
bot's search finds. Both alternate in the same run, ask by ask and batch by batch. With --run the whole reply of a
trained bot is timed (encoding, search, scoring, choosing), and its search alone; with --random the pool is clustered
unit vectors and encoding costs nothing. Wall time is what a user waits; CPU time says the same on a busy machine.
Memory is what the process grew by when the pool was loaded, texts included.
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
from tertulia.models.ranker import Floats, Queries, Query, dot_scores
from tertulia.talk.bots.ranker import RankerBot, RankerOptions
from tertulia.talk.pool import ReplyPool

SIZE = 131_072


class Spent(NamedTuple):
    """What one call took, in milliseconds."""

    wall: float
    cpu: float


class Known:
    """A ranker of vectors that are there already: the n-th query is the last turn "n"."""

    def __init__(self, vectors: Floats) -> None:
        self.vectors = vectors

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Looked up."""
        return Queries(self.vectors[[int(query.turns[-1]) for query in queries]])

    def replies(self, texts: Sequence[str], /) -> Floats:
        """Nobody asks."""
        raise NotImplementedError

    scores = staticmethod(dot_scores)


def clustered(count: int, dim: int, middles: Floats, rng: np.random.Generator) -> Floats:
    """Unit vectors around some middles."""
    found = middles[rng.integers(0, len(middles), count)]
    found = found + 0.7 * rng.standard_normal((count, dim), dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def random_bot(dim: int, asks: int) -> tuple[RankerBot, list[Ask], float]:
    """A bot on a made-up pool, asks for it, and the memory the pool takes."""
    rng = np.random.default_rng(0)
    middles = rng.standard_normal((2000, dim), dtype=np.float32)
    words = [f"w{i}" for i in range(5000)]
    draw = random.Random(0)
    texts = tuple(f"{' '.join(draw.choices(words, k=11))} {i}" for i in range(SIZE))
    vectors = clustered(SIZE, dim, middles, rng).astype(np.float16)
    before = resident() - vectors.nbytes / 1e6
    pool = ReplyPool(texts, tuple(f"d{i // 14}#{i % 14}" for i in range(SIZE)), vectors)
    grown = resident() - before
    bot = RankerBot(Known(clustered(asks, dim, middles, rng)), pool)
    return bot, [Ask(Dialogue("d", (Turn("ana", str(i)),)), seed=i) for i in range(asks)], grown


def trained_bot(run: Path, data: str, split: str | None, asks: int) -> tuple[RankerBot, list[Ask], float]:
    """A trained bot, asks from dialogues, and the memory the bot takes."""
    before = resident()
    bot = RankerBot.build(str(run), RankerOptions(threads=1))
    grown = resident() - before
    found = [e for dialogue in load_dialogues(data, split=split) for e in exchanges(dialogue)]
    chosen = random.Random(0).sample(found, min(asks, len(found)))
    shown: list[dict[str, Persona]] = [{e.response.speaker: e.persona} if e.persona else {} for e in chosen]
    wishes = [
        Ask(Dialogue(e.id, e.context, personas), e.response.speaker, seed=i)
        for i, (e, personas) in enumerate(zip(chosen, shown, strict=True))
    ]
    return bot, wishes, grown


def resident() -> float:
    """MB of this process."""
    return psutil.Process().memory_info().rss / 1e6


def timed(call: Callable[[], object]) -> Spent:
    """Time one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Spent((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)


def brute(vectors: Floats, table: Floats, count: int) -> np.ndarray:
    """The plain product, and the places of the largest."""
    return np.argpartition(vectors @ table.T, -count, axis=1)[:, -count:]


def recall(bot: RankerBot, vectors: Floats, table: Floats) -> float:
    """Of the ten nearest, the share that the search found."""
    assert bot.pool
    true = np.argsort(-(vectors @ table.T), axis=1)[:, :10]
    found = bot.pool.nearest(vectors, bot.options.breadth).places
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(true, found, strict=True)]))


def main() -> None:
    """Alternate bot and floor, print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="the folder of a trained ranker")
    parser.add_argument("--random", action="store_true", help=f"{SIZE:,} made-up vectors (the default without --run)")
    parser.add_argument("--dim", type=int, default=384, help="their dimension")
    parser.add_argument("--data", default="sample", help="dialogues to answer, with --run")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--batch", type=int, default=RankerBot.max_batch)
    parser.add_argument("--quick", action="store_true", help="fewer asks")
    args = parser.parse_args()
    torch.set_num_threads(1)
    singles, many = (30, 128) if args.quick else (200, 1000)
    if args.run and not args.random:
        bot, asks, grown = trained_bot(args.run, args.data, args.split or None, many)
    else:
        bot, asks, grown = random_bot(args.dim, many)
    report(bot, asks, grown, singles=singles, batch=args.batch, source=args.run.name if args.run else "random")


def report(bot: RankerBot, asks: list[Ask], grown: float, *, singles: int, batch: int, source: str) -> None:
    """Measure and tell."""
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
    print(f"{'':<34}{'reply':>9}{'search':>9}{'floor':>9}{'reply/floor':>13}{'search/floor':>14}")
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
    print(f"{len(asks)} asks in batches: {figures['asks_seconds']:.2f} seconds")
    print(
        f"recall@10 of the search {figures['recall_at_10']:.4f}; {grown:.0f} MB, the floor's {table.nbytes / 1e6:.0f}"
    )
    settings = {"replies": len(bot.pool), "dim": int(table.shape[1]), "asks": len(asks), "singles": singles}
    settings |= {"batch": batch, "source": source, "threads": os.environ.get("OMP_NUM_THREADS", "")}
    finish("rank_speed", figures, settings)


if __name__ == "__main__":
    main()
