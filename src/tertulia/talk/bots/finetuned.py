"""Language models of one's own: the bot of the recipe `finetune`.

It reads a dialogue as it did in training, with the adapters merged into the base. By default it samples one reply and
streams it, like every chat model; decoding and filters are options.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from tertulia.artefacts.manifest import is_complete
from tertulia.core.config import Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.models.checkpoint import read_manifest
from tertulia.models.device import dtype_for, resolve_device
from tertulia.models.hf.finetuned import FinetunedGenerator
from tertulia.models.hf.generator import ChatGenerator
from tertulia.models.llamacpp.generator import load_finetuned, why_not
from tertulia.models.threads import use_threads
from tertulia.talk.bots.dialogue_model import DialogueModelBot
from tertulia.talk.bots.engine import EngineOptions, engine_config, torch_provenance, use_llamacpp
from tertulia.talk.bots.generative import TRAIN


class FinetunedOptions(EngineOptions):
    """How it decodes. `instructions` and `context_tokens` have no effect: prompts are laid out as in training."""

    base: str = ""
    """Where the base is, if not where it was in training: a folder, or a name on the hub."""


class FinetunedBot(DialogueModelBot):
    """Generates with a language model of one's own."""

    Options: ClassVar[type[Config]] = FinetunedOptions
    target_help: ClassVar[str] = "the folder of a training run"
    summary = "A language model fine-tuned on dialogues."

    @classmethod
    def build(cls, target: str, options: FinetunedOptions, /) -> Self:  # type: ignore[override]
        """From the folder of a run, whose base is loaded and verified, too."""
        if not target or not is_complete(Path(target)):
            problem = f"{target} is not the folder of a finished training run." if target else "No folder was given."
            raise UsageError(problem, hint=TRAIN)
        use_threads(options.threads)
        manifest = read_manifest(Path(target))
        model, engine = load_run(Path(target), options)
        summary = f"{Path(model.chat.name).name}, fine-tuned on dialogues."  # visitors see it: no folder
        spec = f"{manifest.bot}:{target}"
        return cls(model, options, spec=spec, fingerprint=manifest.fingerprint, summary=summary, engine=engine)


def load_run(folder: Path, options: FinetunedOptions) -> tuple[ChatGenerator, Mapping[str, Json]]:
    """The model of a fine-tuned run in the engine that the options want, and what the provenance says of it.

    Any folder with adapters on smollm2 will do, a run or not.
    """
    if options.engine != "torch" and use_llamacpp(options, obstacle=why_not(folder, options.base)):
        fast = load_finetuned(folder, engine_config(options))
        return fast, fast.provenance
    device = resolve_device(options.device)
    model = FinetunedGenerator.load(folder, base=options.base).to(device, dtype_for(device))
    return model, torch_provenance()
