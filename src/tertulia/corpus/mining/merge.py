"""Between reading and extracting, for a large corpus: one partition of some parts, divided into its bundles.

See `plan` for why. A task reads as much as a part holds, from as many parts as there are partitions, and writes one
file; rows keep the order of the input.
"""

from dataclasses import asdict, dataclass

from tertulia.artefacts.folders import Folder, read_json_from, write_json_to
from tertulia.corpus.mining.columns import numbers_of
from tertulia.corpus.mining.filters import COLUMNS
from tertulia.corpus.mining.plan import Layout
from tertulia.corpus.mining.scatter import bundles_of
from tertulia.corpus.mining.segments import (
    SegmentFile,
    SegmentIndex,
    SortedBlock,
    read_segments,
    sort_block,
    write_segments,
)


@dataclass(frozen=True, slots=True)
class MergeJob:
    """What all tasks share."""

    folder: Folder
    plan: Layout
    index: SegmentIndex
    """The partitions in the files of the parts."""
    compress: bool = True
    """Whether the messages are compressed."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """One partition of a group of files."""

    partition: int
    group: int
    """Number of the group: files `group * partitions` to `(group + 1) * partitions`."""

    @property
    def name(self) -> str:
        """The file to write."""
        return f"merged-{self.partition:05d}-{self.group:05d}.arrow"

    @property
    def marker(self) -> str:
        """The file that says that the task is done."""
        return f"merged-{self.partition:05d}-{self.group:05d}.json"


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What was written."""

    task: MergeTask
    file: SegmentFile


def merge(job: MergeJob, task: MergeTask) -> MergeResult:
    """Divide one partition of a group of files into bundles of buckets."""
    plan, bundles = job.plan, job.plan.bundles_in(task.partition)
    files = slice(task.group * plan.partitions, (task.group + 1) * plan.partitions)
    ranges = SegmentIndex(job.index.names[files], job.index.offsets[files]).ranges(task.partition)
    blocks: list[SortedBlock] = []
    for pieces in [[piece] for piece in ranges] or [[]]:  # one by one: the rows are in memory once, in their new order
        table = read_segments(job.folder, pieces, COLUMNS)
        own = bundles_of(numbers_of(table["thread_hash"]), plan) - bundles.start
        blocks.append(sort_block(table, own, count=len(bundles)))
    file = write_segments(job.folder, task.name, blocks, compress=job.compress)
    write_json_to(job.folder, task.marker, asdict(file))
    return MergeResult(task, file)


def finished_merge(folder: Folder, task: MergeTask, sizes: dict[str, int]) -> MergeResult | None:
    """The result of a task that an earlier run finished; None if it has to be done."""
    if task.marker not in sizes:
        return None
    file = SegmentFile(**read_json_from(folder, task.marker))
    return MergeResult(task, file) if sizes.get(task.name) == file.size else None
