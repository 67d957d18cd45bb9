"""What trainings share about data: taking only some of it, always the same ones."""

import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def some(items: Iterable[T], count: int | None, seed: int) -> list[T]:
    """So many of them, drawn by the seed, in their order; all where no count is given.

    >>> some("abcdefgh", 3, 0) == some("abcdefgh", 3, 0), len(some("abcdefgh", 3, 0)), some("ab", None, 0)
    (True, 3, ['a', 'b'])
    """
    found = list(items)
    if count is None or count >= len(found):
        return found
    return [found[place] for place in sorted(random.Random(seed).sample(range(len(found)), count))]
