"""BLEU against an implementation of its own that follows the paper's formulas, and by hand."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.metrics.bleu import bleu, corpus_bleu
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.registry import metric_named

letters = st.lists(st.sampled_from("abcd"), max_size=9)


def counted(reply: list[str], reference: list[str], n: int) -> tuple[int, int]:
    """Matches and n-grams, by crossing out each n-gram of the reference that is used up."""
    left = [reference[i : i + n] for i in range(len(reference) - n + 1)]
    own = [reply[i : i + n] for i in range(len(reply) - n + 1)]
    matches = 0
    for gram in own:
        if gram in left:
            left.remove(gram)
            matches += 1
    return matches, len(own)


def peer(pairs: list[tuple[list[str], list[str]]], order: int) -> float:
    """BLEU of pooled counts: geometric mean of precisions times the brevity penalty, zeros halved one after another."""
    product, orders, zeros = 1.0, 0, 0
    for n in range(1, order + 1):
        counts = [counted(reply, reference, n) for reply, reference in pairs]
        matches, total = sum(m for m, _ in counts), sum(t for _, t in counts)
        if n == 1 and not matches:
            return 0.0
        if total:
            orders += 1
            zeros += not matches
            product *= float(Fraction(matches, total)) if matches else 1 / (2**zeros * total)
    reply_length, reference_length = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    brevity = 1.0 if reply_length >= reference_length else math.exp(1 - reference_length / reply_length)
    return brevity * product ** (1 / orders)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(letters, letters), min_size=1, max_size=4), st.integers(1, 4))
def test_bleu_follows_the_formulas(pairs: list[tuple[list[str], list[str]]], order: int) -> None:
    batch = [ReplyExample(" ".join(reply), " ".join(reference)) for reply, reference in pairs]
    values, _ = metric_named(f"bleu-{order}").measure(batch)
    expected = [peer([pair], order) if pair[1] else math.nan for pair in pairs]
    assert values == pytest.approx(expected, nan_ok=True)
    with_reference = [pair for pair in pairs if pair[1]]
    whole = corpus_bleu(batch, order)
    assert whole.n == len(with_reference)
    assert whole.value == pytest.approx(peer(with_reference, order) if with_reference else math.nan, nan_ok=True)


def test_bleu_by_hand() -> None:
    assert bleu("the the the the the the the", "The cat is on the mat.", order=1) == pytest.approx(2 / 7)
    # 5/6 words and 3/5 pairs of words match, the longest run is "the cat", and the lengths agree
    assert bleu("the cat sat on the mat", "the cat is on the mat") == pytest.approx(
        (5 / 6 * 3 / 5 * 1 / 4 * 1 / (2 * 3)) ** (1 / 4)
    )
    assert bleu("tea", "tea for two") == pytest.approx(math.exp(1 - 3))
    assert bleu("", "tea") == 0
    assert math.isnan(bleu("tea", " "))
