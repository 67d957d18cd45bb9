"""A Hugging Face chat model as a bot: the persona goes into the system turn, the dialogue into the chat template."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Self

from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask, Piece, Provenance, Reply, Usage
from tertulia.models.huggingface import ChatModel, Sampling
from tertulia.models.threads import use_threads
from tertulia.talk.chat import chat_messages


class HuggingFaceOptions(Config):
    """How it writes; an ask may override each of them for its own reply."""

    temperature: float = Field(0.7, ge=0, le=2)
    """0 always takes the most probable word."""
    top_p: float = Field(0.9, gt=0, le=1)
    """Draw from the most probable words that together have this probability."""
    top_k: int = Field(0, ge=0)
    """Draw from this many most probable words; 0 for all."""
    repetition_penalty: float = Field(1.1, ge=1, le=3)
    """Above 1: words the reply has used already become less likely."""
    max_tokens: int = Field(80, ge=1, le=4096)
    """Longest reply, in tokens."""
    context_tokens: int = Field(1024, ge=16)
    """Longest conversation read, in tokens; the oldest turns are left out first."""
    threads: int = Field(0, ge=0)
    """Threads to compute with, for all models of the process; 0 takes half the cores."""
    instructions: str = "Keep your answers short and friendly, one or two sentences, as in a chat."
    """Added to the persona in the system turn."""


class HuggingFaceBot:
    """Writes with a causal chat model."""

    Options: ClassVar[type[Config]] = HuggingFaceOptions
    target_help: ClassVar[str] = "a folder with a model, or its name on the Hugging Face hub"
    summary = "A Hugging Face chat model."

    def __init__(
        self, model: ChatModel, options: HuggingFaceOptions | None = None, *, spec: str = "", summary: str = ""
    ) -> None:
        self.model = model
        self.options = options or HuggingFaceOptions()
        self.spec = spec or f"hf:{model.name}"
        self.summary = summary or f"The chat model {model.name}."

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
        """All replies side by side, each word as it comes."""
        if not asks:
            return
        rows = [_Row(self, ask) for ask in asks]
        steps = self.model.write(
            [r.prompt for r in rows], [r.sampling for r in rows], lambda i: alive(i) and not rows[i].stopped
        )
        for step in steps:
            row = rows[step.row]
            if step.token is not None and (text := row.add(step.token)):
                yield Piece(step.row, text)
            if step.finish is not None:
                rest, reply = row.finish(step.finish)
                yield Piece(step.row, rest, reply)


class _Row:
    """One reply in the making."""

    def __init__(self, bot: HuggingFaceBot, ask: Ask) -> None:
        self.start = time.perf_counter()
        known = {k: v for k, v in ask.options.items() if k in HuggingFaceOptions.model_fields and v is not None}
        self.options = validate(HuggingFaceOptions, bot.options.model_dump() | known, where="the options of this reply")
        self.stops = tuple(s for s in _as_list(ask.options.get("stop")) if s)
        self.bot, self.ask = bot, ask
        self.prompt = fitting_prompt(bot.model, ask, self.options)
        o = self.options
        room = max(1, min(o.max_tokens, bot.model.window - len(self.prompt)))
        self.sampling = Sampling(o.temperature, o.top_p, o.top_k, o.repetition_penalty, room, ask.seed)
        self.tokens: list[int] = []
        self.sent = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Take a token; give back the new text that is safe to show: no half character, no beginning of a stop."""
        self.tokens.append(token)
        text = self._text()
        if text.endswith("\ufffd") or any(text.endswith(s[:n]) for s in self.stops for n in range(1, len(s))):
            return ""
        return self._unsent(text)

    def finish(self, why: str) -> tuple[str, Reply]:
        """The text not sent yet, and the whole reply."""
        text = self._text().rstrip()
        rest = self._unsent(text)
        provenance = Provenance(self.bot.spec, None, self.options.model_dump(), self.ask.seed, __version__)
        return rest, Reply(
            text,
            provenance,
            seconds=time.perf_counter() - self.start,
            finish="stop" if self.stopped else why,  # type: ignore[arg-type]
            usage=Usage(len(self.prompt), len(self.tokens)),
        )

    def _unsent(self, text: str) -> str:
        """What is new; blanks at the end wait for what follows them, as a reply does not end in blanks."""
        new = text.rstrip()[len(self.sent) :]
        self.sent += new
        return new

    def _text(self) -> str:
        text = self.bot.model.decode(self.tokens).lstrip()
        cuts = [at for s in self.stops if (at := text.find(s)) >= 0]
        if cuts:
            self.stopped = True
            return text[: min(cuts)]
        return text


def fitting_prompt(model: ChatModel, ask: Ask, options: HuggingFaceOptions) -> list[int]:
    """The prompt, without its oldest turns where the conversation is longer than the model may read."""
    room = min(options.context_tokens, max(model.window - options.max_tokens, model.window // 2))
    turns = ask.dialogue.turns
    while True:
        dialogue = Dialogue(ask.dialogue.id, turns, ask.dialogue.personas, meta=ask.dialogue.meta)
        prompt = model.prompt(chat_messages(dialogue, ask.speaker, options.instructions))
        if len(prompt) <= room or len(turns) <= 1:
            return prompt[-max(room, 1) :]
        turns = turns[2:] if len(turns) > 2 and turns[1].speaker == ask.speaker else turns[1:]


def _as_list(value: Json) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(v) for v in value]
