"""Whether the mining engine agrees with the slow reference, pair by pair and count by count, on generated messages.

The same file is mined twice: by the engine on a pool of processes, split into many parts and buckets, and by
`corpus.trees`, which has everything in memory and applies one rule after the other to one message after the other, with
the subword model that the engine trained. Times are wall seconds; the engine's includes training that model, the
reference's does not. The exit status is 1 if anything differs.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from common import finish
from generate_messages import write
from tertulia.core.dialogue import Dialogue, Message
from tertulia.corpus.mine import MineConfig, MineOutcome, marked, mine, read_messages, safety_of
from tertulia.corpus.mining.pairs import read_pairs
from tertulia.corpus.subwords import read_subwords
from tertulia.corpus.trees import Mined, mine_trees

T = TypeVar("T")
Key = tuple[str, str]
"""Thread and id."""


class Compared(NamedTuple):
    """The differences between engine and reference."""

    missing: list[Key]
    """Pairs of the reference that the engine did not extract."""
    added: list[Key]
    """Pairs of the engine that the reference does not have."""
    other: list[Key]
    """Pairs of both that differ in context, reply or source."""
    counts: dict[str, tuple[int, int]]
    """Counts of the funnel that differ: the engine's and the reference's."""

    @property
    def equal(self) -> bool:
        """Whether there are no differences."""
        return not any(self)


def compare(outcome: MineOutcome, pairs: Sequence[Dialogue], defined: Mined) -> Compared:
    """Compare pairs by thread and id, in any order, and the counts of both funnels."""
    ours, theirs = _by_key(pairs), _by_key(defined.pairs)
    if len(ours) != len(pairs) or len(theirs) != len(defined.pairs):
        raise SystemExit("a pair was extracted twice")
    actual, expected = dict(outcome.funnel.steps()), dict(defined.funnel.steps())
    return Compared(
        sorted(theirs.keys() - ours.keys()),
        sorted(ours.keys() - theirs.keys()),
        sorted(key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]),
        {name: (actual[name], expected[name]) for name in expected if actual[name] != expected[name]},
    )


def _by_key(pairs: Sequence[Dialogue]) -> dict[Key, Dialogue]:
    return {(str(pair.meta["thread"]), pair.id): pair for pair in pairs}


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result of a call, and the wall seconds it took."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def report(compared: Compared, outcome: MineOutcome, defined: Mined, engine: float, definition: float) -> None:
    """Print both funnels in a table, and the first pairs that differ."""
    print(f"{'':<24}{'engine':>10}{'reference':>12}")
    for (step, ours), (_, theirs) in zip(outcome.funnel.steps(), defined.funnel.steps(), strict=True):
        print(f"{step:<24}{ours:>10}{theirs:>12}{'' if ours == theirs else '   differs'}")
    print(f"{'wall seconds':<24}{engine:>10.2f}{definition:>12.2f}")
    for name, keys in (("missing", compared.missing), ("added", compared.added), ("other", compared.other)):
        if keys:
            print(f"{len(keys)} pairs {name}, such as {keys[:3]}")
    print("Equal: all pairs and the complete funnel." if compared.equal else "NOT EQUAL.")


def main() -> int:
    """Generate, mine twice, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="number of generated messages")
    parser.add_argument("--data", type=Path, help="mine this file of messages instead of generated ones")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument(
        "--unsafe", choices=("auto", "judged"), default="auto", help="judged: by the safety lexicon too"
    )
    parser.add_argument("--quick", action="store_true", help="10,000 messages")
    args = parser.parse_args()
    count = 10_000 if args.quick else args.messages
    with tempfile.TemporaryDirectory() as folder:
        file = args.data or Path(folder) / "messages.jsonl"
        if not args.data:
            write(count, file, args.seed)
        # Small parts and many buckets, so that threads are split between parts and have to be reassembled.
        config = MineConfig(
            source=str(file),
            out=Path(folder) / "mined",
            workers=args.workers,
            block_bytes=1 << 20,
            buckets=16,
            unsafe=args.unsafe,
        )
        outcome, engine = timed(lambda: mine(config))
        pairs = list(read_pairs(config.out))
        counter = read_subwords(config.out / "subwords.model")
        messages = list(read_messages(str(file)))
        judges = safety_of(config).load()

        def unsafe(message: Message) -> bool:
            return marked(message) or (args.unsafe == "judged" and judges.reasons([message.text])[0] is not None)

        defined, definition = timed(lambda: mine_trees(messages, config, subwords=counter, unsafe=unsafe))
    compared = compare(outcome, pairs, defined)
    report(compared, outcome, defined, engine, definition)
    figures = {
        "equal": int(compared.equal),
        "pairs": len(pairs),
        "pairs_differing": len(compared.missing) + len(compared.added) + len(compared.other),
        "counts_differing": len(compared.counts),
        "engine_seconds": engine,
        "definition_seconds": definition,
    }
    settings = {
        "messages": len(messages),
        "seed": args.seed,
        "unsafe": args.unsafe,
        "workers": args.workers,
        "buckets": config.buckets,
    }
    finish("mine_reference", figures, settings)
    return 0 if compared.equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
