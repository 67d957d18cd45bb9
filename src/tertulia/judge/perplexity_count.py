"""Counting perplexity: talks out of dialogues, their likelihoods under a model, figures with intervals over dialogues.

Perplexity is a ratio of sums (nats over words), so its interval comes from drawing whole dialogues and dividing the
sums anew each time. Models with latent variables are asked by importance sampling where they offer it; which way it
was goes with every figure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tertulia.core.dialogue import Dialogue
from tertulia.core.estimate import Estimate
from tertulia.judge.perplexity import TOKEN, WORD, Counts, Kind
from tertulia.judge.rank import Figures, Setting
from tertulia.models.generator import Generator, Nll, Talk, at_rest
from tertulia.models.likelihood import Likelihood, likelihoods, talks_of
from tertulia.models.tokenizer import UNKNOWN

KL, BOUND = "KL", "perplexity bound"
"""Nats a turn between posterior and prior of the latent variables; perplexity per word by the bound learned from."""
Floats = NDArray[np.float64]


class Told(NamedTuple):
    """A talk, and the dialogue it is of."""

    dialogue: str
    talk: Talk


class Latent(NamedTuple):
    """What the latent variables of a talk cost, in nats."""

    bound: float
    """Negative log-likelihood by the bound, the KL divergence included."""
    kl: float


@dataclass(frozen=True, slots=True)
class Counted:
    """Likelihoods of some talks."""

    told: tuple[Told, ...]
    likelihoods: tuple[Likelihood, ...]
    kind: Kind
    latent: tuple["Latent", ...] | None = None
    """What latent variables add, where the model can tell."""

    @property
    def groups(self) -> list[str]:
        """The dialogue of each talk."""
        return [one.dialogue for one in self.told]

    @property
    def turns(self) -> int:
        """How many turns count."""
        return sum(sum(one.talk.own) for one in self.told)


def told_of(dialogues: Sequence[Dialogue], setting: Setting, speaker: str | None = None) -> list[Told]:
    """The dialogues as their speakers see them in a setting, as far as they have the persona that it shows."""
    found = []
    for dialogue in dialogues:
        shown = _revised(dialogue) if setting.wording == "revised" else dialogue
        for talk in talks_of(shown, setting.whose, speaker):
            if all(setting.of(talk.persona, talk.partner)):
                found.append(Told(dialogue.id, talk))
    return found


def count(
    model: Generator,
    told: Sequence[Told],
    *,
    importance_samples: int = 20,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n: None,
) -> Counted:
    """The likelihoods of the own turns of all talks. `progress` hears of talks done."""
    way = _way(model, importance_samples, seed)
    latent: dict[int, Latent] = {}

    def heard(talks: list[Talk]) -> Nll:
        found = way.ask(talks)
        progress(len(talks))
        if isinstance(found, Nll):
            return found
        for talk, bound, kl in zip(talks, found.bound.tolist(), found.kl.tolist(), strict=True):
            latent[id(talk)] = Latent(bound, kl)  # talks come in batches of like size, not in their order
        return found.nll

    talks = [one.talk for one in told]
    with at_rest(model):
        found = likelihoods(model, talks, nll=heard)
    return Counted(tuple(told), tuple(found), way.kind, tuple(latent[id(t)] for t in talks) if latent else None)


def figures_of(counted: Counted, *, seed: int = 0) -> Figures:
    """Perplexity per word and per token, and what latent variables cost where there are some; n counts turns."""
    nats, words, tokens = _columns(counted)
    ratios = {WORD: (nats, words), TOKEN: (nats, tokens)}
    if counted.latent is not None:
        turns = np.array([sum(one.talk.own) for one in counted.told], dtype=np.float64)
        ratios[BOUND] = np.array([one.bound for one in counted.latent]), words
        ratios[KL] = np.array([one.kl for one in counted.latent]), turns
    tops, bottoms = (np.stack([pair[i] for pair in ratios.values()], axis=1) for i in (0, 1))
    found = bootstrap_ratios(tops, bottoms, counted.groups, n=counted.turns, seed=seed)
    return {name: one if name == KL else _exp(one) for name, one in zip(ratios, found, strict=True)}


def times_of(counted: Counted, than: Counted, *, seed: int = 0) -> Estimate:
    """How many times the other's perplexity per word this one's is; both of the same talks."""
    if [t.dialogue for t in counted.told] != [t.dialogue for t in than.told]:
        raise ValueError("two perplexities can be compared on the same talks only")
    ours, words, _ = _columns(counted)
    theirs = _columns(than)[0]
    found = bootstrap_ratios((ours - theirs)[:, None], words[:, None], counted.groups, n=counted.turns, seed=seed)
    return _exp(found[0])


def counts_of(counted: Counted, model: Generator) -> Counts:
    """What was counted over."""
    spoken = [text for _, talk in counted.told for text, own in zip(talk.turns, talk.own, strict=True) if own]
    return Counts(
        dialogues=len(set(counted.groups)),
        turns=counted.turns,
        words=sum(one.words for one in counted.likelihoods),
        tokens=sum(one.tokens for one in counted.likelihoods),
        unknown=sum(model.tokenizer.encode(text).count(UNKNOWN) for text in spoken),
    )


def bootstrap_ratios(
    tops: Floats,  # (rows, ratios)
    bottoms: Floats,  # (rows, ratios)
    groups: Sequence[str],
    *,
    n: int,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Estimate]:
    """Sum over sum for each column, with percentile bootstrap intervals: whole groups are drawn, all columns at once.

    >>> [found] = bootstrap_ratios(np.array([[1.0], [5.0]]), np.array([[1.0], [2.0]]), ["a", "b"], n=3)
    >>> found.value, found.low, found.high
    (2.0, 1.0, 2.5)
    """
    if not len(tops):
        return [Estimate(float("nan"), n=0, level=level)] * tops.shape[1]
    _, of = np.unique(np.asarray(groups), return_inverse=True)
    size = int(of.max()) + 1
    over, under = np.zeros((size, tops.shape[1])), np.zeros((size, tops.shape[1]))
    np.add.at(over, of, tops)
    np.add.at(under, of, bottoms)
    rng, drawn = np.random.default_rng(seed), np.empty((resamples, tops.shape[1]))
    at_once = max(1, 2_000_000 // size)  # so that memory stays flat however many groups there are
    for start in range(0, resamples, at_once):
        part = drawn[start : start + at_once]
        times = rng.multinomial(size, np.full(size, 1 / size), size=len(part)).astype(np.float64)
        part[:] = (times @ over) / (times @ under)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    values = tops.sum(axis=0) / bottoms.sum(axis=0)
    return [
        Estimate(float(value), float(least), float(most), n, level)
        for value, least, most in zip(values, low, high, strict=True)
    ]


def _revised(dialogue: Dialogue) -> Dialogue:
    personas = {who: replace(p, sentences=p.revised, revised=()) for who, p in dialogue.personas.items()}
    return replace(dialogue, personas=personas)


class _Importance(Protocol):
    """What a model tells of its latent variables beside the likelihood; a tensor has a number for each talk."""

    nll: Nll
    bound: Any
    kl: Any


class _Way(NamedTuple):
    kind: Kind
    ask: Callable[[list[Talk]], Nll | _Importance]


def _way(model: Generator, samples: int, seed: int) -> _Way:
    """How likelihoods are asked for, and what they are then: `importance` tells more than `importance_nll`."""
    ask = getattr(model, "importance", None) or getattr(model, "importance_nll", None)
    if ask is None:
        kind: Kind = "bound" if getattr(model, "draws", False) else "exact"
        return _Way(kind, lambda talks: model.nll(talks, scored="own"))
    options = {"samples": samples, "scored": "own"}
    if "seed" in signature(ask).parameters:
        options["seed"] = seed
    return _Way("importance", partial(ask, **options))


def _columns(counted: Counted) -> tuple[Floats, Floats, Floats]:
    found = np.array([tuple(one) for one in counted.likelihoods], dtype=np.float64).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]


def _exp(found: Estimate) -> Estimate:
    return replace(
        found, value=float(np.exp(found.value)), low=float(np.exp(found.low)), high=float(np.exp(found.high))
    )
