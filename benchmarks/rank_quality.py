"""hits@1 of every ranking bot on Persona-Chat, compared with the paper's figures; evaluated like `judge rank`.

Runs that are missing in --runs are trained with configs/personachat-*.toml on the train split (the command and its cost
are printed); existing runs are only evaluated. Data: a folder with train and the split to evaluate, as JSON of
Persona-Chat; 19 distractors sampled from the same split, replies of the second speaker. The paper's distractors are not
published, so its figures are for orientation only.

`Blend` adds the z-scores of other rows over the twenty candidates (`blend:`), with the weights of --weights.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from common import finish
from tertulia.core.progress import Silent
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import PersonaSetting, RankConfig
from tertulia.judge.rank import judge_rank
from tertulia.judge.ranking_tasks import rank_tasks
from tertulia.metrics.registry import metric_named
from tertulia.metrics.significance import estimate
from tertulia.talk.spec import make_bot
from tertulia.train.recipe import read_recipe

CONFIGS = Path(__file__).parents[1] / "configs"
SETTINGS = (PersonaSetting(), PersonaSetting("own", "original"), PersonaSetting("own", "revised"))


class Row(NamedTuple):
    """A row of the table: which run is evaluated without and with a persona."""

    name: str
    config: str
    """Name of the config; empty for tf-idf, which is not trained."""
    alone: bool
    """Whether a separate model is trained for the setting without personas."""
    paper: tuple[str, str, str]


ROWS = (
    Row("IR", "", False, (".214", ".410", ".207")),
    Row("Starspace", "personachat-starspace", True, (".318", ".491", ".322")),
    Row("Profile Memory", "personachat-memory", True, (".318", ".509", ".354")),
    Row("KV Profile Memory", "personachat-kv", True, (".349", ".511", ".351")),
    Row("MiniLM", "personachat-minilm", False, ("", "", "")),
    Row("Cross-encoder", "personachat-cross", False, ("", "", "")),
)
LARGE = {"MiniLM", "Cross-encoder"}
BLEND = "Blend"


def main() -> None:
    """Train what is missing, evaluate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train and the split to evaluate")
    parser.add_argument("--split", default="valid", help="split to evaluate (default: valid)")
    parser.add_argument("--judge-data", type=Path, help="file or folder to evaluate on, if it is not in --data")
    parser.add_argument("--runs", type=Path, default=Path("run/rank_quality"), help="folder of the trained models")
    parser.add_argument("--rows", nargs="*", help="only these rows")
    parser.add_argument("--blend", nargs="*", default=["MiniLM", "Profile Memory", "Starspace"], help="rows to blend")
    parser.add_argument("--weights", nargs="*", type=float, default=[1.0, 0.5, 0.5], help="one for each of them")
    parser.add_argument("--limit", type=int, help="evaluate on the first dialogues only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="train on 300 dialogues, evaluate on 50, no MiniLM")
    args = parser.parse_args()
    blend = Row(BLEND, "", False, ("", "", ""))
    rows = [
        row
        for row in (*ROWS, blend)
        if (not args.rows or row.name in args.rows) and not (args.quick and row.name in {*LARGE, BLEND})
    ]
    judged = list(load_dialogues(args.judge_data or args.data, split=None if args.judge_data else args.split))
    config = RankConfig(speaker="second", seed=args.seed, metrics=("hits@1", "hits@5", "mrr"))
    judged = judged[: 50 if args.quick else args.limit]
    tasks = rank_tasks(judged, config)
    print(f"{'hits@1 of 20':<20}{'none':>24}{'own, original':>26}{'own, revised':>26}   paper")
    figures: dict[str, float] = {}
    costs: list[str] = []
    for row in rows:
        cells = []
        for setting in SETTINGS:
            parts = [one for name in args.blend for one in ROWS if one.name == name] if row is blend else [row]
            specs = [bot_for(one, setting, args.data, args.runs, args.quick, costs) for one in parts]
            spec = specs[0]
            if row is blend:
                spec = f"blend:{','.join(specs)}?weights={','.join(map(str, args.weights))}"
            started = time.perf_counter()
            hits = judge_rank(make_bot(spec), tasks, config, setting=setting)[0]
            figure = estimate(hits, metric_named("hits@1"), seed=args.seed)
            cells.append(f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]")
            key = f"{row.name} {setting}".lower().replace(",", "").replace(" ", "_")
            figures |= {key: figure.value, f"{key}_low": figure.low, f"{key}_high": figure.high}
            figures[f"{key}_seconds"] = time.perf_counter() - started
        print(f"{row.name:<20}{cells[0]:>24}{cells[1]:>26}{cells[2]:>26}   {' / '.join(row.paper)}", flush=True)
    print(
        f"n = {len(tasks)} replies of the second speaker in {len(judged)} dialogues, 95 % intervals by bootstrap over"
    )
    print(
        "dialogues; 19 distractors sampled from the same split (the paper's are not published); models are trained on"
    )
    print("original personas only.")
    for line in dict.fromkeys(costs):
        print(line)
    settings = {"split": args.split, "n": len(tasks), "seed": args.seed, "quick": args.quick}
    finish("rank_quality", figures, settings | {"blend": args.blend, "weights": args.weights})


def bot_for(row: Row, setting: PersonaSetting, data: Path, runs: Path, quick: bool, costs: list[str]) -> str:
    """The bot of a cell, trained now if it does not exist yet."""
    train = next((f for f in sorted(data.glob("train*")) if f.is_file()), data)
    if not row.config:
        return f"tfidf:{train}?max_ngram=1&context=last"
    no_persona = row.alone and setting.scope == "none"
    folder = runs / (row.config + ("-none" if no_persona else ""))
    overrides: dict[str, object] = {"data": str(data), "out": folder, "resume": True}
    overrides |= {"persona": "none"} if no_persona else {}
    overrides |= {"max_dialogues": 300, "epochs": 2} if quick else {}
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        recipe, config = read_recipe(CONFIGS / f"{row.config}.toml", overrides)
        os.environ["OMP_NUM_THREADS"] = "1"
        recipe.train(config, Silent())
    training = json.loads(manifest.read_text(encoding="utf-8"))["training"]
    note = " (persona = none)" if no_persona else ""
    costs.append(
        f"tertulia train configs/{row.config}.toml{note}: {training['seconds'] / 60:.1f} minutes, "
        f"{training['cpu_seconds'] / 60:.1f} CPU minutes, {training['steps']} updates"
    )
    return str(folder)


if __name__ == "__main__":
    main()
