"""The next token of many rows at once, drawn or taken, each row with noise of its own.

Noise is counted, not carried along: the number that decides row r's token at step t is a hash (SplitMix64) of the seed,
the sample and t. So a reply never depends on its neighbours in the batch, beyond the rounding of the model's matrix
products, and rows may come and go. One number a row is enough, as it is looked up in the row's cumulated probabilities;
drawing noise for every word of the vocabulary (Gumbel) costs ten times as much.

Whatever is done to the distribution before a draw, the log-probability given with a token is the model's own.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

BLOCK = 128
"""Words whose probabilities are summed before a draw looks at any of them."""
HEAD = 256
"""How many of the most probable words are looked at for a nucleus, before all of them are put in order."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MASK = 2**64 - 1
_IMAGINED = np.uint64(2**32)
"""Far behind the steps of any turn: the numbers of words and those of latent variables are not the same."""

Keys = NDArray[np.uint64]


class Drawn(NamedTuple):
    """One token for each row."""

    tokens: torch.Tensor  # (rows,)
    logprobs: torch.Tensor  # (rows,): of the unmodified distribution


def row_keys(seeds: Sequence[int], samples: int, salt: int = 0) -> Keys:
    """What tells rows apart: one key for each sample of each seed, side by side (a, a, b, b)."""
    base = _mixed(np.array([seed & _MASK for seed in seeds], dtype=np.uint64) + _mixed(_one(salt)))
    return _mixed(base[:, None] + _ODD * np.arange(1, samples + 1, dtype=np.uint64)).reshape(-1)


def uniforms(keys: Keys, step: int) -> NDArray[np.float64]:
    """One number in [0, 1) for each key at a step; its 52 bits keep it below 1 under any scaling."""
    bits = _mixed(keys + _ODD * _one(step + 1))
    return np.asarray((bits >> np.uint64(12)) * 2.0**-52, dtype=np.float64)


class RowNoise:
    """Normal numbers for rows, a function of each row's key: what a row imagines is the same in any batch."""

    def __init__(self, keys: Keys) -> None:
        self.keys, self.thrown = keys, 0

    def __call__(self, like: torch.Tensor) -> torch.Tensor:
        """The next numbers of each row, as many as `like` has: (rows, n)"""
        if len(like) != len(self.keys):
            raise ValueError(f"{len(like)} rows cannot be thrown for with {len(self.keys)} keys")
        places = np.arange(self.thrown, self.thrown + like.shape[1], dtype=np.uint64) + _IMAGINED
        self.thrown += like.shape[1]
        bits = _mixed(self.keys[:, None] + _ODD * places)
        shares = ((bits >> np.uint64(12)) + 0.5) * 2.0**-52  # never 0 or 1
        return torch.from_numpy(shares).mul_(2).sub_(1).erfinv_().mul_(math.sqrt(2)).to(like)


def draw(
    logits: torch.Tensor,  # (rows, vocabulary)
    noise: NDArray[np.float64],  # (rows,)
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    forbidden: Sequence[int] = (),
) -> Drawn:
    """Draw from softmax(logits / temperature), cut to the `top_k` most probable and then to the nucleus of `top_p`.

    Temperature 0 takes the most probable token; `top_k` 0 is the whole vocabulary; `forbidden` tokens are never drawn.
    """
    where = torch.from_numpy(noise).to(logits.device)
    if temperature == 1 and top_p == 1 and not 0 < top_k < logits.shape[1] - len(forbidden):
        return _from_itself(logits, where, forbidden)
    if temperature == 0:
        tokens = _without(logits, forbidden).argmax(-1)
    elif 0 < top_k < logits.shape[1] - len(forbidden):
        tokens = _from_top(logits, where, temperature, top_k, top_p, forbidden)
    elif top_p < 1:
        tokens = _from_nucleus(logits, where, temperature, top_p, forbidden)
    else:
        tokens = _from_all(logits, where, temperature, forbidden)
    return Drawn(tokens, logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0])  # quicker than logsumexp: one pass


def _from_itself(logits: torch.Tensor, noise: torch.Tensor, forbidden: Sequence[int]) -> Drawn:
    """From the unmodified distribution: what was drawn tells its own probability."""
    weights = logits.softmax(-1)
    weights[:, list(forbidden)] = 0
    tokens = _looked_up(weights, noise)
    return Drawn(tokens, weights.gather(1, tokens[:, None])[:, 0].log())


def _from_all(logits: torch.Tensor, noise: torch.Tensor, temperature: float, forbidden: Sequence[int]) -> torch.Tensor:
    weights = (logits / temperature).softmax(-1)
    weights[:, list(forbidden)] = 0
    return _looked_up(weights, noise)


def _from_top(
    logits: torch.Tensor, noise: torch.Tensor, temperature: float, k: int, top_p: float, forbidden: Sequence[int]
) -> torch.Tensor:
    """Among k tokens and as many more as may be forbidden: cheaper than a copy of all logits without those."""
    values, tokens = logits.topk(k + len(forbidden))
    allowed = ~_among(tokens, forbidden)
    allowed &= allowed.cumsum(-1) <= k
    weights = _weights(values, temperature, allowed)
    return _in_order(weights * _nucleus(weights, weights.sum(-1, keepdim=True), top_p), tokens, noise)


def _from_nucleus(
    logits: torch.Tensor, noise: torch.Tensor, temperature: float, top_p: float, forbidden: Sequence[int]
) -> torch.Tensor:
    """Tokens that weigh no less than the last one of the nucleus; what weighs the same as that one is in, too.

    The nucleus mostly lies among the first few hundred tokens; only rows where it does not are sorted whole.
    """
    shares = (_without(logits, forbidden) / temperature).softmax(-1)
    head = shares.topk(min(HEAD, shares.shape[1])).values
    least = _least(head, top_p)  # (rows, 1)
    wide = head.sum(-1) < top_p
    if wide.any():
        least[wide] = _least(shares[wide].sort(-1, descending=True).values, top_p)
    return _looked_up(shares.masked_fill_(shares < least, 0), noise)


def _least(shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """Of shares, largest first, the last one that is needed: (rows, 1)."""
    return shares.gather(1, _nucleus(shares, torch.ones_like(shares[:, :1]), top_p).sum(-1, keepdim=True) - 1)


def _weights(values: torch.Tensor, temperature: float, allowed: torch.Tensor) -> torch.Tensor:
    """exp(values / temperature) of what is allowed, up to a factor for each row."""
    masked = values.double().masked_fill(~allowed, -torch.inf)
    return ((masked - masked.amax(-1, keepdim=True)) / temperature).exp()


def _nucleus(weights: torch.Tensor, total: torch.Tensor, top_p: float) -> torch.Tensor:
    """Which of the weights, heaviest first, are needed to reach the share; the first always is."""
    if top_p >= 1:
        return torch.ones_like(weights, dtype=torch.bool)
    return weights.cumsum(-1) - weights < top_p * total


def _in_order(weights: torch.Tensor, tokens: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Look up a few tokens in the order of their numbers, in which two that are as good as equal cannot swap."""
    tokens, order = tokens.sort(-1)
    cumulated = weights.gather(1, order).cumsum(-1)
    return tokens.gather(1, _first_above(cumulated, noise))[:, 0]


def _looked_up(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """First the block of words, then the word in it: exact sums in double precision over few numbers."""
    rows, size = weights.shape
    whole = size - size % BLOCK
    sums = weights[:, :whole].reshape(rows, -1, BLOCK).sum(-1) if whole else weights[:, :0]
    sums = torch.cat([sums, weights[:, whole:].sum(-1, keepdim=True)], dim=1).double()  # (rows, blocks)
    cumulated = sums.cumsum(-1)
    block = _first_above(cumulated, noise)  # (rows, 1)
    inside = sums.gather(1, block)
    before = cumulated.gather(1, block) - inside
    rest = ((noise[:, None] * cumulated[:, -1:] - before) / inside).clamp(0, 1 - 2.0**-52)[:, 0]
    places = block * BLOCK + torch.arange(BLOCK, device=weights.device)  # (rows, BLOCK)
    few = weights.gather(1, places.clamp(max=size - 1)).double() * (places < size)
    return places.gather(1, _first_above(few.cumsum(-1), rest))[:, 0]


def _first_above(cumulated: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The first place whose sum exceeds that share of the whole, (rows, 1): never one that weighs nothing."""
    return torch.searchsorted(cumulated, noise[:, None] * cumulated[:, -1:], right=True)


def _without(logits: torch.Tensor, forbidden: Sequence[int]) -> torch.Tensor:
    if not forbidden:
        return logits
    return logits.index_fill(1, torch.tensor(list(forbidden), device=logits.device), -torch.inf)


def _among(tokens: torch.Tensor, forbidden: Sequence[int]) -> torch.Tensor:
    return torch.isin(tokens, torch.tensor(list(forbidden), dtype=torch.long, device=tokens.device))


def _one(number: int) -> Keys:
    return np.array([number & _MASK], dtype=np.uint64)


def _mixed(numbers: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit of the input moves half of the output's."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
