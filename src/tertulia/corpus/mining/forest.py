"""The shape of the trees in a batch of whole threads: who answers whom, who stands in a circle, who goes with whom.

Rows are numbered 0 to n - 1, and n stands for "above every root", so that following a parent never leaves the array.
Walks to the root are done for all rows at once by pointer doubling: after k rounds each row points 2^k ancestors up.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tertulia.corpus.mining.columns import Flags, Ints, StringArray
from tertulia.corpus.mining.hashing import Hashes, hash_texts, is_among, place_among, together


class Links(NamedTuple):
    """Who answers whom."""

    parent: Ints
    """Row of the parent; the number of rows where there is none."""
    lost: Flags
    """Orphans, and all whose line upwards goes in a circle."""


def first_of_each(keys: Hashes) -> Ints | None:
    """The rows to keep, in order, where some key occurs twice: the first of each; None where all differ."""
    ordered = np.sort(keys)
    if (ordered[1:] != ordered[:-1]).all():
        return None
    return np.sort(np.unique(keys, return_index=True)[1])


def message_keys(thread_hashes: Hashes, ids: StringArray) -> Hashes:
    """What tells messages apart: thread and id."""
    return together(thread_hashes, hash_texts(ids))


def link(keys: Hashes, wanted: Hashes, parents: StringArray, threads: StringArray) -> Links:
    """Find every row's parent: the row whose key is wanted.

    A reply to the thread itself, whose opening is not there, opens a tree of its own.
    """
    rows = len(keys)
    order = np.argsort(keys, kind="stable")
    has_parent = pc.is_valid(parents).to_numpy(zero_copy_only=False)
    ordered = keys[order]
    found = has_parent & is_among(wanted, ordered)
    parent = np.full(rows, rows, np.int64)
    parent[found] = order[place_among(wanted[found], ordered)]
    to_thread = pc.fill_null(pc.equal(parents, threads), False).to_numpy(zero_copy_only=False)
    orphan = has_parent & ~found & ~to_thread
    return Links(parent, orphan | _in_circles(parent))


def _in_circles(parent: Ints) -> Flags:
    rows = len(parent)
    above = np.append(parent, rows)
    for _ in range(rows.bit_length()):
        if (above == rows).all():
            break
        above = above[above]
    return np.asarray(above[:rows] != rows)


def with_ancestors(gone: Flags, parent: Ints) -> Flags:
    """Rows that are gone themselves or have an ancestor that is."""
    rows = len(parent)
    above, gone = np.append(parent, rows), np.append(gone, False)
    for _ in range(rows.bit_length()):
        if (above == rows).all():
            break
        gone = gone | gone[above]
        above = above[above]
    return np.asarray(gone[:rows])


class Lines(NamedTuple):
    """For some rows, the line of rows that leads to each, oldest first and the row itself last."""

    ends: Ints
    """The row each line leads to."""
    offsets: Ints
    members: Ints

    def without_ends(self) -> "Lines":
        """Only what comes before."""
        before = np.ones(len(self.members), np.bool_)
        before[self.offsets[1:] - 1] = False
        return Lines(self.ends, self.offsets - np.arange(len(self.offsets)), self.members[before])


def lines_to(ends: Ints, parent: Ints, *, context: int) -> Lines:
    """The rows with up to `context` ancestors each."""
    above = np.append(parent, len(parent))
    table = np.empty((len(ends), context + 1), np.int64)
    row = ends
    for place in range(context, -1, -1):
        table[:, place] = row
        row = above[row]
    real = table != len(parent)
    return Lines(ends, np.concatenate([[0], np.cumsum(real.sum(1))]), table[real])


def depths(parent: Ints) -> Ints:
    """How many ancestors each row has. Not for circles."""
    rows = len(parent)
    above = np.append(parent, rows)
    depth = (above != rows).astype(np.int64)
    for _ in range(rows.bit_length()):
        if (above == rows).all():
            break
        depth = depth + depth[above]
        above = above[above]
    return np.asarray(depth[:rows])


def whole_lines(ends: Ints, parent: Ints, *, at_most: int = 400_000) -> Iterator[Lines]:
    """The rows with all their ancestors, some at a time: no more than about `at_most` members together."""
    above = np.append(parent, len(parent))
    sizes = depths(parent)[ends] + 1
    piece = np.cumsum(sizes) // at_most
    for number in np.unique(piece):
        chosen = piece == number
        offsets = np.concatenate([[0], np.cumsum(sizes[chosen])])
        members = np.empty(offsets[-1], np.int64)
        place, row = offsets[1:] - 1, ends[chosen]
        while len(row):
            members[place] = row
            more = above[row] != len(parent)
            place, row = place[more] - 1, above[row[more]]
        yield Lines(ends[chosen], offsets, members)


def leaves(kept: Flags, parent: Ints) -> Ints:
    """Kept replies that no kept message answers."""
    answered = np.zeros(len(parent) + 1, np.bool_)
    answered[parent[kept]] = True
    return np.flatnonzero(kept & ~answered[: len(parent)] & (parent < len(parent)))


def as_lists(lines: Lines, values: pa.Array) -> pa.Array:
    """A list of values for each line.

    The values go in as a dictionary, each once however many lines it is in: Parquet stores just that, and no text has
    to be copied for every reply below it. Were a value in it twice, the writer would silently write all of them out.
    """
    used = np.zeros(len(values), np.bool_)
    used[lines.members] = True
    place = np.cumsum(used, dtype=np.int32) - np.int32(1)
    once = values.filter(pa.array(used)).dictionary_encode()
    indices = once.indices.to_numpy()[place[lines.members]]
    return pa.ListArray.from_arrays(
        pa.array(lines.offsets.astype(np.int32)),
        pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), once.dictionary),
    )
