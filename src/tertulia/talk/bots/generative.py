"""Bots that generate replies: they sample candidates, filter them, and say the best one left.

`BaseGenerativeBot` is what all of them share; a subclass loads its kind of model and lays out its prompts. Here,
`GenerativeBot` serves every architecture we train: a run's manifest says which one to load.

Decoding and filters are options of the bot. An ask may override how its own reply is decoded, never what is filtered.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Literal, Self, TypeVar

from pydantic import Field

from tertulia import __version__
from tertulia.artefacts.manifest import is_complete
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Piece, Provenance, Reply
from tertulia.models.decoding import PRESETS, DecodingConfig, Method, ScoreReduction
from tertulia.models.device import Device, resolve_device
from tertulia.models.generator import DialogueView, Generator
from tertulia.models.likelihood import log_likelihoods, view_as
from tertulia.models.loading import load_generator
from tertulia.models.threads import use_threads
from tertulia.talk.bot import BotTraits
from tertulia.talk.filters.base import ALL, make_filters
from tertulia.talk.generation import (
    FilterPolicy,
    GenerationRequest,
    GenerationSession,
    PreparedAsk,
    complete_replies,
    group_equal,
)

TRAIN = "Train one with `tertulia train RECIPE.toml --out RUN` (configs/ has recipes)."
OPERATOR_OPTIONS = frozenset(
    ("filters", "fallback", "candidates", "redraws", "shorten", "threads", "device", "engine", "prefix_cache_mb")
)
"""Options that are for whoever runs the bot, not for whoever asks it."""


class BaseGenerativeOptions(Config):
    """Options that all generative bots share; decoding options that are not given are the preset's."""

    preset: Literal["meena-base", "meena-full"] = "meena-full"
    """Meena's sample-and-rank: 20 samples from all tokens at temperature 0.88, or from the 40 best at 1."""
    fallback: str = "Sorry, I do not know what to say to that."
    """Said if every candidate is rejected for a serious reason."""
    candidates: int = Field(default=20, ge=1)
    """How many of the candidates are listed with a reply."""
    redraws: int = Field(default=2, ge=0, le=100)
    """How often samples are drawn again, as many as before, if filters reject all of them, or find none that tells what
    the partner asks for and the persona knows; 0 makes do with the first ones."""
    shorten: bool = True
    """Whether a reply that filters drop for one of its sentences is also a candidate up to the sentence before; for
    filters that judge sentences (consistent, grounded)."""
    threads: int = Field(default=0, ge=0)
    """Threads to compute with, for all models of the process; 0 takes half the cores."""
    device: Device = "auto"
    """Where to compute: cpu, cuda, mps, or auto for a GPU if there is one."""

    def with_overrides(self, overrides: Mapping[str, Json]) -> Self:
        """These options with those that one ask overrides; unknown ones and the operator's are ignored."""
        names = type(self).model_fields.keys() - OPERATOR_OPTIONS
        given = {name: value for name, value in overrides.items() if name in names and value is not None}
        if not given:
            return self
        return validate(type(self), self.model_dump(exclude_unset=True) | given, where="the options of this reply")

    def decoding(self, *, where: str = "the bot's options") -> DecodingConfig:
        """How to decode: the defaults, overridden by the options that were given."""
        names = DecodingConfig.model_fields.keys() & self.model_fields_set
        given = {name: value for name, value in self.model_dump(include=names).items() if value is not None}
        return validate(DecodingConfig, self.default_decoding() | given, where=where)

    def default_decoding(self) -> dict[str, Json]:
        """Decoding options that are used where none are given."""
        return PRESETS[self.preset].model_dump()

    def filter_spec(self, method: Method) -> str:
        """Which filters replies go through."""
        raise NotImplementedError


OptionsT = TypeVar("OptionsT", bound=BaseGenerativeOptions)


class BaseGenerativeBot(ABC, Generic[OptionsT]):
    """Generates replies with a `Generator`."""

    summary: str
    traits = BotTraits(logprobs=True)

    def __init__(
        self,
        model: Generator,
        options: OptionsT,
        *,
        spec: str,
        fingerprint: str | None = None,
        engine: Mapping[str, Json] | None = None,
    ) -> None:
        """`engine` says what computes, for the provenance of replies."""
        self.model = model
        self.engine = dict(engine or {})
        self.options = options
        self.spec, self.fingerprint = spec, fingerprint
        self.decoding = options.decoding()  # here, so that wrong options fail at once
        self._policies: dict[str, FilterPolicy] = {}
        self._filter_policy(self.decoding.method)

    @abstractmethod
    def view(self, ask: Ask, options: OptionsT) -> DialogueView:
        """What the model reads for an ask."""

    @abstractmethod
    def prompt_tokens(self, view: DialogueView) -> int:
        """How many tokens the model reads for a view."""

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """For each ask the best candidate that no filter rejects. Asks that are decoded alike form a batch."""
        prepared = [self.prepare(ask) for ask in asks]
        replies: dict[int, Reply] = {}
        for config, indices in group_equal([one.config for one in prepared]):
            batch = [prepared[i].request for i in indices]
            policy = prepared[indices[0]].policy
            replies |= zip(indices, complete_replies(self.model, batch, config, policy), strict=True)
        return [replies[i] for i in range(len(asks))]

    def open_session(self) -> GenerationSession:
        """Asks that come and go, decoded in one running batch."""
        return GenerationSession(self.model, self.prepare)

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """Token by token for single samples and greedy replies without filters; complete replies otherwise."""
        session = self.open_session()
        for i, ask in enumerate(asks):
            session.add(i, ask)
        running = set(range(len(asks)))
        while running:
            for piece in session.step():
                if piece.reply is not None:
                    running.remove(piece.index)
                yield piece
            for i in running:
                if not alive(i):
                    session.cancel(i)

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """The log-likelihood of each candidate, per token or in sum, as the option `score` says."""
        views = [self.view(ask, self.options.with_overrides(ask.options)) for ask in asks]
        return self.log_likelihoods(
            [[view.with_turn(text) for text in texts] for view, texts in zip(views, candidates, strict=True)]
        )

    def log_likelihoods(self, views: Sequence[Sequence[DialogueView]]) -> list[list[float]]:
        """Of the last turn of each view; views of one ask have the same context."""
        flat = [view for group in views for view in group]
        scores = iter(log_likelihoods(self.model, flat, score=self.decoding.score))
        return [[next(scores) for _ in group] for group in views]

    def prepare(self, ask: Ask) -> PreparedAsk:
        """What the model reads for an ask, and how its reply is decoded and filtered."""
        options = self.options.with_overrides(ask.options)
        view, config = self.view(ask, options), self.decoding
        if options is not self.options:
            config = options.decoding(where="the options of this reply")
        config = self.limit_length(config, view)
        request = GenerationRequest(ask, view, self.prompt_tokens(view), self._provenance(ask, options, config))
        return PreparedAsk(request, config, self._filter_policy(config.method))

    def limit_length(self, config: DecodingConfig, view: DialogueView) -> DecodingConfig:
        """The config with the longest reply that fits after a prompt; any length, if the model has no window."""
        return config

    def _filter_policy(self, method: Method) -> FilterPolicy:
        spec = self.options.filter_spec(method)
        if spec not in self._policies:
            own = self.options
            self._policies[spec] = FilterPolicy(
                make_filters(spec), own.fallback, own.candidates, own.redraws, own.shorten
            )
        return self._policies[spec]

    def _provenance(self, ask: Ask, options: OptionsT, config: DecodingConfig) -> Provenance:
        options_used = options.model_dump(exclude={"threads", "device", "prefix_cache_mb"})
        settings = options_used | config.model_dump() | self.engine
        settings["filters"] = self.options.filter_spec(config.method)
        return Provenance(self.spec, self.fingerprint, settings, ask.seed, __version__)


class GenerativeOptions(BaseGenerativeOptions):
    """How it decodes and what it does not say; options that are not given are the preset's."""

    method: Method | None = None
    """`sample` (one sample), `greedy`, `beam`, or `sample-and-rank`."""
    temperature: float | None = Field(default=None, ge=0, le=10)
    """Lower is more predictable; 0 takes the most probable token."""
    top_k: int | None = Field(default=None, ge=0)
    """Sample from this many most probable tokens; 0 for the full vocabulary."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Sample from the most probable tokens that together have this probability."""
    repetition_penalty: float | None = Field(default=None, ge=1, le=3)
    """Above 1, tokens that are already in the reply become less likely; beam search ignores it."""
    samples: int | None = Field(default=None, ge=1, le=10_000)
    """How many turns sample-and-rank draws."""
    beams: int | None = Field(default=None, ge=1, le=1000)
    """Width of beam search."""
    length_penalty: float | None = Field(default=None, ge=0, le=4)
    """Beam search ranks by log P / length ** this."""
    score: ScoreReduction | None = None
    """Rank candidates, and given replies, by log-probability per token (`mean`) or in `sum`."""
    min_tokens: int | None = Field(default=None, ge=0)
    """A reply does not end before it has this many tokens."""
    max_tokens: int | None = Field(default=None, ge=1, le=4096)
    """Most tokens of a reply."""
    unknown: bool | None = None
    """Whether the token for unknown words may be generated."""
    filters: str = ALL
    """Which filters reject candidates: names separated by commas, parameters after colons
    (`empty,too-long:max_words=30`)."""

    def filter_spec(self, method: Method) -> str:
        """The same for every method."""
        return self.filters


class GenerativeBot(BaseGenerativeBot[GenerativeOptions]):
    """Generates with a model that we trained."""

    Options: ClassVar[type[Config]] = GenerativeOptions
    target_help: ClassVar[str] = "the folder of a training run"
    summary = "Generates with a trained model: samples candidates, filters them, says the most probable one left."

    def __init__(
        self,
        model: Generator,
        options: GenerativeOptions | None = None,
        *,
        spec: str = "generator",
        fingerprint: str | None = None,
    ) -> None:
        super().__init__(model, options or GenerativeOptions(), spec=spec, fingerprint=fingerprint)

    @classmethod
    def build(cls, target: str, options: GenerativeOptions, /) -> Self:
        """From the folder of a training run, whose manifest names the model and verifies its files."""
        if not target:
            raise UsageError("A generative bot needs the folder of a training run after its name.", hint=TRAIN)
        if not is_complete(Path(target)):
            raise UsageError(f"{target} is not the folder of a finished training run.", hint=TRAIN)
        use_threads(options.threads)
        model, manifest = load_generator(Path(target), device=resolve_device(options.device))
        return cls(model, options, spec=f"{manifest.bot}:{target}", fingerprint=manifest.fingerprint)

    def view(self, ask: Ask, options: GenerativeOptions) -> DialogueView:
        """The dialogue with every persona in it: whoever asks decides what the model may know."""
        return view_of(ask)

    def prompt_tokens(self, view: DialogueView) -> int:
        """Tokens of all texts, special tokens aside."""
        return sum(len(self.model.tokenizer.encode(text)) for text in view.texts)


def view_of(ask: Ask) -> DialogueView:
    """The dialogue as its speaker sees it, with every persona in it."""
    return view_as(ask.dialogue, ask.speaker)
