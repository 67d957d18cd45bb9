"""The figures against worked examples, and against scikit-learn where it has the same one."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from tertulia.corpus.rooms.gold import conversations, read_gold, read_links
from tertulia.corpus.rooms.measure import Score, agreement, complete, part_agreement

ALONE = {n: frozenset({n}) for n in range(4)}
CHAIN = {0: frozenset({0}), 1: frozenset({0}), 2: frozenset({1}), 3: frozenset({3})}


def test_perfect() -> None:
    found = agreement([CHAIN], [CHAIN])
    assert found.links == found.exact == Score(100, 100, 100)
    assert (found.vi, found.one_to_one, found.lines) == (100, 100, 4)


def test_everything_alone() -> None:
    found = agreement([ALONE], [CHAIN])
    assert found.links == Score(50, 50, 50)
    assert math.isnan(found.exact.precision)
    assert (found.exact.recall, found.exact.f) == (0, 0)
    assert found.one_to_one == 50
    # One conversation of three lines in pieces: 3/4 of the lines lose log2(3) bits, of log2(4) at most.
    assert found.vi == pytest.approx(100 - 100 * (0.75 * math.log2(3)) / 2)


def test_only_lines_with_true_links_count() -> None:
    more = CHAIN | {9: frozenset({3})}
    assert agreement([more], [CHAIN]).links == Score(100, 100, 100)
    assert agreement([{}], [CHAIN]) == agreement([ALONE], [CHAIN])


def test_one_line_may_answer_two() -> None:
    true = CHAIN | {3: frozenset({1, 2})}
    assert agreement([CHAIN | {3: frozenset({2})}], [true]).links == Score.of(4, 4, 5)


def test_a_context_line_joins_but_does_not_count() -> None:
    assert conversations({5: frozenset({1}), 6: frozenset({1})}) == {frozenset({5, 6})}


def test_damaged_links_are_refused() -> None:
    with pytest.raises(Exception, match="line 2: a link is two line numbers"):
        read_links(["1 2 -", "x"])


labels = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=30)


def parts(of: Sequence[int]) -> set[frozenset[int]]:
    return {frozenset(i for i, label in enumerate(of) if label == name) for name in of}


@settings(deadline=None)
@given(labels)
def test_vi_is_that_of_mutual_information(pairs: list[tuple[int, int]]) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    entropies = sum(mutual_info_score(x, x) for x in (one, other))
    expected = (entropies - 2 * mutual_info_score(one, other)) / math.log(len(pairs))
    assert part_agreement([parts(one)], [parts(other)]).vi == pytest.approx(100 - 100 * expected, abs=1e-6)


@settings(deadline=None)
@given(labels, st.sets(st.integers(0, 40)))
def test_completed_parts_are_a_partition(pairs: list[tuple[int, int]], lines: set[int]) -> None:
    found = complete(parts([a for a, _ in pairs]), lines)
    assert sorted(line for part in found for line in part) == sorted(lines)


def test_real_annotations_have_the_published_conversations(shared_data: Path) -> None:
    """The gathered gold file of the dataset says which conversations its links make."""
    folder = shared_data / "ubuntu_irc"
    published: dict[str, set[frozenset[int]]] = {}
    for line in (folder / "gold.dev.clusters.txt").read_text().splitlines():
        name, _, numbers = line.partition(":")
        published.setdefault(name, set()).add(frozenset(map(int, numbers.split())))
    assert {gold.log.name: conversations(gold.links) for gold in read_gold(folder / "dev")} == published
