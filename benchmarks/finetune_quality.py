"""A fine-tuned language model on Persona-Chat: perplexity per word over CPU minutes, beside the paper and our models.

`tertulia train configs/personachat-finetune.toml` makes the run (--train trains or resumes it here; it can be stopped
at any time and continued on another day). The curve is what training measured on its validation dialogues, also of an
unfinished run. The table is `judge perplexity` on the base, in its own template (base) and in the layout that the run
is trained with (untrained), and on the run (tuned): turns of the second speaker, with the own
persona, none, and the revised one, intervals by bootstrap over dialogues. Of an unfinished run the best weights so far
are judged. Results are kept in RUN/finetune_quality.json, one cell after the other, and not computed again.

With --data sample the same for configs/sample-finetune.toml: text that the base cannot have seen.
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from common import finish
from tertulia.artefacts.files import write_json
from tertulia.artefacts.manifest import is_complete
from tertulia.core.progress import Silent
from tertulia.judge.config import PerplexityConfig, PersonaSetting
from tertulia.judge.perplexity import run_perplexity
from tertulia.models.hf.finetuned import FinetunedGenerator
from tertulia.models.hf.lora import merge
from tertulia.models.threads import use_threads
from tertulia.talk.bots.dialogue_model import DialogueModelBot
from tertulia.talk.bots.huggingface import HuggingFaceOptions
from tertulia.train.loop import BEST, STATE
from tertulia.train.recipe import read_recipe
from tertulia.train.recipes.finetune import FinetuneRecipe

CONFIGS = Path(__file__).parents[1] / "configs"
SETTINGS = {
    "own": PersonaSetting("own", "original"),
    "none": PersonaSetting(),
    "revised": PersonaSetting("own", "revised"),
}
MODELS = ("base", "untrained", "tuned")
PAPER = {"own": 34.54, "none": 38.08, "revised": 38.21}
"""Zhang et al. 2018, table 3: the best generative model by setting, of the paper's own words and training."""
FROM_NOTHING = {"own": 37.51, "none": 39.32, "revised": 38.98}
"""Our best models without pretraining on the whole valid split (docs/benchmarks.md)."""
AIMS = {"own": 15.0, "none": 19.0, "revised": 17.5}
QUICK = {"max_dialogues": 16, "valid_dialogues": 2, "max_steps": 2, "validate_every": 1, "accumulate": 1}


def main() -> None:
    """Train if asked to, judge what is missing, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="sample", help="Persona-Chat's folder (train and valid), or sample")
    parser.add_argument("--run", type=Path, required=True, help="folder of the training run")
    parser.add_argument("--train", action="store_true", help="train the run, or resume it")
    parser.add_argument("--curve", action="store_true", help="only print the curve")
    parser.add_argument("--limit", type=int, default=100, help="dialogues to judge, drawn by the seed; 0 for all")
    parser.add_argument("--ranked", type=int, default=0, help="also hits@1 by likelihood of this many replies")
    parser.add_argument("--replies", type=int, default=0, help="also F1 of this many greedy replies")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two updates, two dialogues")
    args = parser.parse_args()
    use_threads(1)
    args.personachat = args.data != "sample"
    if args.quick:
        args.limit, args.train = 2, True
    if args.train:
        train(args)
    figures = dict(curve(args.run))
    if not args.curve:
        figures |= table(args)
    settings = {"limit": args.limit, "seed": args.seed, "quick": args.quick, "personachat": args.personachat}
    finish("finetune_quality", figures, settings)


def recipe_of(args: argparse.Namespace) -> tuple[Any, FinetuneRecipe]:
    """The recipe of the data with the script's settings."""
    name = "personachat-finetune" if args.personachat else "sample-finetune"
    overrides: dict[str, Any] = {"data": args.data, "out": args.run, "resume": True, "seed": args.seed}
    recipe, config = read_recipe(CONFIGS / f"{name}.toml", overrides | (QUICK if args.quick else {}))
    assert isinstance(config, FinetuneRecipe)
    return recipe, config


def train(args: argparse.Namespace) -> None:
    """Train the run, or continue where it was interrupted."""
    if not is_complete(args.run):
        recipe, config = recipe_of(args)
        recipe.train(config, Silent())


def curve(run: Path) -> Iterator[tuple[str, float]]:
    """Print and return the validation figures of the record, also of an unfinished run."""
    record = run / "record.jsonl"
    record = record if record.is_file() else run / "partial" / "record.jsonl"
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()] if record.is_file() else []
    print("validation perplexity per word by updates and CPU minutes")
    for line in lines:
        if "valid" in line:
            minutes, value = line["cpu_seconds"] / 60, line["valid"]["perplexity"]
            print(f"{line['step']:>8}{minutes:>8.1f}{value:>9.2f}", flush=True)
            yield f"curve_{line['step']}", value
            yield f"curve_{line['step']}_cpu_minutes", minutes


def table(args: argparse.Namespace) -> dict[str, float]:
    """Judge base and run in every setting, and print them beside the published figures."""
    args.run.mkdir(parents=True, exist_ok=True)
    kept = args.run / "finetune_quality.json"
    cells: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    figures: dict[str, float] = {}
    settings = {name: SETTINGS[name] for name in args.settings}
    print(f"\n{'perplexity per word':<24}" + "".join(f"{name:>26}" for name in settings))
    if args.personachat:
        for title, row in (("paper", PAPER), ("our best from nothing", FROM_NOTHING), ("aim", AIMS)):
            print(f"{title:<24}" + "".join(f"{row[name]:>26.2f}" for name in settings))
    for which in args.models:
        columns = []
        for name, setting in settings.items():
            key = f"{which} {name} {state_of(which, args)} {args.limit} {args.seed} {args.ranked} {args.replies}"
            if key not in cells:
                cells[key] = judge(which, setting, args)
                write_json(kept, cells)
            cell = cells[key]
            columns.append(f"{cell['perplexity']:.2f} [{cell['perplexity_low']:.2f}, {cell['perplexity_high']:.2f}]")
            figures |= {f"{which}_{name}_{metric}": value for metric, value in cell.items()}
        print(f"{which:<24}" + "".join(f"{column:>26}" for column in columns), flush=True)
    for name, value in figures.items():
        if "hits@1" in name or "f1" in name:
            print(f"{name}: {value:.3f}")
    return figures


def state_of(which: str, args: argparse.Namespace) -> str:
    """What tells results apart: nothing for the base, the weights for the run."""
    if which != "tuned":
        return ""
    file = args.run / "manifest.json"
    file = file if file.is_file() else weights_of(args.run)
    return f"{int(file.stat().st_mtime)}"


def weights_of(run: Path) -> Path:
    """The best weights of an unfinished run, or the latest ones before its first validation."""
    files = [run / "partial" / name for name in (BEST, STATE)]
    if not any(file.is_file() for file in files):
        raise SystemExit(f"There is no run in {run}: train one with --train.")
    return next(file for file in files if file.is_file())


def judge(which: str, setting: PersonaSetting, args: argparse.Namespace) -> dict[str, float]:
    """One cell: the figures of one model in one setting."""
    _, config = recipe_of(args)
    spec = config.base if config.base == "smollm2" else f"hf:{config.base}"
    bots = [] if which == "base" else [bot_of(which, config, args.run)]
    judging = PerplexityConfig(
        runs=(spec if which == "base" else which,),
        data=args.data,
        persona=(setting.scope,),
        wording=(setting.wording,),
        limit=args.limit or None,
        ranked=args.ranked,
        replies=args.replies,
        seed=args.seed,
    )
    judged = run_perplexity(judging, models=bots)
    cell: dict[str, float] = {}
    for (_, _, metric), estimate in judged.estimates().items():
        name = metric.replace(" ", "_")
        cell |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return cell


def bot_of(which: str, config: FinetuneRecipe, run: Path) -> DialogueModelBot:
    """The base in the layout of the run, or the run's model; of an unfinished run the best weights so far."""
    if which == "tuned" and is_complete(run):
        model = FinetunedGenerator.load(run)
    else:
        model = FinetunedGenerator.untrained(config.model, config.base)
        if which == "tuned":
            state = torch.load(weights_of(run), weights_only=True, map_location="cpu")
            model.load_state_dict(state["module"])
        merge(model.model)
    options = HuggingFaceOptions(method="greedy", filters="none")
    return DialogueModelBot(model.eval(), options, spec=f"finetune:{run}")


if __name__ == "__main__":
    main()
