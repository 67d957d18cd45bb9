"""A queue for each owner, served in turn: whoever fills their own queue delays nobody else by more than one item."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by owner. Not thread-safe: callers hold a lock.

    >>> queue = FairQueue()
    >>> for owner, item in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")):
    ...     queue.put(owner, item)
    >>> [queue.pop() for _ in range(5)]
    ['a1', 'b1', 'a2', 'a3', None]
    """

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()  # the owner whose turn it is comes first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return (item for queue in self._queues.values() for item in queue)

    def waiting(self, owner: str) -> int:
        """Number of items of an owner."""
        return len(self._queues.get(owner, ()))

    def put(self, owner: str, item: T) -> None:
        """Append to the owner's queue; an owner without items comes last in turn."""
        self._queues.setdefault(owner, deque()).append(item)
        self._size += 1

    def pop(self, allowed: Callable[[str], bool] = lambda _: True) -> T | None:
        """The first item of the first owner in turn who is `allowed`, who then comes last; None if there is none."""
        owner = next(filter(allowed, self._queues), None)
        if owner is None:
            return None
        queue = self._queues[owner]
        item = queue.popleft()
        self._size -= 1
        if queue:
            self._queues.move_to_end(owner)
        else:
            del self._queues[owner]
        return item
