"""A transformers model that writes, of either kind, as something to read prompts with and to go on from.

Causal models read the prompt as the beginning of what they write; the others (seq2seq) read it with an encoder, once.
Prompts of unlike length are filled up, on the left where writing goes on from them, and every token keeps the place it
would have alone. The state after a prompt can be gone on from by many rows: they share the prompt's keys and values
where the model can do so (`hf_branches`), else each row gets a copy, still of one pass over the prompt. Whether it can
is found out by trying on a few tokens: no list of architectures would stay true for long.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import BaseModelOutput

from tertulia.models.hf_branches import Branches, copied, picked

ALIKE = 1e-3
"""Logits of a branch and of the same tokens read alone differ by no more than this share of their spread."""


class Network:
    """The model, and how it is called."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.seq2seq = bool(model.config.is_encoder_decoder)
        self._known = set(inspect.signature(model.forward).parameters)
        self.pad = _token(model, "pad_token_id", 0)

    @property
    def opening(self) -> list[int]:
        """What a seq2seq model's turn begins with, said by nobody."""
        first = _token(self.model, "decoder_start_token_id", _token(self.model, "bos_token_id", self.pad))
        forced = getattr(self.model.generation_config, "forced_bos_token_id", None)
        return [first] if forced is None or forced == first else [first, int(forced)]

    @property
    def remembers(self) -> bool:
        """Whether it keeps keys and values, so that what was read need not be read again."""
        return "past_key_values" in self._known

    def read(self, prompts: Sequence[Sequence[int]]) -> "Rows":
        """One row for each prompt; the next token is the first of the reply."""
        ids, mask = (t.to(self.model.device) for t in filled(prompts, pad=self.pad, left=not self.seq2seq))
        if not self.seq2seq:
            empty = Rows(self, None, mask[:, :0], None, torch.empty(0), False)
            return empty.take(ids, mask, last=True)[1].started()
        memory = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        opening = torch.tensor([self.opening] * len(prompts), device=ids.device)
        return Rows(self, None, mask, memory, torch.empty(0), False).extend(opening)[1].started()

    def optional(self, **arguments: Any) -> dict[str, Any]:
        """Those of the arguments that this model knows."""
        return {name: value for name, value in arguments.items() if name in self._known}

    @cached_property
    def shares(self) -> bool:
        """Whether rows can share their prompt's keys and values."""
        if self.seq2seq or not {"position_ids", "attention_mask"} <= self._known:
            return False
        with torch.inference_mode():
            size = self.model.get_input_embeddings().weight.shape[0]
            prompts = [[n * 7 % size for n in range(first, last)] for first, last in ((1, 6), (9, 12))]
            rows, tokens = torch.tensor([0, 0, 1]), torch.tensor([[3, 5], [5, 3], [2, 3]]) % size
            start = self.read(prompts)
            if not all(type(layer) is DynamicLayer for layer in getattr(start.cache, "layers", [None])):
                return False
            rows, tokens = rows.to(self.model.device), tokens.to(self.model.device)
            try:
                state = Branches.of(self.model, start.cache, start.mask.bool(), start.logits, rows)
                for token in tokens.T:
                    state = state.extend(token[:, None])[1]
            except (TypeError, ValueError, RuntimeError, IndexError):  # it wants another mask
                return False
            copies = start.select(rows).extend(tokens)[1].logits
            return bool((state.logits - copies).abs().max() <= ALIKE * copies.std())


@dataclass(frozen=True, slots=True)
class Rows:
    """What a model remembers of rows that each have their own keys and values; a `State`, never changed."""

    network: Network
    cache: Any
    mask: torch.Tensor
    """(rows, length): which places are not filling; of the prompt and all after it, or of what the encoder read."""
    memory: torch.Tensor | None
    """(rows, length, width): what the encoder made of the prompt."""
    logits: torch.Tensor
    """(rows, vocabulary): of the next token."""
    fresh: bool
    """Whether nothing of the reply was read yet."""

    def started(self) -> Self:
        """The same, nothing of the reply read yet."""
        return type(self)(self.network, self.cache, self.mask, self.memory, self.logits, True)

    def fan(self, count: int, /) -> "Rows | Branches":
        """Each row so many times."""
        return self.keep(torch.arange(len(self.mask), device=self.mask.device).repeat_interleave(count))

    def keep(self, rows: torch.Tensor, /) -> "Rows | Branches":
        """Only these rows; where a prompt is gone on from several times, its keys and values are shared if they can."""
        if self.fresh and len(rows) > len(self.mask) and self.network.shares:
            return Branches.of(self.network.model, self.cache, self.mask.bool(), self.logits, rows)
        return self.select(rows)

    def select(self, rows: torch.Tensor) -> Self:
        """Only these rows, each with keys and values of its own."""
        if torch.equal(rows, torch.arange(len(self.mask), device=rows.device)):
            return self
        memory = None if self.memory is None else self.memory[rows]
        cache = picked(self.cache, rows)
        return type(self)(self.network, cache, self.mask[rows], memory, self.logits[rows], self.fresh)

    def extend(self, tokens: torch.Tensor) -> tuple[torch.Tensor, Self]:
        """Read on. tokens: (rows, n); the logits after each of them, (rows, n, vocabulary)."""
        return self.take(tokens, torch.ones_like(tokens))

    def take(self, tokens: torch.Tensor, mask: torch.Tensor, *, last: bool = False) -> tuple[torch.Tensor, Self]:
        """Read on, some places filling; logits after each place, or only after the last one."""
        network, cache = self.network, None if self.cache is None else copied(self.cache)
        kept = network.optional(logits_to_keep=1) if last else {}
        if self.memory is not None:
            mask = self.mask
            out = network.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=self.memory),  # type: ignore[arg-type]
                attention_mask=mask,
                decoder_input_ids=tokens,
                past_key_values=cache,
                use_cache=True,
            )
        else:
            mask = torch.cat([self.mask, mask], 1)
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
            out = network.model(
                input_ids=tokens,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
                **kept,
                **network.optional(position_ids=places),
            )
        after = type(self)(network, out.past_key_values, mask, self.memory, out.logits[:, -1], False)
        return out.logits, after


def filled(prompts: Sequence[Sequence[int]], *, pad: int, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens (rows, longest), filled up on one side, and which of them are not filling."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), pad)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        part = slice(longest - len(prompt), None) if left else slice(len(prompt))
        ids[row, part] = torch.tensor(prompt, dtype=torch.long)
        mask[row, part] = 1
    return ids, mask


def _token(model: Any, name: str, otherwise: int) -> int:
    """A token that the model's settings name; those for writing come first."""
    for settings in (model.generation_config, model.config):
        found = getattr(settings, name, None)
        if isinstance(found, list):
            found = found[0] if found else None
        if found is not None:
            return int(found)
    return otherwise
