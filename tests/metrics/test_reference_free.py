"""Metrics without references, by hand: small tables in place of models."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tertulia.core.consistency import RelationProbabilities
from tertulia.metrics.follow_ups import COMPLAINTS, FOLLOW_UPS, TEXTS
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.reference_free import GENERIC_REPLIES, WordIdf
from tertulia.metrics.registry import metric_named

Prompt = tuple[str, ...]


class TableModel:
    """A language model whose likelihoods anybody can compute: the number of turns, and of letters of the text."""

    def log_likelihoods(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[tuple[float, int]]:
        return [
            (-len(text) * (1 + len(prompt)) - len(prompt[-1]) if prompt else -2.0 * len(text), len(text.split()))
            for prompt, text in zip(prompts, continuations, strict=True)
        ]


def measure(name: str, batch: Sequence[ReplyExample], **resources: object) -> list[float]:
    return metric_named(name).measure(batch, resources)[0].tolist()


BATCH = [ReplyExample("sure", context=("hi", "ho")), ReplyExample("never ever")]


@pytest.mark.parametrize("aspect", ["relevant", "specific"])
def test_follow_ups_are_a_difference_of_means_per_token(aspect: str) -> None:
    def mean(texts: Sequence[str], turns: int, reply: str) -> float:
        return sum((-len(t) * (1 + turns) - len(reply)) / len(t.split()) for t in texts) / len(texts) if texts else 0.0

    negative, positive = FOLLOW_UPS[aspect]
    expected = [mean(positive, n, r) - mean(negative, n, r) for n, r in ((3, "sure"), (1, "never ever"))]
    assert measure(f"follow-up: {aspect}", BATCH, language_model=TableModel()) == pytest.approx(expected)
    assert bool(positive) == (aspect == "relevant")


def test_overall_is_about_all_complaints_and_each_text_stands_once() -> None:
    listed = [text for one in FOLLOW_UPS.values() for side in one for text in side]
    assert sorted(listed) == sorted(TEXTS)
    assert set(COMPLAINTS.negative) == {text for one in FOLLOW_UPS.values() for text in one.negative}
    by_hand = -np.mean([(-len(t) * 2 - 4) / len(t.split()) for t in COMPLAINTS.negative])
    overall = measure("follow-up: overall", [ReplyExample("sure")], language_model=TableModel())
    assert overall == pytest.approx([by_hand])
    assert measure("follow-up: overall", [], language_model=TableModel()) == []


def test_likelihood_of_a_reply_and_what_the_context_adds() -> None:
    assert measure("reply likelihood", BATCH, language_model=TableModel()) == [-14.0, -10.0]
    assert measure("reply likelihood gain", BATCH, language_model=TableModel()) == [-14.0 + 8.0, 0.0]
    assert math.isnan(measure("reply likelihood", [ReplyExample("")], language_model=TableModel())[0])


def test_relatedness_needs_a_context() -> None:
    class Counting:
        def scores(self, batch: Sequence[ReplyExample]) -> list[float]:
            assert all(one.context for one in batch)
            return [float(len(one.reply)) for one in batch]

    batch = [ReplyExample("opening"), BATCH[0], ReplyExample("a", context=("x",))]
    values = measure("relatedness", batch, ranker=Counting())
    assert math.isnan(values[0])
    assert values[1:] == [4.0, 1.0]
    assert math.isnan(measure("relatedness", batch[:1], ranker=Counting())[0])


def test_idf_is_normalised_and_unknown_words_are_rare() -> None:
    idf = WordIdf.of_texts(["tea tea please", "tea", "tea now", "tea now"])
    assert [idf.of(word) for word in ("tea", "please", "zebra")] == [0.0, 1.0, 1.0]
    assert idf.of("now") == pytest.approx(math.log(4 / 2) / math.log(4))
    assert idf.of("tea-now") == idf.of("now")
    assert idf.of("tea-zebra") == 1.0
    values = measure("specificity by idf", [ReplyExample("Tea, now!"), ReplyExample("...")], idf=idf)
    assert values[0] == pytest.approx(idf.of("now") / 2)
    assert math.isnan(values[1])
    assert WordIdf.of_texts([]).of("tea") == 1.0


def test_genericness_is_the_cosine_with_the_nearest_generic_reply() -> None:
    def vectors(texts: Sequence[str]) -> NDArray[np.float64]:
        known = {GENERIC_REPLIES[2]: [0.0, 3.0], "okay then": [3.0, 4.0]}
        return np.array([known.get(text, [-1.0, 0.0]) for text in texts])

    values = measure("genericness", [ReplyExample("okay then"), ReplyExample("  ")], sentences=vectors)
    assert values[0] == pytest.approx(4 / 5)
    assert math.isnan(values[1])
    assert measure("genericness", [], sentences=vectors) == []


def test_persona_consistency_takes_the_strongest_sentence() -> None:
    class Words:
        """RelationProbabilities by what has the same first word, contradicted by what has the same last one."""

        def probabilities(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[RelationProbabilities]:
            pairs = [(p.split(), h.split()) for p, h in zip(premises, hypotheses, strict=True)]
            return [RelationProbabilities(0.6 * (p[0] == h[0]), 0.1, 0.3 * (p[-1] == h[-1])) for p, h in pairs]

    batch = [
        ReplyExample("cats rule", persona=("dogs rule", "cats bite", "birds sing")),
        ReplyExample("hello"),
        ReplyExample("hm", persona=("I sail",)),
    ]
    contradicts = measure("contradicts persona", batch, entailment=Words())
    entailed = measure("entailed by persona", batch, entailment=Words())
    assert [contradicts[0], contradicts[2], entailed[0], entailed[2]] == [0.3, 0.0, 0.6, 0.0]
    assert math.isnan(contradicts[1])
    assert math.isnan(entailed[1])
