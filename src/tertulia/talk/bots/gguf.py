"""Any chat model in a GGUF file on this machine, such as those that people run with llama.cpp or Ollama."""

from pathlib import Path
from typing import ClassVar, Self

from tertulia.core.config import Config
from tertulia.core.errors import UsageError
from tertulia.models.device import resolve_device
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.packaged import silent_reader
from tertulia.models.llamacpp.generator import GGUFFile, load_gguf
from tertulia.models.threads import use_threads
from tertulia.talk.bots.engine import EngineOptions, engine_config, torch_provenance, use_llamacpp
from tertulia.talk.bots.huggingface import HuggingFaceBot


class GGUFBot(HuggingFaceBot):
    """The Hugging Face bot with weights from a GGUF file."""

    Options: ClassVar[type[Config]] = EngineOptions
    target_help: ClassVar[str] = "a GGUF file"
    summary = "A chat model in a GGUF file."

    @classmethod
    def build(cls, target: str, options: EngineOptions, /) -> Self:  # type: ignore[override]
        """Load the file with llama.cpp, or into torch, which takes the room of all weights in float32."""
        if not target:
            raise UsageError("The bot 'gguf' needs a file.", hint="For example: gguf:models/mine.gguf.")
        file = GGUFFile.at(Path(target))
        use_threads(options.threads)
        summary = f"The chat model {file.path.stem}."
        if use_llamacpp(options):
            model = load_gguf(file, engine_config(options), name=file.path.name)
            return cls(model, options, spec=f"gguf:{target}", summary=summary, engine=model.provenance)
        with silent_reader():
            chat = ChatModel.load(
                str(file.path.parent), gguf_file=file.path.name, device=resolve_device(options.device)
            )
        engine = torch_provenance(file.sha256)
        return cls(chat, options, spec=f"gguf:{target}", summary=summary, engine=engine)
