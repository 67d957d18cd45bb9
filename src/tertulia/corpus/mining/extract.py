"""Stage three: one bucket of complete threads becomes a shard of pairs, and a marker with its funnel."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from tertulia.artefacts.files import read_json, write_json
from tertulia.core.safety import Judges, SafetyConfig
from tertulia.corpus.mining.filters import COLUMNS, FilteredMessages, FilterSettings, filter_messages
from tertulia.corpus.mining.forest import full_paths, leaves, paths_to
from tertulia.corpus.mining.lengths import load_length_filter
from tertulia.corpus.mining.pairs import PAIR_SCHEMA, PAIRS, WHOLE, WHOLE_SCHEMA, pair_rows, whole_rows, write_rows
from tertulia.corpus.mining.segments import read_segment
from tertulia.corpus.mining.words import UnsafePhrases
from tertulia.corpus.rules import MiningRules, UnsafeMode
from tertulia.corpus.trees import Funnel

BATCH = 10_000
"""Messages filtered at once, rounded up to the end of a thread: their working set fits into the processor's cache."""


@dataclass(frozen=True, slots=True)
class ExtractTask:
    """One bucket."""

    number: int
    files: tuple[str, ...]
    work: str
    out: str
    rules: MiningRules
    subwords: str
    """Path of the SentencePiece model."""
    repeated: str
    """File with the hashes of the texts that occur too often."""
    unsafe_phrases: tuple[str, ...] = ()
    unsafe: UnsafeMode = "auto"
    safety: SafetyConfig = field(default_factory=SafetyConfig)
    whole: bool = False

    @property
    def marker(self) -> Path:
        """The file that says that the task is done."""
        return Path(self.work) / f"bucket-{self.number:05d}.json"

    def shard(self, kind: str) -> Path:
        """The file for the rows of a kind."""
        return Path(self.out) / kind / f"{self.number:05d}.parquet"


@dataclass(slots=True)
class ExtractResult:
    """What was extracted from a bucket."""

    number: int
    funnel: Funnel
    whole: int = 0
    """Dialogues from root to leaf, if requested."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each shard, by kind."""


def extract_pairs(task: ExtractTask) -> ExtractResult:
    """Process one bucket, unless it is done. The shards are written first, then the marker."""
    if previous := finished_extract(task):
        return previous
    batches = list(_batches(read_segment(task.files, task.number, COLUMNS)))
    result = ExtractResult(task.number, Funnel())
    filtered = _filter_batches(task, batches, result.funnel)
    write_rows(
        task.shard(PAIRS),
        (pair_rows(batch, paths_to(batch.replies, batch.parent, context=task.rules.context)) for batch in filtered),
        PAIR_SCHEMA,
    )
    if task.whole:
        filtered = _filter_batches(task, batches, Funnel())
        tables = (table for batch in filtered for table in _whole_tables(batch))
        result.whole = write_rows(task.shard(WHOLE), tables, WHOLE_SCHEMA)
    result.sizes = {kind: task.shard(kind).stat().st_size for kind in (PAIRS, WHOLE)[: 1 + task.whole]}
    write_json(task.marker, asdict(result), durable=True)
    return result


def finished_extract(task: ExtractTask) -> ExtractResult | None:
    """The result of a task that an earlier run finished; None if it has to be done."""
    if not task.marker.is_file():
        return None
    record = read_json(task.marker)
    result = ExtractResult(**record | {"funnel": Funnel(**record["funnel"])})
    intact = all((p := task.shard(kind)).is_file() and p.stat().st_size == size for kind, size in result.sizes.items())
    return result if intact else None


def _batches(table: pa.Table) -> Iterator[pa.Table]:
    """Complete threads, about BATCH messages at a time; threads ordered by hash, messages in input order."""
    threads = table["thread_hash"].to_numpy()
    order = np.argsort(threads, kind="stable")
    threads = threads[order]
    edges = np.append(np.flatnonzero(threads[1:] != threads[:-1]) + 1, len(threads))
    table = table.take(pa.array(order)).combine_chunks()
    start = 0
    while start < len(threads):
        end = int(edges[min(int(np.searchsorted(edges, start + BATCH)), len(edges) - 1)])
        yield table.slice(start, end - start)
        start = end


def _filter_batches(task: ExtractTask, batches: list[pa.Table], funnel: Funnel) -> Iterator[FilteredMessages]:
    settings = FilterSettings(
        task.rules,
        load_length_filter(task.subwords),
        _unsafe_phrases(task.unsafe_phrases) if task.unsafe_phrases else None,
        task.unsafe,
        _load_judges(task.safety.model_dump_json()),
        np.load(task.repeated),
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
def _load_judges(config: str) -> Judges:
    """Once per process: a classifier takes seconds to load."""
    return SafetyConfig.model_validate_json(config).load()


@lru_cache(maxsize=1)
def _unsafe_phrases(phrases: tuple[str, ...]) -> UnsafePhrases:
    return UnsafePhrases(phrases)
