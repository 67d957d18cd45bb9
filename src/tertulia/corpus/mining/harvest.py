"""Stage three: one bucket of whole threads becomes a shard of pairs, and a marker with its funnel."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from tertulia.corpus.mining.files import read_json, write_json
from tertulia.corpus.mining.forest import leaves, lines_to, whole_lines
from tertulia.corpus.mining.kernel import COLUMNS, Judge, Judged, judge
from tertulia.corpus.mining.lengths import load_lengths
from tertulia.corpus.mining.pairs import PAIR_SCHEMA, PAIRS, WHOLE, WHOLE_SCHEMA, pair_rows, whole_rows, write_rows
from tertulia.corpus.mining.segments import read_segment
from tertulia.corpus.mining.words import Lexicon
from tertulia.corpus.rules import MiningRules
from tertulia.corpus.trees import Funnel

BATCH = 10_000
"""Messages judged at once, and some more up to the end of a thread: what they need stays in the processor's cache."""


@dataclass(frozen=True, slots=True)
class HarvestTask:
    """One bucket."""

    number: int
    files: tuple[str, ...]
    work: str
    out: str
    rules: MiningRules
    subwords: str
    """The SentencePiece model."""
    repeated: str
    """A file with the hashes of the texts that occur too often."""
    lexicon: tuple[str, ...] = ()
    marked_is_unsafe: bool = True
    whole: bool = False

    @property
    def marker(self) -> Path:
        """Where the task says that it is done."""
        return Path(self.work) / f"bucket-{self.number:05d}.json"

    def shard(self, kind: str) -> Path:
        """Where the rows go."""
        return Path(self.out) / kind / f"{self.number:05d}.parquet"


@dataclass(slots=True)
class Harvested:
    """What came of a bucket."""

    number: int
    funnel: Funnel
    whole: int = 0
    """Dialogues from root to leaf, where they were asked for."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each shard."""


def harvest(task: HarvestTask) -> Harvested:
    """Do one bucket, unless it is done. Shards first, then the marker."""
    done = harvested(task)
    if done:
        return done
    batches = list(_batches(read_segment(task.files, task.number, COLUMNS)))
    found = Harvested(task.number, Funnel())
    judged = _judged(task, batches, found.funnel)
    write_rows(
        task.shard(PAIRS),
        (pair_rows(j, lines_to(j.replies, j.parent, context=task.rules.context)) for j in judged),
        PAIR_SCHEMA,
    )
    if task.whole:
        judged = _judged(task, batches, Funnel())
        found.whole = write_rows(task.shard(WHOLE), (t for j in judged for t in _whole_tables(j)), WHOLE_SCHEMA)
    found.sizes = {kind: task.shard(kind).stat().st_size for kind in (PAIRS, WHOLE)[: 1 + task.whole]}
    write_json(task.marker, asdict(found), durable=True)
    return found


def harvested(task: HarvestTask) -> Harvested | None:
    """What came of a task that was done before; None where it has to be done."""
    if not task.marker.is_file():
        return None
    record = read_json(task.marker)
    found = Harvested(**record | {"funnel": Funnel(**record["funnel"])})
    there = all((p := task.shard(kind)).is_file() and p.stat().st_size == size for kind, size in found.sizes.items())
    return found if there else None


def _batches(table: pa.Table) -> Iterator[pa.Table]:
    """Whole threads, some thousand messages at a time; threads in the order of their hashes, messages as they came."""
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


def _judged(task: HarvestTask, batches: list[pa.Table], funnel: Funnel) -> Iterator[Judged]:
    judging = Judge(
        task.rules,
        load_lengths(task.subwords),
        _lexicon(task.lexicon) if task.lexicon else None,
        task.marked_is_unsafe,
        np.load(task.repeated),
    )
    for batch in batches:
        found = judge(batch, judging)
        funnel.add(found.funnel())
        yield found


def _whole_tables(judged: Judged) -> Iterator[pa.Table]:
    ends = leaves(judged.kept, judged.parent)
    parent = np.where(judged.kept, judged.parent, len(judged.parent))  # a circle has no end; none of it is kept
    return (whole_rows(judged, lines) for lines in whole_lines(ends, parent))


@lru_cache(maxsize=1)
def _lexicon(phrases: tuple[str, ...]) -> Lexicon:
    return Lexicon(phrases)
