"""The order of the stages, the same for every engine: scatter, learn subwords, repeats, harvest, add up.

A run may be killed at any point. What is done has markers, what is half done has none, and a rerun does the rest; the
folder `_work` with all that is in between goes when the funnel, which is written last, is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tertulia.core.codec import Problems
from tertulia.core.errors import DamagedLine, DataError
from tertulia.core.progress import Progress
from tertulia.corpus.engines.base import Engine
from tertulia.corpus.engines.memory import give_back
from tertulia.corpus.mining.files import appearing, sweep
from tertulia.corpus.mining.harvest import Harvested, HarvestTask, harvest, harvested
from tertulia.corpus.mining.pairs import PAIRS, WHOLE
from tertulia.corpus.mining.reading import lines_before
from tertulia.corpus.mining.repeats import RepeatsTask, repeats
from tertulia.corpus.mining.scatter import Scattered, ScatterTask, read_sample, scatter, scattered
from tertulia.corpus.mining.shapes import Cleaning
from tertulia.corpus.mining.sources import Source, parts_of
from tertulia.corpus.rules import MiningRules
from tertulia.corpus.subwords import SubwordCounter, read_subwords, train_subwords
from tertulia.corpus.trees import Funnel

WORK = "_work"
SUBWORDS = "subwords.model"
_LARGE = 1 << 30
"""Bytes of input above which starting workers anew after reading costs less than the memory they hold on to."""
_RANGE_BYTES = 256 << 20
"""Bytes of input for each range of text hashes: some 20 MB of hashes at a time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that decides what comes out."""

    out: Path
    sources: tuple[Source, ...]
    rules: MiningRules
    buckets: int
    block_bytes: int
    fields: Mapping[str, str] = field(default_factory=dict)
    cleaning: Cleaning = field(default_factory=Cleaning)
    subwords: Path | None = None
    vocabulary: int = 8000
    sample: int = 100_000
    seed: int = 0
    lexicon: tuple[str, ...] = ()
    marked_is_unsafe: bool = True
    whole: bool = False

    @property
    def work(self) -> Path:
        """Where everything lies that is not a result."""
        return self.out.resolve() / WORK

    @property
    def weight(self) -> int:
        """About how many bytes of JSON lines there are."""
        return sum(source.weight for source in self.sources)

    @property
    def ranges(self) -> int:
        """Into how many ranges the hashes of texts are cut."""
        return 1 + self.weight // _RANGE_BYTES


@dataclass(slots=True)
class Yield:
    """What came out."""

    funnel: Funnel
    problems: Problems
    subwords: int
    whole: int


def run(plan: Plan, engine: Engine, progress: Progress, *, strict: bool = False) -> Yield:
    """Do whatever is not done yet."""
    for kind in (PAIRS, WHOLE)[: 1 + plan.whole]:
        (plan.out / kind).mkdir(parents=True, exist_ok=True)
    parts, problems = _scatter(plan, engine, progress, strict)
    counter = _subwords(plan, parts, progress)
    repeated = _repeats(plan, parts, engine, progress)
    if plan.weight > _LARGE:
        engine.renew()
    funnel, whole = _harvest(plan, parts, repeated, engine, progress)
    sweep(plan.out)  # what a node that was lost on the way has left
    return Yield(funnel, problems, counter.vocabulary, whole)


def _scatter(plan: Plan, engine: Engine, progress: Progress, strict: bool) -> tuple[list[Scattered], Problems]:
    parts = [part for source in plan.sources for part in parts_of(source, size=plan.block_bytes)]
    rate = 0.0 if plan.subwords or not plan.weight else plan.sample / plan.weight
    tasks = [
        ScatterTask(
            number,
            part,
            str(plan.work),
            plan.buckets,
            plan.ranges,
            plan.block_bytes,
            dict(plan.fields),
            plan.cleaning,
            rate,
            plan.seed,
        )
        for number, part in enumerate(parts)
    ]
    progress.step("Reading messages", total=len(tasks))
    done = {task.number: found for task in tasks if (found := scattered(task))}
    progress.advance(len(done))
    for found in engine.map(scatter, [task for task in tasks if task.number not in done]):
        done[found.number] = found
        progress.advance()
        if strict and found.damaged:
            break
    problems = _problems(tasks, done, strict)
    if not sum(found.messages for found in done.values()):
        names = ", ".join(source.name for source in plan.sources)
        raise DataError(f"There are no messages in {names}.", hint="Messages are records with an id and a text.")
    return [done[task.number] for task in tasks], problems


def _problems(tasks: list[ScatterTask], done: Mapping[int, Scattered], strict: bool) -> Problems:
    """The damaged lines of all parts, with their numbers in the whole file; the first one raises where strict."""
    problems = Problems()
    for task in tasks:
        found = done.get(task.number)
        if found is None or not found.damaged:
            continue
        before = lines_before(task.part) if len(problems.examples) < problems.keep else 0
        for line, why in found.examples:
            error = DamagedLine(task.part.source.path, before + line, why)
            if strict:
                raise error
            problems.add(error)
        problems.count += found.damaged - len(found.examples)
    return problems


def _subwords(plan: Plan, parts: list[Scattered], progress: Progress) -> SubwordCounter:
    """The given model, or one learned from the sample; a copy of it goes with the results."""
    path = plan.out / SUBWORDS
    if not path.is_file():
        if plan.subwords:
            counter = read_subwords(plan.subwords)
        else:
            sample = [text for found in parts for text in read_sample(found.paths(plan.work, "sample"))]
            progress.step(f"Learning subwords from {len(sample)} messages")
            counter = train_subwords(sample, vocabulary=plan.vocabulary)
        with appearing(path, durable=True) as file:
            counter.save(file)
        give_back(above=0)  # the sample and all that was counted in it
    return SubwordCounter(path.read_bytes())


def _repeats(plan: Plan, parts: list[Scattered], engine: Engine, progress: Progress) -> Path:
    path = plan.work / "repeated.npy"
    if not path.is_file():
        files = tuple(file for found in parts for file in found.paths(plan.work, "hashes"))
        tasks = [RepeatsTask(number, files, plan.rules.max_repeats) for number in range(plan.ranges)]
        progress.step("Counting repeated texts", total=len(tasks))
        found = [np.zeros(0, np.uint64)]
        for hashes in engine.map(repeats, tasks):
            found.append(hashes)
            progress.advance()
        with appearing(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.sort(np.concatenate(found)))
    return path


def _harvest(
    plan: Plan, parts: list[Scattered], repeated: Path, engine: Engine, progress: Progress
) -> tuple[Funnel, int]:
    tasks = [
        HarvestTask(
            number,
            tuple(file for found in parts for file in found.paths(plan.work, "messages")),
            str(plan.work),
            str(plan.out.resolve()),
            plan.rules,
            str((plan.out / SUBWORDS).resolve()),
            str(repeated),
            plan.lexicon,
            plan.marked_is_unsafe,
            plan.whole,
        )
        for number in range(plan.buckets)
    ]
    progress.step("Mining", total=len(tasks))
    funnel, whole = Funnel(), 0

    def count(found: Harvested) -> None:
        nonlocal whole
        funnel.add(found.funnel)
        whole += found.whole
        progress.advance()

    todo = []
    for task in tasks:
        done = harvested(task)
        if done:
            count(done)
        else:
            todo.append(task)
    for found in engine.map(harvest, todo):
        count(found)
    return funnel, whole
