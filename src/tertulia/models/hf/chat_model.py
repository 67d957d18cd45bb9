"""Chat models of Hugging Face: loading them from a folder or a hub name, and turning conversations into prompts.

There are three conventions of how a conversation becomes a prompt. A tokenizer with a chat template says it itself. A
causal model without one is taken to be like DialoGPT: the turns, each followed by the end token. A model with an
encoder (seq2seq) is taken to be like BlenderBot: the turns in one line, joined by what its tokenizer uses, with the
sentences of the persona in front. Whether there is an encoder is what the model's config says.

`generator.HuggingFaceGenerator` makes a chat model a `Generator`, which is how it generates and scores replies.
"""

from collections.abc import Mapping, Sequence
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
from tertulia.models.hf.state import LanguageModel

TURN_SEPARATORS = {"blenderbot": "  ", "blenderbot-small": "\n"}
"""The separator between turns, by the type of a seq2seq model; the end token for all others."""
DEFAULT_WINDOW = 2048


class ChatModel:
    """A language model with its tokenizer, causal or seq2seq."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name
        self.lm = LanguageModel(model)
        # Not every config has this attribute (T5 has relative positions), and GPT-2's only as an alias.
        self.window = int(getattr(model.config, "max_position_embeddings", None) or DEFAULT_WINDOW)
        ends = model.generation_config.eos_token_id
        ends = [*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id]
        self.end_tokens = {int(token) for token in ends if token is not None}

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

    @property
    def seq2seq(self) -> bool:
        """Whether an encoder reads the conversation."""
        return self.lm.seq2seq

    def max_prompt_tokens(self, reply_tokens: int) -> int:
        """How long a prompt may be if the reply has up to `reply_tokens`: a causal model's window holds both."""
        return self.window if self.seq2seq else max(self.window - reply_tokens, self.window // 2)

    def max_reply_tokens(self, prompt_tokens: int) -> int:
        """How many tokens can be generated after a prompt of `prompt_tokens`."""
        return max(1, self.window - (len(self.lm.decoder_prefix) if self.seq2seq else prompt_tokens))

    def prompt(
        self, messages: Sequence[Mapping[str, str]], *, persona: Sequence[str] = (), partner: Sequence[str] = ()
    ) -> list[int]:
        """The conversation as tokens, up to where the reply begins; see the module for the conventions.

        A template finds personas in the system turn. `persona` and `partner` are for models that have no such turn.
        """
        if self.tokenizer.chat_template:
            try:
                text = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
            except Exception as error:  # a template is a program, and may raise anything
                raise BotError(f"The chat template of {self.name} rejects this conversation: {error}.") from error
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) or [self.lm.pad]
        turns = [m["content"] for m in messages if m["role"] != "system" and m["content"]]
        end = self.tokenizer.eos_token or "\n"
        if self.seq2seq:
            separator = TURN_SEPARATORS.get(self.model.config.model_type, end)
            sentences = [*(f"your persona: {s}" for s in persona), *(f"partner's persona: {s}" for s in partner)]
            return list(self.tokenizer(separator.join([*sentences, *turns]))["input_ids"])
        return list(self.tokenizer("".join(text + end for text in turns or [""]))["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text, special tokens left out."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


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
