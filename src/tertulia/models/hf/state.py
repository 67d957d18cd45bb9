"""A transformers language model, causal or seq2seq, behind one interface: encode prompts, then extend rows by tokens.

A causal model reads the prompt as the beginning of what it generates; a seq2seq model reads it once with its encoder.
Prompts of different length are padded, on the left where generation continues from them, and every token keeps the
position it would have alone. The state after a prompt can be continued by many rows: they share the prompt's keys and
values where the model can do so (`shared_prefix`), else each row gets a copy of them.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from torch.nn import functional
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from tertulia.models.hf.shared_prefix import (
    SharedPrefixState,
    copy_cache,
    is_plain,
    join_caches,
    pad_columns,
    select_cache,
    select_columns,
)
from tertulia.models.prefix_cache import Match, PrefixCache

SHORT_PREFIX = 8
"""Fewer common tokens than this are not worth a pass of their own."""
KeysAndValues = list[tuple[torch.Tensor, torch.Tensor]]
"""Of one row, by layer: (1, heads, length, width)."""
PROBE_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far logits with and without a shared prefix may differ, as a share of their standard deviation (rounding), by
number format; 0.001 in all others."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model's forward method can do. Computed once, when the model is loaded.

    Transformers has hundreds of architectures and no interface to ask for these; a list of names would soon be wrong.
    The arguments of `forward` are read from its signature, and prefix sharing is tried out on a few tokens.
    """

    kv_cache: bool
    """It takes `past_key_values`, so the prompt need not be read again for every token."""
    position_ids: bool
    logits_to_keep: bool
    """It can compute the logits of the last position alone."""
    shared_prefix: bool = False
    """Rows can share their prompt's keys and values."""
    join: bool = False
    """Rows that have generated different numbers of tokens can be continued in one batch. Decoders that count positions
    by themselves (BART, BlenderBot) and caches that forget (sliding windows) cannot."""

    @classmethod
    def of_signature(cls, model: Any) -> Self:
        """All but `shared_prefix` and `join`, which take a trial."""
        arguments = inspect.signature(model.forward).parameters
        return cls("past_key_values" in arguments, "position_ids" in arguments, "logits_to_keep" in arguments)


class LanguageModel:
    """The model, its capabilities, and how it is called."""

    max_tokens: int | None = None

    def __init__(self, model: Any) -> None:
        self.model = model
        self.seq2seq = bool(model.config.is_encoder_decoder)
        self.pad = _special_token(model, "pad_token_id", 0)
        self.decoder_prefix: Sequence[int] = _decoder_prefix(model, self.pad)
        self.prefixes: PrefixCache[KeysAndValues] | None = None
        self.capabilities = Capabilities.of_signature(model)
        if self.capabilities.kv_cache:
            self.capabilities = replace(
                self.capabilities, shared_prefix=self._can_share_prefix(), join=self._can_join()
            )

    @property
    def vocabulary(self) -> int:
        """The number of logits."""
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    def keep_prefixes(self, max_bytes: int) -> None:
        """From now on keep what was computed for prompts, at most so many bytes, and reuse it. Weights must not change.

        The prompt of a turn begins with that of the turn before, unless a template rewrites history. Models whose rows
        cannot be joined keep nothing.
        """
        self.prefixes = PrefixCache(max_bytes) if max_bytes and self.capabilities.join else None

    def encode(self, prompts: Sequence[Sequence[int]], *, reuse: bool = False) -> "HFDecoderState":
        """One row for each prompt; the next token is the first of the reply. With `reuse`, prefixes are kept."""
        if not reuse or self.prefixes is None:
            return self._encode_together(prompts)
        matches = [self.prefixes.longest(prompt[:-1]) for prompt in prompts]
        known = [i for i, match in enumerate(matches) if match and match.length >= SHORT_PREFIX]
        new = [i for i in range(len(prompts)) if i not in known]
        state = self._encode_together([prompts[i] for i in new]) if new else None
        for i in known:
            row = self._continue(prompts[i], cast("Match[KeysAndValues]", matches[i]))
            state = row if state is None else state.join_rows(row)
        order = {prompt: row for row, prompt in enumerate([*new, *known])}
        rows = torch.tensor([order[i] for i in range(len(prompts))], device=self.device)
        state = replace(cast(HFDecoderState, state).copy_rows(rows), at_prompt=True)
        self._keep(prompts, state)
        return state

    def _continue(self, prompt: Sequence[int], match: "Match[KeysAndValues]") -> "HFDecoderState":
        """A row whose first tokens are known."""
        cache = DynamicCache(config=self.model.config)
        for layer, (keys, values) in enumerate(match.value):
            cache.update(keys[:, :, : match.length], values[:, :, : match.length], layer)
        mask = torch.ones(1, match.length, dtype=torch.long, device=self.device)
        known = HFDecoderState(self, cache, mask, None, torch.empty(0, device=self.device), at_prompt=False)
        rest = torch.tensor([list(prompt[match.length :])], device=self.device)
        return known.forward(rest, torch.ones_like(rest), last_only=True)[1]

    def _keep(self, prompts: Sequence[Sequence[int]], state: "HFDecoderState") -> None:
        """Copies of the rows: a view of a batch would keep all of it in memory."""
        assert self.prefixes is not None
        for row, prompt in enumerate(prompts):
            if len(prompt) >= SHORT_PREFIX and prompt not in self.prefixes:
                part = (slice(row, row + 1), slice(None), slice(-len(prompt), None))
                kept = [(layer.keys[part].clone(), layer.values[part].clone()) for layer in state.cache.layers]
                self.prefixes.put(prompt, kept, sum(k.nbytes + v.nbytes for k, v in kept))

    def _encode_together(self, prompts: Sequence[Sequence[int]]) -> "HFDecoderState":
        ids, mask = (t.to(self.model.device) for t in pad(prompts, value=self.pad, left=not self.seq2seq))
        if not self.seq2seq:
            empty = HFDecoderState(self, None, mask[:, :0], None, torch.empty(0, device=mask.device), at_prompt=False)
            state = empty.forward(ids, mask, last_only=True)[1]
        else:
            memory = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
            prefix = torch.tensor([self.decoder_prefix] * len(prompts), device=ids.device)
            state = HFDecoderState(self, None, mask, memory, torch.empty(0, device=ids.device), at_prompt=False).extend(
                prefix
            )[1]
        return replace(state, at_prompt=True)

    def logits_before(
        self, sequences: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]
    ) -> list[torch.Tensor]:
        """What a causal model predicts at some positions of each sequence, none of them the first: (n, vocabulary).

        One pass over everything, without a cache; gradients flow. Logits are computed only where they are needed: with
        a large vocabulary they cost as much as several layers, and far more memory.
        """
        device = self.model.device
        ids, mask = (part.to(device) for part in pad(sequences, value=self.pad))
        needed = sorted({position - 1 for row in positions for position in row})
        columns, kept = {column: i for i, column in enumerate(needed)}, torch.tensor(needed, device=device)
        optional = {"logits_to_keep": kept} if self.capabilities.logits_to_keep else {}
        logits = self.model(input_ids=ids, attention_mask=mask, use_cache=False, **optional).logits
        if not optional:
            logits = logits[:, kept]
        return [logits[row, [columns[position - 1] for position in some]] for row, some in enumerate(positions)]

    def _can_share_prefix(self) -> bool:
        """Whether a shared prefix gives the logits that copies give, on two short prompts and three rows."""
        if self.seq2seq or not self.capabilities.position_ids:
            return False
        size, device = self.model.get_input_embeddings().weight.shape[0], self.model.device
        prompts = [[n * 7 % size for n in range(first, last)] for first, last in ((1, 6), (9, 12))]
        rows = torch.tensor([0, 0, 1], device=device)
        tokens = torch.tensor([[3, 5], [5, 3], [2, 3]], device=device) % size
        with torch.inference_mode():
            start = self.encode(prompts)
            if not is_plain(start.cache):
                return False
            try:
                state = SharedPrefixState.from_prompts(self.model, start.cache, start.mask.bool(), start.logits, rows)
                for token in tokens.T:
                    state = state.extend(token[:, None])[1]
            except (TypeError, ValueError, RuntimeError, IndexError):  # it expects another kind of attention mask
                return False
            copies = start.copy_rows(rows).extend(tokens)[1].logits
            return _agree(state.logits, copies)

    def _can_join(self) -> bool:
        """Whether rows of two prompts, one of them two tokens ahead, have the logits that they have alone."""
        if self.seq2seq:
            return False
        size, device = self.model.get_input_embeddings().weight.shape[0], self.model.device
        tokens = torch.tensor([[3, 5]], device=device) % size
        with torch.inference_mode():
            first, second = (self.encode([[n * 7 % size for n in range(1, last)]]) for last in (4, 12))
            if not is_plain(first.cache):
                return False
            ahead = first.extend(tokens)[1]
            try:
                joined = ahead.join_rows(second).extend(torch.cat([tokens[:, :1], tokens[:, 1:]]))[1].logits
            except (TypeError, ValueError, RuntimeError, IndexError):
                return False
            alone = torch.cat([ahead.extend(tokens[:, :1])[1].logits, second.extend(tokens[:, 1:])[1].logits])
            return _agree(joined, alone)


def _agree(logits: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two ways of computing logits give the same, up to rounding."""
    tolerance = PROBE_TOLERANCE.get(expected.dtype, 1e-3)
    return bool((logits - expected).float().abs().max() <= tolerance * expected.float().std())


@dataclass(frozen=True, slots=True)
class HFDecoderState:
    """The decoder state of rows that each have their own keys and values; a `State`. Immutable."""

    lm: LanguageModel
    cache: Any
    """Keys and values by row; None before the first token."""
    mask: torch.Tensor
    """(rows, length): which positions are not padding, of the full sequence (causal) or the encoder's input."""
    memory: torch.Tensor | None
    """(rows, length, width): the encoder's output; None for a causal model."""
    logits: torch.Tensor
    """(rows, vocabulary): of the next token."""
    at_prompt: bool
    """Whether no token of the reply has been added yet."""

    def expand(self, count: int, /) -> "HFDecoderState | SharedPrefixState":
        """Each row `count` times, side by side."""
        return self.select(torch.arange(len(self.mask), device=self.mask.device).repeat_interleave(count))

    def select(self, rows: torch.Tensor, /) -> "HFDecoderState | SharedPrefixState":
        """Only these rows, in this order; a prompt that is continued several times is shared if the model can."""
        if self.at_prompt and len(rows) > len(self.mask) and self.lm.capabilities.shared_prefix:
            return SharedPrefixState.from_prompts(self.lm.model, self.cache, self.mask.bool(), self.logits, rows)
        return self.copy_rows(rows)

    def copy_rows(self, rows: torch.Tensor) -> Self:
        """Only these rows, each with its own keys and values."""
        if torch.equal(rows, torch.arange(len(self.mask), device=rows.device)):
            return self
        memory = None if self.memory is None else self.memory[rows]
        cache, mask = select_cache(self.cache, rows), self.mask[rows]
        if memory is None and is_plain(cache) and (unused := int((mask.cumsum(1) == 0).all(0).sum())):
            # Padding on the left that only longer rows needed.
            cache, mask = (
                select_columns(cache, torch.arange(unused, mask.shape[1], device=rows.device)),
                mask[:, unused:],
            )
        return type(self)(self.lm, cache, mask, memory, self.logits[rows], self.at_prompt)

    def join(self, other: "HFDecoderState | SharedPrefixState", /) -> "HFDecoderState | SharedPrefixState | None":
        """The rows of both, if the model can continue them together; rows that share prompts stay as they are."""
        if not self.lm.capabilities.join:
            return None
        if isinstance(other, SharedPrefixState):
            return self.with_lines().join(other)
        return self.join_rows(other)

    def join_rows(self, other: "HFDecoderState") -> Self:
        """The rows of both; the shorter ones are padded on the left, as prompts of different length are."""
        length = max(self.mask.shape[1], other.mask.shape[1])
        sides: list[HFDecoderState] = [self, other]
        caches = [pad_columns(one.cache, length - one.mask.shape[1]) for one in sides]
        mask = torch.cat([functional.pad(one.mask, (length - one.mask.shape[1], 0)) for one in sides])
        logits = torch.cat([self.logits, other.logits])
        return type(self)(self.lm, join_caches(*caches), mask, None, logits, at_prompt=False)

    def with_lines(self) -> SharedPrefixState:
        """The same rows, each with a line of its own and all its tokens as its prompt."""
        rows = torch.arange(len(self.mask), device=self.mask.device)
        return SharedPrefixState.from_prompts(self.lm.model, self.cache, self.mask.bool(), self.logits, rows)

    def extend(self, tokens: torch.Tensor) -> tuple[torch.Tensor, Self]:
        """Append tokens (rows, n); the logits after each of them (rows, n, vocabulary), and the new state."""
        return self.forward(tokens, torch.ones_like(tokens))

    def forward(
        self, tokens: torch.Tensor, mask: torch.Tensor, *, last_only: bool = False
    ) -> tuple[torch.Tensor, Self]:
        """Append tokens, some of which are padding; logits after each, or after the last one only."""
        lm, cache = self.lm, None if self.cache is None else copy_cache(self.cache)
        if self.memory is not None:
            mask = self.mask
            out = lm.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=self.memory),  # type: ignore[arg-type]
                attention_mask=mask,
                decoder_input_ids=tokens,
                past_key_values=cache,
                use_cache=True,
            )
        else:
            mask = torch.cat([self.mask, mask], 1)
            optional: dict[str, Any] = {}
            if lm.capabilities.position_ids:
                optional["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
            if last_only and lm.capabilities.logits_to_keep:
                optional["logits_to_keep"] = 1
            out = lm.model(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True, **optional)
        after = type(self)(lm, out.past_key_values, mask, self.memory, out.logits[:, -1], False)
        return out.logits, after


def pad(sequences: Sequence[Sequence[int]], *, value: int, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids (rows, max length), padded on one side, and a mask that is 0 for padding."""
    max_length = max(map(len, sequences))
    ids = torch.full((len(sequences), max_length), value, device="cpu")
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        part = slice(max_length - len(sequence), None) if left else slice(len(sequence))
        ids[row, part] = torch.tensor(sequence, dtype=torch.long, device="cpu")
        mask[row, part] = 1
    return ids, mask


def _decoder_prefix(model: Any, otherwise: int) -> list[int]:
    """The tokens that a seq2seq decoder starts with, which are not part of the reply."""
    first = _special_token(model, "decoder_start_token_id", _special_token(model, "bos_token_id", otherwise))
    forced = model.generation_config.forced_bos_token_id
    return [first] if forced is None or forced == first else [first, int(forced)]


def _special_token(model: Any, name: str, otherwise: int) -> int:
    """A token id that the generation config or the model's config names; not every config class has every field."""
    for config in (model.generation_config, model.config):
        value = config.to_dict().get(name)
        if isinstance(value, list):
            value = value[0] if value else None
        if value is not None:
            return int(value)
    return otherwise
