"""The recipe of natural language inference: three labels, from the well-known sets or any file of pairs.

`data` is a file, or a folder whose files (at any depth) belong to training or validation by their names. Sets with two
labels (RTE) are used for what they say: not entailment is neutral or contradiction. `sample` stands for the bundled
labelled replies and silver data made of them, evidence against response: enough to try everything out.
"""

import random
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from tertulia import sample
from tertulia.artefacts.files import fingerprint
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Exchange
from tertulia.core.errors import DataError, MissingFile
from tertulia.core.grounding import COARSE_LABELS
from tertulia.core.progress import Progress
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.readers.text_pairs import ENDINGS, LabelledPair, nli_labels, read_labelled_pairs
from tertulia.corpus.silver.generate import SilverConfig, silver_exchanges
from tertulia.corpus.silver.sources import grounded_dialogues
from tertulia.models.classifiers.pair_classifier import PairExample, TextPair
from tertulia.train.recipe import Recipe
from tertulia.train.runs import TrainedModel, start_run, subsample
from tertulia.train.tasks.classification import ClassificationData, ClassifierConfig, train_classifier

HELD_OUT = 10
"""Of a single file, one in so many first texts is held out for validation."""


class EntailmentRecipe(ClassifierConfig):
    """How a classifier of natural language inference is trained."""

    recipe: Literal["entailment"] = "entailment"
    """The recipe's name, so that the config saved with a run can be trained again."""
    data: str = SAMPLE
    """A file of pairs (JSON lines with premise, hypothesis and label, SNLI, MNLI, RTE, Dialogue NLI, silver data), a
    folder of such files, or `sample` for silver data of the bundled corpus."""
    train: tuple[str, ...] = ("*train*",)
    """Patterns (with * and ?) of the files in the folder to train on."""
    valid: tuple[str, ...] = ("*valid*", "*dev*")
    """Patterns of the files in the folder to validate on."""


def train(config: EntailmentRecipe, progress: Progress) -> TrainedModel:
    """Train a classifier and save it in `config.out`."""
    start_run(config, progress, step="Reading pairs")
    problems = Problems()
    data = read_data(config, problems)
    cut = ClassificationData(
        subsample(data.train, config.max_pairs, config.seed),
        subsample(data.valid, config.max_valid_pairs, config.seed),
    )
    return train_classifier(config, COARSE_LABELS, cut, progress, about={"skipped_lines": problems.count})


def read_data(config: EntailmentRecipe, problems: Problems) -> ClassificationData:
    """The pairs to train and to validate on."""
    if config.data == SAMPLE:
        return _held_out(_examples([*map(_of_exchange, _sample_silver(config.seed))]))
    path = Path(config.data)
    if path.is_dir():
        train = [e for file in _matching(path, config.train) for e in _read(file, problems)]
        valid = [e for file in _matching(path, config.valid) for e in _read(file, problems)]
        random.Random(config.seed).shuffle(train)
        return ClassificationData(train, valid)
    if not path.is_file():
        raise MissingFile(f"File not found: {path}", hint="Give a file or a folder of labelled pairs.")
    return _held_out(_read(path, problems))


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.name.endswith(ENDINGS)]
    chosen = [f for f in files if any(fnmatch(str(f.relative_to(folder)), pattern) for pattern in patterns)]
    if not chosen:
        raise DataError(
            f"No file of {folder} matches {', '.join(patterns)}.",
            hint="Name the files with the keys `train` and `valid`; they end in .jsonl, .json, .tsv or .txt.",
        )
    return chosen


def _read(file: Path, problems: Problems) -> list[PairExample]:
    return _examples(list(read_labelled_pairs(file, problems=problems)))


def _examples(pairs: list[LabelledPair]) -> list[PairExample]:
    return [
        PairExample(TextPair((pair.first,), pair.second), tuple(COARSE_LABELS.index(name) for name in names))
        for pair, names in zip(pairs, nli_labels(pairs), strict=True)
    ]


def _held_out(examples: list[PairExample]) -> ClassificationData:
    """A tenth for validation, by first text: no premise is on both sides."""
    parts: tuple[list[PairExample], list[PairExample]] = ([], [])
    for example in examples:
        parts[int(fingerprint(example.pair.first), 16) % HELD_OUT == 0].append(example)
    return ClassificationData(*parts)


def _sample_silver(seed: int) -> list[Exchange]:
    config = SilverConfig(target=SAMPLE, per_label=200, seed=seed)
    return [*sample.grounded(), *silver_exchanges(grounded_dialogues(config), config)]


def _of_exchange(exchange: Exchange) -> LabelledPair:
    evidence = " ".join(passage.text for passage in exchange.evidence)
    return LabelledPair(evidence, exchange.response.text, str(exchange.label), exchange.id)


RECIPE = Recipe("entailment", EntailmentRecipe, train)
