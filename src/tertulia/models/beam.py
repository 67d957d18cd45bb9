"""Beam search: the most probable turn, nearly, by following the few best beginnings of each talk side by side.

Hypotheses compare by log P / length ** penalty (0 is the plain sum, 1 the mean of a token). A talk is done when no
beginning can overtake the worst of as many whole turns as there are beams: log-probabilities only fall, so the best a
beginning can come to is what it has now, spread over the longest turn allowed. That makes the search exact whenever the
beams are many enough to hold every beginning.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from tertulia.models.generator import Generator, Talk
from tertulia.models.tokenizer import END


class Hypothesis(NamedTuple):
    """A turn that the search came upon."""

    tokens: tuple[int, ...]
    """Its end left out."""
    logprob: float
    """Of all its tokens, the end included where there is one."""
    finished: bool
    """Whether it ended by itself, or was cut at the longest length."""

    @property
    def length(self) -> int:
        """Tokens that the log-probability is of."""
        return len(self.tokens) + self.finished


def normalised(logprob: float, count: int, penalty: float) -> float:
    """What hypotheses of different length compare by.

    >>> normalised(-6.0, 4, 0.0), normalised(-6.0, 4, 0.5), normalised(-6.0, 4, 1.0)
    (-6.0, -3.0, -1.5)
    """
    return float(logprob / max(count, 1) ** penalty)


def beam_search(
    model: Generator,
    talks: Sequence[Talk],
    *,
    beams: int,
    longest: int,
    penalty: float,
    forbidden: Callable[[int], Sequence[int]],
    alive: Callable[[int], bool] = lambda _: True,
) -> list[list[Hypothesis]]:
    """The best turns of each talk, best first, at most as many as there are beams.

    `forbidden` says which tokens may not be taken at a step; nothing is found for a talk that is no longer `alive`.
    """
    searches = [_Search(beams, penalty, longest) for _ in talks]
    logits, state = model.step(model.start(talks), None)
    active = list(range(len(talks)))
    sums = torch.zeros(len(talks), 1, dtype=torch.float64)  # (talks, beginnings)
    prefixes: list[list[tuple[int, ...]]] = [[()] for _ in talks]
    for step in range(longest):
        chosen = _expanded(logits, sums, beams, forbidden(step))
        kept_rows, kept_tokens, kept_sums, going = [], [], [], []
        for place, talk in enumerate(active):
            row = place * sums.shape[1]
            ahead = searches[talk].take(prefixes[talk], *(part[place].tolist() for part in chosen))
            if not ahead or searches[talk].done(ahead[0].logprob) or not alive(talk):
                continue
            ahead += [ahead[-1]._replace(logprob=-torch.inf)] * (beams - len(ahead))  # dead beams keep rows aligned
            prefixes[talk] = [(*prefixes[talk][a.origin], a.token) for a in ahead]
            kept_rows += [row + a.origin for a in ahead]
            kept_tokens += [a.token for a in ahead]
            kept_sums.append([a.logprob for a in ahead])
            going.append(talk)
        active = going
        if not active or step == longest - 1:
            break
        sums = torch.tensor(kept_sums, dtype=torch.float64)
        rows, tokens = (torch.tensor(part, device=logits.device) for part in (kept_rows, kept_tokens))
        logits, state = model.step(state.keep(rows), tokens)
    for talk, found in zip(active, kept_sums, strict=True):
        searches[talk].cut(prefixes[talk], found)
    return [search.best() if alive(talk) else [] for talk, search in enumerate(searches)]


class _Expanded(NamedTuple):
    """The best next tokens of each talk, best first."""

    logprobs: torch.Tensor  # (talks, k): sums, of the unmodified distribution
    origins: torch.Tensor  # (talks, k): which beginning they go on from
    tokens: torch.Tensor  # (talks, k)


class _Ahead(NamedTuple):
    logprob: float
    origin: int
    token: int


def _expanded(logits: torch.Tensor, sums: torch.Tensor, beams: int, forbidden: Sequence[int]) -> _Expanded:
    """Twice as many as there are beams: even if half of them end the turn, enough go on."""
    size = logits.shape[1]
    logprobs = logits.log_softmax(-1)
    logprobs[:, list(forbidden)] = -torch.inf
    width = min(2 * beams, size)
    best = logprobs.topk(width)  # (rows, width): no talk needs more of any one beginning
    values = best.values.double().cpu() + sums.reshape(-1, 1)
    values = values.view(len(sums), -1)  # (talks, beginnings * width)
    tokens = best.indices.cpu().view(len(sums), -1)
    found = values.topk(min(2 * beams, values.shape[1]))
    return _Expanded(found.values, found.indices // width, tokens.gather(1, found.indices))


class _Search:
    """What was found for one talk."""

    def __init__(self, beams: int, penalty: float, longest: int) -> None:
        self.beams, self.penalty, self.longest = beams, penalty, longest
        self.found: list[Hypothesis] = []

    def take(
        self, prefixes: Sequence[tuple[int, ...]], logprobs: list[float], origins: list[int], tokens: list[int]
    ) -> list[_Ahead]:
        """Put whole turns aside; the best of those that go on, at most as many as there are beams."""
        ahead: list[_Ahead] = []
        for logprob, origin, token in zip(logprobs, origins, tokens, strict=True):
            if logprob == -torch.inf:
                break
            if token == END:
                self.found.append(Hypothesis(prefixes[origin], logprob, True))
            else:
                ahead.append(_Ahead(logprob, origin, token))
        self.found = self.best()
        return ahead[: self.beams]

    def done(self, ahead: float) -> bool:
        """Whether no beginning can come to more than what is found already."""
        if len(self.found) < self.beams:
            return False
        return self._score(self.found[-1]) >= normalised(ahead, self.longest, self.penalty)

    def cut(self, prefixes: Sequence[tuple[int, ...]], logprobs: Sequence[float]) -> None:
        """What has not ended at the longest length."""
        self.found += [
            Hypothesis(prefix, logprob, False)
            for prefix, logprob in zip(prefixes, logprobs, strict=True)
            if logprob > -torch.inf
        ]

    def best(self) -> list[Hypothesis]:
        """The best so far."""
        return sorted(self.found, key=self._score, reverse=True)[: self.beams]

    def _score(self, hypothesis: Hypothesis) -> float:
        return normalised(hypothesis.logprob, hypothesis.length, self.penalty)
