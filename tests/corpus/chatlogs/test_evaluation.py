"""The measures against worked examples, and against scikit-learn where it has the same one."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from tertulia.corpus.chatlogs.evaluation import PrecisionRecall, as_partition, evaluate_clusters, evaluate_links
from tertulia.corpus.chatlogs.gold import clusters_of, read_gold, read_links

ALONE = {n: frozenset({n}) for n in range(4)}
CHAIN = {0: frozenset({0}), 1: frozenset({0}), 2: frozenset({1}), 3: frozenset({3})}


def test_perfect_links() -> None:
    measures = evaluate_links([CHAIN], [CHAIN])
    assert measures.links == measures.exact == PrecisionRecall(100, 100, 100)
    assert (measures.vi, measures.one_to_one, measures.lines) == (100, 100, 4)


def test_every_line_its_own_cluster() -> None:
    measures = evaluate_links([ALONE], [CHAIN])
    assert measures.links == PrecisionRecall(50, 50, 50)
    assert math.isnan(measures.exact.precision)
    assert (measures.exact.recall, measures.exact.f) == (0, 0)
    assert measures.one_to_one == 50
    # One cluster of three lines is split: 3/4 of the lines lose log2(3) bits, of log2(4) at most.
    assert measures.vi == pytest.approx(100 - 100 * (0.75 * math.log2(3)) / 2)


def test_only_lines_with_gold_links_count() -> None:
    more = CHAIN | {9: frozenset({3})}
    assert evaluate_links([more], [CHAIN]).links == PrecisionRecall(100, 100, 100)
    assert evaluate_links([{}], [CHAIN]) == evaluate_links([ALONE], [CHAIN])


def test_a_line_may_reply_to_two() -> None:
    gold = CHAIN | {3: frozenset({1, 2})}
    assert evaluate_links([CHAIN | {3: frozenset({2})}], [gold]).links == PrecisionRecall.of(4, 4, 5)


def test_a_context_line_joins_clusters_but_is_in_none() -> None:
    assert clusters_of({5: frozenset({1}), 6: frozenset({1})}) == {frozenset({5, 6})}


def test_damaged_links_are_refused() -> None:
    with pytest.raises(Exception, match="line 2: expected two line numbers"):
        read_links(["1 2 -", "x"])


label_pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=30)


def clusters_by_label(labels: Sequence[int]) -> set[frozenset[int]]:
    return {frozenset(i for i, label in enumerate(labels) if label == name) for name in labels}


@settings(deadline=None)
@given(label_pairs)
def test_vi_agrees_with_mutual_information(pairs: list[tuple[int, int]]) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    entropies = sum(mutual_info_score(x, x) for x in (one, other))
    expected = (entropies - 2 * mutual_info_score(one, other)) / math.log(len(pairs))
    assert evaluate_clusters([clusters_by_label(one)], [clusters_by_label(other)]).vi == pytest.approx(
        100 - 100 * expected, abs=1e-6
    )


@settings(deadline=None)
@given(label_pairs, st.sets(st.integers(0, 40)))
def test_as_partition_gives_a_partition(pairs: list[tuple[int, int]], lines: set[int]) -> None:
    partition = as_partition(clusters_by_label([a for a, _ in pairs]), lines)
    assert sorted(line for cluster in partition for line in cluster) == sorted(lines)


def test_real_annotations_have_the_published_clusters(shared_data: Path) -> None:
    """The dataset publishes the clusters that its links form."""
    folder = shared_data / "ubuntu_irc"
    published: dict[str, set[frozenset[int]]] = {}
    for line in (folder / "gold.dev.clusters.txt").read_text().splitlines():
        name, _, numbers = line.partition(":")
        published.setdefault(name, set()).add(frozenset(map(int, numbers.split())))
    assert {gold.log.name: clusters_of(gold.links) for gold in read_gold(folder / "dev")} == published
