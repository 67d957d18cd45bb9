"""The trees in a batch of complete threads: parents, cycles, ancestors, and paths from the root to a reply.

Rows are numbered 0 to n - 1. Row n stands for "above every root", so following a parent never leaves the array: roots
point to n, and n points to itself. Walks to the root run for all rows at once by pointer doubling: after k rounds each
row points 2^k ancestors up, so log2(n) rounds are enough for a thread of any depth.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tertulia.corpus.mining.columns import FALSE, Flags, Ints, StringArray, flags_of, numbers_of, to_arrow
from tertulia.corpus.mining.hashing import Hashes, combine, hash_texts, rows_of


class ParentLinks(NamedTuple):
    """Which row replies to which."""

    parent: Ints  # (rows,)
    """Row of the parent; the number of rows where there is none."""
    invalid: Flags  # (rows,)
    """Orphans, and all rows whose path upwards ends in a cycle."""


def first_of_each(keys: Hashes) -> Ints | None:
    """The first row of each key, in order; None if no key occurs twice."""
    ordered = np.sort(keys)
    if (ordered[1:] != ordered[:-1]).all():
        return None
    return np.sort(np.unique(keys, return_index=True)[1])


def message_keys(thread_hashes: Hashes, ids: StringArray) -> Hashes:
    """What identifies a message: thread and id."""
    return combine(thread_hashes, hash_texts(ids))


def link_parents(keys: Hashes, parent_keys: Hashes, parents: StringArray, threads: StringArray) -> ParentLinks:
    """Find every row's parent: the row whose key, which no other row has, equals the row's parent key.

    A reply to the thread itself, whose opening message is missing, becomes a root.
    """
    has_parent = flags_of(pc.is_valid(parents))
    parent = np.where(has_parent, rows_of(parent_keys, keys), len(keys))
    to_thread = flags_of(pc.fill_null(pc.equal(parents, threads), FALSE))
    orphan = has_parent & (parent == len(keys)) & ~to_thread
    return ParentLinks(parent, orphan | _leads_to_cycle(parent))


def _leads_to_cycle(parent: Ints) -> Flags:
    rows = len(parent)
    above = np.append(parent, rows)
    for _ in range(rows.bit_length()):
        if (above == rows).all():
            break
        above = above[above]
    return np.asarray(above[:rows] != rows)  # more than n steps up and still not above a root


def with_descendants(removed: Flags, parent: Ints) -> Flags:
    """Rows that are removed themselves or have a removed ancestor."""
    rows = len(parent)
    above, removed = np.append(parent, rows), np.append(removed, False)
    for _ in range(rows.bit_length()):
        if (above == rows).all():
            break
        removed = removed | removed[above]  # now covers twice as many ancestors
        above = above[above]
    return np.asarray(removed[:rows])


class Paths(NamedTuple):
    """For some rows, the path of rows that leads to each, oldest first and the row itself last.

    Ragged arrays: path i is members[offsets[i]:offsets[i + 1]].
    """

    ends: Ints  # (paths,)
    """The row each path leads to."""
    offsets: Ints  # (paths + 1,)
    members: Ints  # (offsets[-1],)

    def without_ends(self) -> "Paths":
        """Only the ancestors. Every path loses one member, so the offset of path i moves down by i."""
        before = np.ones(len(self.members), np.bool_)
        before[self.offsets[1:] - 1] = False
        return Paths(self.ends, self.offsets - np.arange(len(self.offsets)), self.members[before])


def paths_to(ends: Ints, parent: Ints, *, context: int) -> Paths:
    """The paths to the given rows with up to `context` ancestors each."""
    above = np.append(parent, len(parent))
    table = np.empty((len(ends), context + 1), np.int64)  # (paths, context + 1), filled from the right
    row = ends
    for column in range(context, -1, -1):
        table[:, column] = row
        row = above[row]
    is_row = table != len(parent)
    return Paths(ends, np.concatenate([[0], np.cumsum(is_row.sum(1))]), table[is_row])


def depths(parent: Ints) -> Ints:
    """How many ancestors each row has. There must be no cycles."""
    rows = len(parent)
    above = np.append(parent, rows)
    depth = (above != rows).astype(np.int64)
    for _ in range(rows.bit_length()):
        if (above == rows).all():
            break
        depth = depth + depth[above]
        above = above[above]
    return np.asarray(depth[:rows])


def full_paths(ends: Ints, parent: Ints, *, at_most: int = 400_000) -> Iterator[Paths]:
    """The paths to the given rows with all ancestors, in pieces of about `at_most` members to bound the memory."""
    above = np.append(parent, len(parent))
    sizes = depths(parent)[ends] + 1
    piece = np.cumsum(sizes) // at_most
    for number in np.unique(piece):
        chosen = piece == number
        offsets = np.concatenate([[0], np.cumsum(sizes[chosen])])
        members = np.empty(offsets[-1], np.int64)
        position, row = offsets[1:] - 1, ends[chosen]
        while len(row):  # one step up per round; paths that reached their root drop out
            members[position] = row
            more = above[row] != len(parent)
            position, row = position[more] - 1, above[row[more]]
        yield Paths(ends[chosen], offsets, members)


def leaves(kept: Flags, parent: Ints) -> Ints:
    """Kept replies without a kept reply."""
    has_reply = np.zeros(len(parent) + 1, np.bool_)
    has_reply[parent[kept]] = True
    return np.flatnonzero(kept & ~has_reply[: len(parent)] & (parent < len(parent)))


def as_lists(paths: Paths, values: pa.Array) -> pa.Array:
    """A list of values for each path.

    The values go in as a dictionary, each once however many paths it is in: Parquet stores exactly that, and no text
    has to be copied for every reply below it. If a value were in the dictionary twice, the writer would silently fall
    back to writing all values in full.
    """
    used = np.zeros(len(values), np.bool_)
    used[paths.members] = True
    position = np.cumsum(used, dtype=np.int32) - np.int32(1)  # index of each used row among the used rows
    unique = values.filter(to_arrow(used)).dictionary_encode()
    indices = numbers_of(unique.indices)[position[paths.members]]
    return pa.ListArray.from_arrays(
        to_arrow(paths.offsets.astype(np.int32)),
        pa.DictionaryArray.from_arrays(to_arrow(indices), unique.dictionary),
    )
