"""Stage three: one bucket of complete threads becomes a shard of pairs, and a marker with its funnel."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from io import BytesIO

import numpy as np
import pyarrow as pa

from tertulia.artefacts.folders import ByteRange, Folder, read_json_from, write_json_to
from tertulia.core.safety import Judges, SafetyConfig
from tertulia.corpus.mining.columns import numbers_of, to_arrow
from tertulia.corpus.mining.filters import COLUMNS, FilteredMessages, FilterSettings, filter_messages
from tertulia.corpus.mining.forest import full_paths, leaves, paths_to
from tertulia.corpus.mining.hashing import Hashes
from tertulia.corpus.mining.lengths import load_length_filter
from tertulia.corpus.mining.manifest import check_unchanged
from tertulia.corpus.mining.pairs import PAIR_SCHEMA, PAIRS, WHOLE, WHOLE_SCHEMA, pair_rows, whole_rows, write_rows_to
from tertulia.corpus.mining.plan import Layout
from tertulia.corpus.mining.segments import SegmentIndex, read_segments
from tertulia.corpus.mining.words import UnsafePhrases
from tertulia.corpus.rules import MiningRules, UnsafeMode
from tertulia.corpus.trees import Funnel

SUBWORDS = "subwords.model"
"""The SentencePiece model, among the results."""
REPEATED = "repeated.npy"
"""The hashes of the texts that occur too often, among the working files."""
BATCH = 10_000
"""Messages filtered at once, rounded up to the end of a thread: their working set fits into the processor's cache."""


@dataclass(frozen=True, slots=True)
class ExtractJob:
    """What all tasks share."""

    work: Folder
    out: Folder
    plan: Layout
    indices: tuple[SegmentIndex, ...]
    """Where the buckets are: in the files of the parts, or in those of each partition."""
    rules: MiningRules
    digests: tuple[str, str]
    """Of the subword model and of the repeated texts: a worker that has read them need not read them again."""
    manifest: str
    """Digest of the manifest."""
    unsafe_phrases: tuple[str, ...] = ()
    unsafe: UnsafeMode = "auto"
    safety: SafetyConfig = field(default_factory=SafetyConfig)
    whole: bool = False

    def segments(self, bucket: int) -> list[ByteRange]:
        """The segments of a bucket, in input order."""
        if not self.plan.partitions:
            return self.indices[0].ranges(bucket)
        partition = self.plan.partition_of(bucket)
        return self.indices[partition].ranges(bucket - self.plan.first_bucket(partition))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of shards to write."""
        return (PAIRS, WHOLE)[: 1 + self.whole]


@dataclass(slots=True)
class ExtractResult:
    """What was extracted from a bucket."""

    number: int
    funnel: Funnel
    whole: int = 0
    """Dialogues from root to leaf, if requested."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each shard, by kind."""


def extract_pairs(job: ExtractJob, number: int) -> ExtractResult:
    """Process one bucket. The shards are written first, then the marker."""
    batches = list(_batches(read_segments(job.work, job.segments(number), COLUMNS)))
    check_unchanged(job.out, job.manifest)
    result = ExtractResult(number, Funnel())
    filtered = _filter_batches(job, batches, result.funnel)
    with job.out.subfolder(PAIRS).write(shard_name(number), durable=True) as file:
        pairs = (pair_rows(b, paths_to(b.replies, b.parent, context=job.rules.context)) for b in filtered)
        write_rows_to(file, pairs, PAIR_SCHEMA)
        result.sizes[PAIRS] = file.stat().st_size
    if job.whole:
        filtered = _filter_batches(job, batches, Funnel())
        with job.out.subfolder(WHOLE).write(shard_name(number), durable=True) as file:
            tables = (table for batch in filtered for table in _whole_tables(batch))
            result.whole = write_rows_to(file, tables, WHOLE_SCHEMA)
            result.sizes[WHOLE] = file.stat().st_size
    write_json_to(job.work, marker_name(number), asdict(result), durable=True)
    return result


def shard_name(number: int) -> str:
    """The file for the rows of a bucket, in the folder of their kind."""
    return f"{number:05d}.parquet"


def marker_name(number: int) -> str:
    """The file that says that a bucket is done."""
    return f"bucket-{number:05d}.json"


def finished_extract(job: ExtractJob, number: int, sizes: Mapping[str, Mapping[str, int]]) -> ExtractResult | None:
    """The result of a task that an earlier run finished; None if it has to be done. `sizes` are those of the shards,
    by kind; the marker must be there."""
    record = read_json_from(job.work, marker_name(number))
    result = ExtractResult(**record | {"funnel": Funnel(**record["funnel"])})
    return result if all(sizes[kind].get(shard_name(number)) == size for kind, size in result.sizes.items()) else None


def _batches(table: pa.Table) -> Iterator[pa.Table]:
    """Complete threads, about BATCH messages at a time; threads ordered by hash, messages in input order."""
    threads = numbers_of(table["thread_hash"])
    order = np.argsort(threads, kind="stable")
    threads = threads[order]
    edges = np.append(np.flatnonzero(threads[1:] != threads[:-1]) + 1, len(threads))
    table = table.take(to_arrow(order)).combine_chunks()
    start = 0
    while start < len(threads):
        end = int(edges[min(int(np.searchsorted(edges, start + BATCH)), len(edges) - 1)])
        yield table.slice(start, end - start)
        start = end


def _filter_batches(job: ExtractJob, batches: list[pa.Table], funnel: Funnel) -> Iterator[FilteredMessages]:
    settings = FilterSettings(
        job.rules,
        load_length_filter(job.out, SUBWORDS, job.digests[0]),
        _unsafe_phrases(job.unsafe_phrases) if job.unsafe_phrases else None,
        job.unsafe,
        partial(_load_judges, job.safety.model_dump_json()),
        _load_repeated(job.work, job.digests[1]),
    )
    for batch in batches:
        filtered = filter_messages(batch, settings)
        funnel.add(filtered.funnel())
        yield filtered


def _whole_tables(filtered: FilteredMessages) -> Iterator[pa.Table]:
    ends = leaves(filtered.kept, filtered.parent)
    # Removed rows become roots: that cuts every cycle, whose rows are all removed.
    parent = np.where(filtered.kept, filtered.parent, len(filtered.parent))
    return (whole_rows(filtered, paths) for paths in full_paths(ends, parent))


@lru_cache(maxsize=1)
def _load_repeated(folder: Folder, _digest: str) -> Hashes:
    return np.asarray(np.load(BytesIO(folder.read(REPEATED))))


@lru_cache(maxsize=1)
def _load_judges(config: str) -> Judges:
    """Once per process: a classifier takes seconds to load."""
    return SafetyConfig.model_validate_json(config).load()


@lru_cache(maxsize=1)
def _unsafe_phrases(phrases: tuple[str, ...]) -> UnsafePhrases:
    return UnsafePhrases(phrases)
