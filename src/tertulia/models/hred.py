"""HRED, the hierarchical recurrent encoder-decoder (Serban et al. 2016), with EI (Ghandeharioun et al. 2019).

A bidirectional GRU reads each utterance to a vector, a second GRU reads those vectors as they come, and from its state
a third one writes the next utterance. With the heads of `tertulia.models.ei` the state is also taught what emotion and
meaning the utterance just read has. VHRED and VHCR are this model with latent variables put in at two places: where
the conversation is read (`_contexts`) and where a turn begins (`_imagine`, `_foresee`).

Differences from the papers: a mark tells whose utterance it is; the first turn counts like any other, after a state of
zeros; the words of a turn have one table with the output layer, whatever the sizes. A long dialogue is read in windows
of at most `max_turns` turns that overlap by half, so that each turn counts once and has some turns before it. Turns are
cut to `longest` tokens where they are read or learned from; when a likelihood is asked for, all of a turn counts.
A persona, which the papers do not have, is read like utterances before the first, where `personas` is set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Self

import torch
from pydantic import Field
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from tertulia.models.ei import BY_HAND, EIConfig, EIHeads, find_teachers
from tertulia.models.generator import Nll, Scored, State, Talk, behind_marks, counted
from tertulia.models.seq2seq import RecurrentConfig, RecurrentWriter, pack, rows_of, summed
from tertulia.models.teachers import Teacher
from tertulia.models.tokenizer import END, OTHER, OWN, Tokenizer
from tertulia.models.vectors import WordTable

REMEMBERED = 10_000
"""Texts of which a model that talks remembers what its teachers said."""


class HREDConfig(RecurrentConfig):
    """Sizes; those of the paper go from 300 to 600 (dim), and from 400 to 1250 (the rest)."""

    encoder: int = Field(400, ge=1)
    """Numbers in the state of the GRU that reads an utterance, in each direction."""
    context: int = Field(1000, ge=1)
    """Numbers in the state of the conversation."""
    decoder: int = Field(400, ge=1)
    """Numbers in the state of the GRU that writes."""
    longest: int = Field(30, ge=1)
    """Tokens of an utterance that are read and learned from."""
    max_turns: int = Field(10, ge=2)
    """Turns of a dialogue that are read in one go."""
    personas: bool = False
    """Whether personas are read; a recipe sets it to whether they are shown in training."""
    ei: EIConfig = EIConfig()
    """What is learned from teachers."""


class Elbo(NamedTuple):
    """What is learned from, part by part; zeros for what a model does not have."""

    nll: Nll
    """Of the turns, given a draw of the latent variables where there are some."""
    kl: torch.Tensor  # (n,): of the latent variables of each talk, in nats, not weighted
    extra: torch.Tensor  # (): what the teachers add, weighted

    def loss(self, kl_weight: float = 1.0) -> torch.Tensor:
        """The sum over the batch, to be made smaller."""
        return self.nll.total.sum() + kl_weight * self.kl.sum() + self.extra


@dataclass(frozen=True, slots=True)
class Layout:
    """Some talks as numbers: u different utterances, p windows of l turns at most, r turns that count."""

    talks: int
    texts: tuple[str, ...]  # u
    utterances: PackedSequence | None  # of u rows, where there are any
    turns: torch.Tensor  # (p, l): utterances
    lengths: torch.Tensor  # (p,): how many turns there are
    given: torch.Tensor  # (p,): how many come before the first that counts
    owner: torch.Tensor  # (p,): the talk
    window: torch.Tensor  # (r,)
    place: torch.Tensor  # (r,): in the window
    inputs: PackedSequence | None  # of r rows, where there are any: the mark and the words
    targets: PackedSequence | None  # the words and the end


class Contexts(NamedTuple):
    """What is known before each turn, and after the last one."""

    seeds: torch.Tensor  # (p, l + 1, seed): what the next turn comes from
    states: torch.Tensor  # (p, l + 1, context): of the GRU alone
    kl: torch.Tensor  # (p,): of what is drawn for a window as a whole
    log_weight: torch.Tensor  # (p,): its log-density under the prior less that under the posterior


class Imagined(NamedTuple):
    """What turns begin with."""

    begin: torch.Tensor  # (r, seed or more)
    kl: torch.Tensor  # (r,): of what is drawn for a turn
    log_weight: torch.Tensor  # (r,): its log-density under the prior less that under the posterior


class Run(NamedTuple):
    """One way through a layout."""

    losses: torch.Tensor  # (r,): negative log-likelihood of each turn that counts
    imagined: Imagined
    contexts: Contexts


@dataclass(frozen=True, slots=True)
class HREDState:
    """What the next turn comes from, or, once it has begun, where the decoder is."""

    known: tuple[torch.Tensor, ...]  # each (rows, ...), as `_foresee` takes them; nothing once the turn has begun
    hidden: torch.Tensor | None = None  # (rows, decoder)

    def fan(self, count: int, /) -> "HREDState":
        """Each row so many times; before the first token, each will imagine something of its own."""
        rows = self.known[0] if self.hidden is None else self.hidden
        return self.keep(torch.arange(len(rows), device=rows.device).repeat_interleave(count))

    def keep(self, rows: torch.Tensor, /) -> "HREDState":
        """Only these rows."""
        return HREDState(tuple(one[rows] for one in self.known), None if self.hidden is None else self.hidden[rows])


class HRED(RecurrentWriter[HREDConfig]):
    """Utterances, conversation, next utterance."""

    config_type = HREDConfig
    kl_weight = 1.0
    """What the trainer weighs the KL divergence with; without latent variables it is zero."""

    def __init__(self, config: HREDConfig, tokenizer: Tokenizer, *, conversation: int = 0, latent: int = 0) -> None:
        """`conversation` and `latent` are the sizes of latent variables, of a conversation and of a turn."""
        super().__init__(config, tokenizer)
        self.words = WordTable(len(tokenizer), config.dim, hidden=config.decoder)
        self.ei = EIHeads(config.ei, config.context)
        self.heard_size = 2 * config.encoder + self.ei.input_size
        self.seed_size = config.context + conversation
        self.encoder = nn.GRU(config.dim, config.encoder, bidirectional=True)
        self.context = nn.GRU(self.heard_size + conversation, config.context, batch_first=True)
        self.outset = nn.Linear(self.seed_size + latent, config.decoder)
        self.decoder = nn.GRU(config.dim, config.decoder)

    def teach(self, *, emotion: Teacher | None = None, semantics: Teacher | None = None) -> None:
        """Give the teachers that `ei` asks for: to learn from, or with `input`, whenever something is read.

        One that is given so has no name: a model that needs it has to be given it again when it is loaded.
        """
        self.ei.teach(emotion=emotion, semantics=semantics)
        given = {"emotion_teacher": emotion, "semantics_teacher": semantics}
        unnamed = {field: BY_HAND for field, teacher in given.items() if teacher is not None}
        self.config = self.config.model_copy(update={"ei": self.config.ei.model_copy(update=unnamed)})

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """What `save` wrote, and the teachers that it reads with."""
        made = super().load(folder)
        if made.config.ei.kind == "input":
            found = find_teachers(made.config.ei, most=REMEMBERED)
            made.ei.teach(emotion=found.emotion, semantics=found.semantics)
        return made

    def losses(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Elbo:
        """All that is learned from; the teachers are asked."""
        layout = self._lay(talks, scored)
        run = self._run(layout, self._hear(layout))
        there = torch.arange(layout.turns.shape[1], device=self._device) < layout.lengths[:, None]  # (p, l)
        distilled = self.ei.distil(run.contexts.states[:, 1:][there], layout.texts, layout.turns[there])
        return Elbo(self._told(layout, run.losses), self._kl(layout, run), self.ei.weighted(distilled))

    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        """How improbable the turns that count are; with latent variables, a bound (the negative ELBO)."""
        layout = self._lay(talks, scored)
        run = self._run(layout, self._hear(layout))
        total, tokens = self._told(layout, run.losses)
        return Nll(total + self._kl(layout, run), tokens)

    @torch.no_grad()
    def start(self, talks: Sequence[Talk], /) -> HREDState:
        """Read the talks."""
        layout = self._lay(talks, None)
        return HREDState(self._known(layout, self._hear(layout)))

    @torch.no_grad()
    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, HREDState]:
        """Logits of the next token; with None a turn is begun."""
        if not isinstance(state, HREDState):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if (tokens is None) != (state.hidden is None):
            raise ValueError("a turn is begun with None, and with None only")
        hidden = self._outset(self._foresee(*state.known)) if state.hidden is None else state.hidden
        if tokens is None:
            tokens = torch.full((len(hidden),), OWN, device=self._device)
        hidden = self.decoder(self.words(tokens)[None], hidden[None])[1][0]  # (rows, decoder)
        return self.words.logits(hidden), HREDState((), hidden)

    def _lay(self, talks: Sequence[Talk], scored: Scored | None) -> Layout:
        return lay(
            talks,
            self.tokenizer,
            scored,
            longest=self.config.longest,
            max_turns=self.config.max_turns,
            personas=self.config.personas,
            cut=self.training,
            device=self._device,
        )

    def _hear(self, layout: Layout) -> torch.Tensor:
        """Each utterance as a vector, with what teachers add where they do: (u, heard)."""
        if layout.utterances is None:
            return self.words.bias.new_zeros(0, self.heard_size)
        last = self.encoder(self._embed(layout.utterances))[1]  # (2, u, encoder)
        heard = torch.cat([last[0], last[1], self.ei.seen(layout.texts, last)], -1)
        return self.dropout(heard)  # type: ignore[no-any-return]

    def _run(self, layout: Layout, heard: torch.Tensor, dice: torch.Generator | None = None) -> Run:
        """Read the conversations and write the turns that count, all in one go."""
        contexts = self._contexts(layout, heard, dice)
        seeds = contexts.seeds[layout.window, layout.place]  # (r, seed)
        imagined = self._imagine(seeds, heard[layout.turns[layout.window, layout.place]], dice)
        if layout.inputs is None or layout.targets is None:
            return Run(imagined.kl, imagined, contexts)
        hidden = self._outset(imagined.begin)  # (r, decoder)
        states = self.decoder(self._embed(self._shown(layout.inputs)), hidden[None])[0].data  # (tokens, decoder)
        losses = self._losses(states, layout.targets.data)
        return Run(summed(losses, rows_of(layout.targets), len(hidden)), imagined, contexts)

    def _contexts(self, layout: Layout, heard: torch.Tensor, dice: torch.Generator | None) -> Contexts:
        """The state of the conversation before each turn."""
        begin = heard.new_zeros(len(layout.lengths), self.config.context)
        states = self._walk(heard[layout.turns], begin)
        nothing = heard.new_zeros(len(layout.lengths))
        return Contexts(states, states, nothing, nothing)

    def _imagine(self, seeds: torch.Tensor, said: torch.Tensor, dice: torch.Generator | None) -> Imagined:
        """What turns begin with, knowing what will be said. seeds: (r, seed); said: (r, heard)"""
        nothing = seeds.new_zeros(len(seeds))
        return Imagined(seeds, nothing, nothing)

    def _known(self, layout: Layout, heard: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the turn behind all comes from, nothing of it drawn yet: here the seed (n, seed)."""
        return (last_of(self._contexts(layout, heard, None).seeds, layout.lengths),)

    def _foresee(self, *known: torch.Tensor) -> torch.Tensor:
        """What turns begin with, not knowing what will be said: (rows, seed or more)."""
        return known[0]

    def _shown(self, inputs: PackedSequence) -> PackedSequence:
        """The tokens that the decoder gets to see of what it is to write."""
        return inputs

    def _walk(self, inputs: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """States before the first input, after it, and so on. (p, l, input) and (p, context) as (p, l + 1, context)"""
        if not inputs.shape[0] * inputs.shape[1]:
            return begin[:, None]
        return torch.cat([begin[:, None], self.context(inputs, begin[None])[0]], 1)

    def _outset(self, begin: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.outset(begin))

    def _told(self, layout: Layout, losses: torch.Tensor) -> Nll:
        """Losses of turns by talk."""
        return Nll(summed(losses, layout.owner[layout.window], layout.talks), self._tokens(layout))

    def _tokens(self, layout: Layout) -> torch.Tensor:
        """How many tokens of each talk count: (n,)."""
        sizes = layout.window if layout.targets is None else rows_of(layout.targets).bincount()  # (r,)
        return summed(sizes, layout.owner[layout.window], layout.talks)

    def _kl(self, layout: Layout, run: Run) -> torch.Tensor:
        """Of all that was drawn for each talk: (n,)."""
        turns = summed(run.imagined.kl, layout.owner[layout.window], layout.talks)
        return turns + summed(run.contexts.kl, layout.owner, layout.talks)


def last_of(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """What stands behind the last turn of each row: (p, l + 1, d) and (p,) as (p, d)."""
    return states[torch.arange(len(lengths), device=lengths.device), lengths]


def lay(
    talks: Sequence[Talk],
    tokenizer: Tokenizer,
    scored: Scored | None,
    *,
    longest: int,
    max_turns: int,
    personas: bool,
    cut: bool,
    device: torch.device,
) -> Layout:
    """Lay talks out; with nothing `scored`, to write the next turn. With `cut`, a turn counts as far as it is read."""
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}  # texts behind their marks
    windows: list[list[int]] = []
    about: list[tuple[int, int]] = []  # of each window: the talk, and the turns given
    places: list[tuple[int, int]] = []  # of each turn that counts: the window, and where in it
    rows: list[tuple[int, ...]] = []
    for i, talk in enumerate(talks):
        known = [(text, marks) for marks, text in behind_marks(talk)] if personas else []
        said = [(text, (OWN if own else OTHER,)) for text, own in zip(talk.turns, talk.own, strict=True)]
        for first, counts in _windows(talk, scored, max_turns):
            ahead = len(known) - first
            for turn in counts if scored is not None else ():
                places.append((len(windows), turn + ahead))
                rows.append(_ids(*said[turn], tokenizer)[: longest + 1 if cut else None])
            read = (*known, *said[first : counts[-1] + 1])
            windows.append([numbers.setdefault(key, len(numbers)) for key in read])
            about.append((i, counts[0] + ahead))
    different = [(*_ids(text, marks, tokenizer)[:-1][: longest + 1], END) for text, marks in numbers]
    most = max(map(len, windows), default=0)

    def numbered(lines: Sequence[Sequence[int]], width: int) -> torch.Tensor:
        return torch.tensor(lines, dtype=torch.long, device=device).reshape(len(lines), width)

    return Layout(
        talks=len(talks),
        texts=tuple(text for text, _ in numbers),
        utterances=pack(different, device) if different else None,
        turns=numbered([row + [0] * (most - len(row)) for row in windows], most),
        lengths=numbered([[len(row)] for row in windows], 1)[:, 0],
        owner=numbered(about, 2)[:, 0],
        given=numbered(about, 2)[:, 1],
        window=numbered(places, 2)[:, 0],
        place=numbered(places, 2)[:, 1],
        inputs=pack([row[:-1] for row in rows], device) if rows else None,
        targets=pack([row[1:] for row in rows], device) if rows else None,
    )


def first_read(turn: int, max_turns: int) -> int:
    """The first turn of the window in which a turn counts: windows of `max_turns` turns, half a window apart.

    >>> [first_read(turn, 10) for turn in (0, 9, 10, 14, 15)]
    [0, 0, 5, 5, 10]
    """
    apart = max_turns // 2
    return max(0, -(-(turn - max_turns + 1) // apart) * apart)


def _windows(talk: Talk, scored: Scored | None, max_turns: int) -> Iterator[tuple[int, list[int]]]:
    """Windows in which turns count: the first turn read, and the turns that count, one behind all where none does."""
    which = [len(talk.turns)] if scored is None else [i for i, yes in enumerate(counted(talk, scored)) if yes]
    for first, turns in groupby(which, key=lambda turn: first_read(turn, max_turns)):
        yield first, list(turns)


def _ids(text: str, marks: tuple[int, ...], tokenizer: Tokenizer) -> tuple[int, ...]:
    return (*marks, *tokenizer.encode(text), END)
