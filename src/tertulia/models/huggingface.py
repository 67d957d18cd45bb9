"""Chat models of the Hugging Face kind: loading them from a folder or a hub name, and writing with them token by token.

One decoding loop serves whole batches and streams alike: rows are padded on the left, each row draws with a generator
of its own seed, so that a reply does not depend on its neighbours (beyond the rounding of the matrix product).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as hf_logging

from tertulia.core.errors import BotError

FinishReason = Literal["stop", "length", "cancelled"]


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
    """A causal language model with its tokenizer and chat template."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name
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
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
            model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **options)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            where = "folder" if Path(name).exists() else "hub name or folder"
            raise BotError(
                f"No chat model could be loaded from the {where} {name!r}: {str(error).splitlines()[0]}",
                hint="Give a folder with a Hugging Face model, or check the network and the name on the hub.",
            ) from error
        return cls(model, tokenizer, name=name)

    def save(self, folder: Path) -> None:
        """Write plain weights, config and tokenizer. What came from a quantised file is unpacked and stays unpacked."""
        config = type(self.model.config).from_dict(
            {k: v for k, v in self.model.config.to_dict().items() if k != "quantization_config"}
        )
        with torch.device("meta"):
            plain = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        plain.load_state_dict(self.model.state_dict(), assign=True)
        plain.generation_config = self.model.generation_config
        plain.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The conversation as tokens, ready for the answer; without a chat template, turns each with the end token."""
        if self.tokenizer.chat_template:
            try:
                text = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
            except Exception as error:  # a template is a program of its author's
                raise BotError(f"The chat template of {self.name} refuses this conversation: {error}.") from error
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        end = self.tokenizer.eos_token or "\n"
        joined = "".join(m["content"] + end for m in messages if m["role"] != "system")
        return list(self.tokenizer(joined)["input_ids"])

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
        ids, mask = _left_padded(prompts, pad=min(self.ends, default=0))
        cache, left, steps = None, set(range(len(prompts))), 0
        while left:
            for row in [r for r in left if not alive(r)]:
                left.discard(row)
                yield Written(row, None, "cancelled")
            if not left:
                return
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache, logits = out.past_key_values, out.logits[:, -1]
            steps += 1
            drawn = torch.zeros(len(prompts), 1, dtype=torch.long)
            for row in sorted(left):
                token = _draw(logits[row], seen[row], sampling[row], generators[row])
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
            ids = drawn
            mask = torch.cat([mask, torch.ones(len(prompts), 1, dtype=torch.long)], dim=1)


def _left_padded(prompts: Sequence[Sequence[int]], *, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(p) for p in prompts)
    ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts], dtype=torch.long)  # (rows, longest)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], dtype=torch.long)
    return ids, mask


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
