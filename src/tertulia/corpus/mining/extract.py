"""Stage three: buckets of complete threads become shards of pairs, and a marker with their funnel.

A task extracts a bundle of neighbouring buckets, most often of one. Small ones are filtered together and written one by
one: what is in a shard, and in which row group, depends on its bucket alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from io import BytesIO
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from tertulia.corpus.mining.scatter import buckets_of
from tertulia.corpus.mining.segments import SegmentIndex, read_segments
from tertulia.corpus.mining.words import UnsafePhrases
from tertulia.corpus.rules import MiningRules, UnsafeMode
from tertulia.corpus.scrub import Kind, scrub_column
from tertulia.corpus.trees import Funnel

SUBWORDS = "subwords.model"
"""The SentencePiece model, among the results."""
REPEATED = "repeats.npy"
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
    """Where the bundles are: in the files of the parts, or in those of each partition."""
    rules: MiningRules
    digests: tuple[str, str]
    """Of the subword model and of the repeated texts: a worker that has read them need not read them again."""
    manifest: str
    """Digest of the manifest."""
    unsafe_phrases: tuple[str, ...] = ()
    unsafe: UnsafeMode = "auto"
    safety: SafetyConfig = field(default_factory=SafetyConfig)
    whole: bool = False
    scrub: tuple[Kind, ...] = ()
    """Kinds of personal data to replace in the texts that are kept."""

    def segments(self, bundle: int) -> list[ByteRange]:
        """The segments of a bundle, in input order."""
        if not self.plan.partitions:
            return self.indices[0].ranges(bundle)
        partition = self.plan.partition_of(bundle)
        return self.indices[partition].ranges(bundle - self.plan.bundles_in(partition).start)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of shards to write."""
        return (PAIRS, WHOLE)[: 1 + self.whole]


@dataclass(slots=True)
class ExtractResult:
    """What was extracted from a bundle of buckets."""

    number: int
    funnel: Funnel
    whole: int = 0
    """Dialogues from root to leaf, if requested."""
    sizes: dict[str, list[int]] = field(default_factory=dict)
    """Bytes of the shard of each bucket, by kind."""
    replaced: dict[str, int] = field(default_factory=dict)
    """Personal data in the messages that were kept, by kind."""


class _Piece(NamedTuple):
    """Complete threads of one bucket that become one row group."""

    bucket: int
    start: int
    end: int

    @property
    def middle(self) -> int:
        """The row at its middle."""
        return (self.start + self.end) // 2


def extract_pairs(job: ExtractJob, number: int) -> ExtractResult:
    """Process one bundle of buckets. The shards are written first, then the marker."""
    buckets = job.plan.buckets_in(number)
    table, pieces = _ordered(read_segments(job.work, job.segments(number), COLUMNS), job.plan.buckets)
    check_unchanged(job.out, job.manifest)
    result = ExtractResult(number, Funnel())

    def pair_tables(batch: FilteredMessages) -> Iterator[pa.Table]:
        yield pair_rows(batch, paths_to(batch.replies, batch.parent, context=job.rules.context))

    filtered = _filter_pieces(job, table, pieces, result)
    result.sizes[PAIRS], _ = _write_shards(job.out.subfolder(PAIRS), buckets, filtered, pair_tables, PAIR_SCHEMA)
    if job.whole:
        filtered = _filter_pieces(job, table, pieces, ExtractResult(number, Funnel()))
        written = _write_shards(job.out.subfolder(WHOLE), buckets, filtered, _whole_tables, WHOLE_SCHEMA)
        result.sizes[WHOLE], result.whole = written
    write_json_to(job.work, marker_name(number), asdict(result), durable=True)
    return result


def _write_shards(
    folder: Folder,
    buckets: range,
    filtered: Iterator[tuple[int, FilteredMessages]],
    tables_of: Callable[[FilteredMessages], Iterator[pa.Table]],
    schema: pa.Schema,
) -> tuple[list[int], int]:
    """Write the shard of each bucket; returns their sizes in bytes, and the number of rows in all."""
    sizes, rows = [], 0
    by_bucket = groupby(filtered, key=lambda item: item[0])
    following = next(by_bucket, None)
    for bucket in buckets:
        with folder.write(shard_name(bucket), durable=True) as file:
            own = following[1] if following and following[0] == bucket else iter(())
            rows += write_rows_to(file, (table for _, batch in own for table in tables_of(batch)), schema)
            sizes.append(file.stat().st_size)
        if following and following[0] == bucket:
            following = next(by_bucket, None)
    return sizes, rows


def shard_name(number: int) -> str:
    """The file for the rows of a bucket, in the folder of their kind."""
    return f"{number:05d}.parquet"


def marker_name(number: int) -> str:
    """The file that says that a bundle of buckets is done."""
    return f"bundle-{number:05d}.json"


def finished_extract(job: ExtractJob, number: int, sizes: Mapping[str, Mapping[str, int]]) -> ExtractResult | None:
    """The result of a task that an earlier run finished; None if it has to be done. `sizes` are those of the shards,
    by kind; the marker must be there."""
    record = read_json_from(job.work, marker_name(number))
    result = ExtractResult(**record | {"funnel": Funnel(**record["funnel"])})
    names = [shard_name(bucket) for bucket in job.plan.buckets_in(number)]
    is_done = all([sizes[kind].get(name) for name in names] == own for kind, own in result.sizes.items())
    return result if is_done else None


def _ordered(table: pa.Table, count: int) -> tuple[pa.Table, list[_Piece]]:
    """The messages by bucket and thread, which are ordered by hash, and else in input order; and how they are divided:
    into complete threads of one bucket, about BATCH messages at a time."""
    threads = numbers_of(table["thread_hash"])
    order = np.argsort(threads, kind="stable")
    buckets = buckets_of(threads, count)[order]
    if len(buckets) and (buckets != buckets[0]).any():
        by_bucket = np.argsort(buckets, kind="stable")
        order, buckets = order[by_bucket], buckets[by_bucket]
    threads = threads[order]
    edges = np.append(np.flatnonzero(threads[1:] != threads[:-1]) + 1, len(threads))
    ends = np.append(np.flatnonzero(buckets[1:] != buckets[:-1]) + 1, len(buckets))
    pieces, start = list[_Piece](), 0
    for bucket_end in ends.tolist():
        while start < bucket_end:
            end = min(int(edges[min(int(np.searchsorted(edges, start + BATCH)), len(edges) - 1)]), bucket_end)
            pieces.append(_Piece(int(buckets[start]), start, end))
            start = end
    return table.take(to_arrow(order)).combine_chunks(), pieces


def _filter_pieces(
    job: ExtractJob, table: pa.Table, pieces: list[_Piece], result: ExtractResult
) -> Iterator[tuple[int, FilteredMessages]]:
    """Each piece, filtered, with its bucket; small ones are filtered together. The counts are added to the result."""
    settings = FilterSettings(
        job.rules,
        load_length_filter(job.out, SUBWORDS, job.digests[0]),
        _unsafe_phrases(job.unsafe_phrases) if job.unsafe_phrases else None,
        job.unsafe,
        partial(_load_judges, job.safety.model_dump_json()),
        _load_repeated(job.work, job.digests[1]),
    )
    position = 0
    while position < len(pieces):
        first, start = position, pieces[position].start
        while position < len(pieces) and (position == first or pieces[position].middle - start <= BATCH):
            position += 1
        batch = filter_messages(table.slice(start, pieces[position - 1].end - start), settings)
        result.funnel.add(batch.funnel())
        if job.scrub:
            batch = _scrub(batch, job.scrub, result.replaced)
        for piece in pieces[first:position]:
            yield piece.bucket, batch.part(piece.start - start, piece.end - start)


def _scrub(batch: FilteredMessages, kinds: tuple[Kind, ...], replaced: dict[str, int]) -> FilteredMessages:
    """The batch without personal data in the texts that are kept, the only ones that are written."""
    kept = to_arrow(batch.kept)
    texts, counts = scrub_column(batch.texts.filter(kept), kinds)
    for kind, count in counts.items():
        replaced[kind] = replaced.get(kind, 0) + count
    return replace(batch, texts=pc.replace_with_mask(batch.texts, kept, texts)) if counts else batch


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
