"""How many lines of a chat log the learned disentangler links per CPU second, and where the time goes.

The same logs, alternating in one run: the model; the features of its first pass block by block, and line by line (the
reference implementation of the tests, which gives the same bits); and, as a floor, the rules of Lowe et al. (2015),
which look at every line once and learn nothing. Lines are all lines of the logs, context and system lines included.
CPU time of one thread, the median and the best of several rounds.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from common import finish
from tertulia.corpus.chatlogs.checkpoint import load_disentangler
from tertulia.corpus.chatlogs.disentangler import Disentangler, prepare
from tertulia.corpus.chatlogs.encoded_log import encode_log
from tertulia.corpus.chatlogs.gold import read_gold
from tertulia.corpus.chatlogs.log import Log
from tertulia.corpus.chatlogs.lowe import extract_dialogues
from tertulia.corpus.chatlogs.pair_features import candidate_blocks

REFERENCE = Path(__file__).parents[1] / "tests" / "corpus" / "chatlogs" / "reference_features.py"


def reference() -> Any:
    """The slow implementation of the features, which is not in a package."""
    spec = importlib.util.spec_from_file_location("reference_features", REFERENCE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def line_by_line(slow: Any, model: Disentangler, log: Log) -> None:
    """The features of the first pass by the reference."""
    prepared, window = prepare(log.lines, model.idf, model.window), model.window
    for _ in slow.candidate_links(prepared.log, prepared.similarity, window=window.window, lookahead=window.lookahead):
        pass


def block_by_block(model: Disentangler, log: Log) -> None:
    """The same by the library."""
    history = prepare(log.lines, model.idf, model.window).history(model.window)
    for _ in candidate_blocks(history, window=model.window.window):
        pass


def measure(model: Disentangler, logs: Sequence[Log], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each part over all logs, round by round."""
    slow = reference()
    parts: dict[str, Callable[[Log], object]] = {
        "model": lambda log: model.links(log.lines),
        "encoding": lambda log: encode_log(log.lines),
        "features, block by block": lambda log: block_by_block(model, log),
        "features, line by line": lambda log: line_by_line(slow, model, log),
        "rules": extract_dialogues,
    }
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, part in parts.items():
            seconds[name].append(sum(cpu_seconds(lambda log=log, part=part: part(log)) for log in logs))
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of annotated logs with the split")
    parser.add_argument("--split", default="dev", help="split to read (default: dev)")
    parser.add_argument("--model", type=Path, required=True, help="folder of a trained disentangler")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each part")
    parser.add_argument("--quick", action="store_true", help="two logs, two rounds")
    args = parser.parse_args()
    logs = [gold.log for gold in read_gold(args.data / args.split)][: 2 if args.quick else None]
    lines = sum(len(log.lines) for log in logs)
    model = load_disentangler(args.model)
    model.links(logs[0].lines[:200])  # load what is loaded once
    seconds = measure(model, logs, 2 if args.quick else args.rounds)
    figures: dict[str, float] = {}
    print(f"{lines} lines of {len(logs)} logs, {len(next(iter(seconds.values())))} rounds")
    print(f"{'':<28}{'lines / CPU s':>14}{'best':>10}{'us / line':>12}")
    for name, values in seconds.items():
        speed, best = lines / median(values), lines / min(values)
        print(f"{name:<28}{speed:>14,.0f}{best:>10,.0f}{1e6 * median(values) / lines:>12.1f}")
        key = name.replace(", ", "_").replace(" ", "_")
        figures |= {f"{key}_lines_per_cpu_second": speed, f"{key}_best": best}
    ratio = median(seconds["features, line by line"]) / median(seconds["features, block by block"])
    floor = median(seconds["model"]) / median(seconds["rules"])
    print(
        f"features: {ratio:.1f} times as fast as line by line; the model takes {floor:.0f} times as long as the rules"
    )
    figures |= {"features_speedup": ratio, "model_over_rules": floor}
    finish("chatlogs_speed", figures, {"split": args.split, "lines": lines, "logs": len(logs), "quick": args.quick})


if __name__ == "__main__":
    main()
