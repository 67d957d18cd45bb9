import numpy as np
import pytest

from tertulia.models.ranker import Floats
from tertulia.talk.sketch import BITS, Sketch, bits, planes


def vectors(count: int, dim: int, *, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)


@pytest.mark.parametrize("dim", [7, 64, 100, 1000])
def test_there_are_as_many_planes_as_bits_whatever_the_dimension(dim: int) -> None:
    normals = planes(dim)
    assert normals.shape == (dim, BITS)
    assert np.linalg.norm(normals, axis=0) == pytest.approx(np.ones(BITS), abs=1e-5)
    assert bits(vectors(3, dim, seed=0), normals).shape == (3, BITS // 64)


def test_bits_tell_the_angle() -> None:
    one, other = vectors(2, 128, seed=0)
    normals = planes(128)
    for share in (0.0, 0.3, 1.0, 3.0):
        mixed = one + share * other
        apart = int(np.bitwise_count(bits(one[None], normals) ^ bits(mixed[None], normals)).sum())
        angle = np.arccos(np.clip(one @ mixed / np.linalg.norm(one) / np.linalg.norm(mixed), -1, 1))
        assert apart / BITS == pytest.approx(angle / np.pi, abs=0.06)


@pytest.mark.parametrize("shift", [0.0, 5.0], ids=["around nothing", "all in one direction"])
def test_long_and_lopsided_vectors_are_found_by_their_product(shift: float) -> None:
    lengths = np.random.default_rng(3).uniform(0.5, 2.0, (8000, 1)).astype(np.float32)
    held = vectors(8000, 96, seed=1) * lengths + shift
    sketch = Sketch(held)
    shares = []
    for query in vectors(30, 96, seed=2):
        true = np.argsort(-(held @ query))[:10]
        found = sketch.best(query, 800)
        assert (np.diff(found) > 0).all()
        shares.append(len(set(true) & set(found)) / 10)
    assert np.mean(shares) > 0.99


def test_guesses_go_with_products() -> None:
    held = vectors(70_000, 32, seed=1)  # more than a block
    query = vectors(1, 32, seed=2)[0]
    guess = Sketch(held.astype(np.float16)).guess(query)
    assert len(guess) == 70_000
    assert np.corrcoef(guess, held @ query)[0, 1] > 0.95


def test_all_where_more_is_asked_for_than_there_is() -> None:
    assert Sketch(vectors(5, 8, seed=0)).best(vectors(1, 8, seed=1)[0], 9).tolist() == [0, 1, 2, 3, 4]
