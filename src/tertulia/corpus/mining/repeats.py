"""Stage two: which texts occur in too many messages of the corpus. A task sees one range of the texts' hashes."""

from dataclasses import dataclass

import numpy as np

from tertulia.corpus.mining.hashing import Hashes, is_among, together
from tertulia.corpus.mining.scatter import HASHES
from tertulia.corpus.mining.segments import read_segment


@dataclass(frozen=True, slots=True)
class RepeatsTask:
    """One range of hashes, in all files."""

    number: int
    files: tuple[str, ...]
    max_repeats: int


def repeats(task: RepeatsTask) -> Hashes:
    """The hashes of texts that stand in more than so many messages, sorted.

    A message that occurs twice in the input counts once. Only texts that pass the count with such duplicates have to be
    looked at again without them, and those are few.
    """
    table = read_segment(task.files, task.number, HASHES)
    texts, keys = table["text"].to_numpy(), table["key"].to_numpy()
    often, count = np.unique(texts, return_counts=True)
    often = often[count > task.max_repeats]
    again = is_among(texts, often)
    _, first = np.unique(together(texts[again], keys[again]), return_index=True)
    found, count = np.unique(texts[again][first], return_counts=True)
    return np.asarray(found[count > task.max_repeats])
