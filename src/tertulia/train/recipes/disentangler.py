"""The recipe of the disentangler for chat logs: trains on gold links a model that links lines by itself.

The first pass is trained in folds, so that the second pass sees, for every training log, predictions of trees that were
not trained on it: it learns to correct the first pass's real mistakes. All randomness comes from the seed, so the same
data and config give the same trees. Each ensemble member is saved once it is trained; `resume` continues from there.
"""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia.artefacts.files import atomic_write, read_json, write_json
from tertulia.artefacts.word_vectors import Vector, read_word_vectors
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.chatlogs.boosted_trees import BoostedTrees, LabelledCandidates, fit_trees
from tertulia.corpus.chatlogs.checkpoint import save_disentangler
from tertulia.corpus.chatlogs.disentangler import (
    FIRST_FEATURES,
    SECOND_FEATURES,
    CandidateWindow,
    Disentangler,
    PreparedLog,
    best_links,
    first_pass,
    indices_to_score,
    second_pass_features,
)
from tertulia.corpus.chatlogs.encoded_log import EncodedLog, encode_log
from tertulia.corpus.chatlogs.evaluation import Disentanglement, evaluate_links
from tertulia.corpus.chatlogs.gold import GoldLog, read_gold
from tertulia.corpus.chatlogs.pair_features import candidate_blocks
from tertulia.corpus.chatlogs.similarity import IdfTable, count_idf, similarity_bands
from tertulia.corpus.load import SAMPLE
from tertulia.train.recipe import Recipe, RecipeConfig


class DisentanglerConfig(CandidateWindow, RecipeConfig):
    """Training data and hyperparameters of the disentangler."""

    renamed: ClassVar[Mapping[str, str]] = {
        "rate": "learning_rate",
        "ahead": "lookahead",
        "keep": "top_k",
        "share": "feature_fraction",
    }

    recipe: Literal["disentangler"] = "disentangler"
    """The recipe's name, so that the config saved with a run can be trained again."""
    vectors: Path | None = None
    """Word vectors in GloVe's format (text, or .npz with words and vectors); the model keeps those of its
    vocabulary."""
    max_logs: int | None = Field(default=None, ge=2)
    """Train on this many logs only, spread evenly over all: for a quick try."""
    min_count: int = Field(default=3, ge=1)
    """Number of utterances a word must occur in to get an idf of its own."""
    folds: int = Field(default=3, ge=2)
    """Members of the first pass; each leaves out its fold of the logs."""
    trees: int = Field(default=200, ge=1)
    """Trees of each member of the first pass."""
    second_trees: int = Field(default=150, ge=0)
    """Trees of each member of the second pass; 0 for no second pass."""
    second_members: int = Field(default=1, ge=1)
    """Members of the second pass, which differ in their seeds."""
    leaves: int = Field(default=48, ge=2)
    """Maximum number of leaves per tree."""
    learning_rate: float = Field(default=0.1, gt=0, le=1)
    """Learning rate."""
    min_rows: int = Field(default=60, ge=1)
    """Minimum number of rows per leaf."""
    feature_fraction: float = Field(default=0.5, gt=0, le=1)
    """Share of the features that each tree may use."""
    biases: tuple[float, ...] = (-2.0, -1.5, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
    """Values tried on the development logs for how readily a line starts a conversation."""
    seed: int = 0
    """Seed of all randomness."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of training."""

    folder: Path
    fingerprint: str
    model: Disentangler
    record: Mapping[str, Json]

    def figures(self) -> Mapping[str, Json]:
        """The training record, with the measures on the development logs."""
        return self.record


@dataclass(frozen=True, slots=True)
class _TrainingLog:
    """A log prepared for training."""

    prepared: PreparedLog
    gold: Mapping[int, NDArray[np.int32]]
    """The gold links by index: for each annotated utterance the utterances it replies to."""
    indices: range
    """The utterances to score: the annotated ones and their context."""


def train(config: DisentanglerConfig, progress: Progress | None = None) -> Trained:
    """Train a disentangler and save it in `config.out`."""
    progress, start = progress or Silent(), time.perf_counter()
    train_logs, dev_logs = read_data(config.data)
    if config.max_logs is not None:
        train_logs = train_logs[:: max(1, len(train_logs) // config.max_logs)][: config.max_logs]
    progress.step("Reading lines", total=len(train_logs))
    encoded = [_encode(gold, progress) for gold in train_logs]
    idf = _build_idf(encoded, config)
    logs = list(_prepare(train_logs, encoded, idf, config, progress))
    members = _SavedMembers(config)
    first = _train_first(logs, config, members, progress)
    second = _train_second(logs, first, config, members, progress) if config.second_trees else ()
    window = CandidateWindow(window=config.window, lookahead=config.lookahead, top_k=config.top_k)
    model = Disentangler(window, idf, first, second)
    record: dict[str, Json] = {
        "logs": len(train_logs),
        "lines": sum(len(log.gold) for log in logs),
        "words": len(idf.idf),
        "vectors": len(idf.vectors),
        "seed": config.seed,
    }
    if dev_logs:
        progress.step("Choosing the bias on the development logs", total=len(dev_logs))
        model, measures = _choose_bias(model, dev_logs, config, progress)
        record |= {"start_bias": model.start_bias, "dev": measures.as_json()}
    record["seconds"] = round(time.perf_counter() - start, 1)
    fingerprint = save_disentangler(model, config.out, config=config, training=record)
    members.clear()
    return Trained(config.out, fingerprint, model, record)


def read_data(data: str) -> tuple[list[GoldLog], list[GoldLog]]:
    """Training and development logs: train/ and dev/ of a folder, or only the logs of a folder without these.

    Of the sample, the last day is for development.
    """
    if data == SAMPLE:
        days = read_gold(SAMPLE)
        return days[:-1], days[-1:]
    folder = Path(data)
    if (folder / "train").is_dir():
        return read_gold(folder / "train"), read_gold(folder / "dev") if (folder / "dev").is_dir() else []
    return read_gold(folder), []


def _encode(gold: GoldLog, progress: Progress) -> EncodedLog:
    progress.advance()
    return encode_log(gold.log.lines)


def _build_idf(logs: Sequence[EncodedLog], config: DisentanglerConfig) -> IdfTable:
    idf, unseen = count_idf((text for log in logs for text in log.words), min_count=config.min_count)
    vectors = read_word_vectors(config.vectors, idf) if config.vectors else {}
    return IdfTable(idf, unseen, {word: _to_half(vector) for word, vector in vectors.items()})


def _to_half(vector: Vector) -> Vector:
    """Round to half precision, in which vectors are saved: a model that is loaded sees what it was trained with."""
    return vector.astype(np.float16).astype(np.float32)


def _prepare(
    logs: Sequence[GoldLog],
    encoded: Sequence[EncodedLog],
    idf: IdfTable,
    config: DisentanglerConfig,
    progress: Progress,
) -> Iterator[_TrainingLog]:
    progress.step("Comparing lines", total=len(logs))
    for gold, log in zip(logs, encoded, strict=True):
        index_of = {int(number): i for i, number in enumerate(log.numbers)}
        links = {
            index_of[line]: np.array([index_of[e] for e in earlier if e in index_of], np.int32)
            for line, earlier in gold.links.items()
            if line in index_of
        }
        similarity = similarity_bands(log.words, idf, window=config.window)
        yield _TrainingLog(PreparedLog(log, similarity), links, indices_to_score(log, gold.links, config))
        progress.advance()


def _train_first(
    logs: Sequence[_TrainingLog], config: DisentanglerConfig, saved: "_SavedMembers", progress: Progress
) -> tuple[BoostedTrees, ...]:
    members = [saved.read(f"first.{fold}") for fold in range(config.folds)]
    if all(members):
        return tuple(BoostedTrees(text) for text in members if text)
    progress.step("Collecting candidates", total=len(logs))
    rows_by_log = []
    for log in logs:
        rows_by_log.append(list(_first_rows(log, config)))
        progress.advance()
    for fold in range(config.folds):
        if members[fold] is None:
            progress.step(f"Training the first pass, {fold + 1} of {config.folds}")
            data = _concatenate([row for k, rows in enumerate(rows_by_log) if k % config.folds != fold for row in rows])
            text = _fit(data, FIRST_FEATURES, config, trees=config.trees, seed=config.seed + fold, probe=True)
            saved.write(f"first.{fold}", text)
            members[fold] = text
    return tuple(BoostedTrees(text) for text in members if text)


def _first_rows(log: _TrainingLog, config: DisentanglerConfig) -> Iterator[LabelledCandidates]:
    """The candidates of each annotated utterance that has a gold link among them."""
    for block in candidate_blocks(log.prepared.history(config), window=config.window, indices=log.gold):
        if rows := _labelled(block.indices, block.sizes, block.candidates, block.features, log.gold):
            yield rows


def _labelled(
    indices: NDArray[np.int32],
    sizes: NDArray[np.int32],
    candidates: NDArray[np.int32],
    features: NDArray[np.float32],
    gold: Mapping[int, NDArray[np.int32]],
) -> LabelledCandidates | None:
    """The rows of the annotated utterances that have a gold link among their candidates, if there are any."""
    none = np.zeros(0, np.int32)
    parts = np.split(candidates, np.cumsum(sizes)[:-1])
    labels = [np.isin(own, gold.get(index, none)) for index, own in zip(indices.tolist(), parts, strict=True)]
    chosen = np.array([own.any() for own in labels], np.bool_)
    if not chosen.any():
        return None
    rows = np.repeat(chosen, sizes)
    return LabelledCandidates(features[rows], sizes[chosen], np.concatenate(labels)[rows])


def _train_second(
    logs: Sequence[_TrainingLog],
    first: tuple[BoostedTrees, ...],
    config: DisentanglerConfig,
    saved: "_SavedMembers",
    progress: Progress,
) -> tuple[BoostedTrees, ...]:
    members = [saved.read(f"second.{number}") for number in range(config.second_members)]
    if not all(members):
        progress.step("Predicting clusters", total=len(logs))
        rows: list[LabelledCandidates] = []
        for number, log in enumerate(logs):
            # The member that was not trained on this log (see `_train_first`).
            rows.extend(_second_rows(log, (first[number % config.folds],), config))
            progress.advance()
        data = _concatenate(rows)
        for number, member in enumerate(members):
            if member is None:
                progress.step(f"Training the second pass, {number + 1} of {config.second_members}")
                seed = config.seed + 100 + number
                text = _fit(data, SECOND_FEATURES, config, trees=config.second_trees, seed=seed)
                saved.write(f"second.{number}", text)
                members[number] = text
    return tuple(BoostedTrees(text) for text in members if text)


def _second_rows(
    log: _TrainingLog, trees: Sequence[BoostedTrees], config: DisentanglerConfig
) -> Iterator[LabelledCandidates]:
    history = log.prepared.history(config)
    predictions = first_pass(history, config, trees, log.indices)
    for block, features in second_pass_features(predictions, history, config):
        candidates = block.candidates[block.top]
        if rows := _labelled(block.indices, block.top_sizes, candidates, features, log.gold):
            yield rows


def _concatenate(rows: Sequence[LabelledCandidates]) -> LabelledCandidates:
    if not rows:
        raise DataError("There are no annotated lines to train on.", hint="Annotations link lines by their numbers.")
    return LabelledCandidates(
        np.concatenate([own.features for own in rows]),
        np.concatenate([own.sizes for own in rows]),
        np.concatenate([own.labels for own in rows]),
    )


def _fit(
    data: LabelledCandidates,
    names: Sequence[str],
    config: DisentanglerConfig,
    *,
    trees: int,
    seed: int,
    probe: bool = False,
) -> str:
    return fit_trees(
        data,
        names=names,
        trees=trees,
        probe=probe,
        leaves=config.leaves,
        learning_rate=config.learning_rate,
        min_rows=config.min_rows,
        feature_fraction=config.feature_fraction,
        seed=seed,
    )


def _choose_bias(
    model: Disentangler, logs: Sequence[GoldLog], config: DisentanglerConfig, progress: Progress
) -> tuple[Disentangler, Disentanglement]:
    """The bias with the best sum of link F and exact-match F; of equally good ones the smallest."""
    scored = []
    for gold in logs:
        scored.append(model.score(gold.log.lines, gold.links))
        progress.advance()
    best: tuple[float, float, Disentanglement] | None = None
    for bias in sorted(config.biases, key=abs):
        predicted = [
            best_links(candidates, gold.log.lines, gold.links, start_bias=bias)
            for candidates, gold in zip(scored, logs, strict=True)
        ]
        measures = evaluate_links(predicted, [gold.links for gold in logs])
        value = (measures.links.f if measures.links else 0.0) + np.nan_to_num(measures.exact.f)
        if best is None or value > best[0]:
            best = (value, bias, measures)
    assert best is not None
    return replace(model, start_bias=best[1]), best[2]


class _SavedMembers:
    """Ensemble members of an unfinished run; they are reused only by a run with the same config."""

    def __init__(self, config: DisentanglerConfig) -> None:
        self._folder = config.out / "partial"
        settings = config.model_dump(mode="json", exclude={"out", "resume", "force", "biases"})
        file = self._folder / "config.json"
        if not (config.resume and file.is_file() and read_json(file) == settings):
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
            write_json(file, settings)

    def read(self, name: str) -> str | None:
        """The text of a member, or None if it is not trained yet."""
        file = self._folder / f"{name}.txt"
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def write(self, name: str, text: str) -> None:
        """Save a member."""
        with atomic_write(self._folder / f"{name}.txt") as file:
            file.write_text(text, encoding="utf-8")

    def clear(self) -> None:
        """Remove all saved members."""
        shutil.rmtree(self._folder, ignore_errors=True)


RECIPE = Recipe("disentangler", DisentanglerConfig, train)
