"""Chat models of the Hugging Face kind: loading them from a folder or a hub name, and writing with them token by token.

Three conventions of how a conversation becomes a prompt are known. A tokenizer with a chat template says it itself. A
causal model without one is taken to be of DialoGPT's kind: the turns, each with the end token behind it. A model with
an encoder (seq2seq) is taken to be of BlenderBot's: the turns in one line, what stands between them being its
tokenizer's matter, the persona's sentences in front. Whether there is an encoder is what the model's config says.

One decoding loop serves whole batches and streams alike: each row draws with a generator of its own seed, so that a
reply does not depend on its neighbours (beyond the rounding of the matrix product). For several candidates of a reply
and the likelihood of given ones, see `hf_writer`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)
from transformers.utils import logging as hf_logging

from tertulia.core.errors import BotError
from tertulia.models.hf_rows import Network

FinishReason = Literal["stop", "length", "cancelled"]
BETWEEN = {"blenderbot": "  ", "blenderbot-small": "\n"}
"""What stands between turns, by the type of a seq2seq model; the end token for all others."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float = 0.7
    """0 takes the most probable token."""
    top_p: float = 0.9
    top_k: int = 0
    """0 means the whole vocabulary."""
    repetition_penalty: float = 1.1
    """Tokens already in this reply lose by this factor; 1 is off. Keskar et al. (2019) count the prompt too, which
    would keep a bot from the words of its own persona."""
    max_tokens: int = 80
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """One step of one row: the token it drew, or why it ended."""

    row: int
    token: int | None
    finish: FinishReason | None = None


class ChatModel:
    """A language model with its tokenizer, causal or seq2seq."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name
        self.network = Network(model)
        self.window = int(getattr(model.config, "max_position_embeddings", 0) or 2048)
        ends = model.generation_config.eos_token_id
        known = [*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id]
        self.ends = {int(token) for token in known if token is not None}

    @classmethod
    def load(cls, name: str, *, gguf_file: str | None = None) -> "ChatModel":
        """From a folder or a hub name, as float32 (half precision is far slower on most CPUs)."""
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        options = {"gguf_file": gguf_file} if gguf_file else {}
        try:
            config = AutoConfig.from_pretrained(name, **options)
            _refuse_what_does_not_write(config, name)
            kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
            model = kind.from_pretrained(name, dtype=torch.float32, **options)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            where = "folder" if Path(name).exists() else "hub name or folder"
            raise BotError(
                f"No chat model could be loaded from the {where} {name!r}: {str(error).splitlines()[0]}",
                hint="Give a folder with a Hugging Face model, or check the network and the name on the hub.",
            ) from error
        made = cls(model, tokenizer, name=name)
        if not made.network.remembers:
            raise BotError(
                f"{type(model).__name__} of {name!r} keeps no keys and values of what it has read.",
                hint="Take a Transformer; recurrent and state-space models cannot be used as bots.",
            )
        return made

    def save(self, folder: Path) -> None:
        """Write plain weights, config and tokenizer. What came from a quantised file is unpacked and stays unpacked."""
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
        return self.network.seq2seq

    def room(self, written: int) -> int:
        """How many tokens a prompt may have where so many are to be written: a causal model's window holds both."""
        return self.window if self.seq2seq else max(self.window - written, self.window // 2)

    def most(self, prompt: int) -> int:
        """How many tokens can be written after a prompt of so many."""
        return max(1, self.window - (len(self.network.opening) if self.seq2seq else prompt))

    def prompt(
        self, messages: Sequence[Mapping[str, str]], *, persona: Sequence[str] = (), partner: Sequence[str] = ()
    ) -> list[int]:
        """The conversation as tokens, ready for the answer; see the module for the conventions.

        A template finds personas in the system turn. `persona` and `partner` are for models that have no such turn.
        """
        if self.tokenizer.chat_template:
            try:
                text = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
            except Exception as error:  # a template is a program of its author's
                raise BotError(f"The chat template of {self.name} refuses this conversation: {error}.") from error
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) or [self.network.pad]
        said = [m["content"] for m in messages if m["role"] != "system" and m["content"]]
        end = self.tokenizer.eos_token or "\n"
        if self.seq2seq:
            between = BETWEEN.get(self.model.config.model_type, end)
            known = [*(f"your persona: {s}" for s in persona), *(f"partner's persona: {s}" for s in partner)]
            return list(self.tokenizer(between.join([*known, *said]))["input_ids"])
        return list(self.tokenizer("".join(text + end for text in said or [""]))["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    @torch.inference_mode()
    def write(
        self, prompts: Sequence[Sequence[int]], sampling: Sequence[Sampling], alive: Callable[[int], bool]
    ) -> Iterator[Written]:
        """Write all rows side by side until each has ended; a row that nobody waits for ends as "cancelled"."""
        generators = [torch.Generator().manual_seed(s.seed) for s in sampling]
        seen = [torch.empty(0, dtype=torch.long) for _ in prompts]
        state, drawn = None, torch.zeros(len(prompts), 1, dtype=torch.long)
        left, steps = set(range(len(prompts))), 0
        while left:
            for row in [r for r in left if not alive(r)]:
                left.discard(row)
                yield Written(row, None, "cancelled")
            if not left:
                return
            state = self.network.read(prompts) if state is None else state.extend(drawn)[1]
            steps += 1
            drawn = torch.zeros(len(prompts), 1, dtype=torch.long)
            for row in sorted(left):
                token = _draw(state.logits[row], seen[row], sampling[row], generators[row])
                drawn[row, 0] = token
                if token in self.ends:
                    left.discard(row)
                    yield Written(row, None, "stop")
                    continue
                seen[row] = torch.cat([seen[row], drawn[row]])
                yield Written(row, token)
                if steps >= sampling[row].max_tokens:
                    left.discard(row)
                    yield Written(row, None, "length")


def _refuse_what_does_not_write(config: Any, name: str) -> None:
    """A model of another trade would load, with weights made up for what it lacks."""
    names = (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES if config.is_encoder_decoder else MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    )
    architectures = set(config.architectures or [])
    if architectures and not architectures & set(names.values()):
        raise BotError(
            f"The model {name!r} does not write: it is a {' and '.join(sorted(architectures))}.",
            hint="A bot needs a causal language model (GPT-2, Llama) or one that maps text to text (BlenderBot, T5).",
        )


def _draw(logits: torch.Tensor, seen: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """One token from one row of logits (vocabulary,)."""
    if sampling.repetition_penalty != 1.0 and len(seen):
        logits = logits.clone()
        known = logits[seen]
        logits[seen] = torch.where(known > 0, known / sampling.repetition_penalty, known * sampling.repetition_penalty)
    if sampling.temperature <= 0:
        return int(logits.argmax())
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        floor = logits.topk(sampling.top_k).values[-1]
        logits = logits.masked_fill(logits < floor, float("-inf"))
    probabilities, tokens = logits.softmax(-1).sort(descending=True, stable=True)
    if sampling.top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= sampling.top_p, 0.0)
    place = torch.multinomial(probabilities, 1, generator=generator)
    return int(tokens[place])
