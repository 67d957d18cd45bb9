"""How well conversations are extracted from a chat log: by the rules of Lowe et al. (2015), and by the learned model.

Takes a folder with train/ and the split to measure, as Kummerfeld et al. (2019) published #ubuntu (NAME.raw.txt with
NAME.annotation.txt beside it). Trains on train/ only; one number, how readily a line starts a conversation, is chosen
on dev/. Intervals: 95 %, by bootstrap over the logs of the split. Speed is in CPU time of one thread.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from common import finish
from tertulia.corpus.chatlogs.checkpoint import load_disentangler
from tertulia.corpus.chatlogs.disentangler import Disentangler
from tertulia.corpus.chatlogs.evaluation import Disentanglement, as_partition, evaluate_clusters, evaluate_links
from tertulia.corpus.chatlogs.gold import GoldLog, Links, clusters_of, read_gold
from tertulia.corpus.chatlogs.lowe import LoweRules, dialogue_clusters, extract_dialogues
from tertulia.corpus.chatlogs.stats import chatlog_stats
from tertulia.train.recipes.disentangler import DisentanglerConfig, train

QUICK = {"max_logs": 20, "trees": 60, "second_trees": 40}
BOOTSTRAP_SAMPLES = 1000


class PrintedSteps:
    """Prints the steps of training as lines, with the time since the start."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def step(self, title: str, total: int | None = None) -> None:
        print(f"  {time.perf_counter() - self._start:7.1f} s  {title}", flush=True)

    def advance(self, n: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        pass


def measure_extraction(folder: Path) -> dict[str, float]:
    """The dialogues that the rules extract from the training logs, and the speed."""
    logs = [gold.log for gold in read_gold(folder)]
    start = time.process_time()
    dialogues = [dialogue for log in logs for dialogue in extract_dialogues(log).dialogues]
    seconds = time.process_time() - start
    lines = sum(len(log.lines) for log in logs)
    stats = chatlog_stats(dialogues)
    print(f"\nExtraction by rules: {len(logs)} logs, {lines} lines, {lines / seconds:.0f} lines per CPU second")
    for name, value in stats.as_json().items():
        if name != "by_turns":
            print(f"  {name.replace('_', ' '):<22}{value:>12.2f}")
    print("  dialogues by turns (log10, log10):", *(f"{x:.2f},{y:.2f}" for x, y in stats.log_log()[:12]), "...")
    figures = {k: float(v) for k, v in stats.as_json().items() if k != "by_turns" and v is not None}
    return {f"extracted_{k}": v for k, v in figures.items()} | {"rules_lines_per_cpu_second": lines / seconds}


def evaluate_rules(logs: Sequence[GoldLog]) -> Disentanglement:
    """The dialogues of the rules against the gold clusters."""
    predicted = [as_partition(dialogue_clusters(gold.log, LoweRules()), gold.links) for gold in logs]
    return evaluate_clusters(predicted, [clusters_of(gold.links) for gold in logs])


def predict(model: Disentangler, logs: Sequence[GoldLog]) -> tuple[list[Links], float]:
    """The model's links, and its speed in lines per CPU second (complete logs, context included)."""
    start = time.process_time()
    links: list[Links] = [model.links(gold.log.lines) for gold in logs]
    return links, sum(len(gold.log.lines) for gold in logs) / (time.process_time() - start)


def interval(logs: int, value: Callable[[Sequence[int]], float], seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of a function of the logs' indices."""
    rng = random.Random(seed)
    values = sorted(value([rng.randrange(logs) for _ in range(logs)]) for _ in range(BOOTSTRAP_SAMPLES))
    return values[int(0.025 * BOOTSTRAP_SAMPLES)], values[int(0.975 * BOOTSTRAP_SAMPLES) - 1]


def link_f(predicted: Sequence[Links], gold: Sequence[Links]) -> Callable[[Sequence[int]], float]:
    """Link F as a function of the logs' indices."""
    correct = [sum(len(p[n] & g[n]) for n in g) for p, g in zip(predicted, gold, strict=True)]
    both = [sum(len(p[n]) + len(g[n]) for n in g) for p, g in zip(predicted, gold, strict=True)]
    return lambda logs: 200 * sum(correct[k] for k in logs) / sum(both[k] for k in logs)


def exact_f(predicted: Sequence[Links], gold: Sequence[Links]) -> Callable[[Sequence[int]], float]:
    """Exact-match F as a function of the logs' indices."""
    sides = [
        [{c for c in clusters_of({n: links[n] for n in g}) if len(c) > 1} for links in (p, g)]
        for p, g in zip(predicted, gold, strict=True)
    ]
    correct, both = [len(p & g) for p, g in sides], [len(p) + len(g) for p, g in sides]
    return lambda logs: 200 * sum(correct[k] for k in logs) / max(sum(both[k] for k in logs), 1)


def table_row(name: str, measures: Disentanglement) -> str:
    """A row of the printed table."""
    links = "{:5.1f}/{:5.1f}/{:5.1f}".format(*measures.links) if measures.links else f"{'-':>17}"
    exact = "{:5.1f}/{:5.1f}/{:5.1f}".format(*measures.exact)
    return f"{name:<26}{links}   {exact}   {measures.vi:5.1f}   {measures.one_to_one:5.1f}"


def main() -> None:
    """Extract, train, evaluate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/, dev/ and the split")
    parser.add_argument("--split", default="dev", help="split to measure (default: dev)")
    parser.add_argument("--vectors", type=Path, help="word vectors in GloVe's format (text or .npz)")
    parser.add_argument("--model", type=Path, help="folder of a trained disentangler, instead of training one")
    parser.add_argument("--out", type=Path, help="save the trained model here")
    parser.add_argument("--seed", type=int, default=0, help="seed of training and bootstrap")
    parser.add_argument("--quick", action="store_true", help="20 training logs and few trees")
    args = parser.parse_args()
    logs = read_gold(args.data / args.split)
    figures = measure_extraction(args.data / "train")
    by_rules = evaluate_rules(logs)
    start = time.process_time()
    with TemporaryDirectory() as folder:
        if args.model:
            model = load_disentangler(args.model)
        else:
            print("\nTraining")
            options = {"data": str(args.data), "out": args.out or Path(folder), "vectors": args.vectors}
            config = DisentanglerConfig.model_validate(options | {"seed": args.seed} | (QUICK if args.quick else {}))
            model = train(config, PrintedSteps()).model
    seconds = time.process_time() - start
    predicted, speed = predict(model, logs)
    gold = [log.links for log in logs]
    by_model = evaluate_links(predicted, gold)
    print(f"\n{args.split}: {by_model.lines} annotated lines of {len(logs)} logs")
    print(f"{'':<26}{'links P/R/F':>17}   {'exact P/R/F':>17}      VI     1-1")
    print(table_row("rules (Lowe)", by_rules))
    print(table_row("learned", by_model))
    for name, value in {"link_f": link_f(predicted, gold), "exact_f": exact_f(predicted, gold)}.items():
        low, high = interval(len(logs), value, args.seed)
        print(f"learned {name}: {value(range(len(logs))):.1f} [{low:.1f}, {high:.1f}]")
        figures |= {f"learned_{name}_low": low, f"learned_{name}_high": high}
    print(f"learned: {speed:.0f} lines per CPU second; training took {seconds:.0f} CPU seconds")
    figures |= {f"rules_{k}": v for k, v in by_rules.as_json().items()}
    figures |= {f"learned_{k}": v for k, v in by_model.as_json().items()}
    figures |= {"learned_lines_per_cpu_second": speed, "training_cpu_seconds": seconds}
    settings = {"split": args.split, "quick": args.quick, "seed": args.seed, "start_bias": model.start_bias}
    finish("chatlogs_quality", figures, settings | {"vectors": len(model.idf.vectors), "logs": len(logs)})


if __name__ == "__main__":
    main()
