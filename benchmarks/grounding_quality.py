"""How well responses are recognised as grounded by features that can be counted, learned from silver data alone.

Silver examples are made from a grounded corpus (CMU-DoG); gradient boosting learns the five labels of BEGIN from
lexical features. No text of BEGIN is learned from. On its dev split one number per label (a prior) is chosen, and the
weights below were set by looking at it, so figures of dev flatter a little, "tuned" ones more. Beside it: plain word
overlap with a threshold tuned on dev, and the best published rows (Dziri et al. 2021). Intervals: 95 %, by bootstrap
over passages of evidence.
"""

import argparse
import time
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score, roc_auc_score

from common import finish
from tertulia.core.dialogue import Exchange
from tertulia.core.grounding import COARSE, LABELS, GroundingInput
from tertulia.corpus.load import load_dialogues, load_exchanges
from tertulia.corpus.silver.generate import SilverConfig, silver_exchanges
from tertulia.metrics.significance import bootstrap_mean
from tertulia.models.classifiers.grounding_features import grounding_features, overlap

WEIGHTS = {"entailment": 1.6, "hallucination": 1.6, "generic": 1.2, "off-topic": 0.3, "contradiction": 0.1}
"""Balanced silver data has far more contradictions than bots write: how much an example of a label counts."""
UNSEEN = {"other names", "other numbers", "exchanged roles", "another verb"}
"""Operations that overlap cannot see: they would teach to distrust overlap, and so count less."""
UNSEEN_WEIGHT = 0.2
PUBLISHED = "published (T5 and BERT, MNLI + silver, dev): .464 / .335 of five labels, .710 / .526 of three"


def as_input(exchange: Exchange) -> GroundingInput:
    previous = exchange.context[-1].text if exchange.context else ""
    return GroundingInput(" ".join(e.text for e in exchange.evidence), previous, exchange.response.text)


def tune(scores: NDArray[np.float64], gold: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number per label that is added to its log-probability, for accuracy plus macro-F1."""
    count = scores.shape[1]
    bias = np.zeros(count)
    for _ in range(2):
        for label in range(count):
            trials = []
            for value in np.arange(-4, 4.01, 0.25):
                trial = bias.copy()
                trial[label] = value
                predicted = (scores + trial).argmax(1)
                trials.append(((predicted == gold).mean() + f1_score(gold, predicted, average="macro"), value))
            bias[label] = max(trials)[1]
    return bias


def report(
    name: str, predicted: NDArray[np.int64], gold: NDArray[np.int64], passages: list[str]
) -> tuple[float, float]:
    accuracy = bootstrap_mean((predicted == gold).astype(float), passages)
    macro = float(f1_score(gold, predicted, average="macro"))
    print(f"  {name:<34} accuracy {accuracy}, macro-F1 {macro:.3f}")
    return accuracy.value, macro


def coarse(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-probabilities of entailment, neutral and contradiction."""
    names = ("entailment", "neutral", "contradiction")
    groups = [[i for i, label in enumerate(LABELS) if COARSE[label] == name] for name in names]
    return np.log(np.stack([np.exp(scores[:, group]).sum(1) for group in groups], axis=1) + 1e-12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/begin/v1_dev.tsv"), help="BEGIN v1, TSV")
    parser.add_argument("--corpus", type=Path, default=Path("../shared/data/cmu_dog"), help="a grounded corpus")
    parser.add_argument("--split", default="train", help="split of the grounded corpus")
    parser.add_argument("--dialogues", type=int, default=1200)
    parser.add_argument("--per-label", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a tenth of the dialogues and examples")
    given = parser.parse_args()
    scale = 10 if given.quick else 1
    start = time.process_time()
    dialogues = list(islice(load_dialogues(given.corpus, split=given.split), given.dialogues // scale))
    silver = silver_exchanges(dialogues, SilverConfig(per_label=given.per_label // scale, seed=given.seed))
    features = grounding_features([as_input(exchange) for exchange in silver])
    labels = np.array([LABELS.index(e.label) for e in silver])  # type: ignore[arg-type]
    weights = [WEIGHTS[str(e.label)] * (UNSEEN_WEIGHT if e.response.meta["operation"] in UNSEEN else 1) for e in silver]
    model = HistGradientBoostingClassifier(
        max_iter=150, learning_rate=0.07, max_leaf_nodes=16, l2_regularization=2.0, random_state=given.seed
    ).fit(features, labels, sample_weight=weights)
    trained = time.process_time() - start

    dev = list(load_exchanges(given.data))
    inputs = [as_input(exchange) for exchange in dev]
    passages = [example.evidence for example in inputs]
    gold = np.array([LABELS.index(e.label) for e in dev])  # type: ignore[arg-type]
    begin = time.process_time()
    scores = np.log(model.predict_proba(grounding_features(inputs)) + 1e-12)
    speed = len(dev) / (time.process_time() - begin)
    shares = np.array([overlap(example) for example in inputs])
    three, gold3 = coarse(scores), np.array([(0, 1, 1, 1, 2)[g] for g in gold])
    middle = (shares >= 0.4) & (shares <= 0.85)

    print(f"{len(silver)} silver examples, {trained:.0f} CPU s for all of it; {len(dev)} responses")
    print(f"five labels; {PUBLISHED}")
    figures: dict[str, float] = {"examples_per_second": speed, "train_cpu_seconds": trained, "n": len(dev)}
    rows = (
        ("5way", "majority", np.full(len(gold), np.bincount(gold).argmax()), gold),
        ("5way", "lexical", scores.argmax(1), gold),
        ("5way", "lexical_tuned", (scores + tune(scores, gold)).argmax(1), gold),
        ("3way", "overlap_tuned", tune_threshold(shares, gold3), gold3),
        ("3way", "lexical", three.argmax(1), gold3),
        ("3way", "lexical_tuned", (three + tune(three, gold3)).argmax(1), gold3),
    )
    for kind, name, predicted, truth in rows:
        accuracy, macro = report(f"{kind} {name}", np.asarray(predicted), truth, passages)
        figures |= {f"{kind}_{name}_accuracy": accuracy, f"{kind}_{name}_f1": macro}
    for band, mask in (("all", np.ones(len(gold), dtype=bool)), ("middle", middle)):
        grounded = gold[mask] == 0
        figures |= {
            f"auc_{band}_overlap": float(roc_auc_score(grounded, shares[mask])),
            f"auc_{band}_lexical": float(roc_auc_score(grounded, scores[mask, 0])),
        }
        ours, plain = figures[f"auc_{band}_lexical"], figures[f"auc_{band}_overlap"]
        print(f"  ROC-AUC of entailment, {band} overlap: lexical {ours:.3f}, overlap {plain:.3f}, n = {mask.sum()}")
    settings = {"dialogues": len(dialogues), "per_label": given.per_label // scale, "seed": given.seed}
    finish("grounding_quality", figures, settings | {"data": given.data.name, "corpus": given.corpus.name})


def tune_threshold(shares: NDArray[np.float64], gold: NDArray[np.int64]) -> NDArray[np.int64]:
    """Entailment from the overlap that is best on this data, else neutral."""
    best = max(np.unique(shares), key=lambda limit: float((np.where(shares >= limit, 0, 1) == gold).mean()))
    return np.where(shares >= best, 0, 1)


if __name__ == "__main__":
    main()
