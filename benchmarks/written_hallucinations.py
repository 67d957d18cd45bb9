"""Do hallucinations that a language model writes make a better grounding classifier than those that rules make?

    python benchmarks/written_hallucinations.py --candidates candidates.jsonl --data ../shared/data/cmu_dog

The paper's recipe (Dziri et al. 2021) lets a dialogue model answer other evidence than the example has. The candidates
that grounded_filter.py drew (--cache) are such replies: each was written from one section of a document, and is
presented with a sentence of another section of the same document, if it shares at most half of its content words with
it. They are from CMU-DoG's valid split; the silver data is from its train split, and no text of BEGIN is among either.

The lexical model is learned from silver data alone, from silver data with the written ones on top, and with the written
ones instead of as many hallucinations by rules, for several seeds. Measured on BEGIN's first release, dev: accuracy and
macro-F1 of five labels with tuned priors, F1 of hallucination, ROC-AUC of support. Intervals of differences: 95 %, by
bootstrap over passages, of the mean over seeds.
"""

import argparse
import json
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

from common import finish
from grounding_quality import Labelled, read, tuned
from tertulia.core.dialogue import Dialogue
from tertulia.core.grounding import LABELS, GroundingInput, parse_label
from tertulia.core.text import sentences
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.silver.generate import SilverConfig, silver_exchanges
from tertulia.corpus.silver.written import OTHER, is_unsupported
from tertulia.metrics.intervals import cluster_codes
from tertulia.models.classifiers.grounding_features import FEATURES, grounding_features
from tertulia.models.classifiers.grounding_heads import fit_heads
from tertulia.train.recipes.grounding import SilverExample, grounding_input

PER_CONTEXT = 3
"""Replies to one context that are used: candidates resemble each other."""
PENALTY = 0.03
PRIORS = (1.0,) * 5
RESAMPLES = 200
Gold = np.ndarray


def written(file: Path, dialogues: Sequence[Dialogue], seed: int) -> list[SilverExample]:
    """Replies written from one section of a document, each with a sentence of another one."""
    rng = random.Random(seed)
    by_id = {dialogue.id: dialogue for dialogue in dialogues}
    made: list[SilverExample] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        name, _, index = row["id"].partition("#")
        dialogue, turn = by_id[name], by_id[name].turns[int(index)]
        others = [e for e in dialogue.evidence if not e.id.endswith(f"/{turn.meta.get('docIdx')}")]
        pool = [s for e in others for s in sentences(e.text) if 6 <= len(s.split()) <= 40]
        used = 0
        for text in dict.fromkeys(candidate[0] for candidate in row["candidates"]):
            evidence = rng.choice(pool) if pool else ""
            if evidence and used < PER_CONTEXT and is_unsupported(text, evidence):
                one = GroundingInput(evidence, dialogue.turns[int(index) - 1].text, text)
                made.append(SilverExample(one, "hallucination", OTHER))
                used += 1
    return made


def silver(dialogues: Sequence[Dialogue], per_label: int, seed: int) -> list[SilverExample]:
    made = silver_exchanges(dialogues, SilverConfig(per_label=per_label, seed=seed))
    return [
        SilverExample(grounding_input(e), parse_label(str(e.label)), str(e.response.meta["operation"]))  # type: ignore[arg-type]
        for e in made
    ]


def replaced(examples: list[SilverExample], new: list[SilverExample], seed: int) -> list[SilverExample]:
    """The written examples instead of as many hallucinations by rules."""
    rules = [i for i, e in enumerate(examples) if e.label == "hallucination"]
    dropped = set(random.Random(seed).sample(rules, min(len(rules), len(new))))
    return [e for i, e in enumerate(examples) if i not in dropped] + new


def predict(examples: Sequence[SilverExample], data: Labelled) -> np.ndarray:
    """Probabilities of the five labels by a lexical model of these examples."""
    values = grounding_features([e.input for e in examples])
    labels, operations = [e.label for e in examples], [e.operation for e in examples]
    heads = fit_heads(values, labels, operations, features=FEATURES, penalty=PENALTY)
    return heads.probabilities(grounding_features(data.inputs), PRIORS)


def figures_of(rows: np.ndarray, predicted: np.ndarray, gold: Gold, weights: np.ndarray) -> np.ndarray:
    """Accuracy, macro-F1, F1 of hallucination, ROC-AUC of support."""
    by_label = f1_score(gold, predicted, average=None, labels=range(5), sample_weight=weights, zero_division=0)
    accuracy = float(np.average(predicted == gold, weights=weights))
    auc = roc_auc_score(gold == 0, rows[:, 0], sample_weight=weights)
    return np.array([accuracy, by_label.mean(), by_label[LABELS.index("hallucination")], auc])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=Path, required=True, help="what grounded_filter.py kept with --cache")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cmu_dog"))
    parser.add_argument("--begin", type=Path, default=Path("../shared/data/begin"))
    parser.add_argument("--per-label", type=int, default=1000)
    parser.add_argument("--dialogues", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    data = read(given.begin / "v1_dev.tsv")
    gold = np.array([LABELS.index(parse_label(label)) for label in data.labels])  # type: ignore[arg-type]
    train = list(islice(load_dialogues(given.data, split="train"), given.dialogues))
    valid = list(load_dialogues(given.data, split="valid"))
    arms: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    counts = []
    for seed in range(given.seeds):
        rules, new = silver(train, given.per_label, seed), written(given.candidates, valid, seed)
        counts.append(len(new))
        for name, examples in (
            ("rules", rules),
            ("rules and written", rules + new),
            ("written for rules", replaced(rules, new, seed)),
        ):
            rows = predict(examples, data)
            arms.setdefault(name, []).append((rows, tuned(rows, gold).argmax(1)))
    print(f"{len(gold)} responses, {given.seeds} seeds, {counts} written examples beside {len(rules)} by rules")
    finish("written_hallucinations", report(arms, gold, data), {"per_label": given.per_label, "written": counts})


def report(arms: dict[str, list[tuple[np.ndarray, np.ndarray]]], gold: Gold, data: Labelled) -> dict[str, float]:
    """Print every arm, and its difference from the first."""
    names = ("accuracy", "macro-F1", "F1 of hallucination", "ROC-AUC")
    codes, passages = cluster_codes([one.evidence for one in data.inputs])
    rng = np.random.default_rng(0)
    draws = rng.multinomial(len(passages), np.full(len(passages), 1 / len(passages)), size=RESAMPLES)[:, codes]
    weights = np.concatenate([np.ones((1, len(gold))), draws])
    values = {
        arm: np.mean([[figures_of(*one, gold, w) for w in weights] for one in runs], axis=0)
        for arm, runs in arms.items()
    }
    figures: dict[str, float] = {}
    base = next(iter(values.values()))
    for arm, rows in values.items():
        for i, name in enumerate(names):
            low, high = np.quantile(rows[1:, i] - base[1:, i], (0.025, 0.975))
            difference = rows[0, i] - base[0, i]
            print(f"  {arm:<20}{name:<22}{rows[0, i]:.3f}, difference {difference:+.3f} [{low:+.3f}, {high:+.3f}]")
            key = f"{arm}_{name}".replace(" ", "_")
            figures |= {key: rows[0, i], f"{key}_difference": difference}
    return figures


if __name__ == "__main__":
    main()
