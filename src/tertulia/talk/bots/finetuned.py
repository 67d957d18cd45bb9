"""Bots that read a dialogue as language models are fine-tuned on it: personas and turns in the template, nothing else.

`FinetunedBot` serves the runs of the recipe `finetune`. `DialogueModelBot` is what it shares with any Hugging Face
model that is to be judged by its likelihoods: prompts are those of its perplexity, without instructions.
"""

from pathlib import Path
from typing import ClassVar, Self

from tertulia.artefacts.manifest import is_complete
from tertulia.core.config import Config
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask
from tertulia.models.checkpoint import read_manifest
from tertulia.models.device import resolve_device
from tertulia.models.generator import DialogueView
from tertulia.models.hf.finetuned import FinetunedGenerator
from tertulia.models.hf.generator import HuggingFaceGenerator
from tertulia.models.likelihood import view_as
from tertulia.models.threads import use_threads
from tertulia.talk.bots.generative import TRAIN
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions


class DialogueModelBot(HuggingFaceBot):
    """A Hugging Face model that gets dialogues as its perplexity does."""

    def __init__(
        self,
        generator: HuggingFaceGenerator,
        options: HuggingFaceOptions | None = None,
        *,
        spec: str = "",
        fingerprint: str | None = None,
    ) -> None:
        super().__init__(generator.chat, options, spec=spec)
        self.generator = self.model = generator
        self.fingerprint = fingerprint

    def view(self, ask: Ask, options: HuggingFaceOptions) -> DialogueView:  # type: ignore[override]
        """The dialogue with every persona in it: whoever asks decides what the model may know."""
        return view_as(ask.dialogue, ask.speaker)


class FinetunedOptions(HuggingFaceOptions):
    """How it decodes. `instructions` and `context_tokens` have no effect: prompts are laid out as in training."""

    base: str = ""
    """Where the base is, if not where it was in training: a folder, or a name on the hub."""


class FinetunedBot(DialogueModelBot):
    """Generates with a language model of one's own."""

    Options: ClassVar[type[Config]] = FinetunedOptions
    target_help: ClassVar[str] = "the folder of a training run"
    summary = "A language model fine-tuned on dialogues."

    @classmethod
    def build(cls, target: str, options: HuggingFaceOptions, /) -> Self:
        """From the folder of a run, whose base is loaded and verified, too."""
        if not target or not is_complete(Path(target)):
            problem = f"{target} is not the folder of a finished training run." if target else "No folder was given."
            raise UsageError(problem, hint=TRAIN)
        use_threads(options.threads)
        manifest = read_manifest(Path(target))
        base = options.base if isinstance(options, FinetunedOptions) else ""
        model = FinetunedGenerator.load(Path(target), base=base).to(resolve_device(options.device))
        return cls(model, options, spec=f"{manifest.bot}:{target}", fingerprint=manifest.fingerprint)
