"""The order of the stages, the same for every engine: scatter, learn subwords, find repeats, merge, extract, sum up.

A run may be killed at any point. Finished tasks have markers, unfinished ones have none, and a rerun does the rest. The
driver holds an index of the segments and a line of counts per part, and no task before it is assigned: its memory
grows by a few kilobytes per part. The folder `_work` with all intermediate files is removed once the funnel, which is
written last, is there.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from tertulia.artefacts.folders import DiskFolder, Folder
from tertulia.core.codec import Problems
from tertulia.core.errors import DamagedLine, DataError
from tertulia.core.progress import Progress
from tertulia.core.safety import SafetyConfig
from tertulia.corpus.engines.base import Engine
from tertulia.corpus.engines.memory import release_memory
from tertulia.corpus.mining.extract import (
    REPEATED,
    SUBWORDS,
    ExtractJob,
    ExtractResult,
    extract_pairs,
    finished_extract,
    marker_name,
)
from tertulia.corpus.mining.manifest import check_unchanged, manifest_digest
from tertulia.corpus.mining.merge import MergeJob, MergeResult, MergeTask, finished_merge, merge
from tertulia.corpus.mining.plan import Layout
from tertulia.corpus.mining.reading import lines_before
from tertulia.corpus.mining.repeats import RepeatsJob, find_repeats
from tertulia.corpus.mining.scatter import (
    ScatterJob,
    ScatterResult,
    ScatterTask,
    finished_scatter,
    read_sample,
    scatter,
)
from tertulia.corpus.mining.schemas import Cleaning
from tertulia.corpus.mining.segments import SegmentIndex, index_of
from tertulia.corpus.mining.sources import Source, chunks_of
from tertulia.corpus.mining.threads import ADVICE, THREADS, find_threads, links_name, list_links, thread_hashes
from tertulia.corpus.rules import MiningRules, UnsafeMode
from tertulia.corpus.scrub import Kind, scrub
from tertulia.corpus.subwords import SubwordCounter, read_subwords, train_subwords
from tertulia.corpus.trees import Funnel

WORK = "_work"
_LARGE = 1 << 30
"""Bytes of input above which restarting the workers after reading costs less than the memory they hold on to."""

_COMPRESSED = 32 << 30
"""Bytes of input above which the working files on a disk are compressed."""
_STRAGGLER = 8
"""A task that is this many times as large as others is worth a word."""
_MAX_THREADLESS = 400_000
"""Messages without a thread that may be one thread."""


@dataclass(frozen=True, slots=True)
class MiningJob:
    """Everything that determines the results."""

    out: Folder
    sources: tuple[Source, ...]
    rules: MiningRules
    plan: Layout
    block_bytes: int
    fields: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    by_parents: bool = False
    """Whether the threads of messages that name none are found by their parents."""
    cleaning: Cleaning = field(default_factory=Cleaning)
    subwords: Path | None = None
    vocabulary: int = 8000
    sample: int = 100_000
    seed: int = 0
    unsafe_phrases: tuple[str, ...] = ()
    unsafe: UnsafeMode = "auto"
    safety: SafetyConfig = field(default_factory=SafetyConfig)
    whole: bool = False
    scrub: tuple[Kind, ...] = ()
    """Kinds of personal data to replace."""

    @property
    def work(self) -> Folder:
        """The folder for everything that is not a result."""
        return self.out.subfolder(WORK)

    @property
    def estimated_bytes(self) -> int:
        """About how many bytes of JSON lines there are."""
        return sum(source.estimated_bytes for source in self.sources)

    @property
    def compress(self) -> bool:
        """Whether working files are compressed; for a small corpus that costs more than writing what it saves."""
        return not self.out.is_local or self.estimated_bytes > _COMPRESSED


@dataclass(slots=True)
class MiningResult:
    """The counts of a finished run."""

    funnel: Funnel
    problems: Problems
    subwords: int
    whole: int
    replaced: Counter[str]


def run_stages(job: MiningJob, engine: Engine, progress: Progress, *, strict: bool = False) -> MiningResult:
    """Do whatever is not done yet."""
    parts, problems = _scatter(job, engine, progress, strict)
    counter = _subwords(job, parts, progress)
    _repeats(job, parts, engine, progress)
    indices = _merge(job, parts, engine, progress)
    if job.estimated_bytes > _LARGE:
        engine.restart_workers()
    totals = _extract(job, indices, engine, progress)
    if isinstance(job.out, DiskFolder):
        job.out.remove_unfinished()  # left by a node that was lost on the way
    return MiningResult(totals.funnel, problems, counter.vocabulary, totals.whole, Counter(totals.replaced))


def _scatter(job: MiningJob, engine: Engine, progress: Progress, strict: bool) -> tuple[list[ScatterResult], Problems]:
    sample_rate = 0.0 if job.subwords or not job.estimated_bytes else job.sample / job.estimated_bytes
    shared = ScatterJob(
        job.work,
        job.plan,
        job.block_bytes,
        dict(job.fields),
        job.cleaning,
        sample_rate,
        job.seed,
        job.keep,
        job.compress,
    )
    chunks = (chunk for source in job.sources for chunk in chunks_of(source, size=job.plan.part_bytes))
    tasks = [ScatterTask(number, chunk) for number, chunk in enumerate(chunks)]
    if job.by_parents:
        _threads(job, shared, tasks, engine, progress)
        shared = replace(shared, thread_hashes=partial(thread_hashes, _digest(job.work, THREADS)))
    progress.step("Reading messages", total=len(tasks))
    _tell_straggler(job.plan, tasks, progress)
    sizes = job.work.sizes()
    done = {task.number: result for task in tasks if (result := finished_scatter(job.work, task, sizes))}
    progress.advance(len(done))
    # The largest first: it would be the last to end.
    order = sorted(tasks, key=lambda task: (-task.chunk.estimated_bytes, task.number))
    for result in engine.map(partial(scatter, shared), (task for task in order if task.number not in done)):
        done[result.number] = result
        progress.advance()
        if strict and result.damaged:
            break
    problems = _problems(tasks, done, strict)
    if not sum(result.messages for result in done.values()):
        if problems.examples:
            raise DataError(
                f"Cannot read a single message. {problems.examples[0]}.",
                hint="A message has id, author, text, parent and thread; other names of these: --field text=body."
                " Dialogues need no mining: every command reads them as they are.",
            )
        names = ", ".join(source.name for source in job.sources)
        raise DataError(f"There are no messages in {names}.", hint="Messages are records with an id and a text.")
    threadless = sum(result.threadless for result in done.values())
    if threadless > _MAX_THREADLESS and not job.by_parents:
        raise DataError(
            f"{threadless:,} messages have no thread, and would have to be in memory at once as one thread.",
            hint=ADVICE,
        )
    return [done[task.number] for task in tasks], problems


def _threads(job: MiningJob, shared: ScatterJob, tasks: list[ScatterTask], engine: Engine, progress: Progress) -> None:
    sizes = job.work.sizes()
    if THREADS not in sizes:
        progress.step("Finding threads", total=len(tasks))
        remaining = (task for task in tasks if links_name(task.number) not in sizes)
        for _ in engine.map(partial(list_links, shared), remaining):
            progress.advance()
        find_threads(job.work, len(tasks))
        release_memory(above=0)


def _tell_straggler(plan: Layout, tasks: list[ScatterTask], progress: Progress) -> None:
    """A compressed file that cannot be divided keeps one worker busy while the others wait."""
    largest = max((task.chunk for task in tasks), key=lambda chunk: chunk.estimated_bytes, default=None)
    if largest and largest.source.is_compressed and largest.estimated_bytes > _STRAGGLER * plan.part_bytes:
        progress.note(
            f"{largest.source.name} is one packed stream, about {largest.estimated_bytes / 1e9:.1f} GB unpacked, "
            "which one worker reads alone"
        )


def _problems(tasks: list[ScatterTask], done: Mapping[int, ScatterResult], strict: bool) -> Problems:
    """The damaged lines of all parts, numbered within their file; if strict, the first one raises."""
    problems = Problems()
    source, before = None, 0
    for task in tasks:
        if task.chunk.source is not source:
            source, before = task.chunk.source, 0
        result = done.get(task.number)
        if result is None:  # only if strict: the lines before another part have to be counted
            before = -1
            continue
        if result.damaged and before < 0:
            before = lines_before(task.chunk)
        for line, why in result.examples:
            error = DamagedLine(task.chunk.source.path, before + line, why)
            if strict:
                raise error
            problems.add(error)
        problems.count += result.damaged - len(result.examples)
        before += result.lines if before >= 0 else 0
    return problems


def _subwords(job: MiningJob, parts: list[ScatterResult], progress: Progress) -> SubwordCounter:
    """The given model, or one learned from the sample; a copy is saved with the results."""
    try:
        return SubwordCounter(job.out.read(SUBWORDS))
    except FileNotFoundError:
        pass
    if job.subwords:
        counter = read_subwords(job.subwords)
    else:
        names = [name for part in parts for name, _ in part.of_kind("sample")]
        sample = [scrub(text, job.scrub).text if job.scrub else text for text in read_sample(job.work, names)]
        progress.step(f"Learning subwords from {len(sample)} messages")
        counter = train_subwords(sample, vocabulary=job.vocabulary)
        del sample
    with job.out.write(SUBWORDS, durable=True) as file:
        counter.save(file)
    release_memory(above=0)  # the sample and everything that was counted in it
    return SubwordCounter(job.out.read(SUBWORDS))


def _repeats(job: MiningJob, parts: list[ScatterResult], engine: Engine, progress: Progress) -> None:
    if REPEATED in job.work.sizes():
        return
    index = _index(parts, "hashes")
    progress.step("Counting repeated texts", total=job.plan.ranges)
    repeated = [np.zeros(0, np.uint64)]
    shared = RepeatsJob(job.work, index, job.rules.max_repeats)
    for hashes in engine.map(partial(find_repeats, shared), range(job.plan.ranges)):
        repeated.append(hashes)
        progress.advance()
    with job.work.write(REPEATED) as unfinished, unfinished.open("wb") as file:
        np.save(file, np.sort(np.concatenate(repeated)))


def _index(parts: Iterable[ScatterResult], kind: str) -> SegmentIndex:
    return index_of(file for part in parts for file in part.of_kind(kind))


def _merge(job: MiningJob, parts: list[ScatterResult], engine: Engine, progress: Progress) -> tuple[SegmentIndex, ...]:
    """Where the bundles are, after a second level if the plan has one."""
    index, partitions = _index(parts, "messages"), job.plan.partitions
    if not partitions:
        return (index,)
    groups = range(-(-len(index.names) // partitions))
    tasks = (MergeTask(partition, group) for partition in range(partitions) for group in groups)
    progress.step("Merging", total=partitions * len(groups))
    sizes, done = job.work.sizes(), dict[MergeTask, MergeResult]()

    def remaining() -> Iterator[MergeTask]:
        for task in tasks:
            if previous := finished_merge(job.work, task, sizes):
                done[task] = previous
                progress.advance()
            else:
                yield task

    for result in engine.map(partial(merge, MergeJob(job.work, job.plan, index, job.compress)), remaining()):
        done[result.task] = result
        progress.advance()
    return tuple(
        index_of((task.name, done[task].file) for group in groups for task in [MergeTask(partition, group)])
        for partition in range(partitions)
    )


def _extract(job: MiningJob, indices: tuple[SegmentIndex, ...], engine: Engine, progress: Progress) -> ExtractResult:
    """The sum of all results."""
    digests = (_digest(job.out, SUBWORDS), _digest(job.work, REPEATED))
    shared = ExtractJob(
        job.work,
        job.out,
        job.plan,
        indices,
        job.rules,
        digests,
        manifest_digest(job.out),
        job.unsafe_phrases,
        job.unsafe,
        job.safety,
        job.whole,
        job.scrub,
    )
    for kind in shared.kinds:
        job.out.subfolder(kind).make()
    progress.step("Mining", total=job.plan.bundles)
    totals = ExtractResult(-1, Funnel())

    def add(result: ExtractResult) -> None:
        totals.funnel.add(result.funnel)
        totals.whole += result.whole
        totals.replaced = dict(Counter(totals.replaced) + Counter(result.replaced))
        progress.advance()

    markers = job.work.sizes()
    sizes = {kind: job.out.subfolder(kind).sizes() for kind in shared.kinds}

    def remaining() -> Iterator[int]:
        for number in range(job.plan.bundles):
            if marker_name(number) in markers and (previous := finished_extract(shared, number, sizes)):
                add(previous)
            else:
                yield number

    for result in engine.map(partial(extract_pairs, shared), remaining()):
        add(result)
    check_unchanged(job.out, shared.manifest)
    return totals


def _digest(folder: Folder, name: str) -> str:
    return hashlib.sha256(folder.read(name)).hexdigest()
