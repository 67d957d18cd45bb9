"""How a corpus is divided: parts that are read at once, buckets of whole threads, and levels between the two.

Every part holds rows of every bucket, so the segments between reading and extracting are parts times buckets. With
both of a fixed size they would grow with the square of the corpus. Therefore parts and buckets grow with the corpus as
far as the memory of a worker allows, and where there would still be too many segments, a part is first divided into
partitions of neighbouring buckets, and a second stage divides each of them. Both stages then write about parts
times the square root of buckets.

Who asks for many small buckets gets them, but they are read and filtered in bundles of neighbours, each about as large
as a bucket would be by default: what a task costs however small it is, is paid once per bundle.
"""

from dataclasses import dataclass
from math import isqrt

from tertulia.core.dialogue import Json

MEMORY = 512 << 20
"""Bytes a worker may use, unless told otherwise."""
_SMALL_BUCKET = 8 << 20
"""Bytes of input per bucket of a small corpus: enough work for a task, and many tasks."""
_SMALL_COUNT = 512
"""Buckets grow with the corpus from this many on."""
_PARTS = 64
"""Parts grow with the corpus from this many on."""
MIN_BUNDLES = 16
"""As many bundles there are at least, if there are as many buckets: work for all cores, of a small corpus too."""
MAX_SEGMENTS = 1 << 20
"""Segments of one level: from here on a second level costs less."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the working files. Only the buckets show in the results."""

    part_bytes: int
    """Bytes of input that one task reads, and sorts by segment before it writes."""
    buckets: int
    """Shards of the results; each holds whole threads."""
    bundles: int
    """Ranges of neighbouring buckets; each is extracted by one task."""
    partitions: int
    """Into how many ranges of bundles a part is divided first; 0 if it is divided into bundles at once."""
    ranges: int
    """Ranges of text hashes, in which repeated texts are counted."""

    @property
    def segments(self) -> int:
        """Into how many segments a part is divided."""
        return self.partitions or self.bundles

    def buckets_in(self, bundle: int) -> range:
        """The buckets of a bundle.

        >>> plan = Layout(1, buckets=10, bundles=4, partitions=3, ranges=1)
        >>> [list(plan.buckets_in(bundle)) for bundle in range(4)]
        [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9]]
        """
        return _range(bundle, self.bundles, self.buckets)

    def bundles_in(self, partition: int) -> range:
        """The bundles of a partition.

        >>> plan = Layout(1, buckets=10, bundles=4, partitions=3, ranges=1)
        >>> [list(plan.bundles_in(partition)) for partition in range(3)], [plan.partition_of(n) for n in range(4)]
        ([[0, 1], [2], [3]], [0, 0, 1, 2])
        """
        return _range(partition, self.partitions, self.bundles)

    def partition_of(self, bundle: int) -> int:
        """The partition of a bundle."""
        return bundle * self.partitions // self.bundles

    def as_json(self) -> dict[str, Json]:
        """For the manifest: a run with another layout cannot use the working files."""
        bundles = {"bundles": self.bundles} if self.bundles != self.buckets else {}
        return {"part bytes": self.part_bytes, "partitions": self.partitions, "ranges": self.ranges} | bundles


def _range(number: int, parts: int, total: int) -> range:
    """Those of `total` things that are in one of about equal parts."""
    return range(-(-number * total // parts), -(-(number + 1) * total // parts))


def make_plan(total: int, *, block_bytes: int, memory: int = MEMORY, buckets: int | None = None) -> Layout:
    """The layout for `total` bytes of input, of which a worker reads `block_bytes` at a time.

    >>> gigabyte = 10**9
    >>> for size in (gigabyte // 2, 5 * gigabyte, 50 * gigabyte, 341 * gigabyte):
    ...     plan = make_plan(size, block_bytes=16 << 20)
    ...     print(plan.part_bytes >> 20, 1 + size // plan.part_bytes, plan.buckets, plan.partitions)
    16 30 60 0
    64 75 513 0
    128 373 746 0
    128 2541 5082 72
    """
    part_bytes = block_bytes * max(1, min(total // _PARTS, memory // 4) // block_bytes)
    bucket_bytes = max(_SMALL_BUCKET, min(total // _SMALL_COUNT, memory // 8))
    tasks = 1 + total // bucket_bytes
    buckets = buckets or tasks
    bundles = min(buckets, max(tasks, MIN_BUNDLES))
    too_many = (1 + total // part_bytes) * bundles > MAX_SEGMENTS
    partitions = isqrt(bundles - 1) + 1 if too_many else 0
    return Layout(part_bytes, buckets, bundles, partitions, 1 + total // (2 * memory))
