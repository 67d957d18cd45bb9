"""Beam search: the most probable turn, approximately, by extending the best few prefixes of each dialogue side by side.

Hypotheses are ranked by log P / length ** penalty (0 is the plain sum, 1 the mean per token). A dialogue is done when
no prefix can overtake the worst of as many complete hypotheses as there are beams: log-probabilities only fall, so the
best score a prefix can reach is its present log-probability, normalised by the maximum length. That makes the search
exact whenever the beams are wide enough to hold every prefix.
"""

from collections.abc import Callable, Sequence
from collections.abc import Generator as Steps
from typing import NamedTuple

import numpy as np
import torch

from tertulia.models.generator import Generator, State
from tertulia.models.sampling import TopTokens, top_tokens
from tertulia.models.tokenizer import END


class Hypothesis(NamedTuple):
    """A turn that the search came upon."""

    tokens: tuple[int, ...]
    """Without the end token."""
    logprob: float
    """Of all its tokens, the end token included if it has one."""
    finished: bool
    """Whether the model ended it, rather than the maximum length."""
    logprobs: tuple[float, ...] = ()
    """Of each token, the end token included if it has one."""
    top: tuple[TopTokens, ...] = ()
    """The most probable tokens at each position, if they were asked for."""

    @property
    def length(self) -> int:
        """Number of tokens that the log-probability is of."""
        return len(self.tokens) + self.finished


def normalised(logprob: float, count: int, penalty: float) -> float:
    """The score by which hypotheses of different lengths are compared.

    >>> normalised(-6.0, 4, 0.0), normalised(-6.0, 4, 0.5), normalised(-6.0, 4, 1.0)
    (-6.0, -3.0, -1.5)
    """
    return float(logprob / max(count, 1) ** penalty)


def beam_steps(
    model: Generator,
    state: State,
    *,
    beams: int,
    max_length: int,
    penalty: float,
    forbidden: Callable[[int], Sequence[int]],
    alive: Callable[[int], bool] = lambda _: True,
    top: int = 0,
) -> Steps[None, None, list[list[Hypothesis]]]:
    """The best turns after each row of a start state, best first, at most `beams` of them: returned at the end.

    Yields after each step of the model, so that other work can be done in between. `forbidden` gives the tokens that
    may not be taken at a step; a row that is no longer `alive` has no hypotheses. Hypotheses carry the `top` most
    probable tokens of each step.
    """
    logits, state = model.step(state, None)
    searches = [_Search(beams, penalty, max_length) for _ in logits]
    active = list(range(len(searches)))
    sums = torch.zeros(len(searches), 1, dtype=torch.float64)  # (dialogues, prefixes)
    prefixes: list[list[_Prefix]] = [[_Prefix()] for _ in searches]
    for step in range(max_length):
        yield
        expansion = _expand(logits, sums, beams, forbidden(step))
        tops = top_tokens(logits, np.full(len(logits), top))
        kept_rows, kept_tokens, kept_sums, still_active = [], [], [], []
        for i, view in enumerate(active):
            first_row = i * sums.shape[1]
            if tops:
                prefixes[view] = [p._replace(next_top=tops[first_row + j]) for j, p in enumerate(prefixes[view])]
            extensions = searches[view].take(prefixes[view], *(part[i].tolist() for part in expansion))
            if not extensions or searches[view].done(extensions[0].logprob) or not alive(view):
                continue
            # Every dialogue keeps the same number of rows: dead beams have no probability.
            extensions += [extensions[-1]._replace(logprob=-torch.inf)] * (beams - len(extensions))
            prefixes[view] = [prefixes[view][e.origin].extend(e.token, e.logprob) for e in extensions]
            kept_rows += [first_row + e.origin for e in extensions]
            kept_tokens += [e.token for e in extensions]
            kept_sums.append([e.logprob for e in extensions])
            still_active.append(view)
        active = still_active
        if not active or step == max_length - 1:
            break
        sums = torch.tensor(kept_sums, dtype=torch.float64)
        rows, tokens = (torch.tensor(part, device=logits.device) for part in (kept_rows, kept_tokens))
        logits, state = model.step(state.select(rows), tokens)
    for view, logprobs in zip(active, kept_sums, strict=True):
        searches[view].add_unfinished(prefixes[view], logprobs)
    return [search.best() if alive(view) else [] for view, search in enumerate(searches)]


class _Prefix(NamedTuple):
    """The beginning of a turn."""

    tokens: tuple[int, ...] = ()
    logprob: float = 0.0
    logprobs: tuple[float, ...] = ()
    """Of each token."""
    top: tuple[TopTokens, ...] = ()
    next_top: TopTokens | None = None
    """The most probable tokens after it, if they were asked for."""

    def extend(self, token: int, logprob: float) -> "_Prefix":
        """With one more token; `logprob` is that of all tokens."""
        top = self.top if self.next_top is None else (*self.top, self.next_top)
        return _Prefix((*self.tokens, token), logprob, (*self.logprobs, logprob - self.logprob), top)


class _Expansion(NamedTuple):
    """The best next tokens of each dialogue, best first."""

    logprobs: torch.Tensor  # (dialogues, k): sums, of the unmodified distribution
    origins: torch.Tensor  # (dialogues, k): indices of the prefixes they extend
    tokens: torch.Tensor  # (dialogues, k)


class _Extension(NamedTuple):
    logprob: float
    origin: int
    token: int


def _expand(logits: torch.Tensor, sums: torch.Tensor, beams: int, forbidden: Sequence[int]) -> _Expansion:
    """Twice the number of beams: even if half of them end the turn, enough continue."""
    size = logits.shape[1]
    logprobs = logits.log_softmax(-1)
    logprobs[:, list(forbidden)] = -torch.inf
    width = min(2 * beams, size)
    best = logprobs.topk(width)  # (rows, width): no dialogue needs more of any one prefix
    values = best.values.cpu().double() + sums.reshape(-1, 1)
    values = values.view(len(sums), -1)  # (dialogues, prefixes * width)
    tokens = best.indices.cpu().view(len(sums), -1)
    top = values.topk(min(2 * beams, values.shape[1]))
    return _Expansion(top.values, top.indices // width, tokens.gather(1, top.indices))


class _Search:
    """The hypotheses of one dialogue."""

    def __init__(self, beams: int, penalty: float, max_length: int) -> None:
        self.beams, self.penalty, self.max_length = beams, penalty, max_length
        self.hypotheses: list[Hypothesis] = []

    def take(
        self, prefixes: Sequence[_Prefix], logprobs: list[float], origins: list[int], tokens: list[int]
    ) -> list[_Extension]:
        """Record the turns that end here; returns the best extensions that do not, at most `beams` of them."""
        extensions: list[_Extension] = []
        for logprob, origin, token in zip(logprobs, origins, tokens, strict=True):
            if logprob == -torch.inf:
                break
            if token == END:
                ended = prefixes[origin].extend(token, logprob)
                hypothesis = Hypothesis(prefixes[origin].tokens, logprob, True, ended.logprobs, ended.top)
                self.hypotheses.append(hypothesis)
            else:
                extensions.append(_Extension(logprob, origin, token))
        self.hypotheses = self.best()
        return extensions[: self.beams]

    def done(self, best_prefix: float) -> bool:
        """Whether no prefix can reach the score of the hypotheses there are."""
        if len(self.hypotheses) < self.beams:
            return False
        return self._score(self.hypotheses[-1]) >= normalised(best_prefix, self.max_length, self.penalty)

    def add_unfinished(self, prefixes: Sequence[_Prefix], logprobs: Sequence[float]) -> None:
        """Record what has not ended at the maximum length."""
        self.hypotheses += [
            Hypothesis(prefix.tokens, logprob, False, prefix.logprobs, prefix.top)
            for prefix, logprob in zip(prefixes, logprobs, strict=True)
            if logprob > -torch.inf
        ]

    def best(self) -> list[Hypothesis]:
        """The best so far."""
        return sorted(self.hypotheses, key=self._score, reverse=True)[: self.beams]

    def _score(self, hypothesis: Hypothesis) -> float:
        return normalised(hypothesis.logprob, hypothesis.length, self.penalty)
