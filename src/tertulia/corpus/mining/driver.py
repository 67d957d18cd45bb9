"""The order of the stages, the same for every engine: scatter, learn subwords, find repeats, extract, sum up.

A run may be killed at any point. Finished tasks have markers, unfinished ones have none, and a rerun does the rest. The
folder `_work` with all intermediate files is removed once the funnel, which is written last, is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tertulia.artefacts.files import atomic_write, remove_unfinished
from tertulia.core.codec import Problems
from tertulia.core.errors import DamagedLine, DataError
from tertulia.core.progress import Progress
from tertulia.core.safety import SafetyConfig
from tertulia.corpus.engines.base import Engine
from tertulia.corpus.engines.memory import release_memory
from tertulia.corpus.mining.extract import ExtractResult, ExtractTask, extract_pairs, finished_extract
from tertulia.corpus.mining.pairs import PAIRS, WHOLE
from tertulia.corpus.mining.reading import lines_before
from tertulia.corpus.mining.repeats import RepeatsTask, find_repeats
from tertulia.corpus.mining.scatter import ScatterResult, ScatterTask, finished_scatter, read_sample, scatter
from tertulia.corpus.mining.schemas import Cleaning
from tertulia.corpus.mining.sources import Source, chunks_of
from tertulia.corpus.rules import MiningRules, UnsafeMode
from tertulia.corpus.subwords import SubwordCounter, read_subwords, train_subwords
from tertulia.corpus.trees import Funnel

WORK = "_work"
SUBWORDS = "subwords.model"
_LARGE = 1 << 30
"""Bytes of input above which restarting the workers after reading costs less than the memory they hold on to."""
_RANGE_BYTES = 256 << 20
"""Bytes of input per range of text hashes: about 20 MB of hashes at a time."""


@dataclass(frozen=True, slots=True)
class MiningJob:
    """Everything that determines the results."""

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
    unsafe_phrases: tuple[str, ...] = ()
    unsafe: UnsafeMode = "auto"
    safety: SafetyConfig = field(default_factory=SafetyConfig)
    whole: bool = False

    @property
    def work(self) -> Path:
        """The folder for everything that is not a result."""
        return self.out.resolve() / WORK

    @property
    def estimated_bytes(self) -> int:
        """About how many bytes of JSON lines there are."""
        return sum(source.estimated_bytes for source in self.sources)

    @property
    def ranges(self) -> int:
        """Into how many ranges the hashes of texts are split."""
        return 1 + self.estimated_bytes // _RANGE_BYTES


@dataclass(slots=True)
class MiningResult:
    """The counts of a finished run."""

    funnel: Funnel
    problems: Problems
    subwords: int
    whole: int


def run_stages(job: MiningJob, engine: Engine, progress: Progress, *, strict: bool = False) -> MiningResult:
    """Do whatever is not done yet."""
    for kind in (PAIRS, WHOLE)[: 1 + job.whole]:
        (job.out / kind).mkdir(parents=True, exist_ok=True)
    parts, problems = _scatter(job, engine, progress, strict)
    counter = _subwords(job, parts, progress)
    repeated = _repeats(job, parts, engine, progress)
    if job.estimated_bytes > _LARGE:
        engine.restart_workers()
    funnel, whole = _extract(job, parts, repeated, engine, progress)
    remove_unfinished(job.out)  # left by a node that was lost on the way
    return MiningResult(funnel, problems, counter.vocabulary, whole)


def _scatter(job: MiningJob, engine: Engine, progress: Progress, strict: bool) -> tuple[list[ScatterResult], Problems]:
    chunks = [chunk for source in job.sources for chunk in chunks_of(source, size=job.block_bytes)]
    sample_rate = 0.0 if job.subwords or not job.estimated_bytes else job.sample / job.estimated_bytes
    tasks = [
        ScatterTask(
            number,
            chunk,
            str(job.work),
            job.buckets,
            job.ranges,
            job.block_bytes,
            dict(job.fields),
            job.cleaning,
            sample_rate,
            job.seed,
        )
        for number, chunk in enumerate(chunks)
    ]
    progress.step("Reading messages", total=len(tasks))
    done = {task.number: result for task in tasks if (result := finished_scatter(task))}
    progress.advance(len(done))
    for result in engine.map(scatter, [task for task in tasks if task.number not in done]):
        done[result.number] = result
        progress.advance()
        if strict and result.damaged:
            break
    problems = _problems(tasks, done, strict)
    if not sum(result.messages for result in done.values()):
        names = ", ".join(source.name for source in job.sources)
        raise DataError(f"There are no messages in {names}.", hint="Messages are records with an id and a text.")
    return [done[task.number] for task in tasks], problems


def _problems(tasks: list[ScatterTask], done: Mapping[int, ScatterResult], strict: bool) -> Problems:
    """The damaged lines of all chunks, numbered within their file; if strict, the first one raises."""
    problems = Problems()
    for task in tasks:
        result = done.get(task.number)
        if result is None or not result.damaged:
            continue
        before = lines_before(task.chunk) if len(problems.examples) < problems.keep else 0
        for line, why in result.examples:
            error = DamagedLine(task.chunk.source.path, before + line, why)
            if strict:
                raise error
            problems.add(error)
        problems.count += result.damaged - len(result.examples)
    return problems


def _subwords(job: MiningJob, parts: list[ScatterResult], progress: Progress) -> SubwordCounter:
    """The given model, or one learned from the sample; a copy is saved with the results."""
    path = job.out / SUBWORDS
    if not path.is_file():
        if job.subwords:
            counter = read_subwords(job.subwords)
        else:
            sample = [text for result in parts for text in read_sample(result.paths(job.work, "sample"))]
            progress.step(f"Learning subwords from {len(sample)} messages")
            counter = train_subwords(sample, vocabulary=job.vocabulary)
        with atomic_write(path, durable=True) as file:
            counter.save(file)
        release_memory(above=0)  # the sample and everything that was counted in it
    return SubwordCounter(path.read_bytes())


def _repeats(job: MiningJob, parts: list[ScatterResult], engine: Engine, progress: Progress) -> Path:
    path = job.work / "repeated.npy"
    if not path.is_file():
        files = tuple(file for result in parts for file in result.paths(job.work, "hashes"))
        tasks = [RepeatsTask(number, files, job.rules.max_repeats) for number in range(job.ranges)]
        progress.step("Counting repeated texts", total=len(tasks))
        repeated = [np.zeros(0, np.uint64)]
        for hashes in engine.map(find_repeats, tasks):
            repeated.append(hashes)
            progress.advance()
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.sort(np.concatenate(repeated)))
    return path


def _extract(
    job: MiningJob, parts: list[ScatterResult], repeated: Path, engine: Engine, progress: Progress
) -> tuple[Funnel, int]:
    tasks = [
        ExtractTask(
            number,
            tuple(file for result in parts for file in result.paths(job.work, "messages")),
            str(job.work),
            str(job.out.resolve()),
            job.rules,
            str((job.out / SUBWORDS).resolve()),
            str(repeated),
            job.unsafe_phrases,
            job.unsafe,
            job.safety,
            job.whole,
        )
        for number in range(job.buckets)
    ]
    progress.step("Mining", total=len(tasks))
    funnel, whole = Funnel(), 0

    def add(result: ExtractResult) -> None:
        nonlocal whole
        funnel.add(result.funnel)
        whole += result.whole
        progress.advance()

    remaining = []
    for task in tasks:
        if previous := finished_extract(task):
            add(previous)
        else:
            remaining.append(task)
    for result in engine.map(extract_pairs, remaining):
        add(result)
    return funnel, whole
