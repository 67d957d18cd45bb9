"""The bot behind every trained model that writes: it draws candidates, has them filtered, and says the best one left.

One class serves all architectures: a run's manifest says which one to load. How it writes and what it must not say are
options; an ask may override how it writes for its own reply. With filters a reply is whole before anything of it is
shown, as nothing shown can be taken back; without any, what is drawn or taken token by token is streamed so.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Piece, Provenance, Reply
from tertulia.models.checkpoint import MANIFEST
from tertulia.models.decoding import PRESETS, DecodingConfig, Method, Score
from tertulia.models.generator import Generator, Talk
from tertulia.models.likelihood import talk_as
from tertulia.models.threads import use_threads
from tertulia.models.writers import load_writer, log_likelihoods
from tertulia.talk.bots.writing import Group, Sieve, Task, at, flow, grouped, whole
from tertulia.talk.filters.table import ALL, make_filters

TRAIN = "Train one with `tertulia train RECIPE.toml --out RUN` (configs/ has recipes), then talk to RUN."


class WriterOptions(Config):
    """How it writes and what it does not say; what is not given is as in the preset."""

    preset: Literal["meena-base", "meena-full"] = "meena-full"
    """Meena's sample-and-rank: 20 samples of all tokens at temperature 0.88, or of the best 40 at 1."""
    method: Method | None = None
    """`sample` (one draw), `greedy`, `beam`, or `sample-and-rank`."""
    temperature: float | None = Field(None, ge=0, le=10)
    """Below 1 is tamer, above 1 is wilder; 0 takes the most probable token."""
    top_k: int | None = Field(None, ge=0)
    """Draw from this many most probable tokens; 0 for the whole vocabulary."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Draw from the most probable tokens that together have this probability."""
    samples: int | None = Field(None, ge=1, le=10_000)
    """How many turns sample-and-rank draws."""
    beams: int | None = Field(None, ge=1, le=1000)
    """How many beginnings beam search follows."""
    length_penalty: float | None = Field(None, ge=0, le=4)
    """Beam search compares log P / length ** this."""
    score: Score | None = None
    """Candidates compare by log P a token (`mean`) or in `sum`; given replies are ranked by the same."""
    min_tokens: int | None = Field(None, ge=0)
    """A reply does not end before it has so many tokens."""
    max_tokens: int | None = Field(None, ge=1, le=4096)
    """Most tokens of a reply."""
    unknown: bool | None = None
    """Whether the mark for unknown words may be written."""
    filters: str = ALL
    """What drops candidates: names with commas between, parameters behind colons (`empty,too-long:max_words=30`)."""
    fallback: str = "Sorry, I do not know what to say to that."
    """Said where no candidate may be."""
    candidates: int = Field(20, ge=1)
    """How many of the candidates are listed with a reply."""
    threads: int = Field(0, ge=0)
    """Threads to compute with, for all models of the process; 0 takes half the cores."""

    def decoding(self, wishes: dict[str, Json] | None = None) -> DecodingConfig:
        """How to write, with the wishes of one ask."""
        own = {name: value for name in DecodingConfig.model_fields if (value := getattr(self, name, None)) is not None}
        where = "the options of this reply" if wishes else "the bot's options"
        return validate(DecodingConfig, PRESETS[self.preset].model_dump() | own | (wishes or {}), where=where)


class WriterBot:
    """Writes with a trained model."""

    Options: ClassVar[type[Config]] = WriterOptions
    target_help: ClassVar[str] = "the folder of a training run"
    summary = "Writes with a trained model: draws candidates, drops some, says the most probable one left."

    def __init__(
        self,
        model: Generator,
        options: WriterOptions | None = None,
        *,
        spec: str = "writer",
        fingerprint: str | None = None,
    ) -> None:
        self.model = model
        self.options = options or WriterOptions()
        self.sieve = Sieve(make_filters(self.options.filters), self.options.fallback, self.options.candidates)
        self.decoding = self.options.decoding()
        self.spec, self.fingerprint = spec, fingerprint

    @classmethod
    def build(cls, target: str, options: WriterOptions, /) -> Self:
        """From a training run; its manifest says which model it is, and vouches for its files."""
        if not target:
            raise UsageError("A bot that writes needs the folder of a training run after its name.", hint=TRAIN)
        if not (Path(target) / MANIFEST).is_file():
            raise UsageError(f"{target} is not the folder of a finished training run.", hint=TRAIN)
        use_threads(options.threads)
        model, manifest = load_writer(Path(target))
        return cls(model, options, spec=f"{manifest.bot}:{target}", fingerprint=manifest.fingerprint)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """The best candidate of each ask that no filter dropped."""
        found = {piece.index: piece.reply for piece in self._pieces(asks, lambda _: True) if piece.reply}
        return [found[i] for i in range(len(asks))]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """Token by token where nothing could be taken back: one draw or none, and no filter. Else whole replies."""
        return self._pieces(asks, alive, flowing=not self.sieve.filters)

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """The log-likelihood of each candidate, of a token or in sum, as the option `score` has it."""
        talks = [talk_of(ask).said(text) for ask, texts in zip(asks, candidates, strict=True) for text in texts]
        scores = iter(log_likelihoods(self.model, talks, score=self.decoding.score))
        return [[next(scores) for _ in texts] for texts in candidates]

    def _pieces(self, asks: Sequence[Ask], alive: Callable[[int], bool], *, flowing: bool = False) -> Iterator[Piece]:
        for config, places in self._groups(asks):
            tasks, waits = [self._task(asks[i], config) for i in places], at(alive, places)
            if flowing and config.method in ("sample", "greedy"):
                pieces = flow(self.model, tasks, config, waits)
            else:
                pieces = whole(self.model, tasks, config, self.sieve, waits)
            yield from (Piece(places[p.index], p.text, p.reply) for p in pieces)

    def _groups(self, asks: Sequence[Ask]) -> list[Group[DecodingConfig]]:
        wishes = [
            {k: v for k, v in ask.options.items() if k in DecodingConfig.model_fields and v is not None} for ask in asks
        ]
        return grouped([self.options.decoding(known) if known else self.decoding for known in wishes])

    def _task(self, ask: Ask, config: DecodingConfig) -> Task:
        talk = talk_of(ask)
        settings = config.model_dump() | {"filters": self.options.filters, "fallback": self.options.fallback}
        provenance = Provenance(self.spec, self.fingerprint, settings, ask.seed, __version__)
        read = sum(len(self.model.tokenizer.encode(text)) for text in talk.texts)
        return Task(ask, talk, read, provenance)


def talk_of(ask: Ask) -> Talk:
    """The conversation as a model sees it, with every persona that is there: who asks decides what it may know."""
    return talk_as(ask.dialogue, ask.speaker)
