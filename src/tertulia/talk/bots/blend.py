"""Several ranking bots as one: their scores of the same candidates, standardised and added up.

Rankers err in different ways: one knows words, another meanings, a third likelihoods. Scores of different bots have
different scales, so each bot's scores of one ask's candidates are turned into z-scores before they are weighed. To
talk, every member proposes its candidates and all of them score all of these.
"""

import time
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.talk.bot import Bot, BotTraits, RankingBot, traits_of
from tertulia.talk.spec import make_bot

EXAMPLE = "blend:RUN,RUN,tfidf:DATA?weights=1,0.5,0.5"


class BlendOptions(Config):
    """How the members are weighed."""

    weights: str = ""
    """A number for each member, separated by commas; by default all weigh the same."""
    candidates: int = Field(default=10, ge=1, le=1000)
    """How many of the best replies to report."""
    engine: Literal["auto", "torch"] = "auto"
    """What members compute with that have a choice."""


class WeightedBot(NamedTuple):
    """A bot of the blend."""

    bot: RankingBot
    weight: float


class BlendBot:
    """Says what its members together find best."""

    Options: ClassVar[type[Config]] = BlendOptions
    target_help: ClassVar[str] = (
        "specifications of ranking bots, separated by commas; in those with options of their own, %3F stands for ?"
    )
    summary = "Ranks by the scores of several bots together."

    def __init__(
        self, members: Sequence[WeightedBot], options: BlendOptions | None = None, *, spec: str = "blend"
    ) -> None:
        self.members = tuple(members)
        self.options = options or BlendOptions()
        self.spec = spec
        traits = [traits_of(member.bot) for member in self.members]
        limits = [one.max_batch for one in traits if one.max_batch is not None]
        self.traits = BotTraits(
            max_batch=min(limits, default=None), reads_evidence=any(one.reads_evidence for one in traits)
        )

    @classmethod
    def build(cls, target: str, options: BlendOptions, /) -> Self:
        """Make the members; all must be able to score replies."""
        specs = [spec.strip() for spec in target.split(",")]
        if len(specs) < 2 or not all(specs):
            raise UsageError(f"A blend needs two bots or more, got {target!r}.", hint=f"For example: {EXAMPLE}")
        weights = _weights(options.weights, len(specs))
        bots = [make_bot(spec, reference=options.engine == "torch") for spec in specs]
        members = [WeightedBot(_ranking(bot, spec), w) for bot, spec, w in zip(bots, specs, weights, strict=True)]
        return cls(members, options, spec=f"blend:{target.replace('%', '%25').replace('?', '%3F')}")

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """The weighted sum of the members' z-scores."""
        totals = [np.zeros(len(texts)) for texts in candidates]
        for member in self.members:
            for total, scores in zip(totals, member.bot.score(asks, candidates), strict=True):
                total += member.weight * standardised(scores)
        return [total.tolist() for total in totals]

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """The best of what the members propose."""
        start = time.perf_counter()
        replies = [member.bot.reply(asks) for member in self.members]
        proposed = [_proposals([of_member[i] for of_member in replies]) for i in range(len(asks))]
        scores = self.score(asks, [[candidate.text for candidate in some] for some in proposed])
        seconds = time.perf_counter() - start
        return [
            self._best(ask, some, values, checkpoints, seconds)
            for ask, some, values, checkpoints in zip(
                asks, proposed, scores, map(_checkpoints, zip(*replies, strict=True)), strict=True
            )
        ]

    def _best(
        self, ask: Ask, proposed: Sequence[Candidate], scores: Sequence[float], checkpoints: str, seconds: float
    ) -> Reply:
        order = sorted(range(len(proposed)), key=lambda i: -scores[i])  # stable: the first member's come first
        kept = [Candidate(proposed[i].text, scores[i], source=proposed[i].source) for i in order]
        provenance = Provenance(self.spec, checkpoints or None, self.options.model_dump(), ask.seed, __version__)
        candidates = tuple(kept[: self.options.candidates])
        return Reply(kept[0].text, provenance, score=kept[0].score, candidates=candidates, seconds=seconds)


def standardised(scores: Sequence[float]) -> NDArray[np.float64]:
    """Scores less their mean, over their standard deviation; all zero if they are all the same.

    >>> standardised([1.0, 2.0, 3.0]).round(2).tolist(), standardised([5.0, 5.0]).tolist()
    ([-1.22, 0.0, 1.22], [0.0, 0.0])
    """
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        return values
    centred = values - values.mean()
    spread = float(centred.std())
    return centred / spread if spread > 0 else np.zeros(len(values))


def _proposals(replies: Sequence[Reply]) -> list[Candidate]:
    """What the members would say, each text once, without what they dropped."""
    texts: dict[str, Candidate] = {}
    for reply in replies:
        for candidate in (Candidate(reply.text), *reply.candidates):
            if candidate.dropped is None and (candidate.text not in texts or texts[candidate.text].source is None):
                texts[candidate.text] = candidate
    return list(texts.values())


def _checkpoints(replies: Sequence[Reply]) -> str:
    return "+".join(reply.provenance.checkpoint for reply in replies if reply.provenance.checkpoint)


def _weights(text: str, count: int) -> list[float]:
    if not text:
        return [1.0] * count
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError:
        weights = []
    if len(weights) != count or not all(np.isfinite(weights)) or not any(weights):
        raise UsageError(
            f"The blend has {count} bots, and its weights are {text!r}.",
            hint=f"Give {count} numbers separated by commas, not all of them zero: {EXAMPLE}",
        )
    return weights


def _ranking(bot: Bot, spec: str) -> RankingBot:
    if not isinstance(bot, RankingBot):
        raise UsageError(
            f"The bot {spec!r} cannot score given replies, so it cannot be part of a blend.",
            hint="Blend rankers, tfidf and generative models.",
        )
    return bot
