"""Stage two: which texts occur in too many messages of the corpus. A task handles one range of text hashes."""

from dataclasses import dataclass

import numpy as np

from tertulia.artefacts.folders import Folder
from tertulia.corpus.mining.columns import numbers_of
from tertulia.corpus.mining.hashing import Hashes, combine, is_in_sorted
from tertulia.corpus.mining.scatter import HASHES
from tertulia.corpus.mining.segments import SegmentIndex, read_segments


@dataclass(frozen=True, slots=True)
class RepeatsJob:
    """What all tasks share."""

    folder: Folder
    index: SegmentIndex
    """The ranges in the files of hashes."""
    max_repeats: int


def find_repeats(job: RepeatsJob, number: int) -> Hashes:
    """The hashes, in one range, of texts that occur in more than `max_repeats` messages, sorted.

    A message that occurs twice in the input counts once. Deduplicating everything would be slow, so texts are first
    counted with duplicates; only the few that exceed the limit are counted again without them.
    """
    table = read_segments(job.folder, job.index.ranges(number), HASHES)
    texts, keys = numbers_of(table["text"]), numbers_of(table["key"])
    ordered = np.sort(texts)
    later = ordered[job.max_repeats :]
    frequent = np.unique(later[later == ordered[: -job.max_repeats]])
    recount = is_in_sorted(texts, frequent)
    _, first = np.unique(combine(texts[recount], keys[recount]), return_index=True)
    repeated, count = np.unique(texts[recount][first], return_counts=True)
    return np.asarray(repeated[count > job.max_repeats])
