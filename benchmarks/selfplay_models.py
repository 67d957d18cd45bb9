"""Table A.1 of the self-play paper in one command: HRED, VHRED and VHCR, each plain and with EI's ablations, 12 rows.

Rows that are missing in --runs are trained with configs/selfplay-*.toml, one after the other; existing runs are only
judged. An update of VHCR takes twice as long as one of HRED, so each architecture has its own number of updates: about
an hour of CPU time on one thread each (--hours for more or less); the KL divergence has its full weight after half of
them. A run that was interrupted is resumed: stop the script at any time, or start it twice with different --rows to
train two side by side. --judge-only trains nothing, and judges the runs that are complete. What was judged is kept
beside the runs.

Columns as in the paper: perplexity per word (by importance sampling where there are latent variables), KL divergence in
nats per word, and the similarity of greedy replies to what people said, by embeddings. Intervals: 95 %, by bootstrap
over dialogues.
"""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from common import finish
from tertulia.artefacts.files import write_json
from tertulia.artefacts.manifest import is_complete
from tertulia.core.progress import Silent
from tertulia.judge.config import PerplexityConfig
from tertulia.judge.perplexity import run_perplexity
from tertulia.models.threads import use_threads
from tertulia.train.recipe import read_recipe

CONFIGS = Path(__file__).parents[1] / "configs"
UPDATES = {"hred": 4800, "vhred": 3600, "vhcr": 2400}
"""What takes about an hour of one core."""
KINDS = {"none": "", "emotion": " + emotion", "semantics": " + semantics", "both": " + EI"}
SIZES: dict[str, Any] = {"dim": 100, "encoder": 200, "context": 400, "decoder": 400}
"""Smaller than the paper's, and with GloVe of 100 dimensions, so that an hour is enough to learn something."""
LEARNING_RATE = 2e-3
COLUMNS = ("perplexity", "KL", "embedding average", "embedding extrema", "embedding greedy")
QUICK: dict[str, Any] = {"max_dialogues": 60, "valid_dialogues": 6, "max_steps": 4, "validate_every": 2}


class Row(NamedTuple):
    """A model of the table."""

    architecture: str
    kind: str

    @property
    def name(self) -> str:
        return self.architecture.upper() + KINDS[self.kind]

    @property
    def folder(self) -> str:
        return f"{self.architecture}-{self.kind}"


ROWS = tuple(Row(architecture, kind) for kind in ("none", "both", "emotion", "semantics") for architecture in UPDATES)
"""The paper's six first."""


def main() -> None:
    """Train what is missing, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="sample", help="folder with train and the split to judge")
    parser.add_argument("--split", default="valid", help="split to judge (default: valid)")
    parser.add_argument("--runs", type=Path, default=Path("run/selfplay_models"), help="folder of the trained models")
    parser.add_argument("--rows", nargs="*", choices=[row.folder for row in ROWS], help="only these rows")
    parser.add_argument("--vectors", type=Path, help="GloVe of 100 dimensions: to start from, and for the embeddings")
    parser.add_argument("--hours", type=float, default=1.0, help="CPU time of a run, about (default: 1)")
    parser.add_argument("--limit", type=int, default=200, help="dialogues to judge, drawn by the seed")
    parser.add_argument("--replies", type=int, default=200, help="greedy replies to compare with people's")
    parser.add_argument("--judge-only", action="store_true", help="train nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="four updates each, three dialogues")
    args = parser.parse_args()
    use_threads(1)
    if args.quick:
        args.limit = args.replies = 3
    rows = [row for row in ROWS if not args.rows or row.folder in args.rows]
    if not args.judge_only:
        for row in rows:
            train(row, args)
    table = {row: cell(row, args) for row in rows if is_complete(args.runs / row.folder)}
    show(table)
    figures = {f"{row.folder}_{key}": value for row, values in table.items() for key, value in values.items()}
    settings = {"data": Path(args.data).name, "split": args.split, "hours": args.hours, "limit": args.limit}
    finish("selfplay_models", figures, settings | {"seed": args.seed, "quick": args.quick})


def train(row: Row, args: argparse.Namespace) -> None:
    """Train the run of a row, or continue it; nothing if it is complete."""
    folder = args.runs / row.folder
    if is_complete(folder):
        return
    steps = max(1, round(UPDATES[row.architecture] * args.hours))
    options: dict[str, Any] = {"data": args.data, "out": folder, "resume": True, "seed": args.seed, "epochs": 100}
    options |= {"max_steps": steps, "validate_every": max(1, steps // 8), "patience": 8, "min_count": 2}
    options |= {"learning_rate": LEARNING_RATE, "warmup": 100} | (QUICK if args.quick else {})
    if row.architecture != "hred":
        options["kl_steps"] = max(1, steps // 2)
    changes = {f"model.{name}": str(value) for name, value in SIZES.items()} | {"model.ei.kind": row.kind}
    if args.vectors:
        changes["model.vectors"] = str(args.vectors)
    recipe, config = read_recipe(CONFIGS / f"selfplay-{row.architecture}.toml", options, changes=changes)
    recipe.train(config, Silent())
    print(f"{row.name}: trained", flush=True)


def cell(row: Row, args: argparse.Namespace) -> dict[str, float]:
    """The figures of a row, and what its training cost."""
    folder, kept = args.runs / row.folder, args.runs / f"{row.folder}.json"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    key = f"{manifest['training']['steps']} {args.limit} {args.replies} {args.split} {args.seed}"
    saved: dict[str, dict[str, float]] = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    if key not in saved:
        judging = PerplexityConfig(
            runs=(str(folder),),
            data=args.data,
            split=args.split,
            persona=("none",),
            limit=args.limit,
            replies=args.replies,
            vectors=args.vectors,
            seed=args.seed,
        )
        values = {metric: e for (_, _, metric), e in run_perplexity(judging).estimates().items() if metric in COLUMNS}
        saved[key] = {
            name.replace(" ", "_") + suffix: number
            for name, e in values.items()
            for suffix, number in (("", e.value), ("_low", e.low), ("_high", e.high))
        }
        write_json(kept, saved)
    cost = {"cpu_minutes": manifest["training"]["cpu_seconds"] / 60, "updates": manifest["training"]["steps"]}
    return saved[key] | cost


def show(table: Mapping[Row, Mapping[str, float]]) -> None:
    """Print the rows in the paper's layout."""
    print(
        f"{'':<20}" + "".join(f"{name.removeprefix('embedding '):>24}" for name in COLUMNS) + "  CPU minutes, updates"
    )
    for row, values in table.items():
        cells = (shown(values, name.replace(" ", "_")) for name in COLUMNS)
        cost = f"  {values['cpu_minutes']:.0f}, {values['updates']:.0f}"
        print(f"{row.name:<20}" + "".join(f"{text:>24}" for text in cells) + cost)


def shown(values: Mapping[str, float], name: str) -> str:
    """A figure with its interval; empty if the model has none."""
    if name not in values:
        return ""
    digits = 2 if name == "perplexity" else 3
    return f"{values[name]:.{digits}f} [{values[name + '_low']:.{digits}f}, {values[name + '_high']:.{digits}f}]"


if __name__ == "__main__":
    main()
