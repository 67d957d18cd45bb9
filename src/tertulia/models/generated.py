"""Turns that a model generated, with their log-probabilities, and how they are ranked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tertulia.models.sampling import TopTokens


@dataclass(frozen=True, slots=True)
class Generation:
    """A turn that a model generated."""

    tokens: tuple[int, ...]
    """Without the end token."""
    text: str
    logprob: float
    """Sum over its tokens and its end token, under the unmodified distribution, in nats."""
    count: int
    """Number of tokens, the end token included."""
    score: float
    """What candidates are ranked by."""
    finished: bool
    """Whether the model ended it, rather than the limit `max_tokens`."""
    drawn: int = 1
    """How many samples have the same text."""
    logprobs: tuple[float, ...] = ()
    """Of each token, the end token included; their sum is `logprob`."""
    top: tuple[TopTokens, ...] = ()
    """The most probable tokens at each position, if they were asked for."""


class StepResult(NamedTuple):
    """What one step of a session brought for one turn."""

    handle: int
    tokens: tuple[int, ...] = ()
    """The next token of each sample that had not ended; none for beam search, which may still change its mind."""
    generations: list[Generation] | None = None
    """Once the last sample has ended: the candidates, best first."""
    logprobs: tuple[float, ...] = ()
    """Of each of the tokens, under the unmodified distribution."""
    top: tuple[TopTokens, ...] = ()
    """The most probable tokens at each sample's position, if they were asked for."""


def rank(generations: Sequence[Generation]) -> list[Generation]:
    """Best first, each text once: of several with the same text, only the best is kept."""
    best: dict[str, Generation] = {}
    for one in sorted(generations, key=lambda g: -g.score):
        same = best.get(one.text)
        best[one.text] = replace(same, drawn=same.drawn + 1) if same else one
    return list(best.values())
