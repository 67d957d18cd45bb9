"""What a generator is: a model that gives the likelihood of turns and generates a reply token by token.

Whatever its architecture, a model sees dialogues as `DialogueView`s and gives numbers for complete turns (`nll`:
training, perplexity, ranking by likelihood) and for the next token (`start`, `step`: decoding). The state between two
tokens can be expanded into samples that share everything read before, and rows can be dropped as samples end; that is
what makes sample-and-rank cheap. Most states can also be joined (`JoinableState`), so that a new dialogue can enter a
batch that is being decoded. Decoding, filters, training and evaluation use nothing else of a model.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import nn

from tertulia.core.errors import ConfigError
from tertulia.models.sampling import Keys
from tertulia.models.tokenizer import END, OTHER, OWN, PERSONA, Tokenizer

TargetTurns = Literal["all", "own", "last"]
"""Turns whose tokens are predicted: all (for training), those of the model's own speaker, or only the last one."""
Latent = Literal["sample", "mean"]
"""Whether latent variables are sampled or taken at the mean of their distribution."""


@dataclass(frozen=True, slots=True)
class DialogueView:
    """A dialogue as a model sees it."""

    turns: tuple[str, ...]
    """Texts of the turns, oldest first."""
    own: tuple[bool, ...]
    """Which turns are by the speaker that the model plays."""
    persona: tuple[str, ...] = ()
    """Persona sentences of that speaker."""
    partner: tuple[str, ...] = ()
    """Persona sentences of the other speaker, if the model is shown them."""
    evidence: tuple[str, ...] = field(default=(), repr=False)
    """Passages that the dialogue refers to. Fine-tuned language models read them, our own architectures do not; so they
    are no part of `texts`, nor of the representation that identifies runs."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts: personas, then turns."""
        return (*self.persona, *self.partner, *self.turns)

    def with_turn(self, text: str, *, own: bool = True) -> "DialogueView":
        """The same dialogue with one more turn."""
        return replace(self, turns=(*self.turns, text), own=(*self.own, own))

    def before(self, turn: int) -> "DialogueView":
        """The same dialogue up to a turn, which is left out."""
        return replace(self, turns=self.turns[:turn], own=self.own[:turn])


class Nll(NamedTuple):
    """Negative log-likelihood of the target turns in nats, with the end of each turn."""

    total: torch.Tensor  # (n,): of each dialogue
    tokens: torch.Tensor  # (n,): number of target tokens


class State(Protocol):
    """What a model keeps between two tokens, for several rows at once."""

    def expand(self, count: int, /) -> Self:
        """Repeat each row `count` times, side by side (a, a, b, b); what was read so far is shared, not read again."""
        ...

    def select(self, rows: torch.Tensor, /) -> Self:
        """Only these rows, in this order; a row may occur several times (beam search)."""
        ...


@runtime_checkable
class JoinableState(State, Protocol):
    """A state whose rows can be continued in one batch with those of another state of the same model."""

    def join(self, other: Self, /) -> Self | None:
        """The rows of both, this state's first; None if these two states cannot be joined.

        The rows may have different contexts and may have generated different numbers of tokens (at least one step has
        been taken in both). A row's logits stay what they are alone, up to rounding.
        """
        ...


@runtime_checkable
class Generator(Protocol):
    """A model that generates replies; a torch module. `END` ends a turn."""

    tokenizer: Tokenizer

    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        """Negative log-likelihood of the target turns, each given everything before it (and the persona)."""
        ...

    def start(self, views: Sequence[DialogueView], /) -> State:
        """Encode the dialogues; the next turn is the model's own, and no token of it exists yet."""
        ...

    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, State]:
        """Logits of the next token (rows, vocabulary) after `tokens` (rows,), or of the first one after None."""
        ...

    def save(self, folder: Path, /) -> Sequence[str]:
        """Save the model; returns the names of its files other than weights and config."""
        ...


@runtime_checkable
class LimitedGenerator(Generator, Protocol):
    """A generator whose engine has room for so many rows and tokens at once, and no more."""

    max_rows: int
    max_tokens: int
    """Of contexts and turns."""
    prompts_at_once: int
    """Contexts that it reads at once; more of them are read one after the other."""

    @property
    def tokens_read(self) -> int:
        """Tokens that it has computed so far."""
        ...


class Importance(NamedTuple):
    """Estimates by importance sampling for the target turns of each dialogue, in nats."""

    nll: Nll
    """The estimate of the negative log-likelihood itself."""
    bound: torch.Tensor  # (n,): negative evidence lower bound, KL divergence included
    kl: torch.Tensor  # (n,): KL divergence between posterior and prior of the latent variables


@runtime_checkable
class LatentGenerator(Generator, Protocol):
    """A generator with latent variables (VHRED, VHCR). All randomness is passed in: it keeps no random state."""

    def nll(
        self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all", latent: Latent = "sample"
    ) -> Nll:
        """A bound by one posterior sample, or, with `latent="mean"`, at the posterior mean: the same in any batch."""
        ...

    def start(self, views: Sequence[DialogueView], /, *, keys: Keys | None = None) -> State:
        """Encode the dialogues and sample the prior.

        With `keys`, k for each view, the state has a row for each key (view by view), whose prior samples depend on
        its key alone; without, one row for each view at the prior mean.
        """
        ...

    def importance(
        self, views: Sequence[DialogueView], /, *, samples: int, seed: int, target_turns: TargetTurns = "all"
    ) -> Importance:
        """Estimate the likelihood by importance sampling, with the posterior as the proposal."""
        ...


def limits_of(model: Generator, max_rows: int | None, max_tokens: int | None) -> tuple[int | None, int | None]:
    """These limits of rows and tokens (None for no limit), or the lower ones of the model's engine."""
    if not isinstance(model, LimitedGenerator):
        return max_rows, max_tokens
    return min(max_rows or model.max_rows, model.max_rows), min(max_tokens or model.max_tokens, model.max_tokens)


def check_limits(model: Generator, *, rows: int, prompt_tokens: int, reply_tokens: int) -> None:
    """Reject a turn that needs more rows, or more tokens at once, than the model's engine has room for."""
    if not isinstance(model, LimitedGenerator):
        return
    if rows > model.max_rows or prompt_tokens + rows * reply_tokens > model.max_tokens:
        raise ConfigError(
            f"A reply from {rows} samples or beams of up to {reply_tokens} tokens, after a prompt of {prompt_tokens},"
            f" does not fit into this engine: it has room for {model.max_rows} of them, and for {model.max_tokens}"
            " tokens.",
            hint="Ask for fewer samples, beams or tokens, or use engine=torch.",
        )


@contextmanager
def eval_mode(model: Generator) -> Iterator[None]:
    """Turn dropout off while a model generates or is evaluated, even in the middle of training."""
    training = isinstance(model, nn.Module) and model.training
    if training:
        model.eval()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if training:
            model.train()  # type: ignore[attr-defined]


class Stream(NamedTuple):
    """A dialogue as one sequence of tokens."""

    ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    """Which tokens are predicted."""


def target_mask(view: DialogueView, target_turns: TargetTurns) -> tuple[bool, ...]:
    """Which turns are target turns."""
    if target_turns == "last":
        return tuple(i == len(view.turns) - 1 for i in range(len(view.turns)))
    return view.own if target_turns == "own" else (True,) * len(view.turns)


def stream(
    view: DialogueView, tokenizer: Tokenizer, *, target_turns: TargetTurns = "all", max_length: int | None = None
) -> Stream:
    """Persona sentences, then turns, each after its special token; the words of target turns and END are predicted.

    If the stream is too long, the oldest turns are dropped, each completely; personas stay.
    """
    head: list[int] = []
    for special, sentence in persona_sentences(view):
        head += (*special, *tokenizer.encode(sentence), END)
    turns = [turn_ids(text, own, tokenizer) for text, own in zip(view.turns, view.own, strict=True)]
    first = _first_kept([len(turn) for turn in turns], None if max_length is None else max_length - len(head))
    ids, loss_mask = list(head), [False] * len(head)
    for turn, is_target in list(zip(turns, target_mask(view, target_turns), strict=True))[first:]:
        ids += turn
        loss_mask += [False, *(is_target,) * (len(turn) - 1)]  # the speaker's token is given, never predicted
    return Stream(tuple(ids), tuple(loss_mask))


def turn_ids(text: str, own: bool, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens of a turn: the speaker's special token, the words, END."""
    return (OWN if own else OTHER, *tokenizer.encode(text), END)


def persona_sentences(view: DialogueView) -> Iterator[tuple[tuple[int, ...], str]]:
    """Each persona sentence with the special tokens before it: one for the model's own persona, two for the other's."""
    yield from (((PERSONA,), sentence) for sentence in view.persona)
    yield from (((PERSONA, PERSONA), sentence) for sentence in view.partner)


def _first_kept(sizes: Sequence[int], room: int | None) -> int:
    """Index of the oldest turn that fits; the last turn is always kept."""
    first, used = len(sizes), 0
    while first > 0 and (room is None or first == len(sizes) or used + sizes[first - 1] <= room):
        first -= 1
        used += sizes[first]
    return first
