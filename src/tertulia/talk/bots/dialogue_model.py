"""A Hugging Face model that gets dialogues as its perplexity does: personas and turns in its template, nothing else.

The bot `hf` adds instructions for chatting. Fine-tuned models need none, and where models are judged by their
likelihoods, ranks and replies belong to the prompts that perplexity was computed on.
"""

from collections.abc import Mapping

from tertulia.core.dialogue import Json
from tertulia.core.reply import Ask
from tertulia.models.generator import DialogueView
from tertulia.models.hf.generator import ChatGenerator
from tertulia.models.likelihood import view_as
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions


class DialogueModelBot(HuggingFaceBot):
    """A Hugging Face model that gets dialogues as its perplexity does."""

    def __init__(
        self,
        generator: ChatGenerator,
        options: HuggingFaceOptions | None = None,
        *,
        spec: str = "",
        fingerprint: str | None = None,
        summary: str = "",
        engine: Mapping[str, Json] | None = None,
    ) -> None:
        super().__init__(generator, options, spec=spec, summary=summary, engine=engine)
        self.fingerprint = fingerprint

    def view(self, ask: Ask, options: HuggingFaceOptions) -> DialogueView:  # type: ignore[override]
        """The dialogue with every persona in it: whoever asks decides what the model may know."""
        return view_as(ask.dialogue, ask.speaker)
