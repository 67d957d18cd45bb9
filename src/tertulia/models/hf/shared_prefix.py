"""Many continuations of one prompt in a transformers model, with the prompt's keys and values stored once.

Why: sample-and-rank continues each prompt 20 times. In the usual layout (`state.DecoderState`, one batch row for each
continuation) the cache holds 20 copies of the prompt, and every step reads all of them.

How: one batch *line* is one prompt. The next tokens of all *rows* (continuations) of that prompt lie side by side on
the sequence axis of its line:

    line:       | prompt ........ | step 1: row 0, row 1, row 2 | step 2: row 0, row 1, row 2 | ...
    positions:    0 1 2 ... p-1     p       p      p              p+1     p+1    p+1

A row's token gets the position id it would have alone, and an attention mask of its own: it sees the prompt and what
its own row generated, nothing of the other rows. So the library's plain cache works, prompts are never copied, and
dropping a row, or continuing one row twice (beam search), only changes the mask.

Invariants: `visible[r]` marks exactly the columns behind the prompt that row r generated, in order; the cache of line l
has `prompt_mask.shape[1] + visible.shape[1]` columns; columns that no row sees hold stale keys until they are pruned.

The price is that attention scores are also computed, and discarded, for the columns of a row's siblings. With many rows
that costs more than a second copy of the prompt, so a line has at most `ROWS_PER_LINE` rows. Models that do not take
position ids, or whose layers keep anything but plain keys and values, use `DecoderState` instead.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache

ROWS_PER_LINE = 32
"""Rows that share one copy of their prompt."""


class RowsWithLines(Protocol):
    """Any state of a causal model: it can be laid out in lines."""

    def with_lines(self) -> "SharedPrefixState":
        """The same rows as lines."""
        ...


@dataclass(frozen=True, slots=True)
class SharedPrefixState:
    """The decoder state of a causal model for rows that share prompts; a `State`. Immutable."""

    model: Any
    cache: Any
    """Keys and values by line: the prompt's, then everything that the line's rows generated."""
    prompt_mask: torch.Tensor
    """(lines, prompt): which columns of a line's prompt are not padding."""
    line: torch.Tensor
    """(rows,): the line of each row."""
    visible: torch.Tensor
    """(rows, generated): which columns behind the prompt a row may see, its own."""
    position: torch.Tensor
    """(rows,): position id of the next token."""
    logits: torch.Tensor
    """(rows, vocabulary): of the next token."""

    @classmethod
    def from_prompts(
        cls, model: Any, cache: Any, prompt_mask: torch.Tensor, logits: torch.Tensor, rows: torch.Tensor
    ) -> "SharedPrefixState":
        """Continue prompts: `rows` has the prompt's index for each new row; all else is by prompt."""
        prompts = len(prompt_mask)
        # The n-th row of a prompt goes into the prompt's line number n // ROWS_PER_LINE.
        ids, line = torch.unique(_rank_in_group(rows) // ROWS_PER_LINE * prompts + rows, return_inverse=True)
        prompt_of_line = ids % prompts
        unchanged = torch.equal(prompt_of_line, torch.arange(prompts, device=ids.device))
        return cls(
            model,
            copy_cache(cache) if unchanged else select_cache(cache, prompt_of_line),
            prompt_mask[prompt_of_line],
            line,
            torch.zeros(len(rows), 0, dtype=torch.bool, device=rows.device),
            prompt_mask.sum(-1)[rows],
            logits[rows],
        )

    def expand(self, count: int, /) -> Self:
        """Each row `count` times, side by side."""
        rows = torch.arange(len(self.line), device=self.line.device)
        return self.select(rows.repeat_interleave(count))

    def select(self, rows: torch.Tensor, /) -> Self:
        """Only these rows, in this order. Unused lines and columns are pruned once they are half of all."""
        line, visible, cache, prompt_mask = self.line[rows], self.visible[rows], self.cache, self.prompt_mask
        lines = torch.unique(line)
        if 2 * len(lines) <= len(prompt_mask):
            cache, prompt_mask = select_cache(cache, lines), prompt_mask[lines]
            line = torch.searchsorted(lines, line)
            if unused := int((~prompt_mask.any(0)).sum()):  # padding that only longer prompts needed
                columns = torch.arange(unused, prompt_mask.shape[1] + visible.shape[1], device=line.device)
                cache, prompt_mask = select_columns(cache, columns), prompt_mask[:, unused:]
        used = visible.any(0)
        if 2 * int(used.sum()) < len(used):
            kept = torch.cat([torch.ones(prompt_mask.shape[1], dtype=torch.bool, device=used.device), used])
            cache, visible = select_columns(cache, kept.nonzero()[:, 0]), visible[:, used]
        return type(self)(self.model, cache, prompt_mask, line, visible, self.position[rows], self.logits[rows])

    def with_lines(self) -> "SharedPrefixState":
        """Itself: see `RowsWithLines`."""
        return self

    def join(self, rows: "RowsWithLines", /) -> "SharedPrefixState":
        """The rows and lines of both. Prompts are padded on the left, the columns behind them on the right."""
        other = rows.with_lines()
        prompt = max(self.prompt_mask.shape[1], other.prompt_mask.shape[1])
        generated = max(self.visible.shape[1], other.visible.shape[1])
        caches, masks, visible = [], [], []
        for one in (self, other):
            left, right = prompt - one.prompt_mask.shape[1], generated - one.visible.shape[1]
            caches.append(pad_columns(one.cache, left, right))
            masks.append(pad(one.prompt_mask, (left, 0)))
            visible.append(pad(one.visible, (0, right)))
        return type(self)(
            self.model,
            join_caches(*caches),
            torch.cat(masks),
            torch.cat([self.line, other.line + len(self.prompt_mask)]),
            torch.cat(visible),
            torch.cat([self.position, other.position]),
            torch.cat([self.logits, other.logits]),
        )

    def extend(self, tokens: torch.Tensor) -> tuple[torch.Tensor, Self]:
        """Append tokens (rows, n); the logits after each of them (rows, n, vocabulary), and the new state."""
        rows, count = tokens.shape
        slot = _rank_in_group(self.line)  # (rows,): which of its line's rows this is
        width = (int(slot.max()) + 1) * count  # new columns of every line
        steps = torch.arange(count, device=tokens.device)
        columns = slot[:, None] * count + steps  # (rows, n): among the new columns of the line
        flat = (self.line[:, None] * width + columns).reshape(-1)  # (rows * n,): the same in (lines * width)
        lines = len(self.prompt_mask)
        ids, positions = (torch.zeros(lines * width, dtype=torch.long, device=tokens.device) for _ in range(2))
        ids[flat] = tokens.reshape(-1)
        positions[flat] = (self.position[:, None] + steps).reshape(-1)
        cache = copy_cache(self.cache)
        out = self.model(
            input_ids=ids.view(lines, width),
            attention_mask=self._attention_bias(columns, flat, width),
            position_ids=positions.view(lines, width),
            past_key_values=cache,
            use_cache=True,
        )
        logits = out.logits.flatten(0, 1).index_select(0, flat).view(rows, count, -1)
        new = torch.zeros(rows, width, dtype=torch.bool, device=tokens.device).scatter_(1, columns, True)
        visible = torch.cat([self.visible, new], 1)
        after = type(self)(
            self.model, cache, self.prompt_mask, self.line, visible, self.position + count, logits[:, -1]
        )
        return logits, after

    def _attention_bias(self, columns: torch.Tensor, flat: torch.Tensor, width: int) -> torch.Tensor:
        """0 where a new column may attend, very negative elsewhere: (lines, 1, width, prompt + generated + width).

        New columns without a row (their line has fewer rows than another) see the prompt: softmax over nothing is nan.
        """
        rows, count = columns.shape
        causal = torch.ones(count, count, dtype=torch.bool, device=columns.device).tril().expand(rows, -1, -1)
        new = torch.zeros(rows, count, width, dtype=torch.bool, device=columns.device)
        new.scatter_(2, columns[:, None].expand(-1, count, -1), causal)
        own = torch.cat([self.visible[:, None].expand(-1, count, -1), new], -1)  # (rows, n, generated + width)
        lines, length = self.prompt_mask.shape
        attends = torch.zeros(lines * width, length + own.shape[-1], dtype=torch.bool, device=columns.device)
        attends.view(lines, width, -1)[:, :, :length] = self.prompt_mask[:, None]
        attends[flat, length:] = own.flatten(0, 1)
        bias = torch.zeros(attends.shape, dtype=self.logits.dtype, device=columns.device)
        bias.masked_fill_(~attends, torch.finfo(bias.dtype).min)
        return bias.view(lines, 1, width, -1)


def copy_cache(cache: Any) -> Any:
    """A shallow copy that can grow by itself: the library replaces a layer's tensors, it does not write into them."""
    result = copy(cache)
    if isinstance(cache, EncoderDecoderCache):
        result.self_attention_cache = copy_cache(cache.self_attention_cache)
        result.cross_attention_cache = copy_cache(cache.cross_attention_cache)
        result.is_updated = dict(cache.is_updated)
    else:
        result.layers = [copy(layer) for layer in cache.layers]
    return result


def select_cache(cache: Any, rows: torch.Tensor) -> Any:
    """A cache of only these batch rows, in this order; a row may appear several times."""
    result = copy_cache(cache)
    result.reorder_cache(rows)
    return result


def is_plain(cache: Any) -> bool:
    """Whether all layers keep nothing but the keys and values of all tokens.

    Other layers (sliding windows, recurrent states) forget: rows of a joined batch would forget at different times.
    """
    return isinstance(cache, DynamicCache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def pad_columns(cache: Any, left: int, right: int = 0) -> Any:
    """A cache with this many columns of zeros before and after its own."""
    if not left and not right:
        return cache
    result = copy_cache(cache)
    for layer in result.layers:
        layer.keys, layer.values = (pad(part, (0, 0, left, right)) for part in (layer.keys, layer.values))
    return result


def join_caches(cache: Any, other: Any) -> Any:
    """The batch rows of two plain caches with equally many columns."""
    result = copy_cache(cache)
    for layer, more in zip(result.layers, other.layers, strict=True):
        layer.keys, layer.values = torch.cat([layer.keys, more.keys]), torch.cat([layer.values, more.values])
    return result


def select_columns(cache: Any, columns: torch.Tensor) -> Any:
    """A cache of only these columns of the sequence axis (keys and values are (batch, heads, sequence, width))."""
    result = copy_cache(cache)
    for layer in result.layers:
        layer.keys, layer.values = (part.index_select(2, columns) for part in (layer.keys, layer.values))
    return result


def _rank_in_group(groups: torch.Tensor) -> torch.Tensor:
    """How many earlier elements are in the same group.

    >>> _rank_in_group(torch.tensor([0, 0, 2, 0, 2])).tolist()
    [0, 1, 0, 2, 1]
    """
    order = torch.argsort(groups, stable=True)
    ordered = groups[order]
    rank = torch.empty_like(groups)
    rank[order] = torch.arange(len(groups), device=groups.device) - torch.searchsorted(ordered, ordered)
    return rank
