"""What a model that writes is: it tells how probable turns are, and writes one token after the other.

Whatever its shape, a model meets dialogues as `Talk`s and gives numbers for whole turns (`nll`: training, perplexity,
ranking by likelihood) and for the next token (`start`, `step`: decoding). The state between two tokens can be fanned
out into samples that share all that was read before, and thinned out as samples end; that is what makes sample-and-rank
cheap. Decoding, filters, training and judging know nothing else about a model.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import nn

from tertulia.models.tokenizer import END, OTHER, OWN, PERSONA, Tokenizer

Scored = Literal["all", "own", "last"]
"""Which turns count: all of them (to learn from), those of the one the model speaks for, or only the last one."""


@dataclass(frozen=True, slots=True)
class Talk:
    """A dialogue as a model sees it."""

    turns: tuple[str, ...]
    """What was said, oldest first."""
    own: tuple[bool, ...]
    """Which turns are of the one the model speaks for."""
    persona: tuple[str, ...] = ()
    """Sentences about that one."""
    partner: tuple[str, ...] = ()
    """Sentences about the other one, where the model is shown them."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All there is to read: personas, then turns."""
        return (*self.persona, *self.partner, *self.turns)

    def said(self, text: str, *, own: bool = True) -> "Talk":
        """The same talk with one more turn."""
        return replace(self, turns=(*self.turns, text), own=(*self.own, own))


class Nll(NamedTuple):
    """Negative log-likelihood of the turns that count, in nats, their ends included."""

    total: torch.Tensor  # (n,): of each talk
    tokens: torch.Tensor  # (n,): over how many tokens


class State(Protocol):
    """What a model remembers between two tokens, for several rows at once."""

    def fan(self, count: int, /) -> Self:
        """Each row so many times, side by side (a, a, b, b): what was read so far is shared, not read again."""
        ...

    def keep(self, rows: torch.Tensor, /) -> Self:
        """Only these rows, in this order; a row may come several times (beam search)."""
        ...


@runtime_checkable
class Generator(Protocol):
    """A model that writes; a torch module. `END` ends a turn."""

    tokenizer: Tokenizer

    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        """How improbable the turns that count are, each given all before it (and the persona)."""
        ...

    def start(self, talks: Sequence[Talk], /) -> State:
        """Read the talks: the next turn is the model's own. No token of it is known yet."""
        ...

    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, State]:
        """Logits of the next token (rows, vocabulary) after `tokens` (rows,), or of the first one after None."""
        ...

    def save(self, folder: Path, /) -> Sequence[str]:
        """Write the model; the names of the files beside weights and config that belong to it."""
        ...


@contextmanager
def at_rest(model: Generator) -> Iterator[None]:
    """No dropout while a model writes or is judged, even in the middle of its training."""
    training = isinstance(model, nn.Module) and model.training
    if training:
        model.eval()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if training:
            model.train()  # type: ignore[attr-defined]


class Stream(NamedTuple):
    """A talk in one line: every token, and for each whether it has to be predicted."""

    ids: tuple[int, ...]
    counts: tuple[bool, ...]


def counted(talk: Talk, scored: Scored) -> tuple[bool, ...]:
    """Which turns count."""
    if scored == "last":
        return tuple(i == len(talk.turns) - 1 for i in range(len(talk.turns)))
    return talk.own if scored == "own" else (True,) * len(talk.turns)


def stream(talk: Talk, tokenizer: Tokenizer, *, scored: Scored = "all", longest: int | None = None) -> Stream:
    """Persona sentences, then turns, each behind its mark; a turn's words and its end are what can be predicted.

    Sentences about the other one stand behind two marks. Of what is too long the oldest turns go, whole; personas stay.
    """
    head: list[int] = []
    for marks, sentence in behind_marks(talk):
        head += (*marks, *tokenizer.encode(sentence), END)
    turns = [_turn(text, own, tokenizer) for text, own in zip(talk.turns, talk.own, strict=True)]
    first = _first_kept([len(turn) for turn in turns], None if longest is None else longest - len(head))
    ids, counts = list(head), [False] * len(head)
    for turn, counts_too in list(zip(turns, counted(talk, scored), strict=True))[first:]:
        ids += turn
        counts += [False, *(counts_too,) * (len(turn) - 1)]
    return Stream(tuple(ids), tuple(counts))


def behind_marks(talk: Talk) -> Iterator[tuple[tuple[int, ...], str]]:
    """The persona sentences, one's own first, and the marks that tell whose they are."""
    yield from (((PERSONA,), sentence) for sentence in talk.persona)
    yield from (((PERSONA, PERSONA), sentence) for sentence in talk.partner)


def _turn(text: str, own: bool, tokenizer: Tokenizer) -> tuple[int, ...]:
    return (OWN if own else OTHER, *tokenizer.encode(text), END)


def _first_kept(sizes: Sequence[int], room: int | None) -> int:
    """The oldest turn that fits; the last one is kept in any case."""
    first, used = len(sizes), 0
    while first > 0 and (room is None or first == len(sizes) or used + sizes[first - 1] <= room):
        first -= 1
        used += sizes[first]
    return first
