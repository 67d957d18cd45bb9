"""From a model that writes to the turns it might say: sampling, sample-and-rank, greedy and beam search.

Sample-and-rank is Meena's (arXiv 2001.09977, section 2.3): draw N turns at a temperature, answer with the one that the
model itself, its distribution unmodified, finds most probable per token. The talk is read once for all N samples; many
talks are written side by side, and samples that have ended leave the batch. Marks of the token stream are never drawn,
but keep their share of the probabilities that count, so that scores are the model's own.

Models with latent variables (`draws`) imagine a turn before its first word. What they draw is a function of the row's
seed too (`noise`), so that such a model's replies do not depend on the batch either.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from tertulia.core.config import Config
from tertulia.models.beam import beam_search, normalised
from tertulia.models.generator import Generator, Talk, at_rest
from tertulia.models.sampling import Keys, RowNoise, draw, row_keys, uniforms
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, PERSONA, UNKNOWN

Method = Literal["sample", "greedy", "beam", "sample-and-rank"]
Score = Literal["mean", "sum"]
ROWS_AT_ONCE = 512
"""Rows written side by side: a step's logits for 8,000 tokens then take 16 MB."""
LEAVE = 0.125
"""Samples that have ended leave once they are this share of the batch: each departure copies what the others hold."""


class DecodingConfig(Config):
    """How a model writes."""

    method: Method = "sample-and-rank"
    """One draw; always the most probable token; beam search; or several draws of which the most probable is said."""
    temperature: float = Field(1.0, ge=0, le=10)
    """Draw from softmax(logits / temperature): below 1 is tamer, above 1 is wilder; 0 takes the most probable token."""
    top_k: int = Field(0, ge=0)
    """Draw from this many most probable tokens; 0 for the whole vocabulary."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Draw from the most probable tokens that together have this probability."""
    samples: int = Field(20, ge=1, le=10_000)
    """How many turns sample-and-rank draws."""
    beams: int = Field(4, ge=1, le=1000)
    """How many beginnings beam search follows."""
    length_penalty: float = Field(1.0, ge=0, le=4)
    """Beam search compares log P / length ** this: 0 for the sum, 1 for the mean of a token, above for longer turns."""
    score: Score = "mean"
    """What candidates compare by elsewhere: log P a token, or the plain sum, which likes short turns."""
    min_tokens: int = Field(1, ge=0)
    """A turn does not end before it has so many tokens."""
    max_tokens: int = Field(40, ge=1, le=4096)
    """Most tokens of a turn, its end included; one that has not ended by then is cut."""
    unknown: bool = False
    """Whether the mark for unknown words may be written."""
    seed: int = 0
    """Mixed into the seed of every talk."""

    @field_validator("max_tokens")
    @classmethod
    def _long_enough(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("min_tokens", 0):
            raise ValueError(f"must not be less than min_tokens ({info.data['min_tokens']})")
        return value

    @property
    def draws(self) -> int:
        """How many turns are written for each talk, beam search aside."""
        return self.samples if self.method == "sample-and-rank" else 1

    def forbidden(self, step: int) -> tuple[int, ...]:
        """The tokens that may not be written at a step."""
        unknown = () if self.unknown else (UNKNOWN,)
        early = (END,) if step < self.min_tokens else ()
        return (PAD, OWN, OTHER, PERSONA, *unknown, *early)


PRESETS = {
    "meena-base": DecodingConfig(method="sample-and-rank", samples=20, temperature=0.88),
    "meena-full": DecodingConfig(method="sample-and-rank", samples=20, temperature=1.0, top_k=40),
}
"""The paper's two settings."""


@dataclass(frozen=True, slots=True)
class Written:
    """A turn that a model wrote."""

    tokens: tuple[int, ...]
    """Its end left out."""
    text: str
    logprob: float
    """Sum over its tokens and its end, of the unmodified distribution, in nats."""
    count: int
    """Over how many tokens, the end included."""
    score: float
    """What candidates compare by."""
    finished: bool
    """Whether it ended by itself, or was cut at the longest length."""
    drawn: int = 1
    """How many samples said the same."""


class Step(NamedTuple):
    """One token more for the rows that still write; row r is sample r % draws of talk r // draws."""

    rows: NDArray[np.int64]
    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]


def decode(
    model: Generator,
    talks: Sequence[Talk],
    config: DecodingConfig,
    seeds: Sequence[int],
    *,
    alive: Callable[[int], bool] = lambda _: True,
    leave: float = LEAVE,
) -> list[list[Written]]:
    """The turns that could be said next in each talk, best first; none for a talk that is no longer `alive`.

    The same talk, config and seed give the same turns, whatever else is in the batch.
    """
    if len(seeds) != len(talks):
        raise ValueError(f"{len(talks)} talks need as many seeds, not {len(seeds)}")
    found: list[list[Written]] = []
    at_once = max(1, ROWS_AT_ONCE // (config.beams if config.method == "beam" else config.draws))
    for start in range(0, len(talks), at_once):
        part = talks[start : start + at_once]

        def waits(i: int, start: int = start) -> bool:
            return alive(start + i)

        if config.method == "beam":
            found += _searched(model, part, config, seeds[start : start + at_once], waits)
        else:
            found += _sampled(model, part, config, seeds[start : start + at_once], waits, leave)
    return found


@torch.inference_mode()
def steps(
    model: Generator,
    talks: Sequence[Talk],
    config: DecodingConfig,
    seeds: Sequence[int],
    *,
    alive: Callable[[int], bool] = lambda _: True,
    leave: float = LEAVE,
) -> Iterator[Step]:
    """Write token by token; a row is heard of until its end, the longest length, or until nobody waits for its talk."""
    if not talks:
        return
    draws = config.draws
    keys = row_keys(seeds, draws, config.seed)
    temperature = 0.0 if config.method == "greedy" else config.temperature
    with at_rest(model):
        rows = np.arange(len(talks) * draws)
        going = np.ones(len(rows), dtype=np.bool_)
        with _imagining(model, keys):
            logits, state = model.step(model.start(talks).fan(draws), None)
        for step in range(config.max_tokens):
            tokens, logprobs = draw(
                logits,
                uniforms(keys[rows], step),
                temperature=temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                forbidden=config.forbidden(step),
            )
            found = tokens.cpu().numpy()
            yield Step(rows[going], found[going], logprobs.float().cpu().numpy()[going])
            waiting = {talk for talk in range(len(talks)) if alive(talk)}
            going &= (found != END) & np.array([row // draws in waiting for row in rows])
            if not going.any() or step + 1 == config.max_tokens:
                break
            if 1 - going.mean() >= leave:
                kept = torch.from_numpy(np.flatnonzero(going)).to(logits.device)
                state, tokens, rows = state.keep(kept), tokens[kept], rows[going]
                going = np.ones(len(rows), dtype=np.bool_)
            logits, state = model.step(state, tokens)


def _sampled(
    model: Generator,
    talks: Sequence[Talk],
    config: DecodingConfig,
    seeds: Sequence[int],
    alive: Callable[[int], bool],
    leave: float,
) -> list[list[Written]]:
    size = len(talks) * config.draws
    ids = np.zeros((size, config.max_tokens), dtype=np.int64)
    counts = np.zeros(size, dtype=np.int64)
    logprobs = np.zeros(size)
    finished = np.zeros(size, dtype=np.bool_)
    for step in steps(model, talks, config, seeds, alive=alive, leave=leave):
        ids[step.rows, counts[step.rows]] = step.tokens
        counts[step.rows] += 1
        logprobs[step.rows] += step.logprobs
        finished[step.rows] = step.tokens == END
    whole = [
        _written(model, ids[row, : counts[row] - finished[row]].tolist(), logprobs[row], finished[row], config)
        for row in range(size)
    ]
    parts = (whole[i : i + config.draws] for i in range(0, size, config.draws))
    return [_ranked(part) if alive(talk) else [] for talk, part in enumerate(parts)]


@torch.inference_mode()
def _searched(
    model: Generator,
    talks: Sequence[Talk],
    config: DecodingConfig,
    seeds: Sequence[int],
    alive: Callable[[int], bool],
) -> list[list[Written]]:
    with at_rest(model), _imagining(model, row_keys(seeds, 1, config.seed)):
        found = beam_search(
            model,
            talks,
            beams=config.beams,
            longest=config.max_tokens,
            penalty=config.length_penalty,
            forbidden=config.forbidden,
            alive=alive,
        )
    return [_ranked([_written(model, h.tokens, h.logprob, h.finished, config) for h in part]) for part in found]


def _written(
    model: Generator, tokens: Sequence[int], logprob: float, finished: bool, config: DecodingConfig
) -> Written:
    count = len(tokens) + int(finished)
    penalty = config.length_penalty if config.method == "beam" else float(config.score == "mean")
    score = normalised(float(logprob), count, penalty)
    text = model.tokenizer.decode(tokens).strip()
    return Written(tuple(tokens), text, float(logprob), count, score, bool(finished))


def _ranked(written: Sequence[Written]) -> list[Written]:
    """Best first, no text twice: of those that say the same the best one stands for all."""
    best: dict[str, Written] = {}
    for one in sorted(written, key=lambda w: -w.score):
        same = best.get(one.text)
        best[one.text] = replace(same, drawn=same.drawn + 1) if same else one
    return list(best.values())


@contextmanager
def _imagining(model: Generator, keys: Keys) -> Iterator[None]:
    """What the model draws for rows comes from their keys."""
    if not getattr(model, "draws", False):
        yield
        return
    model.noise = RowNoise(keys)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        model.noise = None  # type: ignore[attr-defined]
