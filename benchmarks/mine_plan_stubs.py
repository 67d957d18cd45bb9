"""Tasks for benchmarks/mine_plan.py that leave behind what the tasks of mining leave behind, without doing the work.

A module of its own, so that the workers of an engine can import the functions by name.
"""

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tertulia.artefacts.folders import Folder, write_json_to
from tertulia.corpus.mining.extract import ExtractJob, ExtractResult, marker_name, shard_name
from tertulia.corpus.mining.merge import MergeJob, MergeResult, MergeTask
from tertulia.corpus.mining.pairs import PAIR_SCHEMA, PAIRS
from tertulia.corpus.mining.repeats import RepeatsJob
from tertulia.corpus.mining.scatter import ScatterJob, ScatterResult, ScatterTask
from tertulia.corpus.mining.segments import SegmentFile
from tertulia.corpus.trees import Funnel

T = TypeVar("T")
R = TypeVar("R")
MESSAGE_BYTES = 234
"""Bytes of a generated message as a line."""
_PACKED = 0.5
"""Bytes of working files per byte of input, for the sizes of simulated files; nothing else depends on it."""
_SHARD_BYTES = 100_000


class Timed(NamedTuple):
    """The result of a task, and the CPU seconds it took."""

    result: Any
    cpu: float


def timed(function: Callable[[T], R], task: T) -> Timed:
    """Run a real task and measure it."""
    start = time.process_time()
    result = function(task)
    return Timed(result, time.process_time() - start)


def _sparse(folder: Folder, name: str, size: int, segments: int) -> SegmentFile:
    """A file of the right size without content, and where its segments would be."""
    with folder.write(name) as file:
        file.touch()
        os.truncate(file, size)
    return SegmentFile(size, np.linspace(500, size, segments + 1).astype(int).tolist())


def scatter(job: ScatterJob, task: ScatterTask) -> ScatterResult:
    """The files and the marker of a part."""
    size = task.chunk.end - task.chunk.start
    messages = size // MESSAGE_BYTES
    result, name = ScatterResult(task.number, messages, messages), f"{task.number:05d}-00000.arrow"
    result.files[f"messages-{name}"] = _sparse(
        job.folder, f"messages-{name}", 500 + int(size * _PACKED), job.plan.segments
    )
    result.files[f"hashes-{name}"] = _sparse(job.folder, f"hashes-{name}", 500 + 16 * messages, job.plan.ranges)
    write_json_to(job.folder, task.marker, result)
    return result


def find_repeats(job: RepeatsJob, number: int) -> Any:
    """A thousand repeated texts per range, after every segment was looked up."""
    assert job.index.ranges(number)
    return np.arange(1000, dtype=np.uint64) + np.uint64(number * 1000)


def merge(job: MergeJob, task: MergeTask) -> MergeResult:
    """The file and the marker of a partition of some parts."""
    count = len(job.plan.bundles_in(task.partition))
    files = slice(task.group * job.plan.partitions, (task.group + 1) * job.plan.partitions)
    size = int(np.diff(job.index.offsets[files, task.partition : task.partition + 2]).sum())
    file = _sparse(job.folder, task.name, 500 + size, count)
    write_json_to(job.folder, task.marker, asdict(file))
    return MergeResult(task, file)


def _empty_shard(folder: Folder, name: str) -> int:
    """A Parquet file of some size without rows; its footer can be read, since the card counts rows."""
    buffer = pa.BufferOutputStream()
    pq.write_table(PAIR_SCHEMA.empty_table(), buffer)
    content = buffer.getvalue().to_pybytes()
    end = content[-8 - int.from_bytes(content[-8:-4], "little") :]
    with folder.write(name) as file:
        file.write_bytes(content[:4])
        os.truncate(file, _SHARD_BYTES - len(end))
        with file.open("ab") as out:
            out.write(end)
    return _SHARD_BYTES


def extract_pairs(job: ExtractJob, number: int) -> ExtractResult:
    """The shards and the marker of a bundle of buckets, after every segment was looked up."""
    messages = sum(end - start for _, start, end in job.segments(number)) // 100
    removed = dict.fromkeys(Funnel().removed, messages // 20)
    result = ExtractResult(number, Funnel(messages, removed, messages // 3, messages // 3))
    folder = job.out.subfolder(PAIRS)
    result.sizes[PAIRS] = [_empty_shard(folder, shard_name(b)) for b in job.plan.buckets_in(number)]
    write_json_to(job.work, marker_name(number), asdict(result))
    return result
