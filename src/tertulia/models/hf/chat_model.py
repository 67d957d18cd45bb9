"""Chat models of Hugging Face: loading them from a folder or a hub name. Their config says whether there is an encoder.

`chat_format` turns conversations into prompts. `generator.HuggingFaceGenerator` makes a chat model a `Generator`, which
is how it generates and scores replies.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)
from transformers.utils import logging as hf_logging

from tertulia.core.errors import BotError
from tertulia.models.device import dtype_for
from tertulia.models.hf.chat_format import ChatFormat
from tertulia.models.hf.state import LanguageModel

TURN_SEPARATORS = {"blenderbot": "  ", "blenderbot-small": "\n"}
"""The separator between turns, by the type of a seq2seq model; the end token for all others."""
DEFAULT_WINDOW = 2048


class ChatModel(ChatFormat):
    """A language model with its tokenizer, causal or seq2seq."""

    lm: LanguageModel

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model = model.eval()
        ends = model.generation_config.eos_token_id
        ends = [*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id]
        super().__init__(
            tokenizer,
            LanguageModel(model),
            name=name,
            # Not every config has this attribute (T5 has relative positions), and GPT-2's only as an alias.
            window=int(getattr(model.config, "max_position_embeddings", None) or DEFAULT_WINDOW),
            end_tokens={int(token) for token in ends if token is not None},
            separator=TURN_SEPARATORS.get(model.config.model_type),
        )

    @classmethod
    def load(cls, name: str, *, device: torch.device | str = "cpu", gguf_file: str | None = None) -> "ChatModel":
        """From a folder or a hub name, on a device and in the number format that it is good at."""
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        options = {"gguf_file": gguf_file} if gguf_file else {}
        try:
            config = AutoConfig.from_pretrained(name, **options)
            _check_architecture(config, name)
            kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
            model: Any = kind.from_pretrained(name, dtype=dtype_for(device), **options)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            where = "folder" if Path(name).exists() else "hub name or folder"
            raise BotError(
                f"No chat model could be loaded from the {where} {name!r}: {str(error).splitlines()[0]}",
                hint="Give a folder with a Hugging Face model, or check the network and the name on the hub.",
            ) from error
        chat = cls(model.to(device), tokenizer, name=name)
        if not chat.lm.capabilities.kv_cache:
            raise BotError(
                f"{type(model).__name__} of {name!r} has no cache of keys and values.",
                hint="Use a Transformer; recurrent and state-space models are not supported as bots.",
            )
        return chat

    def save(self, folder: Path) -> None:
        """Write weights, config and tokenizer. A model from a quantised file is saved dequantised."""
        config = type(self.model.config).from_dict(
            {k: v for k, v in self.model.config.to_dict().items() if k != "quantization_config"}
        )
        with torch.device("meta"):
            plain = type(self.model)(config)
        plain.load_state_dict(self.model.state_dict(), assign=True)
        plain.generation_config = self.model.generation_config
        plain.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def add_end_token(self, token: int) -> None:
        """From now on this token ends a turn, too; an exported model says so as well."""
        super().add_end_token(token)
        self.model.generation_config.eos_token_id = sorted(self.end_tokens)


def _check_architecture(config: Any, name: str) -> None:
    """Reject models without a language-modelling head: they would load, with random weights for what they lack."""
    names = (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES if config.is_encoder_decoder else MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    )
    architectures = set(config.architectures or [])
    if architectures and not architectures & set(names.values()):
        raise BotError(
            f"The model {name!r} cannot generate text: it is a {' and '.join(sorted(architectures))}.",
            hint="A bot needs a causal language model (GPT-2, Llama) or a seq2seq model (BlenderBot, T5).",
        )
