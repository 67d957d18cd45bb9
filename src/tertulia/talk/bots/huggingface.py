"""A Hugging Face model as a bot: the persona goes into the system turn, the dialogue into the chat template.

By itself it draws one reply and shows each word as it comes, as people expect of a chat model. Told to, it writes as
our own models do: sample-and-rank, greedy or beam search, over the model's own probabilities, with the same filters and
the same account of what was not said (`tertulia.talk.bots.writing`). Models without a chat template (DialoGPT,
BlenderBot) have no system turn: they get the turns alone, and BlenderBot's kind the persona's sentences.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Finish, Piece, Provenance, Reply, Usage
from tertulia.models.decoding import PRESETS, DecodingConfig, Method, Score
from tertulia.models.hf_writer import HuggingFaceWriter, Prompt
from tertulia.models.huggingface import ChatModel, Sampling
from tertulia.models.likelihood import talk_as
from tertulia.models.threads import use_threads
from tertulia.talk.bots.writing import Draft, Sieve, Task, at, begins_to_stop, flow, grouped, seed_of, settled, stops_of
from tertulia.talk.bots.writing import whole as whole_replies
from tertulia.talk.chat import chat_messages
from tertulia.talk.filters.table import ALL, NONE, make_filters

OPERATORS = frozenset(("filters", "fallback", "candidates", "threads"))
"""Options that whoever runs the bot decides on, not whoever asks it."""


class HuggingFaceOptions(Config):
    """How it writes; an ask may override how its own reply is written, not what must not be said."""

    method: Method = "sample"
    """`sample` (one draw, shown word by word), `greedy`, `beam`, or `sample-and-rank` (several draws, of which the one
    that the model finds most probable is said)."""
    preset: Literal["meena-base", "meena-full"] = "meena-full"
    """For sample-and-rank: Meena's 20 samples of all tokens at temperature 0.88, or of the best 40 at 1. Temperature,
    top_k, top_p and samples are as in the preset where they are not given."""
    temperature: float = Field(0.7, ge=0, le=2)
    """0 always takes the most probable word."""
    top_p: float = Field(0.9, gt=0, le=1)
    """Draw from the most probable words that together have this probability."""
    top_k: int = Field(0, ge=0)
    """Draw from this many most probable words; 0 for all."""
    repetition_penalty: float = Field(1.1, ge=1, le=3)
    """Above 1: words the reply has used already become less likely. For `sample` alone: the others go by the model's
    own probabilities."""
    samples: int = Field(20, ge=1, le=10_000)
    """How many replies sample-and-rank draws."""
    beams: int = Field(4, ge=1, le=1000)
    """How many beginnings beam search follows."""
    length_penalty: float = Field(1.0, ge=0, le=4)
    """Beam search compares log P / length ** this."""
    score: Score = "mean"
    """Candidates compare by log P a token (`mean`) or in `sum`; given replies are ranked by the same."""
    min_tokens: int = Field(1, ge=0)
    """A reply does not end before it has so many tokens; not for `sample`."""
    max_tokens: int = Field(80, ge=1, le=4096)
    """Longest reply, in tokens."""
    filters: str | None = None
    """What drops candidates: names with commas between, parameters behind colons (`empty,too-long:max_words=30`).
    Not given: all for beam and sample-and-rank; none for `sample` and `greedy`, so that words can be shown as they
    come."""
    fallback: str = "Sorry, I do not know what to say to that."
    """Said where no candidate may be."""
    candidates: int = Field(20, ge=1)
    """How many of the candidates are listed with a reply."""
    context_tokens: int = Field(1024, ge=16)
    """Longest conversation read, in tokens; the oldest turns are left out first."""
    threads: int = Field(0, ge=0)
    """Threads to compute with, for all models of the process; 0 takes half the cores."""
    instructions: str = "Keep your answers short and friendly, one or two sentences, as in a chat."
    """Added to the persona in the system turn."""

    def wished(self, ask: Ask) -> Self:
        """With the wishes of one ask."""
        known = {k: v for k, v in ask.options.items() if k in type(self).model_fields and v is not None}
        wishes = {k: v for k, v in known.items() if k not in OPERATORS}
        return validate(type(self), self.model_dump(exclude_unset=True) | wishes, where="the options of this reply")

    def decoding(self) -> DecodingConfig:
        """How to write, other than by one draw."""
        given = {name: getattr(self, name) for name in DecodingConfig.model_fields if name in self.model_fields_set}
        own = {"method": self.method, "max_tokens": self.max_tokens} | given
        return validate(DecodingConfig, PRESETS[self.preset].model_dump() | own, where="the bot's options")

    def filtering(self) -> str:
        """Which filters, as the option has it."""
        if self.filters is not None:
            return self.filters
        return NONE if self.method in ("sample", "greedy") else ALL


class HuggingFaceBot:
    """Writes with a Hugging Face model."""

    Options: ClassVar[type[Config]] = HuggingFaceOptions
    target_help: ClassVar[str] = "a folder with a model, or its name on the Hugging Face hub"
    summary = "A Hugging Face chat model."

    def __init__(
        self, model: ChatModel, options: HuggingFaceOptions | None = None, *, spec: str = "", summary: str = ""
    ) -> None:
        self.model = model
        self.writer = HuggingFaceWriter(model)
        self.options = options or HuggingFaceOptions()
        self.spec = spec or f"hf:{model.name}"
        self.summary = summary or f"The chat model {model.name}."
        self._sieves: dict[str, Sieve] = {}
        self._sieve(self.options)  # so that wrong options fail at once
        self.options.decoding()

    @classmethod
    def build(cls, target: str, options: HuggingFaceOptions, /) -> Self:
        """Load the model now, so that a wrong name fails at once."""
        if not target:
            raise UsageError("The bot 'hf' needs a model.", hint="For example: hf:path/to/folder or hf:owner/model.")
        use_threads(options.threads)
        return cls(ChatModel.load(target), options)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """Whole replies: the stream, waited for."""
        replies = {p.index: p.reply for p in self.stream(asks, alive=lambda _: True) if p.reply}
        return [replies[i] for i in range(len(asks))]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """Replies that are written in the same way side by side; word by word where nothing could be taken back."""
        plans = [self._plan(ask) for ask in asks]
        for config, places in grouped([plan.config for plan in plans]):
            part, waits = [plans[i] for i in places], at(alive, places)
            tasks, sieve = [plan.task for plan in part], self._sieve(part[0].options)
            if config is None:
                pieces = self._drawn(part, sieve, waits)
            elif config.method == "greedy" and not sieve.filters:
                pieces = flow(self.writer, tasks, config, waits)
            else:
                pieces = whole_replies(self.writer, tasks, config, sieve, waits)
            yield from (Piece(places[p.index], p.text, p.reply) for p in pieces)

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """The log-likelihood of each candidate, of a token or in sum, as the option `score` has it."""
        found = []
        for ask, texts in zip(asks, candidates, strict=True):
            talk = self._plan(ask).task.talk
            nll = self.writer.nll([talk.said(text) for text in texts], scored="last")
            counts = nll.tokens.clamp(min=1) if self.options.score == "mean" else 1
            found.append([float(value) for value in -nll.total / counts])
        return found

    def _plan(self, ask: Ask) -> "_Plan":
        options = self.options.wished(ask)
        prompt = fitting_prompt(self.model, ask, options)
        talk = Prompt((), (), tokens=tuple(prompt))
        most = self.model.most(len(prompt))
        config, settings = None, options.model_dump()
        if options.method != "sample":
            config = options.decoding()
            if config.max_tokens > most:
                config = config.model_copy(update={"max_tokens": most, "min_tokens": min(config.min_tokens, most)})
            settings |= config.model_dump() | {"filters": options.filtering()}
        provenance = Provenance(self.spec, None, settings, ask.seed, __version__)
        return _Plan(options, config, min(options.max_tokens, most), Task(ask, talk, len(prompt), provenance))

    def _sieve(self, options: HuggingFaceOptions) -> Sieve:
        text = options.filtering()
        if text not in self._sieves:
            self._sieves[text] = Sieve(make_filters(text), options.fallback, options.candidates)
        return self._sieves[text]

    def _drawn(self, plans: Sequence["_Plan"], sieve: Sieve, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """One draw each, all side by side: each word as it comes, or the whole reply where filters look at it first."""
        rows = [_Row(self.model, plan) for plan in plans]
        prompts, sampling = [row.prompt for row in rows], [row.sampling for row in rows]
        for step in self.model.write(prompts, sampling, lambda i: alive(i) and not rows[i].stopped):
            row = rows[step.row]
            if step.token is not None and (text := row.add(step.token)) and not sieve.filters:
                yield Piece(step.row, text)
            if step.finish is None:
                continue
            rest, reply = row.finish(step.finish)
            if sieve.filters:
                drafts = [Draft(reply.text, None, reply.finish == "stop", len(row.tokens))]
                gone = reply.finish == "cancelled"
                reply = settled(plans[step.row].task, [] if gone else drafts, sieve, reply.seconds)
                rest = reply.text
            yield Piece(step.row, rest, reply)


class _Plan(NamedTuple):
    """How one ask is answered."""

    options: HuggingFaceOptions
    config: DecodingConfig | None
    """None for a single draw."""
    most: int
    """Longest reply that there is room for, in tokens."""
    task: Task


class _Row:
    """One drawn reply in the making."""

    def __init__(self, model: ChatModel, plan: _Plan) -> None:
        self.start = time.perf_counter()
        self.model, self.task, o = model, plan.task, plan.options
        self.stops = stops_of(plan.task.ask)
        self.prompt = plan.task.talk.tokens if isinstance(plan.task.talk, Prompt) else ()
        seed = seed_of(plan.task.ask, True)
        self.sampling = Sampling(o.temperature, o.top_p, o.top_k, o.repetition_penalty, plan.most, seed)
        self.tokens: list[int] = []
        self.sent = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Take a token; give back the new text that is safe to show: no half character, no beginning of a stop."""
        self.tokens.append(token)
        text = self._text()
        if text.endswith("\ufffd") or begins_to_stop(text, self.stops):
            return ""
        return self._unsent(text)

    def finish(self, why: Finish) -> tuple[str, Reply]:
        """The text not sent yet, and the whole reply."""
        text = self._text().rstrip()
        rest = self._unsent(text)
        return rest, Reply(
            text,
            self.task.provenance,
            seconds=time.perf_counter() - self.start,
            finish="stop" if self.stopped else why,
            usage=Usage(self.task.read, len(self.tokens)),
        )

    def _unsent(self, text: str) -> str:
        """What is new; blanks at the end wait for what follows them, as a reply does not end in blanks."""
        new = text.rstrip()[len(self.sent) :]
        self.sent += new
        return new

    def _text(self) -> str:
        text = self.model.decode(self.tokens).lstrip()
        cuts = [at for s in self.stops if (at := text.find(s)) >= 0]
        if cuts:
            self.stopped = True
            return text[: min(cuts)]
        return text


def fitting_prompt(model: ChatModel, ask: Ask, options: HuggingFaceOptions) -> list[int]:
    """The prompt, without its oldest turns where the conversation is longer than the model may read."""
    room = min(options.context_tokens, model.room(options.max_tokens))
    known = talk_as(ask.dialogue, ask.speaker)
    turns = ask.dialogue.turns
    while True:
        dialogue = Dialogue(ask.dialogue.id, turns, ask.dialogue.personas, meta=ask.dialogue.meta)
        messages = chat_messages(dialogue, ask.speaker, options.instructions)
        prompt = model.prompt(messages, persona=known.persona, partner=known.partner)
        if len(prompt) <= room or len(turns) <= 1:
            return prompt[-max(room, 1) :]
        turns = turns[2:] if len(turns) > 2 and turns[1].speaker == ask.speaker else turns[1:]
