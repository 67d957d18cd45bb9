import numpy as np
import pytest

from tertulia.models.rankers.base import Floats
from tertulia.talk.lsh import BITS, LshIndex, hash_bits, hyperplanes


def vectors(count: int, dim: int, *, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)


@pytest.mark.parametrize("dim", [7, 64, 100, 1000])
def test_there_is_one_hyperplane_per_bit_in_any_dimension(dim: int) -> None:
    normals = hyperplanes(dim)
    assert normals.shape == (dim, BITS)
    assert np.linalg.norm(normals, axis=0) == pytest.approx(np.ones(BITS), abs=1e-5)
    assert hash_bits(vectors(3, dim, seed=0), normals).shape == (3, BITS // 64)


def test_the_hamming_distance_estimates_the_angle() -> None:
    one, other = vectors(2, 128, seed=0)
    normals = hyperplanes(128)
    for share in (0.0, 0.3, 1.0, 3.0):
        mixed = one + share * other
        apart = int(np.bitwise_count(hash_bits(one[None], normals) ^ hash_bits(mixed[None], normals)).sum())
        angle = np.arccos(np.clip(one @ mixed / np.linalg.norm(one) / np.linalg.norm(mixed), -1, 1))
        assert apart / BITS == pytest.approx(angle / np.pi, abs=0.06)


@pytest.mark.parametrize("shift", [0.0, 5.0], ids=["centred", "off-centre"])
def test_the_largest_products_are_found_whatever_the_norms_and_the_mean(shift: float) -> None:
    lengths = np.random.default_rng(3).uniform(0.5, 2.0, (8000, 1)).astype(np.float32)
    held = vectors(8000, 96, seed=1) * lengths + shift
    index = LshIndex(held)
    shares = []
    for query in vectors(30, 96, seed=2):
        true = np.argsort(-(held @ query))[:10]
        candidates = index.best(query, 800)
        assert (np.diff(candidates) > 0).all()
        shares.append(len(set(true) & set(candidates)) / 10)
    assert np.mean(shares) > 0.99


def test_estimates_correlate_with_products() -> None:
    held = vectors(70_000, 32, seed=1)  # more than a block
    query = vectors(1, 32, seed=2)[0]
    estimates = LshIndex(held.astype(np.float16)).estimate(query)
    assert len(estimates) == 70_000
    assert np.corrcoef(estimates, held @ query)[0, 1] > 0.95


def test_a_count_above_the_number_of_vectors_returns_all() -> None:
    assert LshIndex(vectors(5, 8, seed=0)).best(vectors(1, 8, seed=1)[0], 9).tolist() == [0, 1, 2, 3, 4]
