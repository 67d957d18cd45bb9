"""Threads of messages that name none: found by their parents, before anything else is read.

Messages without a thread would all be one thread, which has to fit in memory. For a large corpus of them, every part
first lists who replies to whom, as hashes; the driver follows all parents to their roots at once, by pointer doubling;
and reading then takes the root for the thread. That needs 80 bytes of the driver's memory per message, so there is a
limit.
"""

from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from tertulia.artefacts.folders import DiskFolder, Folder
from tertulia.core.errors import DataError
from tertulia.core.lazy import LazyModule
from tertulia.corpus.mining.columns import Ints, StringArray, contiguous, flags_of
from tertulia.corpus.mining.hashing import Hashes, hash_texts, mix
from tertulia.corpus.mining.reading import read_chunk
from tertulia.corpus.mining.scatter import ScatterJob, ScatterTask

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")  # a third of a second to import

THREADS = "threads.npy"
"""Ids, sorted, and the root of each, as hashes; among the working files."""
MIN_BYTES = 64 << 20
"""Bytes of input up to which all messages without a thread are one thread: they fit in memory."""
MAX_MESSAGES = 20_000_000
ADVICE = "Name the field that tells the thread, such as --field thread=conversation, or add one to the records."


def links_name(number: int) -> str:
    """The file for the links of a part."""
    return f"links-{number:05d}.npy"


def list_links(job: ScatterJob, task: ScatterTask) -> int:
    """Write who replies to whom in a part, for messages without a thread; returns how many there are."""
    links = []
    for block in read_chunk(task.chunk, size=job.block_bytes, fields=job.fields, cleaning=job.cleaning):
        frame = block.parsed.frame.filter(pl.col("thread").is_null()).select("id", pl.coalesce("parent", "id"))
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        links.append(np.stack([hash_texts(contiguous(table[i].cast("string"))) for i in range(2)]))
    joined = np.concatenate(links, axis=1) if links else np.zeros((2, 0), np.uint64)
    with job.folder.write(links_name(task.number)) as file, file.open("wb") as out:
        np.save(out, joined)
    return int(joined.shape[1])


def find_threads(folder: Folder, parts: int) -> None:
    """Follow all links to their roots, and write down what was found."""
    links = [_load(folder, links_name(number)) for number in range(parts)]
    if (count := sum(part.shape[1] for part in links)) > MAX_MESSAGES:
        raise DataError(
            f"{count:,} messages have no thread; more than {MAX_MESSAGES:,} cannot be put in order by their parents.",
            hint=ADVICE,
        )
    ids, first = np.unique(np.concatenate([part[0] for part in links]), return_index=True)
    parents = np.concatenate([part[1] for part in links])[first]
    del links
    with folder.write(THREADS) as file, file.open("wb") as out:
        np.save(out, np.stack([ids, ids[roots(_positions(parents, ids))]]))


def _positions(parents: Hashes, ids: Hashes) -> Ints:
    """Where each parent stands among the ids; a message whose parent is missing stands for itself."""
    place = np.minimum(np.searchsorted(ids, parents), len(ids) - 1)
    return np.where(ids[place] == parents, place, np.arange(len(ids)))


def roots(parent: Ints) -> Ints:
    """The root of each row; roots are their own parents. All that leads into a cycle gets the cycle's lowest row.

    >>> roots(np.array([0, 0, 1, 3, 5, 4, 5])).tolist()
    [0, 0, 0, 3, 4, 4, 4]
    """
    above, lowest = parent, np.minimum(parent, np.arange(len(parent)))
    for _ in range(len(parent).bit_length()):  # after k rounds: 2^k steps up, and the lowest row on the way
        further = above[above]
        lowest = np.minimum(lowest, lowest[above])
        above = further
        if (parent[above] == above).all():
            return above  # there are no cycles
    return np.asarray(lowest[above])


def thread_hashes(digest: str, folder: Folder, threads: StringArray, ids: Hashes) -> Hashes:
    """The hashes of threads; where there is none, that of the root. `digest` is that of the file of roots."""
    hashes = hash_texts(threads)
    missing = np.flatnonzero(flags_of(threads.is_null()))
    if len(missing):
        known, root = _load_threads(folder, digest)
        place = np.minimum(np.searchsorted(known, ids[missing]), len(known) - 1)
        hashes[missing] = mix(root[place])
    return hashes


@lru_cache(maxsize=1)
def _load_threads(folder: Folder, _digest: str) -> tuple[Hashes, Hashes]:
    known, root = _load(folder, THREADS)
    return known, root


def _load(folder: Folder, name: str) -> Hashes:
    if isinstance(folder, DiskFolder):  # workers share the pages of the file
        return np.asarray(np.load(folder.location(name), mmap_mode="r"))
    return np.asarray(np.load(BytesIO(folder.read(name))))
