"""Perplexity per word of generative models on Persona-Chat, with and without own persona, and learning curves.

Runs that are missing in --runs are trained with configs/personachat-*.toml on the train split, one after the other
(start the script twice with different --rows to train two in parallel); existing runs are only evaluated, like `judge
perplexity`: turns of the second speaker, intervals by bootstrap over dialogues. One model serves both settings: some of
its training dialogues had no persona. The curve is measured on the 200 dialogues used for early stopping.
"""

import argparse
import json
import os
from pathlib import Path
from typing import NamedTuple

from common import finish
from tertulia.core.progress import Silent
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import PersonaSetting
from tertulia.judge.perplexity import judge_perplexity
from tertulia.models.likelihood import views_of
from tertulia.train.recipe import read_recipe

CONFIGS = Path(__file__).parents[1] / "configs"
SETTINGS = (PersonaSetting(), PersonaSetting("own", "original"), PersonaSetting("own", "revised"))
QUICK = {"max_dialogues": 200, "valid_dialogues": 20, "epochs": 1, "max_steps": 20, "validate_every": 10}


class Row(NamedTuple):
    """A model, and the figures of its paper."""

    name: str
    config: str
    paper: tuple[str, str, str] = ("", "", "")
    more: tuple[PersonaSetting, ...] = ()
    """Additional settings that it was trained for."""


ROWS = (
    Row("LSTM", "personachat-seq2seq", ("38.08", "40.53", "40.65")),
    Row("Seq2Seq", "personachat-seq2seq-encoder", ("38.08", "40.53", "40.65")),
    Row("Profile Memory", "personachat-generative-profile-memory", ("38.08", "34.54", "38.21")),
    Row("Transformer", "personachat-transformer"),
    Row("Evolved Transformer", "personachat-evolved"),
    Row("Evolved, both", "personachat-evolved-both", more=(PersonaSetting("their"), PersonaSetting("both"))),
)

WORD_MODELS = ("personachat-seq2seq", "personachat-seq2seq-encoder", "personachat-generative-profile-memory")
"""Those that start from GloVe's vectors, if they are given."""


def main() -> None:
    """Train what is missing, evaluate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train and the split to evaluate")
    parser.add_argument("--split", default="valid", help="split to evaluate (default: valid)")
    parser.add_argument("--judge-data", type=Path, help="file or folder to evaluate on, if it is not in --data")
    parser.add_argument("--runs", type=Path, default=Path("run/generate_quality"), help="folder of the trained models")
    parser.add_argument("--rows", nargs="*", choices=[row.name for row in ROWS], help="only these rows")
    parser.add_argument("--vectors", type=Path, help="GloVe vectors of 100 dimensions to initialise models of words")
    parser.add_argument(
        "--curves", action="store_true", help="train nothing: print only the curves, also of unfinished runs"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="20 updates each, evaluate on 20 dialogues")
    args = parser.parse_args()
    rows = [row for row in ROWS if not args.rows or row.name in args.rows]
    figures: dict[str, float] = {}
    if not args.curves:
        figures |= table(rows, args)
    curves(rows, args.runs)
    finish("generate_quality", figures, {"split": args.split, "seed": args.seed, "quick": args.quick})


def table(rows: list[Row], args: argparse.Namespace) -> dict[str, float]:
    """Print perplexity per word, one row per model."""
    dialogues = list(load_dialogues(args.judge_data or args.data, split=None if args.judge_data else args.split))
    dialogues = dialogues[:20] if args.quick else dialogues
    figures: dict[str, float] = {}
    costs = []
    print(f"{'perplexity per word':<22}{'none':>24}{'own, original':>24}{'own, revised':>24}   paper")
    for row in rows:
        folder, line = trained(row, args)
        costs.append(line)
        cells, spelled = [], []
        for setting in (*SETTINGS, *row.more):
            estimates = judge_perplexity(str(folder), dialogues, setting=setting, speaker="second", seed=args.seed)
            figure = estimates["perplexity"]
            cells.append(f"{figure.value:.2f} [{figure.low:.2f}, {figure.high:.2f}]")
            key = f"{row.name} {setting}".lower().replace(",", "").replace(" ", "_")
            figures |= {key: figure.value, f"{key}_low": figure.low, f"{key}_high": figure.high}
            figures[f"{key}_per_token"] = estimates["perplexity per token"].value
            with_spelling = estimates["perplexity with spelling"]
            spelled.append(f"{with_spelling.value:.2f} [{with_spelling.low:.2f}, {with_spelling.high:.2f}]")
            figures[f"{key}_with_spelling"] = with_spelling.value
        columns = "".join(f"{cell:>24}" for cell in cells[: len(SETTINGS)])
        print(f"{row.name:<22}{columns}   {' / '.join(row.paper)}", flush=True)
        print(f"{'  with spelling':<22}{''.join(f'{cell:>24}' for cell in spelled[: len(SETTINGS)])}", flush=True)
        for setting, cell in zip(row.more, cells[len(SETTINGS) :], strict=True):
            print(f"{'':<22}{setting}: {cell}", flush=True)
    turns = sum(sum(t.own) for d in dialogues for t in views_of(d, "none", "second"))
    print(f"n = {turns} turns of the second speaker in {len(dialogues)} dialogues; punctuation and ends of turns count")
    print(
        "as words. A word outside the vocabulary of a word-level model counts as its unknown token, and with spelling"
    )
    print("also as its letters under a model of characters: compare models of words and of subwords by that line.")
    for line in costs:
        print(line)
    return figures


def trained(row: Row, args: argparse.Namespace) -> tuple[Path, str]:
    """The run of a row, trained or resumed if it is not complete, and what it cost."""
    folder: Path = args.runs / row.config
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        overrides: dict[str, object] = {"data": str(args.data), "out": folder, "resume": True, "seed": args.seed}
        overrides |= QUICK if args.quick else {}
        recipe, config = read_recipe(CONFIGS / f"{row.config}.toml", overrides)
        if args.vectors and row.config in WORD_MODELS:
            config = config.model_copy(
                update={"model": config.model.model_copy(update={"vectors": args.vectors, "dim": 100})}
            )
        os.environ["OMP_NUM_THREADS"] = "1"
        recipe.train(config, Silent())
    training = json.loads(manifest.read_text(encoding="utf-8"))["training"]
    return folder, (
        f"tertulia train configs/{row.config}.toml: {training['cpu_seconds'] / 60:.1f} CPU minutes,"
        f" {training['steps']} updates, {training['parameters'] / 1e6:.2f} M parameters ({training['ended']})"
    )


def curves(rows: list[Row], runs: Path) -> None:
    """Print perplexity per word by CPU time, with own personas."""
    print("\nvalidation perplexity per word (own persona) by updates and CPU minutes")
    for row in rows:
        folder = runs / row.config
        record = folder / "record.jsonl"
        record = record if record.is_file() else folder / "partial" / "record.jsonl"
        lines = map(json.loads, record.read_text(encoding="utf-8").splitlines()) if record.is_file() else ()
        for line in lines:
            if "valid" in line:
                perplexity = line["valid"]["perplexity"]
                print(f"{row.name:<22}{line['step']:>8}{line['cpu_seconds'] / 60:>8.1f}{perplexity:>9.2f}")


if __name__ == "__main__":
    main()
