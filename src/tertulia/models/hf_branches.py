"""Many continuations of one prompt in a transformers model, the prompt's keys and values there once for all of them.

The next tokens of all rows that go on from one prompt stand side by side on the axis of places, not in the batch: one
line of the batch is one prompt. Each has the place it would have alone, and a mask of its own lets it see the prompt
and what its row wrote, nothing of the other rows. So the library's plain cache serves, prompts are never copied, and to
keep some rows, or to go on from one row twice, only takes other lines of the mask.

The price is that a row's scores are also computed, and thrown away, for what its neighbours wrote; with many rows that
would cost more than a second copy of the prompt does, so groups above `TOGETHER` rows are split. Models whose places
cannot be given from outside, or whose layers keep anything but plain keys and values, have to copy instead (`hf_rows`).
"""

from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import torch

TOGETHER = 32
"""Rows that share one copy of their prompt."""


@dataclass(frozen=True, slots=True)
class Branches:
    """What a causal model remembers of rows that share prompts; a `State`. Never changed: `extend` makes a new one."""

    model: Any
    cache: Any
    """Keys and values by line: the prompt's, then all that the line's rows wrote."""
    read: torch.Tensor
    """(lines, prompt): which places of a line's prompt are not filling."""
    line: torch.Tensor
    """(rows,): the line that each row goes on from."""
    seen: torch.Tensor
    """(rows, written): which of the tokens written in its line a row may see, its own."""
    place: torch.Tensor
    """(rows,): of the next token."""
    logits: torch.Tensor
    """(rows, vocabulary): of the next token."""

    @classmethod
    def of(cls, model: Any, cache: Any, read: torch.Tensor, logits: torch.Tensor, rows: torch.Tensor) -> "Branches":
        """Rows that go on from prompts: `rows` says from which; `cache`, `read` and `logits` are of the prompts."""
        groups, line = torch.unique(_rank(rows) // TOGETHER * len(read) + rows, return_inverse=True)
        lines = groups % len(read)
        return cls(
            model,
            copied(cache) if torch.equal(lines, torch.arange(len(read), device=lines.device)) else picked(cache, lines),
            read[lines],
            line,
            torch.zeros(len(rows), 0, dtype=torch.bool, device=rows.device),
            read.sum(-1)[rows],
            logits[rows],
        )

    def fan(self, count: int, /) -> Self:
        """Each row so many times."""
        rows = torch.arange(len(self.line), device=self.line.device)
        return self.keep(rows.repeat_interleave(count))

    def keep(self, rows: torch.Tensor, /) -> Self:
        """Only these rows; lines and tokens that nobody sees any more go when half of them have gone."""
        line, seen, cache, read = self.line[rows], self.seen[rows], self.cache, self.read
        lines = torch.unique(line)
        if 2 * len(lines) <= len(read):
            cache, read, line = picked(cache, lines), read[lines], torch.searchsorted(lines, line)
        used = seen.any(0)
        if 2 * int(used.sum()) < len(used):
            places = torch.cat([torch.ones(read.shape[1], dtype=torch.bool, device=used.device), used])
            cache, seen = _narrowed(cache, places.nonzero()[:, 0]), seen[:, used]
        return type(self)(self.model, cache, read, line, seen, self.place[rows], self.logits[rows])

    def extend(self, tokens: torch.Tensor) -> tuple[torch.Tensor, Self]:
        """Read on. tokens: (rows, n); the logits after each of them, (rows, n, vocabulary)."""
        rows, count = tokens.shape
        slot = _rank(self.line)
        width = (int(slot.max()) + 1) * count
        steps = torch.arange(count, device=tokens.device)
        own = slot[:, None] * count + steps  # (rows, n): places among the new ones of the line
        at = (self.line[:, None] * width + own).reshape(-1)
        ids, places = (torch.zeros(len(self.read) * width, dtype=torch.long, device=tokens.device) for _ in range(2))
        ids[at] = tokens.reshape(-1)
        places[at] = (self.place[:, None] + steps).reshape(-1)
        out = self.model(
            input_ids=ids.view(-1, width),
            attention_mask=self._mask(own, at, width),
            position_ids=places.view(-1, width),
            past_key_values=(cache := copied(self.cache)),
            use_cache=True,
        )
        logits = out.logits.flatten(0, 1).index_select(0, at).view(rows, count, -1)
        new = torch.zeros(rows, width, dtype=torch.bool, device=tokens.device).scatter_(1, own, True)
        seen = torch.cat([self.seen, new], 1)
        after = type(self)(self.model, cache, self.read, self.line, seen, self.place + count, logits[:, -1])
        return logits, after

    def _mask(self, own: torch.Tensor, at: torch.Tensor, width: int) -> torch.Tensor:
        """What each new place may see, as a bias (lines, 1, width, keys). Places without a row see the prompt."""
        rows, count = own.shape
        until = torch.ones(count, count, dtype=torch.bool, device=own.device).tril().expand(rows, -1, -1)
        new = torch.zeros(rows, count, width, dtype=torch.bool, device=own.device)
        new.scatter_(2, own[:, None].expand(-1, count, -1), until)
        written = torch.cat([self.seen[:, None].expand(-1, count, -1), new], -1)  # (rows, n, written + width)
        lines, length = self.read.shape
        sees = torch.zeros(lines * width, length + written.shape[-1], dtype=torch.bool, device=own.device)
        sees.view(lines, width, -1)[:, :, :length] = self.read[:, None]
        sees[at, length:] = written.flatten(0, 1)
        bias = torch.zeros(sees.shape, dtype=self.logits.dtype, device=own.device)
        bias.masked_fill_(~sees, torch.finfo(bias.dtype).min)
        return bias.view(lines, 1, width, -1)


def copied(cache: Any) -> Any:
    """A cache that grows by itself: its tensors are the same, and not changed by what the copy takes up."""
    made = copy(cache)
    if hasattr(cache, "layers"):
        made.layers = [copy(layer) for layer in cache.layers]
        return made
    made.self_attention_cache = copied(cache.self_attention_cache)
    made.cross_attention_cache = copied(cache.cross_attention_cache)
    made.is_updated = dict(cache.is_updated)
    return made


def picked(cache: Any, rows: torch.Tensor) -> Any:
    """Only these rows of a cache, in this order; a row may come several times."""
    made = copied(cache)
    made.reorder_cache(rows)
    return made


def _narrowed(cache: Any, places: torch.Tensor) -> Any:
    made = copied(cache)
    for layer in made.layers:
        layer.keys, layer.values = (part.index_select(2, places) for part in (layer.keys, layer.values))
    return made


def _rank(groups: torch.Tensor) -> torch.Tensor:
    """How many earlier rows are of the same group.

    >>> _rank(torch.tensor([0, 0, 2, 0, 2])).tolist()
    [0, 1, 0, 2, 1]
    """
    order = torch.argsort(groups, stable=True)
    of = groups[order]
    rank = torch.empty_like(groups)
    rank[order] = torch.arange(len(groups), device=groups.device) - torch.searchsorted(of, of)
    return rank
