"""The recipe of the chat room's disentangler: hand-made links in, a model that links lines by itself out.

The first pass is learned in folds, so that the second one sees, of every training log, guesses by trees that have not
been trained on it: what it learns to mend are the first pass's real mistakes. Nothing is drawn but by the seed, so the
same data and config give the same trees. After each ensemble member its text is kept, and `resume` goes on from there.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.rooms import pairs
from tertulia.corpus.rooms.boost import Choices, Trees, fit
from tertulia.corpus.rooms.disentangler import (
    FIRST,
    SECOND,
    Disentangler,
    Reach,
    Seen,
    first_pass,
    links_of,
    needed,
    second_figures,
)
from tertulia.corpus.rooms.folder import save_disentangler
from tertulia.corpus.rooms.gold import GoldLog, read_gold
from tertulia.corpus.rooms.likeness import Lexicon, count_idf, likeness
from tertulia.corpus.rooms.measure import Agreement, agreement
from tertulia.corpus.rooms.threads import guessed
from tertulia.corpus.rooms.vectors import read_vectors
from tertulia.corpus.rooms.view import View, view
from tertulia.train.recipe import Recipe, RecipeConfig


class DisentanglerConfig(Reach, RecipeConfig):
    """What is learned from, and how."""

    recipe: Literal["disentangler"] = "disentangler"
    """The recipe's name, so that a run's own config can be trained again."""
    vectors: Path | None = None
    """Word vectors in GloVe's format (text, or words + vectors in .npz); those of known words go into the model."""
    max_logs: int | None = Field(None, ge=2)
    """Learn from so many logs only, spread evenly over all: for a quick try."""
    min_count: int = Field(3, ge=1)
    """Lines a word must stand in to be known."""
    folds: int = Field(2, ge=2)
    """Members of the first pass; each leaves out its share of the logs."""
    trees: int = Field(200, ge=1)
    """Trees of each member of the first pass."""
    second_trees: int = Field(150, ge=0)
    """Trees of each member of the second pass; 0 for none."""
    second_members: int = Field(1, ge=1)
    """Members of the second pass, which differ in their seeds."""
    leaves: int = Field(48, ge=2)
    """Leaves of a tree."""
    rate: float = Field(0.1, gt=0, le=1)
    """Learning rate."""
    min_rows: int = Field(60, ge=1)
    """Rows a leaf must hold."""
    share: float = Field(0.5, gt=0, le=1)
    """Share of the columns that each tree may use."""
    biases: tuple[float, ...] = (-2.0, -1.5, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
    """Values tried on the development logs for how readily a line begins a conversation."""
    seed: int = 0
    """Of everything that is drawn."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of it."""

    folder: Path
    fingerprint: str
    model: Disentangler
    record: Mapping[str, Json]

    def figures(self) -> Mapping[str, Json]:
        """What was measured on the development logs, and what it took."""
        return self.record


@dataclass(frozen=True, slots=True)
class _Case:
    """A training log: what the model sees, and for each annotated place the right ones."""

    seen: Seen
    right: Mapping[int, NDArray[np.int32]]
    places: range


def train(config: DisentanglerConfig, progress: Progress | None = None) -> Trained:
    """Train a disentangler and leave it in `config.out`."""
    progress, began = progress or Silent(), time.perf_counter()
    train_logs, dev_logs = read_data(config.data)
    if config.max_logs is not None:
        train_logs = train_logs[:: max(1, len(train_logs) // config.max_logs)][: config.max_logs]
    progress.step("Reading lines", total=len(train_logs))
    views = [_viewed(gold, progress) for gold in train_logs]
    lexicon = _lexicon(views, config)
    cases = list(_cases(train_logs, views, lexicon, config, progress))
    kept = _Kept(config)
    first = _learn_first(cases, config, kept, progress)
    second = _learn_second(cases, first, config, kept, progress) if config.second_trees else ()
    model = Disentangler(_reach(config), lexicon, first, second)
    record: dict[str, Json] = {
        "logs": len(train_logs),
        "lines": sum(len(case.right) for case in cases),
        "words": len(lexicon.idf),
        "vectors": len(lexicon.vectors),
        "seed": config.seed,
    }
    if dev_logs:
        progress.step("Choosing on the development logs", total=len(dev_logs))
        model, figures = _choose_bias(model, dev_logs, config, progress)
        record |= {"start_bias": model.start_bias, "dev": figures.as_json()}
    record["seconds"] = round(time.perf_counter() - began, 1)
    fingerprint = save_disentangler(model, config.out, config=config, training=record)
    kept.clear()
    return Trained(config.out, fingerprint, model, record)


def read_data(data: str) -> tuple[list[GoldLog], list[GoldLog]]:
    """Logs to learn from and to choose on: train/ and dev/ of a folder, or its own logs; of the sample the last day."""
    if data == SAMPLE:
        days = read_gold(SAMPLE)
        return days[:-1], days[-1:]
    folder = Path(data)
    if (folder / "train").is_dir():
        return read_gold(folder / "train"), read_gold(folder / "dev") if (folder / "dev").is_dir() else []
    return read_gold(folder), []


def _viewed(gold: GoldLog, progress: Progress) -> View:
    progress.advance()
    return view(gold.log.lines)


def _lexicon(views: Sequence[View], config: DisentanglerConfig) -> Lexicon:
    idf, unknown = count_idf((text for seen in views for text in seen.words), min_count=config.min_count)
    return Lexicon(idf, unknown, read_vectors(config.vectors, idf) if config.vectors else {})


def _reach(config: DisentanglerConfig) -> Reach:
    return Reach(window=config.window, ahead=config.ahead, keep=config.keep)


def _cases(
    logs: Sequence[GoldLog], views: Sequence[View], lexicon: Lexicon, config: DisentanglerConfig, progress: Progress
) -> Iterator[_Case]:
    progress.step("Comparing lines", total=len(logs))
    for gold, seen in zip(logs, views, strict=True):
        place = {int(number): i for i, number in enumerate(seen.numbers)}
        right = {
            place[line]: np.array([place[e] for e in earlier if e in place], np.int32)
            for line, earlier in gold.links.items()
            if line in place
        }
        alike = likeness(seen.words, lexicon, window=config.window)
        yield _Case(Seen(seen, alike), right, needed(seen, gold.links, config))
        progress.advance()


def _learn_first(
    cases: Sequence[_Case], config: DisentanglerConfig, kept: "_Kept", progress: Progress
) -> tuple[Trees, ...]:
    members = [kept.read(f"first.{fold}") for fold in range(config.folds)]
    if all(members):
        return tuple(Trees(text) for text in members if text)
    progress.step("Gathering candidates", total=len(cases))
    tables = []
    for case in cases:
        tables.append(list(_first_rows(case, config)))
        progress.advance()
    for fold in range(config.folds):
        if members[fold] is None:
            progress.step(f"Learning pairs of lines, {fold + 1} of {config.folds}")
            data = _gather([row for k, table in enumerate(tables) if k % config.folds != fold for row in table])
            members[fold] = _fit(data, FIRST, config, trees=config.trees, seed=config.seed + fold)
            kept.write(f"first.{fold}", members[fold] or "")
    return tuple(Trees(text) for text in members if text)


_Labelled = tuple[NDArray[np.float32], NDArray[np.bool_]]


def _first_rows(case: _Case, config: DisentanglerConfig) -> Iterator[_Labelled]:
    """The candidates of each annotated line that has a right one among them."""
    seen = case.seen
    for row in pairs.rows(seen.view, seen.alike, window=config.window, ahead=config.ahead, wanted=case.right):
        right = np.isin(row.candidates, case.right[row.place])
        if right.any():
            yield row.figures, right


def _learn_second(
    cases: Sequence[_Case], first: tuple[Trees, ...], config: DisentanglerConfig, kept: "_Kept", progress: Progress
) -> tuple[Trees, ...]:
    members = [kept.read(f"second.{number}") for number in range(config.second_members)]
    if not all(members):
        progress.step("Guessing conversations", total=len(cases))
        found: list[_Labelled] = []
        for number, case in enumerate(cases):
            found.extend(_second_rows(case, (first[number % config.folds],), config))
            progress.advance()
        data = _gather(found)
        for number, text in enumerate(members):
            if text is None:
                progress.step(f"Learning conversations, {number + 1} of {config.second_members}")
                seed = config.seed + 100 + number
                members[number] = _fit(data, SECOND, config, trees=config.second_trees, seed=seed)
                kept.write(f"second.{number}", members[number] or "")
    return tuple(Trees(text) for text in members if text)


def _second_rows(case: _Case, trees: Sequence[Trees], config: DisentanglerConfig) -> Iterator[_Labelled]:
    guesses = list(first_pass(case.seen, config, trees, case.places))
    known = guessed(guesses, case.seen.view)
    for guess in guesses:
        if guess.place in case.right:
            right = np.isin(guess.candidates[guess.kept], case.right[guess.place])
            if right.any():
                yield second_figures(guess, known, case.seen, config), right


def _gather(rows: Sequence[_Labelled]) -> Choices:
    if not rows:
        raise DataError("There is no annotated line to learn from.", hint="Annotations link lines by their numbers.")
    sizes = np.array([len(right) for _, right in rows], np.int32)
    return Choices(np.concatenate([f for f, _ in rows]), sizes, np.concatenate([right for _, right in rows]))


def _fit(data: Choices, names: Sequence[str], config: DisentanglerConfig, *, trees: int, seed: int) -> str:
    return fit(
        data,
        names=names,
        trees=trees,
        leaves=config.leaves,
        rate=config.rate,
        min_rows=config.min_rows,
        share=config.share,
        seed=seed,
    )


def _choose_bias(
    model: Disentangler, logs: Sequence[GoldLog], config: DisentanglerConfig, progress: Progress
) -> tuple[Disentangler, Agreement]:
    """The bias with the best links and conversations taken together."""
    scored = []
    for gold in logs:
        scored.append(model.score(gold.log.lines, gold.links))
        progress.advance()
    best: tuple[float, float, Agreement] | None = None
    for bias in sorted(config.biases, key=abs):
        found = [
            links_of(choices, gold.log.lines, gold.links, start_bias=bias)
            for choices, gold in zip(scored, logs, strict=True)
        ]
        figures = agreement(found, [gold.links for gold in logs])
        value = (figures.links.f if figures.links else 0.0) + np.nan_to_num(figures.exact.f)
        if best is None or value > best[0]:
            best = (value, bias, figures)
    assert best is not None
    return replace(model, start_bias=best[1]), best[2]


class _Kept:
    """Trees of a run that may be interrupted; only those learned with the very same config are taken up again."""

    def __init__(self, config: DisentanglerConfig) -> None:
        self._folder = config.out / "partial"
        same = config.model_dump_json(exclude={"out", "resume", "biases"})
        note = self._folder / "config.json"
        if not (config.resume and note.is_file() and json.loads(note.read_text(encoding="utf-8")) == json.loads(same)):
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
            note.write_text(same, encoding="utf-8")

    def read(self, name: str) -> str | None:
        file = self._folder / f"{name}.txt"
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def write(self, name: str, text: str) -> None:
        partial = self._folder / f"{name}.part"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self._folder / f"{name}.txt")

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


RECIPE = Recipe("disentangler", DisentanglerConfig, train)
