"""How well conversations are pulled out of a chat room: by the rules of Lowe et al. (2015), and by the learned model.

Takes a folder with train/ and the split to measure, as Kummerfeld et al. (2019) published #ubuntu (NAME.raw.txt beside
NAME.annotation.txt). Learns from train/ alone; one number, how readily a line begins a conversation, is chosen on dev/.
Intervals: 95 %, by bootstrap over the logs of the split.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from common import finish
from tertulia.corpus.rooms.disentangler import Disentangler
from tertulia.corpus.rooms.folder import load_disentangler
from tertulia.corpus.rooms.gold import GoldLog, Links, conversations, read_gold
from tertulia.corpus.rooms.lowe import LoweRules, extract, line_sets
from tertulia.corpus.rooms.measure import Agreement, agreement, complete, part_agreement
from tertulia.corpus.rooms.stats import room_stats
from tertulia.train.recipes.disentangler import DisentanglerConfig, train

QUICK = {"max_logs": 20, "trees": 60, "second_trees": 40}
DRAWS = 1000


class Tell:
    """Steps of the training as plain lines, with the time since the start."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def step(self, title: str, total: int | None = None) -> None:
        print(f"  {time.perf_counter() - self._start:7.1f} s  {title}", flush=True)

    def advance(self, n: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        pass


def extraction(folder: Path) -> dict[str, float]:
    """The dialogues that the rules find in the training logs, and how fast."""
    logs = [gold.log for gold in read_gold(folder)]
    start = time.perf_counter()
    found = [dialogue for log in logs for dialogue in extract(log).dialogues]
    seconds = time.perf_counter() - start
    lines = sum(len(log.lines) for log in logs)
    stats = room_stats(found)
    print(f"\nExtraction by rules: {len(logs)} logs, {lines} lines, {lines / seconds:.0f} lines a second")
    for name, value in stats.as_json().items():
        if name != "by_turns":
            print(f"  {name.replace('_', ' '):<22}{value:>12.2f}")
    print("  dialogues by turns (log10, log10):", *(f"{x:.2f},{y:.2f}" for x, y in stats.log_log()[:12]), "...")
    figures = {k: float(v) for k, v in stats.as_json().items() if k != "by_turns" and v is not None}
    return {f"extracted_{k}": v for k, v in figures.items()} | {"rules_lines_per_second": lines / seconds}


def rules(logs: Sequence[GoldLog]) -> Agreement:
    """The rules' dialogues against the threads."""
    found = [complete(line_sets(gold.log, LoweRules()), gold.links) for gold in logs]
    return part_agreement(found, [conversations(gold.links) for gold in logs])


def learned(model: Disentangler, logs: Sequence[GoldLog]) -> tuple[list[Links], float]:
    """What the model links, and how many lines a second (whole logs, context included)."""
    start = time.perf_counter()
    found: list[Links] = [model.links(gold.log.lines) for gold in logs]
    return found, sum(len(gold.log.lines) for gold in logs) / (time.perf_counter() - start)


def interval(logs: int, value: Callable[[Sequence[int]], float], seed: int) -> tuple[float, float]:
    """Low and high end over draws of the logs."""
    rng = random.Random(seed)
    drawn = sorted(value([rng.randrange(logs) for _ in range(logs)]) for _ in range(DRAWS))
    return drawn[int(0.025 * DRAWS)], drawn[int(0.975 * DRAWS) - 1]


def link_f(found: Sequence[Links], true: Sequence[Links]) -> Callable[[Sequence[int]], float]:
    """F of links over some of the logs."""
    right = [sum(len(f[n] & t[n]) for n in t) for f, t in zip(found, true, strict=True)]
    both = [sum(len(f[n]) + len(t[n]) for n in t) for f, t in zip(found, true, strict=True)]
    return lambda draw: 200 * sum(right[k] for k in draw) / sum(both[k] for k in draw)


def exact_f(found: Sequence[Links], true: Sequence[Links]) -> Callable[[Sequence[int]], float]:
    """F of exact conversations over some of the logs."""
    sides = [
        [{c for c in conversations({n: links[n] for n in t}) if len(c) > 1} for links in (f, t)]
        for f, t in zip(found, true, strict=True)
    ]
    right, both = [len(f & t) for f, t in sides], [len(f) + len(t) for f, t in sides]
    return lambda draw: 200 * sum(right[k] for k in draw) / max(sum(both[k] for k in draw), 1)


def line_of(name: str, found: Agreement) -> str:
    """A row of the table for people."""
    links = "{:5.1f}/{:5.1f}/{:5.1f}".format(*found.links) if found.links else f"{'-':>17}"
    exact = "{:5.1f}/{:5.1f}/{:5.1f}".format(*found.exact)
    return f"{name:<26}{links}   {exact}   {found.vi:5.1f}   {found.one_to_one:5.1f}"


def main() -> None:
    """Extract, train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/, dev/ and the split")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--vectors", type=Path, help="word vectors in GloVe's format (text or .npz)")
    parser.add_argument("--model", type=Path, help="a trained disentangler's folder, instead of training one")
    parser.add_argument("--out", type=Path, help="keep the trained model here")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="20 training logs and few trees")
    args = parser.parse_args()
    logs = read_gold(args.data / args.split)
    figures = extraction(args.data / "train")
    by_rules = rules(logs)
    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        if args.model:
            model = load_disentangler(args.model)
        else:
            print("\nTraining")
            options = {"data": str(args.data), "out": args.out or Path(folder), "vectors": args.vectors}
            config = DisentanglerConfig.model_validate(options | {"seed": args.seed} | (QUICK if args.quick else {}))
            model = train(config, Tell()).model
    seconds = time.perf_counter() - start
    found, speed = learned(model, logs)
    true = [gold.links for gold in logs]
    by_model = agreement(found, true)
    print(f"\n{args.split}: {by_model.lines} annotated lines of {len(logs)} logs")
    print(f"{'':<26}{'links P/R/F':>17}   {'exact P/R/F':>17}      VI     1-1")
    print(line_of("rules (Lowe)", by_rules))
    print(line_of("learned", by_model))
    bounds = {"link_f": link_f(found, true), "exact_f": exact_f(found, true)}
    for name, value in bounds.items():
        low, high = interval(len(logs), value, args.seed)
        print(f"learned {name}: {value(range(len(logs))):.1f} [{low:.1f}, {high:.1f}]")
        figures |= {f"learned_{name}_low": low, f"learned_{name}_high": high}
    print(f"learned: {speed:.0f} lines a second; training took {seconds:.0f} s")
    figures |= {f"rules_{k}": v for k, v in by_rules.as_json().items()}
    figures |= {f"learned_{k}": v for k, v in by_model.as_json().items()}
    figures |= {"learned_lines_per_second": speed, "training_seconds": seconds}
    settings = {"split": args.split, "quick": args.quick, "seed": args.seed, "start_bias": model.start_bias}
    finish("rooms_quality", figures, settings | {"vectors": len(model.lexicon.vectors), "logs": len(logs)})


if __name__ == "__main__":
    main()
