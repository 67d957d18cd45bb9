"""The next token of many rows at once, sampled or taken greedily, each row with random numbers of its own.

The generator is counter-based: the number that decides row r's token at step t is a hash (SplitMix64) of the seed, the
sample's index and t. So a reply never depends on its neighbours in the batch, beyond the rounding of the model's matrix
products, and rows may come and go. One uniform number per row is enough, since it is looked up in the row's cumulative
distribution; noise for every token of the vocabulary (Gumbel) costs ten times as much.

Whatever is done to the distribution before a draw, the log-probability returned with a token is the model's own.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

BLOCK = 128
"""Tokens whose probabilities are summed before a draw looks at any one of them."""
HEAD = 256
"""How many of the most probable tokens are searched for a nucleus before a full sort."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MASK = 2**64 - 1
_LATENT_OFFSET = np.uint64(2**32)
"""Far beyond the steps of any turn: tokens and latent variables never use the same random numbers."""

Keys = NDArray[np.uint64]
TopTokens = tuple[tuple[int, float], ...]
"""The most probable tokens at a position and their log-probabilities under the unmodified distribution, best first."""


class Drawn(NamedTuple):
    """One token for each row."""

    tokens: torch.Tensor  # (rows,)
    logprobs: torch.Tensor  # (rows,): of the unmodified distribution


class DrawOptions(NamedTuple):
    """How the next token of a row is drawn; rows with equal options are drawn together."""

    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    forbidden: tuple[int, ...]


def row_keys(seeds: Sequence[int], samples: int, salt: int = 0, *, first: int = 0) -> Keys:
    """One key for each sample of each seed, seed by seed (a, a, b, b): all randomness of a row comes from its key.

    `first` is the number of the first sample: of a seed, the samples from 6 on are those that come after the first six.
    """
    base = _mix(np.array([seed & _MASK for seed in seeds], dtype=np.uint64) + _mix(_as_key(salt)))
    return _mix(base[:, None] + _ODD * np.arange(first + 1, first + samples + 1, dtype=np.uint64)).reshape(-1)


def uniforms(keys: Keys, step: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) for each key at its step (one for all keys, or one for each).

    With 52 bits it stays below 1 under any scaling.
    """
    bits = _mix(keys + _ODD * (np.atleast_1d(np.asarray(step)) + 1).astype(np.uint64))
    return np.asarray((bits >> np.uint64(12)) * 2.0**-52, dtype=np.float64)


class RowNoise:
    """Standard normal numbers for rows, a function of each row's key: a row gets the same ones in any batch."""

    def __init__(self, keys: Keys) -> None:
        self.keys, self._used = keys, 0

    def __call__(self, like: torch.Tensor) -> torch.Tensor:
        """The next numbers of each row, in the shape, dtype and device of `like`: (rows, n)."""
        if len(like) != len(self.keys):
            raise ValueError(f"{len(like)} rows need as many keys, not {len(self.keys)}")
        counters = np.arange(self._used, self._used + like.shape[1], dtype=np.uint64) + _LATENT_OFFSET
        self._used += like.shape[1]
        bits = _mix(self.keys[:, None] + _ODD * counters)
        quantiles = ((bits >> np.uint64(12)) + 0.5) * 2.0**-52  # never 0 or 1
        normal = torch.from_numpy(quantiles).mul_(2).sub_(1).erfinv_().mul_(math.sqrt(2))
        return normal.to(like.dtype).to(like.device)  # in this order: not every device has float64


def draw(
    logits: torch.Tensor,  # (rows, vocabulary)
    noise: NDArray[np.float64],  # (rows,)
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    forbidden: Sequence[int] = (),
    penalised: torch.Tensor | None = None,  # (rows, n)
    repetition_penalty: float = 1.0,
) -> Drawn:
    """Sample from softmax(logits / temperature), cut to the `top_k` most probable and then to the nucleus of `top_p`.

    Temperature 0 takes the most probable token; `top_k` 0 is the full vocabulary; `forbidden` tokens are never drawn.
    The tokens `penalised` of each row become less likely by the `repetition_penalty`.
    """
    if logits.device.type == "mps":  # it has no float64, which the cumulative sums need
        tokens, logprobs = draw(
            logits.cpu(),
            noise,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            forbidden=forbidden,
            penalised=None if penalised is None else penalised.cpu(),
            repetition_penalty=repetition_penalty,
        )
        return Drawn(tokens.to(logits.device), logprobs.to(logits.device))
    u = torch.from_numpy(noise).to(logits.device)
    modified = logits
    if repetition_penalty != 1 and penalised is not None and penalised.shape[1]:
        modified = _penalise(logits, penalised, repetition_penalty)
    cut = 0 < top_k < logits.shape[1] - len(forbidden)
    if temperature == 1 and top_p == 1 and not cut and modified is logits:
        return _draw_unmodified(logits, u, forbidden)
    if temperature == 0:
        tokens = _mask(modified, forbidden).argmax(-1)
    elif cut:
        tokens = _draw_top_k(modified, u, temperature, top_k, top_p, forbidden)
    elif top_p < 1:
        tokens = _draw_nucleus(modified, u, temperature, top_p, forbidden)
    else:
        tokens = _draw_all(modified, u, temperature, forbidden)
    return Drawn(tokens, logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0])  # faster than logsumexp: one pass


def top_tokens(logits: torch.Tensor, counts: NDArray[np.int64]) -> dict[int, TopTokens]:
    """The most probable next tokens of the rows whose count is positive, by row; fewer if the others are impossible."""
    rows = np.flatnonzero(counts > 0)
    if not len(rows):
        return {}
    logprobs = logits[torch.from_numpy(rows).to(logits.device)].log_softmax(-1)
    best = logprobs.topk(min(int(counts.max()), logits.shape[1]))  # (rows, count)
    pairs = [zip(*row, strict=True) for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
    return {
        row: tuple((token, value) for token, value in list(top)[: counts[row]] if value > -math.inf)
        for row, top in zip(rows.tolist(), pairs, strict=True)
    }


def _penalise(logits: torch.Tensor, tokens: torch.Tensor, penalty: float) -> torch.Tensor:
    """Keskar et al. (2019, arXiv 1909.05858) for the given tokens of each row; a token that is there twice counts once.

    They penalise the prompt's tokens too, which would keep a bot from the words of its own persona.
    """
    values = logits.gather(1, tokens)
    return logits.scatter(1, tokens, torch.where(values > 0, values / penalty, values * penalty))


def _draw_unmodified(logits: torch.Tensor, u: torch.Tensor, forbidden: Sequence[int]) -> Drawn:
    """From the model's own distribution: the probability that was drawn by is the one to report."""
    weights = logits.softmax(-1)
    weights[:, list(forbidden)] = 0
    tokens = _look_up(weights, u)
    return Drawn(tokens, weights.gather(1, tokens[:, None])[:, 0].log())


def _draw_all(logits: torch.Tensor, u: torch.Tensor, temperature: float, forbidden: Sequence[int]) -> torch.Tensor:
    weights = (logits / temperature).softmax(-1)
    weights[:, list(forbidden)] = 0
    return _look_up(weights, u)


def _draw_top_k(
    logits: torch.Tensor, u: torch.Tensor, temperature: float, k: int, top_p: float, forbidden: Sequence[int]
) -> torch.Tensor:
    """Take k tokens and as many more as may be forbidden: cheaper than a masked copy of all logits."""
    values, tokens = logits.topk(k + len(forbidden))
    allowed = ~_is_forbidden(tokens, forbidden)
    allowed &= allowed.cumsum(-1) <= k
    weights = _weights(values, temperature, allowed)
    return _look_up_few(weights * _nucleus(weights, weights.sum(-1, keepdim=True), top_p), tokens, u)


def _draw_nucleus(
    logits: torch.Tensor, u: torch.Tensor, temperature: float, top_p: float, forbidden: Sequence[int]
) -> torch.Tensor:
    """Tokens no less probable than the last one of the nucleus; ties with that one are in, too.

    The nucleus mostly lies among the first few hundred tokens; only rows where it does not are sorted in full.
    """
    probabilities = (_mask(logits, forbidden) / temperature).softmax(-1)
    head = probabilities.topk(min(HEAD, probabilities.shape[1])).values
    threshold = _nucleus_threshold(head, top_p)  # (rows, 1)
    wide = head.sum(-1) < top_p
    if wide.any():
        threshold[wide] = _nucleus_threshold(probabilities[wide].sort(-1, descending=True).values, top_p)
    return _look_up(probabilities.masked_fill_(probabilities < threshold, 0), u)


def _nucleus_threshold(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The smallest probability in the nucleus, given probabilities in descending order: (rows, 1)."""
    in_nucleus = _nucleus(probabilities, torch.ones_like(probabilities[:, :1]), top_p)
    return probabilities.gather(1, in_nucleus.sum(-1, keepdim=True) - 1)


def _weights(values: torch.Tensor, temperature: float, allowed: torch.Tensor) -> torch.Tensor:
    """exp(values / temperature) where allowed, up to a factor for each row."""
    masked = values.double().masked_fill(~allowed, -torch.inf)
    return ((masked - masked.amax(-1, keepdim=True)) / temperature).exp()


def _nucleus(weights: torch.Tensor, total: torch.Tensor, top_p: float) -> torch.Tensor:
    """Which of the weights, in descending order, are needed to reach the share `top_p`; the first always is."""
    if top_p >= 1:
        return torch.ones_like(weights, dtype=torch.bool)
    return weights.cumsum(-1) - weights < top_p * total


def _look_up_few(weights: torch.Tensor, tokens: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Look up among a few tokens, ordered by token id: then near-ties cannot change the order."""
    tokens, order = tokens.sort(-1)
    cumulative = weights.gather(1, order).cumsum(-1)
    return tokens.gather(1, _first_above(cumulative, u))[:, 0]


def _look_up(weights: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Find the block of tokens first, then the token in it: exact float64 sums over few numbers."""
    rows, size = weights.shape
    full = size - size % BLOCK
    sums = weights[:, :full].reshape(rows, -1, BLOCK).sum(-1) if full else weights[:, :0]
    sums = torch.cat([sums, weights[:, full:].sum(-1, keepdim=True)], dim=1).double()  # (rows, blocks)
    cumulative = sums.cumsum(-1)
    block = _first_above(cumulative, u)  # (rows, 1)
    inside = sums.gather(1, block)
    before = cumulative.gather(1, block) - inside
    rest = ((u[:, None] * cumulative[:, -1:] - before) / inside).clamp(0, 1 - 2.0**-52)[:, 0]
    tokens = block * BLOCK + torch.arange(BLOCK, device=weights.device)  # (rows, BLOCK)
    few = weights.gather(1, tokens.clamp(max=size - 1)).double() * (tokens < size)
    return tokens.gather(1, _first_above(few.cumsum(-1), rest))[:, 0]


def _first_above(cumulative: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """The first index whose cumulative sum exceeds u times the total, (rows, 1): never one of weight 0."""
    return torch.searchsorted(cumulative, u[:, None] * cumulative[:, -1:], right=True)


def _mask(logits: torch.Tensor, forbidden: Sequence[int]) -> torch.Tensor:
    if not forbidden:
        return logits
    return logits.index_fill(1, torch.tensor(list(forbidden), device=logits.device), -torch.inf)


def _is_forbidden(tokens: torch.Tensor, forbidden: Sequence[int]) -> torch.Tensor:
    return torch.isin(tokens, torch.tensor(list(forbidden), dtype=torch.long, device=tokens.device))


def _as_key(number: int) -> Keys:
    return np.array([number & _MASK], dtype=np.uint64)


def _mix(numbers: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit flips half of the output bits."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
