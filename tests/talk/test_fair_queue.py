"""The queue by itself: turns of owners, and owners who must wait."""

from tertulia.talk.fair_queue import FairQueue


def fill(**items: int) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for owner, count in items.items():
        for number in range(count):
            queue.put(owner, f"{owner}{number}")
    return queue


def test_owners_take_turns_and_items_of_one_owner_keep_their_order() -> None:
    queue = fill(a=3, b=1, c=2)
    assert [queue.pop() for _ in range(7)] == ["a0", "b0", "c0", "a1", "c1", "a2", None]


def test_an_owner_who_comes_later_waits_for_one_item_of_each_other() -> None:
    queue = fill(a=1000)
    assert queue.pop() == "a0"
    queue.put("b", "b0")
    assert [queue.pop(), queue.pop(), queue.pop()] == ["a1", "b0", "a2"]


def test_an_owner_who_must_wait_keeps_the_turn() -> None:
    queue = fill(a=2, b=2)
    assert queue.pop(lambda owner: owner != "a") == "b0"
    assert queue.pop(lambda owner: owner == "c") is None
    assert [queue.pop(), queue.pop(), queue.pop()] == ["a0", "b1", "a1"]


def test_it_counts_what_waits() -> None:
    queue = fill(a=3, b=1)
    assert (len(queue), queue.waiting("a"), queue.waiting("b"), queue.waiting("c")) == (4, 3, 1, 0)
    assert sorted(queue) == ["a0", "a1", "a2", "b0"]
    for _ in range(4):
        queue.pop()
    assert (len(queue), queue.waiting("a")) == (0, 0)
