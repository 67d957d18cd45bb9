"""Train the two models that consistency.py needs: a judge of replies, and the model inside the filter.

    python benchmarks/consistency_models.py --personas personachat --inference nli --out runs

A filter must not be judged by a model that learned from the same examples. So every premise (a persona sentence, a
caption) belongs to one side, by its hash, and with it all its pairs: silver pairs of the training personas, Dialogue
NLI's training pairs and SNLI's. The seeds differ, too. Nothing of a validation split of Persona-Chat or Dialogue NLI is
learned from; one premise in twenty is held out to decide when to stop. Of the training dialogues, one in ten is left to
consistency.py, which chooses thresholds on what people say in it.

A model that has learned from such pairs alone blames whoever says something that the persona does not tell. So it also
learns from what people say (`said`): statements with the sentences of the speaker's own persona, some of which they
bear on. People are true to their personas, so these pairs are entailed or neutral ("not contradiction"). The judge
reads more of them, and more that have nothing to do with each other: it compares everything with everything and should
not blame the innocent, while the filter compares what is related and should rather drop one too many.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common import finish
from consistency import sets_threshold
from tertulia.artefacts.files import fingerprint
from tertulia.core.consistency import Claim, all_pairs, related_pairs
from tertulia.core.dialogue import Dialogue, exchanges
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
ONLY_TRAIN = ("snli", "said")
"""Sources that no model is validated on: one is about pictures, one has no single label."""


class Plan(NamedTuple):
    """What a side learns from, and how long."""

    per_label: int
    """Silver pairs of each label, both sides together."""
    said: int
    """Pairs of what people say, both sides together."""
    far: int
    """One in so many of these need not have anything to do with each other."""
    epochs: int
    validate_every: int


PLANS = {"judge": Plan(6000, 24_000, 2, 3, 250), "filter": Plan(4000, 10_000, 4, 2, 125)}
QUICK = Plan(300, 300, 2, 1, 20)


class Pair(NamedTuple):
    premise: str
    hypothesis: str
    label: str
    source: str


def labelled_pairs(dialogues: list[Dialogue], inference: Path, plan: Plan, seed: int) -> Iterator[Pair]:
    """Persona sentences and captions as premises."""
    yield from said_pairs(dialogues, plan.said, plan.far, seed)
    for e in persona_pairs(dialogues, PersonaSilverConfig(per_label=plan.per_label, seed=seed)):
        yield Pair(e.evidence[0].text, e.response.text, str(e.label), "silver")
    for name, source in (("dnli_sample/nli-train.txt.gz", "dnli"), ("snli/validation.tsv.gz", "snli")):
        pairs = list(read_labelled_pairs(inference / name))
        for pair, labels in zip(pairs, nli_labels(pairs), strict=True):
            # Dialogue NLI has the persona sentence second.
            premise, hypothesis = (pair.second, pair.first) if source == "dnli" else (pair.first, pair.second)
            yield Pair(premise, hypothesis, labels[0], source)


def said_pairs(dialogues: list[Dialogue], count: int, far: int, seed: int) -> list[Pair]:
    """Statements of people with sentences of their own personas, which they do not contradict."""
    rng, pairs = random.Random(seed), dict[Pair, None]()
    while len(pairs) < count:
        e = rng.choice(list(exchanges(rng.choice(dialogues))))
        if e.persona and e.context:
            claim = Claim(e.response.text, e.persona.sentences, e.context[-1].text)
            own = all_pairs(claim) if rng.randrange(far) == 0 else related_pairs(claim)
            if own:
                pairs[Pair(*rng.choice(own), "not contradiction", "said")] = None
    return list(pairs)


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
        if not held_out or pair.source not in ONLY_TRAIN:
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
    parser.add_argument("--side", choices=SIDES, action="append", help="train only this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few pairs")
    given = parser.parse_args()
    dialogues = [one for one in load_dialogues(given.personas, split="train") if not sets_threshold(one)]
    figures: dict[str, float] = {}
    for side in given.side or SIDES:
        number, plan = SIDES.index(side), QUICK if given.quick else PLANS[side]
        pairs = list(dict.fromkeys(labelled_pairs(dialogues, given.inference, plan, given.seed)))
        sizes = write_side(side, pairs, given.out / "pairs" / side, given.seed + number)
        config = EntailmentRecipe.model_validate(
            {
                "data": str(given.out / "pairs" / side),
                "out": given.out / side,
                "seed": given.seed + number,
                "epochs": plan.epochs,
                "learning_rate": 2e-4,
                "validate_every": plan.validate_every,
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
    plans = {side: plan._asdict() for side, plan in PLANS.items()}
    finish("consistency_models", figures, {"plans": plans, "quick": given.quick, "seed": given.seed})


if __name__ == "__main__":
    main()
