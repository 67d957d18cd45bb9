"""The bot to talk to when no other is given: SmolLM2 with an adapter that comes with Tertulia, and a character.

The adapter is a fine-tuned run like any other (`talk/companion/adapter`, made by configs/sample-companion.toml and
`tertulia export --adapter`). In a conversation that gives the bot no persona, it is the character of
`talk/companion/persona.json`, so that it knows who it is, and the filter `consistent` has something to compare with.
"""

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field

from tertulia.core.codec import persona_from_json
from tertulia.core.config import Config
from tertulia.core.dialogue import Json, Persona
from tertulia.core.reply import Ask
from tertulia.models.decoding import DecodingConfig, Method
from tertulia.models.generator import DialogueView
from tertulia.talk.bots.finetuned import FinetunedBot, FinetunedOptions
from tertulia.talk.bots.huggingface import HuggingFaceOptions
from tertulia.talk.filters.base import NONE
from tertulia.talk.generation import PreparedAsk

FILTERS = "empty,too-long:max_words=40,cross-turn,in-turn,consistent,safety"
"""What its candidates go through by default."""


class CompanionOptions(FinetunedOptions):
    """How it decodes, with defaults of its own: `preset` has no effect, nor have `instructions` and `context_tokens`,
    as prompts are laid out as in training."""

    method: Method = "sample-and-rank"
    """`sample-and-rank` (several samples, of which the most probable one that no filter drops is used), `sample` (one
    sample, streamed), `greedy`, or `beam`."""
    samples: int = Field(default=5, ge=1, le=10_000)
    """How many replies sample-and-rank draws."""
    temperature: float = Field(default=0.5, ge=0, le=2)
    """Lower is more predictable and truer to the persona; 0 takes the most probable token."""
    max_tokens: int = Field(default=48, ge=1, le=4096)
    """Most tokens of a reply."""
    filters: str | None = None
    """Which filters reject candidates: names separated by commas, parameters after colons. Default: all that keep it in
    character and to the point for beam and sample-and-rank; none for `sample` and `greedy`, so that replies can be
    streamed."""

    def default_decoding(self) -> dict[str, Json]:
        """The class's own defaults, for every method."""
        return self.model_dump(include=set(DecodingConfig.model_fields))

    def filter_spec(self, method: Method) -> str:
        """By default all that help it to stay in character, and none where replies are streamed."""
        if self.filters is not None:
            return self.filters
        return NONE if method in ("sample", "greedy") else FILTERS


class CompanionBot(FinetunedBot):
    """The fine-tuned run that comes with Tertulia."""

    Options: ClassVar[type[Config]] = CompanionOptions
    target_help: ClassVar[str] = ""

    @classmethod
    def build(cls, target: str, options: FinetunedOptions, /) -> Self:  # type: ignore[override]
        """From the packaged adapter; its files and its base are verified as those of every run."""
        bot = super().build(str(adapter_folder()), options)
        bot.spec = "companion"
        bot.summary = f"{default_persona().name}, who runs a café: a small language model fine-tuned on dialogues."
        return bot

    def prepare(self, ask: Ask) -> PreparedAsk:
        """With its own persona if the conversation gives it none; filters see it, too."""
        return super().prepare(in_character(ask))

    def view(self, ask: Ask, options: HuggingFaceOptions) -> DialogueView:  # type: ignore[override]
        """The dialogue as in training, where every speaker had a persona."""
        return super().view(in_character(ask), options)


def in_character(ask: Ask) -> Ask:
    """The ask, with the default persona if its speaker has none.

    >>> from tertulia.core.dialogue import Dialogue
    >>> in_character(Ask(Dialogue("d", ()))).dialogue.personas["bot"].sentences[0]
    'My name is Nuria.'
    """
    persona = ask.dialogue.persona_of(ask.speaker)
    if persona is not None and persona.sentences:
        return ask
    personas = {**ask.dialogue.personas, ask.speaker: default_persona()}
    return replace(ask, dialogue=replace(ask.dialogue, personas=personas))


@cache
def default_persona() -> Persona:
    """Who the bot is in a conversation that does not say."""
    return persona_from_json(json.loads((files("tertulia.talk") / "companion" / "persona.json").read_text("utf-8")))


def adapter_folder() -> Path:
    """The folder of the packaged run."""
    return Path(str(files("tertulia.talk") / "companion" / "adapter"))
