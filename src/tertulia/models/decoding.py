"""From a generator to the turns it might say next: sampling, sample-and-rank, greedy decoding and beam search.

Sample-and-rank is Meena's (arXiv 2001.09977, section 2.3): draw N turns at a temperature, and answer with the one that
the model's own, unmodified distribution gives the highest probability per token. The context is encoded once for all N
samples; many dialogues are decoded side by side, samples that have ended leave the batch, and new dialogues can enter
it at any step (`DecodingSession`: continuous batching). Special tokens are never drawn, but keep their share of the
probabilities, so scores are the model's own.

Every generator is decoded here: our own architectures and Hugging Face models (`models.hf`). All randomness comes from
the seeds: what a row draws, latent variables included, is a function of its key (`sampling.row_keys`), so a reply does
not depend on the rest of its batch.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator
from torch.nn.functional import pad

from tertulia.core.config import Config
from tertulia.models.beam import Hypothesis, beam_steps, normalised
from tertulia.models.generated import Generation, StepResult, rank
from tertulia.models.generator import (
    DialogueView,
    Generator,
    JoinableState,
    LatentGenerator,
    LimitedGenerator,
    State,
    check_limits,
    eval_mode,
    limits_of,
)
from tertulia.models.read_ahead import ReadAhead
from tertulia.models.sampling import DrawOptions, Keys, TopTokens, draw, row_keys, top_tokens, uniforms
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, PERSONA, UNKNOWN

Method = Literal["sample", "greedy", "beam", "sample-and-rank"]
ScoreReduction = Literal["mean", "sum"]
ROWS_AT_ONCE = 512
"""Rows decoded side by side: with 8,000 tokens the logits of one step then take 16 MB."""
COMPACT_SHARE = 0.125
"""Rows that have ended leave once they are this share of the batch: each time, the other rows' state is copied."""


class DecodingConfig(Config):
    """How a model generates a turn."""

    method: Method = "sample-and-rank"
    """`sample` (one draw), `greedy`, `beam`, or `sample-and-rank` (several draws, the most probable is used)."""
    temperature: float = Field(default=1.0, ge=0, le=10)
    """Sample from softmax(logits / temperature): lower is more predictable; 0 takes the most probable token."""
    top_k: int = Field(default=0, ge=0)
    """Sample from this many most probable tokens; 0 for the full vocabulary."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the most probable tokens that together have this probability (the nucleus)."""
    repetition_penalty: float = Field(default=1.0, ge=1, le=3)
    """Makes tokens that are already in the reply less likely: positive logits are divided by it, negative ones are
    multiplied; 1 is off. Tokens of the prompt are not penalised. Beam search ignores it."""
    samples: int = Field(default=20, ge=1, le=10_000)
    """How many turns sample-and-rank draws."""
    beams: int = Field(default=4, ge=1, le=1000)
    """Width of beam search."""
    length_penalty: float = Field(default=1.0, ge=0, le=4)
    """Beam search ranks by log P / length ** this: 0 for the sum, 1 for the mean, above favours long turns."""
    score: ScoreReduction = "mean"
    """How the other methods rank candidates: by log-probability per token, or by the sum, which favours short turns."""
    min_tokens: int = Field(default=1, ge=0)
    """A turn does not end before it has this many tokens."""
    max_tokens: int = Field(default=40, ge=1, le=4096)
    """Most tokens of a turn, the end token included; a turn that has not ended by then is cut."""
    unknown: bool = False
    """Whether the token for unknown words may be generated."""
    seed: int = 0
    """Mixed into the seed of every dialogue."""

    @field_validator("max_tokens")
    @classmethod
    def _check_max_tokens(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("min_tokens", 0):
            raise ValueError(f"must not be less than min_tokens ({info.data['min_tokens']})")
        return value

    @property
    def draws(self) -> int:
        """How many turns are sampled for each dialogue (beam search aside)."""
        return self.samples if self.method == "sample-and-rank" else 1

    @property
    def is_random(self) -> bool:
        """Whether drawing once more gives something else."""
        return self.method in ("sample", "sample-and-rank") and self.temperature > 0

    @property
    def rows(self) -> int:
        """How many rows of a batch one dialogue takes."""
        return self.beams if self.method == "beam" else self.draws

    def reduce(self, logprob: float, count: int) -> float:
        """The score of a turn, by which candidates are ranked, from the log-probability of its tokens."""
        return normalised(logprob, count, self.length_penalty if self.method == "beam" else float(self.score == "mean"))

    def forbidden(self, step: int) -> tuple[int, ...]:
        """The tokens that may not be generated at a step."""
        unknown = () if self.unknown else (UNKNOWN,)
        early_end = (END,) if step < self.min_tokens else ()
        return (PAD, OWN, OTHER, PERSONA, *unknown, *early_end)


PRESETS = {
    "meena-base": DecodingConfig(method="sample-and-rank", samples=20, temperature=0.88),
    "meena-full": DecodingConfig(method="sample-and-rank", samples=20, temperature=1.0, top_k=40),
}
"""The two settings of the Meena paper."""


def decode(
    model: Generator,
    views: Sequence[DialogueView],
    config: DecodingConfig,
    seeds: Sequence[int],
    *,
    alive: Callable[[int], bool] = lambda _: True,
    prompt_tokens: Sequence[int] | None = None,
    top_logprobs: Sequence[int] | None = None,
    first_sample: int = 0,
    compact_share: float = COMPACT_SHARE,
) -> list[list[Generation]]:
    """Candidates for the next turn of each dialogue, best first; none for a dialogue that is no longer `alive`.
    They carry as many of the most probable tokens of each position as `top_logprobs` says for their dialogue.
    An engine with limits needs to know how many `prompt_tokens` each dialogue has. With `first_sample`, the samples are
    those that come after so many of the same seed.

    The same dialogue, config and seed give the same turns, whatever else is in the batch.
    """
    if len(seeds) != len(views):
        raise ValueError(f"{len(views)} dialogues need as many seeds, not {len(seeds)}")
    none = [0] * len(views)
    top, prompts, size = top_logprobs or none, prompt_tokens or none, max(1, ROWS_AT_ONCE // config.rows)
    generations: dict[int, list[Generation]] = {}
    for start in range(0, len(views), size):
        session = DecodingSession(model, compact_share=compact_share)
        batch, add = range(len(views))[start : start + size], partial(session.add, first_sample=first_sample)
        running = {add(views[i], config, seeds[i], prompt_tokens=prompts[i], top_logprobs=top[i]): i for i in batch}
        while running:
            for progress in session.step():
                if progress.generations is not None:
                    generations[running.pop(progress.handle)] = progress.generations
            for handle, view in list(running.items()):
                if not alive(view):
                    session.cancel(handle)
                    del running[handle]
    return [generations.get(view, []) if alive(view) else [] for view in range(len(views))]


class DecodingSession:
    """Continuous batching: turns are added while others are being decoded, and leave as they end.

    `add` puts a turn into the queue. Each `step` reads the dialogues of queued turns for which there is room, joins
    them to the running batch, and draws one more token for every sample. Where states cannot be joined
    (`JoinableState`), and for beam search, turns that were added together are a batch of their own, and each step
    advances every batch by one token. Either way a short turn never waits for a long one to end.

    With `early_tokens`, a step starts no more turns than the engine reads at once, and draws the first tokens of these
    alone; the others wait a little (`models.read_ahead`), so that they all go on together.
    """

    def __init__(
        self,
        model: Generator,
        *,
        max_rows: int | None = None,
        max_tokens: int | None = None,
        compact_share: float = COMPACT_SHARE,
        early_tokens: bool = False,
    ) -> None:
        """At most `max_rows` rows, and contexts and turns of `max_tokens` tokens, are in memory; one turn always is."""
        self.model = model
        self.max_rows, self.max_tokens = limits_of(model, max_rows, max_tokens)
        self._compact_share = compact_share
        self._ahead = ReadAhead(model) if early_tokens and isinstance(model, LimitedGenerator) else None
        self._queue: deque[_Turn] = deque()
        self._batches: list[_Batch | _BeamBatch] = []
        self._turns: dict[int, _Turn] = {}
        self._next_handle = 0

    def add(
        self,
        view: DialogueView,
        config: DecodingConfig,
        seed: int,
        *,
        prompt_tokens: int = 0,
        top_logprobs: int = 0,
        first_sample: int = 0,
    ) -> int:
        """Decode the next turn of a dialogue from the next step on; returns the turn's handle."""
        check_limits(self.model, rows=config.rows, prompt_tokens=prompt_tokens, reply_tokens=config.max_tokens)
        handle = self._next_handle
        self._next_handle += 1
        keys = row_keys([seed], config.draws, config.seed, first=first_sample)
        self._turns[handle] = turn = _Turn(handle, view, config, keys, prompt_tokens, top_logprobs)
        self._queue.append(turn)
        return handle

    def cancel(self, handle: int) -> None:
        """Stop decoding a turn; it makes no more progress, and its rows are free at the next step."""
        turn = self._turns.pop(handle, None)
        if turn is not None:
            turn.ended = True

    @property
    def rows(self) -> int:
        """Rows in flight: samples and beams of all turns that are being decoded."""
        return sum(turn.config.rows for turn in self._running)

    @torch.inference_mode()
    def step(self) -> list[StepResult]:
        """One more token for every turn that is being decoded; with `early_tokens` perhaps for new ones alone."""
        with eval_mode(self.model):
            self._batches = [batch for batch in self._batches if batch.compact(self._compact_share)]
            started = self._start_batches()
            advanced = [] if started and self._ahead else self._batches
            for batch in advanced:
                batch.advance(self.model)
            if self._ahead and not started:
                self._ahead.went_on()
            progress = [one for batch in (*advanced, *started) for one in batch.draw(self.model)]
            for batch in started:
                if not any(other.join(batch) for other in self._batches):
                    self._batches.append(batch)
        for one in progress:
            if one.generations is not None:
                self._turns.pop(one.handle, None)
        return progress

    @property
    def _running(self) -> list["_Turn"]:
        return [turn for batch in self._batches for turn in batch.turns if not turn.ended]

    def _start_batches(self) -> "list[_Batch | _BeamBatch]":
        """Read the dialogues of queued turns for which there is room: equal numbers of rows in one pass."""
        running, admitted = self._running, list[_Turn]()
        at_once = self._ahead.prompts(running=bool(running)) if self._ahead else None
        while (
            len(admitted) != at_once
            and self._queue
            and (self._queue[0].ended or self._fits([*running, *admitted], self._queue[0]))
        ):
            turn = self._queue.popleft()
            if not turn.ended:
                admitted.append(turn)
        batches: list[_Batch | _BeamBatch] = []
        by_rows: dict[int, list[_Turn]] = {}
        by_search: dict[DecodingConfig, list[_Turn]] = {}
        for turn in admitted:
            if turn.config.method == "beam":
                by_search.setdefault(turn.config, []).append(turn)
            else:
                by_rows.setdefault(turn.config.rows, []).append(turn)
        batches += [_Batch.start(self.model, turns) for turns in by_rows.values()]
        batches += [_BeamBatch(self.model, turns) for turns in by_search.values()]
        return batches

    def _fits(self, running: Sequence["_Turn"], turn: "_Turn") -> bool:
        if not running:
            return True
        turns = [*running, turn]
        rows = sum(one.config.rows for one in turns)
        # Contexts and rows are padded to the longest of all turns.
        contexts = len(turns) * max(one.prompt_tokens for one in turns)
        tokens = contexts + rows * max(one.config.max_tokens for one in turns)
        return (self.max_rows is None or rows <= self.max_rows) and (
            self.max_tokens is None or tokens <= self.max_tokens
        )


class _Turn:
    """A turn that is being decoded, with all its samples."""

    def __init__(
        self, handle: int, view: DialogueView, config: DecodingConfig, keys: Keys, prompt_tokens: int, top_logprobs: int
    ) -> None:
        self.handle, self.view, self.config, self.prompt_tokens = handle, view, config, prompt_tokens
        self.top_logprobs = top_logprobs
        self.keys = keys  # (samples,)
        self.samples = [_Sample() for _ in self.keys]
        self.count = 0
        """Tokens of each sample that has not ended."""
        self.ended = False

    @property
    def draw_options(self) -> DrawOptions:
        """How its next token is drawn."""
        config = self.config
        temperature = 0.0 if config.method == "greedy" else config.temperature
        return DrawOptions(
            temperature, config.top_k, config.top_p, config.repetition_penalty, config.forbidden(self.count)
        )

    def generations(self, model: Generator) -> list[Generation]:
        """What was generated, best first."""
        return rank([_generation(model, s, sum(s.logprobs), self) for s in self.samples])


class _Sample:
    __slots__ = ("finished", "logprobs", "tokens", "top")

    def __init__(self) -> None:
        self.tokens: list[int] = []  # without the end token
        self.logprobs: list[float] = []  # with the end token
        self.top: list[TopTokens] = []
        self.finished = False


@dataclass(slots=True)
class _Batch:
    """Rows that go through the model together. Each step is `compact`, `advance`, `draw`, then perhaps some `join`s."""

    turns: list[_Turn]
    owner: NDArray[np.int64]  # (rows,): index of each row's turn
    sample: NDArray[np.int64]  # (rows,): index of the row among the samples of its turn
    keys: Keys  # (rows,)
    state: State
    logits: torch.Tensor  # (rows, vocabulary): of the next token, from `advance` to `draw`
    tokens: torch.Tensor  # (rows,): drawn last
    generated: torch.Tensor  # (rows, steps): drawn before; rows that joined later have PAD in front
    active: NDArray[np.bool_]  # (rows,): those that have not ended

    @classmethod
    def start(cls, model: Generator, turns: list[_Turn]) -> "_Batch":
        """Read the dialogues of turns that have equal numbers of samples."""
        samples = len(turns[0].keys)
        keys = np.concatenate([turn.keys for turn in turns])
        logits, state = model.step(_start(model, [turn.view for turn in turns], keys), None)
        owner, sample = np.repeat(np.arange(len(turns)), samples), np.tile(np.arange(samples), len(turns))
        none = torch.zeros(len(keys), 0, dtype=torch.long, device=logits.device)
        active = np.ones(len(keys), dtype=np.bool_)
        return cls(turns, owner, sample, keys, state, logits, none.sum(1), none, active)

    def compact(self, compact_share: float) -> bool:
        """Remove rows that have ended once they are that share of all; False if no row is left."""
        self.active &= ~np.array([turn.ended for turn in self.turns])[self.owner]
        if not self.active.any():
            return False
        if 1 - self.active.mean() >= compact_share:
            rows = np.flatnonzero(self.active)
            kept = torch.from_numpy(rows).to(self.tokens.device)
            owners, owner = np.unique(self.owner[rows], return_inverse=True)
            self.turns, self.owner = [self.turns[i] for i in owners], owner
            self.sample, self.keys, self.active = self.sample[rows], self.keys[rows], self.active[rows]
            self.state, self.tokens = self.state.select(kept), self.tokens[kept]
            unused = self.generated.shape[1] + 1 - max(turn.count for turn in self.turns)
            self.generated = self.generated[kept, unused:]
        return True

    def advance(self, model: Generator) -> None:
        """Compute the logits of the next token."""
        self.generated = torch.cat([self.generated, self.tokens[:, None]], 1)
        self.logits, self.state = model.step(self.state, self.tokens)

    def join(self, other: "_Batch | _BeamBatch") -> bool:
        """Add the rows of another batch; False if the model's states cannot be joined."""
        if not isinstance(other, _Batch) or not isinstance(self.state, JoinableState):
            return False
        state = self.state.join(cast(JoinableState, other.state))  # of the same model, hence of the same kind
        if state is None:
            return False
        self.state = state
        self.owner = np.concatenate([self.owner, other.owner + len(self.turns)])
        self.turns = [*self.turns, *other.turns]
        self.sample = np.concatenate([self.sample, other.sample])
        self.keys = np.concatenate([self.keys, other.keys])
        self.active = np.concatenate([self.active, other.active])
        self.tokens = torch.cat([self.tokens, other.tokens])
        missing = self.generated.shape[1] - other.generated.shape[1]
        self.generated = torch.cat([self.generated, pad(other.generated, (missing, 0), value=PAD)])
        return True

    def draw(self, model: Generator) -> list[StepResult]:
        """One more token for each row."""
        counts = np.array([turn.count for turn in self.turns])[self.owner]
        self.tokens, drawn_logprobs = self._draw_by_options(uniforms(self.keys, counts))
        ids, values = self.tokens.tolist(), drawn_logprobs.cpu().double().tolist()
        top = top_tokens(self.logits, np.array([t.top_logprobs for t in self.turns])[self.owner] * self.active)
        drawn: dict[int, list[int]] = {}  # the active rows of each turn
        open_turns = set[int]()
        for row in np.flatnonzero(self.active).tolist():
            turn, sample = self.turns[self.owner[row]], self.turns[self.owner[row]].samples[self.sample[row]]
            drawn.setdefault(self.owner[row], []).append(row)
            sample.logprobs.append(values[row])
            sample.top += [top[row]] if row in top else []
            sample.finished = ids[row] == END
            if not sample.finished:
                sample.tokens.append(ids[row])
            if sample.finished or turn.count + 1 == turn.config.max_tokens:
                self.active[row] = False
            else:
                open_turns.add(self.owner[row])
        progress = []
        for owner, rows in drawn.items():
            turn = self.turns[owner]
            turn.count += 1
            turn.ended = owner not in open_turns
            tokens, logprobs = tuple(ids[row] for row in rows), tuple(values[row] for row in rows)
            generations = turn.generations(model) if turn.ended else None
            best = tuple(top[row] for row in rows if row in top)
            progress.append(StepResult(turn.handle, tokens, generations, logprobs, best))
        return progress

    def _draw_by_options(self, noise: NDArray[np.float64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and log-probabilities of all rows: (rows,), (rows,)."""
        by_options: dict[DrawOptions, list[int]] = {}
        for owner, turn in enumerate(self.turns):
            by_options.setdefault(turn.draw_options, []).append(owner)
        tokens = torch.zeros(len(self.owner), dtype=torch.long, device=self.logits.device)
        logprobs = torch.zeros(len(self.owner), dtype=self.logits.dtype, device=self.logits.device)
        for options, owners in by_options.items():
            rows = np.flatnonzero(np.isin(self.owner, owners))
            every = len(rows) == len(self.owner)
            at = torch.from_numpy(rows).to(self.logits.device)
            drawn = draw(
                self.logits if every else self.logits[at],
                noise[rows],
                temperature=options.temperature,
                top_k=options.top_k,
                top_p=options.top_p,
                forbidden=options.forbidden,
                penalised=self.generated if every else self.generated[at],
                repetition_penalty=options.repetition_penalty,
            )
            if every:
                return drawn
            tokens[at], logprobs[at] = drawn
        return tokens, logprobs


class _BeamBatch:
    """Beam searches that started together; the same interface as `_Batch`."""

    def __init__(self, model: Generator, turns: list[_Turn]) -> None:
        self.turns = turns
        config = turns[0].config
        self._search = beam_steps(
            model,
            _start(model, [turn.view for turn in turns], np.concatenate([turn.keys for turn in turns])),
            beams=config.beams,
            max_length=config.max_tokens,
            penalty=config.length_penalty,
            forbidden=config.forbidden,
            alive=lambda i: not turns[i].ended,
            top=max(turn.top_logprobs for turn in turns),
        )

    def compact(self, compact_share: float) -> bool:
        """Whether a search has not ended."""
        return not all(turn.ended for turn in self.turns)

    def advance(self, model: Generator) -> None:
        """Nothing: `draw` does the work."""

    def join(self, other: "_Batch | _BeamBatch") -> bool:
        """Never: the search changes its rows at every step."""
        return False

    def draw(self, model: Generator) -> list[StepResult]:
        """One more step of the search; all turns end together."""
        try:
            next(self._search)
        except StopIteration as end:
            progress = []
            for turn, hypotheses in zip(self.turns, end.value, strict=True):
                generations = [_generation(model, h, h.logprob, turn) for h in hypotheses]
                if not turn.ended:
                    progress.append(StepResult(turn.handle, (), rank(generations)))
                turn.ended = True
            return progress
        return []


def _start(model: Generator, views: Sequence[DialogueView], keys: Keys) -> State:
    """Encode the dialogues: a row for each key, view by view."""
    if isinstance(model, LatentGenerator):
        return model.start(views, keys=keys)
    return model.start(views).expand(len(keys) // len(views))


def _generation(model: Generator, drawn: _Sample | Hypothesis, logprob: float, turn: _Turn) -> Generation:
    config, tokens, logprobs, finished = turn.config, tuple(drawn.tokens), tuple(drawn.logprobs), bool(drawn.finished)
    count = len(tokens) + int(finished)
    text, score = model.tokenizer.decode(tokens).strip(), config.reduce(logprob, count)
    top = tuple(best[: turn.top_logprobs] for best in drawn.top if turn.top_logprobs)
    return Generation(tokens, text, logprob, count, score, finished, logprobs=logprobs, top=top)
