"""Sampling tokens, compared with plain and slow code: one row, one probability after the other."""

import numpy as np
import pytest
import torch
from scipy import stats

from tertulia.models.sampling import BLOCK, Drawn, RowNoise, draw, row_keys, uniforms


def naive(
    logits: list[float], *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, forbidden: tuple[int, ...]
) -> np.ndarray:
    """The distribution that a token is sampled from, spelled out."""
    scaled = {i: value / temperature for i, value in enumerate(logits) if i not in forbidden}
    order = sorted(scaled, key=lambda i: -scaled[i])[: top_k or None]
    weight = {i: float(np.exp(scaled[i] - scaled[order[0]])) for i in order}
    total, used, kept = sum(weight.values()), 0.0, []
    for i in order:
        if used < top_p * total:
            kept.append(i)
        used += weight[i]
    probabilities = np.zeros(len(logits))
    probabilities[kept] = [weight[i] for i in kept]
    return probabilities / probabilities.sum()


SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 3},
    {"top_k": 1},
    {"top_p": 0.6},
    {"top_p": 0.01},
    {"top_k": 5, "top_p": 0.7, "temperature": 1.5},
    {"top_k": 10_000},
]


@pytest.mark.parametrize("size", [9, BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_evenly_spaced_noise_gives_each_token_its_share(settings: dict[str, float], size: int) -> None:
    """Each token must be drawn as often as it is probable, give or take one draw."""
    logits = torch.randn(size, generator=torch.Generator().manual_seed(size)) * 2
    rows = 4000
    forbidden = (0, 3)
    drawn = draw(logits.expand(rows, -1), (np.arange(rows) + 0.5) / rows, forbidden=forbidden, **settings)  # type: ignore[arg-type]
    expected = naive(logits.tolist(), forbidden=forbidden, **settings)  # type: ignore[arg-type]
    seen = np.bincount(drawn.tokens.numpy(), minlength=size)
    assert np.abs(seen - expected * rows).max() <= 1.01
    assert seen[list(forbidden)].sum() == 0


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.88}, {"top_k": 4}, {"top_p": 0.8}], ids=str)
def test_tokens_are_drawn_as_often_as_they_are_probable(settings: dict[str, float]) -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5, 1.5, -0.5, 0.2])
    keys = row_keys(range(2000), 10)
    drawn = draw(logits.expand(len(keys), -1), uniforms(keys, 7), **settings)  # type: ignore[arg-type]
    expected = naive(logits.tolist(), forbidden=(), **settings)  # type: ignore[arg-type]
    seen = np.bincount(drawn.tokens.numpy(), minlength=8)
    possible = expected > 0
    assert seen[~possible].sum() == 0
    assert stats.chisquare(seen[possible], expected[possible] * len(keys)).pvalue > 0.01


def test_the_log_probability_is_that_of_the_unmodified_distribution() -> None:
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(1)) * 3
    noise = uniforms(row_keys([4], 50), 0)
    for settings in ({}, {"temperature": 0.3}, {"top_k": 4}, {"top_p": 0.5}, {"temperature": 0.0}):
        drawn = draw(logits, noise, forbidden=(1, 2), **settings)  # type: ignore[arg-type]
        expected = logits.double().log_softmax(-1)[torch.arange(50), drawn.tokens]
        assert torch.allclose(drawn.logprobs.double(), expected, atol=1e-5)


def test_the_logits_are_not_modified() -> None:
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(2))
    before = logits.clone()
    penalised = torch.tensor([[1], [2], [3]])
    for settings in ({}, {"temperature": 0.0}, {"top_k": 4}, {"top_p": 0.5}, {"repetition_penalty": 2.0}):
        draw(logits, np.full(3, 0.5), forbidden=(0,), penalised=penalised, **settings)  # type: ignore[arg-type]
    assert torch.equal(logits, before)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.5}, {"top_k": 4}, {"top_p": 0.8}], ids=str)
def test_the_repetition_penalty_divides_positive_logits_and_multiplies_negative_ones(
    settings: dict[str, float],
) -> None:
    logits = torch.tensor([2.0, 1.0, 0.3, -1.0, -0.5, 1.9])
    expected = naive([2.0 / 3, 1.0, 0.3, -1.0 * 3, -0.5, 1.9], forbidden=(), **settings)  # type: ignore[arg-type]
    rows = 4000
    drawn = draw(
        logits.expand(rows, -1),
        (np.arange(rows) + 0.5) / rows,
        penalised=torch.tensor([[0, 3, 0]]).expand(rows, -1),  # a token that is there twice counts once
        repetition_penalty=3.0,
        **settings,  # type: ignore[arg-type]
    )
    assert np.abs(np.bincount(drawn.tokens.numpy(), minlength=6) - expected * rows).max() <= 1.01
    torch.testing.assert_close(drawn.logprobs, logits.log_softmax(-1)[drawn.tokens])


def test_each_row_has_its_own_penalised_tokens() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]]).expand(2, -1)
    penalised = torch.tensor([[0], [2]])
    tokens = draw(logits, np.array([0.5, 0.5]), temperature=0, penalised=penalised, repetition_penalty=3.0).tokens
    assert tokens.tolist() == [1, 0]
    nothing = torch.zeros(2, 0, dtype=torch.long)
    tokens = draw(logits, np.array([0.5, 0.5]), temperature=0, penalised=nothing, repetition_penalty=3.0).tokens
    assert tokens.tolist() == [0, 0]


def test_temperature_zero_takes_the_most_probable_token_that_is_allowed() -> None:
    logits = torch.tensor([[5.0, 1.0, 4.0], [0.0, 2.0, 1.0]])
    assert draw(logits, np.array([0.9, 0.1]), temperature=0, forbidden=(0,)).tokens.tolist() == [2, 1]


def test_ties_with_the_last_token_of_a_nucleus_are_in_it() -> None:
    logits = torch.tensor([3.0, *(1.0,) * 400, *(0.0,) * 5]).expand(1000, -1)
    tokens = draw(logits, (np.arange(1000) + 0.5) / 1000, top_p=0.5).tokens.unique().tolist()
    assert set(range(300)) < set(tokens) <= set(range(401))


def test_a_row_does_not_depend_on_the_batch() -> None:
    logits = torch.randn(40, 500, generator=torch.Generator().manual_seed(3)).double()
    noise = uniforms(row_keys([9], 40), 2)
    for settings in ({}, {"top_k": 10}, {"top_p": 0.9}):
        together: Drawn = draw(logits, noise, **settings)  # type: ignore[arg-type]
        alone = [int(draw(logits[[i]], noise[[i]], **settings).tokens) for i in range(40)]  # type: ignore[arg-type]
        assert together.tokens.tolist() == alone


def test_noise_is_uniform_and_differs_between_rows_and_steps() -> None:
    keys = row_keys([0, 1, -1, 2**70 + 1], 500, salt=3)
    noise = np.stack([uniforms(keys, step) for step in range(20)])
    assert noise.min() >= 0
    assert noise.max() < 1
    assert len(np.unique(noise)) == noise.size - 500 * 20  # 1 and 2**70 + 1 are the same, modulo 2**64
    once = np.concatenate([noise[:, :1500].ravel()])
    assert stats.kstest(once, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(noise[:-1, :1500].ravel(), noise[1:, :1500].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(noise[:, :1499].ravel(), noise[:, 1:1500].ravel())[0, 1]) < 0.03


def test_keys_depend_on_seed_sample_and_salt_alone() -> None:
    assert row_keys([5, 6], 3)[3:].tolist() == row_keys([6], 3).tolist()
    assert row_keys([5], 3)[:2].tolist() == row_keys([5], 2).tolist()
    assert row_keys([5], 5)[2:].tolist() == row_keys([5], 3, first=2).tolist()
    assert not set(row_keys([5], 3).tolist()) & set(row_keys([5], 3, salt=1).tolist())


def test_extreme_noise_never_gives_a_token_of_probability_zero() -> None:
    logits = torch.zeros(2, 300)
    logits[:, 150:] = -1000.0
    for forbidden in ((0, 1), (0, 1, 149)):
        drawn = draw(logits, np.array([0.0, 1 - 2.0**-52]), forbidden=forbidden)
        assert drawn.tokens.tolist() == [2, 148 if 149 in forbidden else 149]


def test_row_noise_is_normal_and_depends_on_the_row_alone() -> None:
    keys = row_keys([3, 4], 500)
    noise = RowNoise(keys)
    first, second = noise(torch.empty(1000, 40)), noise(torch.empty(1000, 2))
    numbers = torch.cat([first, second], 1)
    assert torch.equal(numbers[7:9], RowNoise(keys[7:9])(torch.empty(2, 42)))
    assert float(numbers.mean()) == pytest.approx(0, abs=0.02)
    assert float(numbers.std()) == pytest.approx(1, abs=0.02)
    assert float((numbers.abs() < 1.96).double().mean()) == pytest.approx(0.95, abs=0.01)
    assert float(torch.corrcoef(numbers.T).fill_diagonal_(0).abs().max()) < 0.2
    with pytest.raises(ValueError, match="2 rows"):
        noise(torch.empty(2, 3))
