"""Train the two models that consistency.py needs: a judge of replies, and the model inside the filter.

    python benchmarks/consistency_models.py --personas personachat --inference nli --out runs

A filter must not be judged by a model that learned from the same examples. So every premise (a persona sentence, a
caption) belongs to one side, by its hash, and with it all its pairs: silver pairs of the training personas, Dialogue
NLI's training pairs and SNLI's. The seeds differ, too. Nothing of a validation split of Persona-Chat or Dialogue NLI is
learned from; one premise in twenty is held out to decide when to stop.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common import finish
from tertulia.artefacts.files import fingerprint
from tertulia.core.progress import Silent
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.readers.text_pairs import nli_labels, read_labelled_pairs
from tertulia.corpus.silver.persona import PersonaSilverConfig, persona_pairs
from tertulia.train.recipes.entailment import RECIPE, EntailmentRecipe

SIDES = ("judge", "filter")
HELD_OUT = 20
"""One premise in so many is for validation."""
CAPTIONS = 1000
"""Pairs of SNLI on each side: they are about pictures, and would outweigh the personas."""


class Pair(NamedTuple):
    premise: str
    hypothesis: str
    label: str
    source: str


def all_pairs(personas: str, inference: Path, per_label: int, seed: int) -> Iterator[Pair]:
    """Persona sentences and captions as premises."""
    dialogues = list(load_dialogues(personas, split="train"))
    for e in persona_pairs(dialogues, PersonaSilverConfig(per_label=per_label, seed=seed)):
        yield Pair(e.evidence[0].text, e.response.text, str(e.label), "silver")
    for name, source in (("dnli_sample/nli-train.txt.gz", "dnli"), ("snli/validation.tsv.gz", "snli")):
        pairs = list(read_labelled_pairs(inference / name))
        for pair, labels in zip(pairs, nli_labels(pairs), strict=True):
            # Dialogue NLI has the persona sentence second.
            premise, hypothesis = (pair.second, pair.first) if source == "dnli" else (pair.first, pair.second)
            yield Pair(premise, hypothesis, labels[0], source)


def on_side(pair: Pair, side: str) -> bool:
    return int(fingerprint([pair.premise, "side"]), 16) % 2 == SIDES.index(side)


def write_side(side: str, pairs: list[Pair], folder: Path, seed: int) -> dict[str, int]:
    """The pairs of a side as files to train and to validate on."""
    own = [pair for pair in pairs if on_side(pair, side)]
    captions = [pair for pair in own if pair.source == "snli"]
    random.Random(seed).shuffle(captions)
    own = [pair for pair in own if pair.source != "snli"] + captions[:CAPTIONS]
    parts: dict[str, list[Pair]] = {"train": [], "valid": []}
    for pair in own:
        held_out = int(fingerprint([pair.premise, "valid"]), 16) % HELD_OUT == 0
        if not held_out or pair.source != "snli":
            parts["valid" if held_out else "train"].append(pair)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in parts.items():
        lines = [json.dumps({"premise": p.premise, "hypothesis": p.hypothesis, "label": p.label}) for p in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {name: len(rows) for name, rows in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--personas", required=True, help="folder of Persona-Chat")
    parser.add_argument("--inference", type=Path, required=True, help="folder with dnli_sample and snli")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs `judge` and `filter`")
    parser.add_argument("--per-label", type=int, default=2000, help="silver pairs of each label, both sides together")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--side", choices=SIDES, action="append", help="train only this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few pairs")
    given = parser.parse_args()
    per_label = 300 if given.quick else given.per_label
    pairs = list(dict.fromkeys(all_pairs(given.personas, given.inference, per_label, given.seed)))
    figures: dict[str, float] = {}
    for side in given.side or SIDES:
        number = SIDES.index(side)
        sizes = write_side(side, pairs, given.out / "pairs" / side, given.seed + number)
        config = EntailmentRecipe.model_validate(
            {
                "data": str(given.out / "pairs" / side),
                "out": given.out / side,
                "seed": given.seed + number,
                "epochs": given.epochs,
                "learning_rate": 2e-4,
                "validate_every": 125,
                "patience": 5,
                "max_pairs": 600 if given.quick else None,
                "max_valid_pairs": 400,
                "model": {"max_length": 96},
            }
        )
        start = time.process_time()
        trained = RECIPE.train(config, Silent())
        minutes = (time.process_time() - start) / 60
        valid = {name: round(float(value), 3) for name, value in dict(trained.figures()["valid"]).items()}  # type: ignore[call-overload]
        print(f"{side}: {sizes}, {minutes:.1f} CPU minutes, valid {valid}", flush=True)
        figures |= {f"{side} minutes": minutes} | {f"{side} {name}": value for name, value in valid.items()}
    finish("consistency_models", figures, {"per_label": per_label, "epochs": given.epochs, "seed": given.seed})


if __name__ == "__main__":
    main()
