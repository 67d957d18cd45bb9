"""A Hugging Face model as a bot: the persona goes into the system turn, the dialogue into the chat template.

By default it samples one reply and streams it, as people expect of a chat model. Other methods (sample-and-rank,
greedy, beam search), filters and scores work as for our own models: decoding is the same code. Models without a chat
template (DialoGPT, BlenderBot) have no system turn: they get the turns alone, BlenderBot the persona's sentences too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Json, Turn
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask
from tertulia.models.decoding import PRESETS, DecodingConfig, Method, ScoreReduction
from tertulia.models.device import resolve_device
from tertulia.models.generator import DialogueView
from tertulia.models.hf.chat_format import ChatFormat
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.finetuned import digest_of
from tertulia.models.hf.generator import ChatGenerator, HuggingFaceGenerator, Prompt
from tertulia.models.likelihood import view_as
from tertulia.models.threads import use_threads
from tertulia.talk.bot import BotTraits
from tertulia.talk.bots.generative import BaseGenerativeBot, BaseGenerativeOptions
from tertulia.talk.chat import EVIDENCE_WORDS, chat_messages
from tertulia.talk.filters.base import ALL, NONE


class HuggingFaceOptions(BaseGenerativeOptions):
    """How it decodes. The defaults of temperature, top_k, top_p and repetition_penalty are for `sample`; with the other
    methods, they are the preset's where they are not given."""

    method: Method = "sample"
    """`sample` (one sample, streamed), `greedy`, `beam`, or `sample-and-rank` (several samples, of which the most
    probable one is used)."""
    temperature: float = Field(default=0.7, ge=0, le=2)
    """Lower is more predictable; 0 takes the most probable token."""
    top_p: float = Field(default=0.9, gt=0, le=1)
    """Sample from the most probable tokens that together have this probability."""
    top_k: int = Field(default=0, ge=0)
    """Sample from this many most probable tokens; 0 for the full vocabulary."""
    repetition_penalty: float = Field(default=1.1, ge=1, le=3)
    """Above 1, tokens that are already in the reply become less likely; beam search ignores it."""
    samples: int = Field(default=20, ge=1, le=10_000)
    """How many replies sample-and-rank draws."""
    beams: int = Field(default=4, ge=1, le=1000)
    """Width of beam search."""
    length_penalty: float = Field(default=1.0, ge=0, le=4)
    """Beam search ranks by log P / length ** this."""
    score: ScoreReduction = "mean"
    """Rank candidates, and given replies, by log-probability per token (`mean`) or in `sum`."""
    min_tokens: int = Field(default=1, ge=0)
    """A reply does not end before it has this many tokens."""
    max_tokens: int = Field(default=80, ge=1, le=4096)
    """Most tokens of a reply."""
    filters: str | None = None
    """Which filters reject candidates: names separated by commas, parameters after colons
    (`empty,too-long:max_words=30`). Default: all for beam and sample-and-rank; none for `sample` and `greedy`, so that
    replies can be streamed."""
    context_tokens: int = Field(default=1024, ge=16)
    """Longest prompt, in tokens; the oldest turns are dropped first."""
    instructions: str = "Keep your answers short and friendly, one or two sentences, as in a chat."
    """Added to the persona in the system turn."""
    prefix_cache_mb: int = Field(default=256, ge=0)
    """Memory for what was computed for prompts, in MB: the next turn of a conversation does not compute it again. 0 for
    none."""
    evidence_words: int = Field(default=EVIDENCE_WORDS, ge=0)
    """Most words of evidence at the end of the system turn, the rest is cut off; 0 for a bot that ignores evidence."""

    def default_decoding(self) -> dict[str, Json]:
        """The class's own defaults for `sample`; the preset's, but for the length, for the other methods."""
        if self.method == "sample":
            return self.model_dump(include=set(DecodingConfig.model_fields))
        return PRESETS[self.preset].model_dump() | {"method": self.method, "max_tokens": self.max_tokens}

    def filter_spec(self, method: Method) -> str:
        """By default none where replies are streamed."""
        if self.filters is not None:
            return self.filters
        return NONE if method in ("sample", "greedy") else ALL


class HuggingFaceBot(BaseGenerativeBot[HuggingFaceOptions]):
    """Generates with a Hugging Face model."""

    Options: ClassVar[type[Config]] = HuggingFaceOptions
    target_help: ClassVar[str] = "a folder with a model, or its name on the Hugging Face hub"
    summary = "A Hugging Face chat model."

    def __init__(
        self,
        model: ChatModel | ChatGenerator,
        options: HuggingFaceOptions | None = None,
        *,
        spec: str = "",
        summary: str = "",
        engine: Mapping[str, Json] | None = None,
    ) -> None:
        """A chat model in torch, or a generator, whose logits any engine computes; `engine` is for the provenance."""
        self.generator = model if isinstance(model, ChatGenerator) else HuggingFaceGenerator(model)
        self.chat = chat = self.generator.chat
        super().__init__(self.generator, options or HuggingFaceOptions(), spec=spec or f"hf:{chat.name}", engine=engine)
        if isinstance(chat, ChatModel):
            chat.lm.keep_prefixes(self.options.prefix_cache_mb * 2**20)
        self.summary = summary or f"The chat model {Path(chat.name).name}."  # visitors see it: no folder
        has_system_turn = bool(chat.tokenizer.chat_template)
        self.traits = BotTraits(logprobs=True, reads_evidence=has_system_turn and self.options.evidence_words > 0)

    @classmethod
    def build(cls, target: str, options: HuggingFaceOptions, /) -> Self:
        """Load the model now, so that a wrong name fails at once."""
        if not target:
            raise UsageError("The bot 'hf' needs a model.", hint="For example: hf:path/to/folder or hf:owner/model.")
        use_threads(options.threads)
        return cls(ChatModel.load(target, device=resolve_device(options.device)), options)

    def weights_digest(self) -> str:
        """The digest of the weights, for verdicts; empty if another engine than torch has them."""
        return digest_of(self.chat) if isinstance(self.chat, ChatModel) else ""

    def view(self, ask: Ask, options: HuggingFaceOptions) -> Prompt:
        """The laid-out prompt."""
        return Prompt((), (), tokens=tuple(fit_prompt(self.chat, ask, options)))

    def prompt_tokens(self, view: DialogueView) -> int:
        """Tokens of the prompt, special tokens included."""
        return len(self.generator.prompt(view))

    def limit_length(self, config: DecodingConfig, view: DialogueView) -> DecodingConfig:
        """The window holds prompt and reply, or the reply alone where an encoder reads the prompt."""
        limit = self.chat.max_reply_tokens(self.prompt_tokens(view))
        if config.max_tokens <= limit:
            return config
        return config.model_copy(update={"max_tokens": limit, "min_tokens": min(config.min_tokens, limit)})

    def log_likelihoods(self, views: Sequence[Sequence[DialogueView]]) -> list[list[float]]:
        """One pass for each ask: `nll` encodes its prompt once, and scores all replies side by side."""
        scores = []
        for group in views:
            nll = self.generator.nll(group, target_turns="last")
            counts = nll.tokens.clamp(min=1) if self.decoding.score == "mean" else 1
            scores.append([float(value) for value in -nll.total / counts])
        return scores


def fit_prompt(chat: ChatFormat, ask: Ask, options: HuggingFaceOptions) -> list[int]:
    """The prompt, without its oldest turns where the conversation is too long for the model.

    Evidence gets at most half of the room: in some scripts 300 words are far more tokens than in English.
    """
    limit = min(options.context_tokens, chat.max_prompt_tokens(options.max_tokens))
    turns, evidence_words = ask.dialogue.turns, options.evidence_words
    while ask.dialogue.evidence and evidence_words:
        if len(_prompt(chat, ask, turns[-1:], options, evidence_words)) <= limit // 2:
            break
        evidence_words //= 2
    while True:
        prompt = _prompt(chat, ask, turns, options, evidence_words)
        if len(prompt) <= limit or len(turns) <= 1:
            return prompt[-max(limit, 1) :]
        # Drop a pair of turns if the second is the bot's: many templates want the user's turn first.
        turns = turns[2:] if len(turns) > 2 and turns[1].speaker == ask.speaker else turns[1:]


def _prompt(
    chat: ChatFormat, ask: Ask, turns: tuple[Turn, ...], options: HuggingFaceOptions, evidence_words: int
) -> list[int]:
    dialogue, view = replace(ask.dialogue, turns=turns), view_as(ask.dialogue, ask.speaker)
    messages = chat_messages(dialogue, ask.speaker, options.instructions, evidence_words=evidence_words)
    return chat.prompt(messages, persona=view.persona, partner=view.partner)
