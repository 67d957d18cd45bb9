"""Lexical features of grounding: right by hand, the same alone and in a batch, linear on hostile text."""

import random
import time

import numpy as np
import pytest

from tertulia.core.grounding import GroundingInput
from tertulia.models.classifiers.grounding_features import (
    FEATURES,
    _common_subsequence,
    _longest_run,
    grounding_features,
    overlap,
)

EXAMPLE = GroundingInput(
    "Anna Berg opened the museum in 1987.", "When did it open?", "I think Anna Berg didn't open it in 1990."
)


def feature(example: GroundingInput, name: str) -> float:
    return float(grounding_features([example])[0, FEATURES.index(name)])


def test_features_by_hand() -> None:
    assert feature(EXAMPLE, "numbers not in evidence") == 1
    assert feature(EXAMPLE, "numbers in evidence") == 0
    assert feature(EXAMPLE, "names in evidence") == 2
    assert feature(EXAMPLE, "first person") == 1
    assert feature(EXAMPLE, "negated unlike evidence") == 1
    assert feature(EXAMPLE, "generic phrase") == 1
    assert feature(EXAMPLE, "longest common part") == pytest.approx(2 / 9)  # anna berg
    assert feature(EXAMPLE, "common subsequence") == pytest.approx(3 / 9)  # anna berg ... in
    assert overlap(EXAMPLE) == pytest.approx(3 / 5)  # anna berg open; not didn't, 1990
    assert feature(EXAMPLE, "content overlap") == pytest.approx(3 / 5)


def test_sequences_against_their_definitions() -> None:
    rng = random.Random(1)
    for _ in range(200):
        one, other = ([rng.choice("abcd") for _ in range(rng.randint(0, 12))] for _ in range(2))
        table = np.zeros((len(one) + 1, len(other) + 1), dtype=int)
        for i, a in enumerate(one, 1):
            for j, b in enumerate(other, 1):
                table[i, j] = table[i - 1, j - 1] + 1 if a == b else max(table[i - 1, j], table[i, j - 1])
        assert _common_subsequence(one, other) == table[-1, -1]
        text = "".join(other)
        runs = ["".join(one[i:j]) for i in range(len(one)) for j in range(i + 1, len(one) + 1)]
        assert _longest_run(one, other) == max((len(run) for run in runs if run in text), default=0)


def test_a_batch_is_its_rows() -> None:
    others = [GroundingInput("", "", ""), GroundingInput("x", "", "👍"), EXAMPLE._replace(response="Ja, 1987 — так")]
    batch = grounding_features([EXAMPLE, *others])
    assert batch.shape == (4, len(FEATURES))
    assert np.isfinite(batch).all()
    assert (batch == np.concatenate([grounding_features([example]) for example in (EXAMPLE, *others)])).all()
    assert grounding_features([]).shape == (0, len(FEATURES))


@pytest.mark.parametrize("text", ["." * 10**6, "a b " * 250_000, "A" * 10**6, "Ab " * 333_333, "'" * 10**6])
def test_hostile_texts_take_linear_time(text: str) -> None:
    start = time.thread_time()
    grounding_features([GroundingInput(text, text, text)])
    assert time.thread_time() - start < 5
