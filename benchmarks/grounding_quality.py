"""How well grounding classifiers agree with people on BEGIN: five labels, three labels, supported or not.

Every classifier is made by its recipe from silver data (`lexical` is the packaged one, of the bundled sample; the
others are trained on a grounded corpus here, or given as run folders). No text of BEGIN is learned from; on the dev
split of the first release one number per label (the prior) is chosen, so that "tuned" figures flatter a little. Beside
them: the most frequent label, plain word overlap with a threshold chosen on the same data, and the best published rows
(Dziri et al. 2021). ROC-AUC says how well supported responses are told from all others, on all responses and where
overlap is middling (.4 to .85). Intervals: 95 %, by bootstrap over passages of evidence.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score, roc_auc_score

from common import finish
from tertulia import sample
from tertulia.artefacts.cache import cache_folder
from tertulia.core.grounding import LABELS, GroundingClassifier, GroundingInput, parse_label
from tertulia.core.progress import Silent
from tertulia.corpus.load import load_exchanges
from tertulia.metrics.intervals import cluster_codes, cluster_weights, percentile_interval
from tertulia.metrics.significance import bootstrap_mean
from tertulia.models.classifiers.grounding import load_grounding
from tertulia.models.classifiers.grounding_features import overlap
from tertulia.models.classifiers.grounding_heads import reweigh
from tertulia.models.classifiers.grounding_models import language_model
from tertulia.train.recipes.grounding import LIKELIHOODS, RECIPE, GroundingRecipe, grounding_input
from tertulia.train.runs import subsample

FILES = ("v1_dev", "v2_dev_wow", "v2_dev_cmu", "v2_dev_tc")
KINDS = ("corpus-lexical", "encoder", "likelihood", "combined")
MIDDLE = (0.4, 0.85)
RESAMPLES, SEED = 200, 0
PUBLISHED = "published (T5 and BERT, MNLI + silver, dev): .464 / .335 of five labels, .710 / .526 of three"
Floats = NDArray[np.float64]


class Labelled(NamedTuple):
    """A file of BEGIN."""

    name: str
    inputs: list[GroundingInput]
    labels: list[str]
    supported: NDArray[np.bool_]
    overlap: Floats

    def part(self, size: int) -> "Labelled":
        """So many responses, drawn at random, in their order."""
        chosen = subsample(range(len(self.inputs)), size, SEED)
        inputs, labels = [self.inputs[i] for i in chosen], [self.labels[i] for i in chosen]
        return Labelled(self.name, inputs, labels, self.supported[chosen], self.overlap[chosen])


def read(file: Path) -> Labelled:
    exchanges = list(load_exchanges(file))
    inputs = [grounding_input(exchange) for exchange in exchanges]
    labels = [str(exchange.label).lower() for exchange in exchanges]
    supported = np.array([label in ("entailment", "fully attributable") for label in labels])
    return Labelled(file.stem, inputs, labels, supported, np.array([overlap(one) for one in inputs]))


def auc(supported: NDArray[np.bool_], scores: Floats, passages: Sequence[str]) -> tuple[float, float, float]:
    """ROC-AUC with its interval."""
    sampled = [roc_auc_score(supported, scores, sample_weight=own) for own in _resamples(supported, passages)]
    return (float(roc_auc_score(supported, scores)), *percentile_interval(np.array(sampled)))


def auc_difference(
    supported: NDArray[np.bool_], scores: Floats, others: Floats, passages: Sequence[str]
) -> tuple[float, float, float]:
    """How much higher the ROC-AUC of the first scores is, on the same responses, with its interval."""
    weights = [None, *_resamples(supported, passages)]
    first, second = (
        np.array([roc_auc_score(supported, one, sample_weight=own) for own in weights]) for one in (scores, others)
    )
    return (float(first[0] - second[0]), *percentile_interval(first[1:] - second[1:]))


def _resamples(supported: NDArray[np.bool_], passages: Sequence[str]) -> list[Floats]:
    """Weights of the responses in resamples of passages that have responses of both kinds."""
    codes, names = cluster_codes(passages)
    rows = [row[codes] for part in cluster_weights(len(names), resamples=RESAMPLES) for row in np.atleast_2d(part)]
    return [own for own in rows if own[supported].sum() and own[~supported].sum()]


def coarse(rows: Floats) -> Floats:
    """Probabilities of entailment, neutral and contradiction."""
    return np.stack([rows[:, 0], rows[:, 1:4].sum(1), rows[:, 4]], axis=1)


def tuned(rows: Floats, gold: NDArray[np.int64]) -> Floats:
    """The rows under the priors, one number per label, that are best for accuracy plus macro-F1."""
    logs = np.zeros(rows.shape[1])
    for _ in range(3):
        for label in range(len(logs)):
            trials = []
            for value in np.arange(-5, 5.01, 0.25):
                trial = logs.copy()
                trial[label] = value
                predicted = reweigh(rows + 1e-12, np.exp(trial)).argmax(1)
                quality = float((predicted == gold).mean() + f1_score(gold, predicted, average="macro"))
                trials.append((round(quality, 4), -abs(value), value))
            logs[label] = max(trials)[2]
    return reweigh(rows + 1e-12, np.exp(logs))


def labels_row(
    name: str, kind: str, predicted: NDArray[np.int64], gold: NDArray[np.int64], passages: list[str]
) -> dict[str, float]:
    accuracy = bootstrap_mean((predicted == gold).astype(float), passages)
    macro = float(f1_score(gold, predicted, average="macro"))
    print(f"  {kind} {name:<28} accuracy {accuracy}, macro-F1 {macro:.3f}, n = {len(gold)}")
    key = f"{kind}_{name}".replace(" ", "_").replace(",", "")
    return {f"{key}_accuracy": accuracy.value, f"{key}_f1": macro}


def of_labels(name: str, rows: Floats, data: Labelled) -> dict[str, float]:
    """Five and three labels of the first release, as the classifier has them and with priors tuned here."""
    gold = np.array([LABELS.index(parse_label(label)) for label in data.labels])  # type: ignore[arg-type]
    gold3 = np.array([(0, 1, 1, 1, 2)[label] for label in gold])
    passages = [one.evidence for one in data.inputs]
    figures: dict[str, float] = {}
    for kind, own, truth in (("5way", rows, gold), ("3way", coarse(rows), gold3)):
        figures |= labels_row(name, kind, own.argmax(1), truth, passages)
        figures |= labels_row(f"{name}, tuned", kind, tuned(own, truth).argmax(1), truth, passages)
    return figures


def of_support(
    name: str, scores: Floats, data: Labelled, lexical: Floats | None = None, given: str = ""
) -> dict[str, float]:
    """ROC-AUC of supported or not, on all responses and where overlap is middling; beside overlap and `lexical`."""
    figures = {}
    middle = (data.overlap >= MIDDLE[0]) & (data.overlap <= MIDDLE[1])
    for band, mask in (("all", np.ones(len(scores), dtype=bool)), ("middle", middle)):
        passages = [one.evidence for one, chosen in zip(data.inputs, mask, strict=True) if chosen]
        supported = data.supported[mask]
        value, low, high = auc(supported, scores[mask], passages)
        print(
            f"  {data.name:<11} {band:<6} {name:<20} ROC-AUC {value:.3f} [{low:.3f}, {high:.3f}],"
            f" overlap {roc_auc_score(supported, data.overlap[mask]):.3f}, n = {mask.sum()}{given}"
        )
        key = f"auc_{data.name}_{band}_{name}"
        figures |= {key: value, f"{key}_overlap": float(roc_auc_score(supported, data.overlap[mask]))}
        others = {"overlap": data.overlap} | ({} if lexical is None else {"lexical": lexical})
        for other, its_scores in others.items():
            more, low, high = auc_difference(supported, scores[mask], its_scores[mask], passages)
            print(f"  {'':<39} {more:+.3f} [{low:+.3f}, {high:+.3f}] against {other}")
            figures[f"{key}_against_{other}"] = more
    return figures


def of_sample() -> dict[str, float]:
    """The bundled sample's labelled replies, where words mislead: who paraphrases is right, who copies is not."""
    exchanges = sample.grounded()
    inputs = [grounding_input(exchange) for exchange in exchanges]
    labels = np.array([str(exchange.label) for exchange in exchanges])
    scores = {"overlap": np.array([overlap(one) for one in inputs])}
    scores["lexical"] = np.array(load_grounding().probabilities(inputs))[:, 0]
    passages, supported = [one.evidence for one in inputs], labels == LABELS[0]
    figures: dict[str, float] = {}
    for name, own in scores.items():
        value, low, high = auc(supported, own, passages)
        print(f"  sample {name:<8} ROC-AUC {value:.3f} [{low:.3f}, {high:.3f}], n = {len(labels)}")
        figures[f"sample_auc_{name}"] = value
    for label in LABELS:
        rows = supported | (labels == label)
        against = (
            {n: float(roc_auc_score(supported[rows], own[rows])) for n, own in scores.items()}
            if label != LABELS[0]
            else {}
        )
        middle = float(np.median(scores["overlap"][labels == label]))
        shown = "".join(f", support against it by {n} {value:.3f}" for n, value in against.items())
        print(f"    {label:<14} median overlap {middle:.2f}{shown}")
        figures |= {f"sample_overlap_{label}": middle} | {f"sample_auc_{label}_{n}": v for n, v in against.items()}
    return figures


def trained(kind: str, given: argparse.Namespace, folder: Path) -> GroundingClassifier:
    """A classifier made by its recipe, here and now."""
    scale = 10 if given.quick else 1
    config = GroundingRecipe.model_validate(
        {
            "data": given.corpus,
            "split": given.split,
            "out": folder / kind,
            "per_label": given.per_label // scale,
            "inference": str(given.inference or ""),
            "max_pairs": given.max_pairs // scale,
            "max_inference": given.max_inference // scale,
            "epochs": 1,
            "learning_rate": 3e-4,
            "model": {
                "kind": kind,
                "with_encoder": not given.without_encoder,
                "max_length": 96,
                "max_scored": given.max_scored,
                "priors": {"contradiction": 0.1},
            },
        }
    )
    start = time.process_time()
    RECIPE.train(config, Silent())
    print(f"{kind}: trained in {time.process_time() - start:.0f} CPU s")
    return load_grounding(str(folder / kind))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/begin"), help="folder of BEGIN's dev files")
    parser.add_argument("--corpus", default="../shared/data/cmu_dog", help="grounded corpus, silver data or `sample`")
    parser.add_argument("--split", default=None, help="split of the grounded corpus")
    parser.add_argument("--inference", type=Path, default=None, help="folder of inference pairs for encoders")
    parser.add_argument("--per-label", type=int, default=2000)
    parser.add_argument("--max-pairs", type=int, default=8000, help="silver pairs that encoders learn from")
    parser.add_argument("--max-inference", type=int, default=4000)
    parser.add_argument("--max-scored", type=int, default=500, help="silver examples that a language model reads")
    parser.add_argument("--scored", type=int, default=500, help="responses of the first release that it reads")
    parser.add_argument("--scored-second", type=int, default=500, help="responses of a file of the second release")
    parser.add_argument("--without-encoder", action="store_true", help="combine counts and likelihoods only")
    parser.add_argument(
        "--kinds", default=",".join(KINDS), help="what to train, or nothing: the packaged `lexical` is always measured"
    )
    parser.add_argument("--run", action="append", default=[], help="NAME=RUN: a trained run to measure, too")
    parser.add_argument("--quick", action="store_true", help="a tenth of the examples")
    given = parser.parse_args()
    kinds = list(filter(None, given.kinds.split(",")))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}; choose from {', '.join(KINDS)}")

    files = [read(given.data / f"{name}.tsv") for name in FILES]
    first = files[0]
    gold = np.array([LABELS.index(parse_label(label)) for label in first.labels])  # type: ignore[arg-type]
    passages = [one.evidence for one in first.inputs]
    print(PUBLISHED)
    figures = labels_row("majority", "5way", np.full(len(gold), np.bincount(gold).argmax()), gold, passages)
    gold3 = np.array([(0, 1, 1, 1, 2)[label] for label in gold])
    best = max(
        np.unique(first.overlap), key=lambda limit: float((np.where(first.overlap >= limit, 0, 1) == gold3).mean())
    )
    figures |= labels_row("overlap, tuned", "3way", np.where(first.overlap >= best, 0, 1), gold3, passages)

    figures |= of_sample()
    with tempfile.TemporaryDirectory() as folder:
        makers: dict[str, Callable[[], GroundingClassifier]] = {"lexical": load_grounding}
        for kind in kinds:
            makers[kind] = lambda kind=kind: trained(kind.removeprefix("corpus-"), given, Path(folder))
        for name, run in (pair.split("=", 1) for pair in given.run):
            makers[name] = lambda run=run: load_grounding(run)
        for name, make in makers.items():
            figures |= measure(name, make(), files, given)
    settings = {"corpus": Path(given.corpus).name, "per_label": given.per_label, "max_scored": given.max_scored}
    settings |= {"scored": given.scored, "scored_second": given.scored_second, "quick": given.quick}
    finish("grounding_quality", figures, settings)


def measure(
    name: str, classifier: GroundingClassifier, files: Sequence[Labelled], given: argparse.Namespace
) -> dict[str, float]:
    """All figures of a classifier; one that reads with a language model reads a part of each file, and is shown beside
    the packaged lexical model on the same part."""
    settings = getattr(classifier, "settings", None)
    slow = settings is not None and settings.reads_likelihood
    if slow:
        language_model(settings.language_model).remember_in(cache_folder() / LIKELIHOODS)
    figures: dict[str, float] = {}
    for number, whole in enumerate(files):
        data = whole.part(given.scored_second if number else given.scored) if slow else whole
        rows = np.array(classifier.probabilities(data.inputs))
        lexical = np.array(load_grounding().probabilities(data.inputs)) if slow else None
        if number == 0:
            figures |= of_labels(name, rows, data)
            figures |= of_labels(f"lexical beside {name}", lexical, data) if lexical is not None else {}
        part = f" of {len(whole.inputs)}" if slow else ""
        figures |= of_support(name, rows[:, 0], data, None if lexical is None else lexical[:, 0], part)
    return figures


if __name__ == "__main__":
    main()
