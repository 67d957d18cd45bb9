"""The pool of a ranking bot: replies, their sources and their vectors, encoded once.

On disk it is two files of a run's folder, JSON lines and a NumPy array in half precision. Vectors are rounded to half
precision as soon as they are encoded, so that a pool gives the same results before and after it is saved.

In a small pool the query is compared with every reply. In a large one locality-sensitive hashing (`tertulia.talk.lsh`)
selects the few thousand replies to compare with. Libraries for this (usearch, faiss) were measured: their graphs answer
one query faster but take minutes to build, their clusters build fast but miss many of the nearest, and neither is worth
a dependency next to an encoder that takes far longer (docs/design/0010-ranking-bots.md). Queries are compared one by
one, since the rounding of a matrix product depends on its number of rows, and a reply must not depend on the batch.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.core.text import squash
from tertulia.models.rankers.base import Floats, Ranker
from tertulia.talk.lsh import LshIndex

LINES = "pool.jsonl"
VECTORS = "pool.npy"
BATCH = 256
"""Replies encoded together."""
MAX_EXHAUSTIVE = 1 << 14
"""Pools up to this size are searched exhaustively."""
COMPARED = 2048
"""Replies compared in a larger pool, or ten times the number of results if that is more."""


class NearestReplies(NamedTuple):
    """The results of a search, best first."""

    indices: NDArray[np.int64]  # (n, count)
    scores: Floats  # (n, count)


class Line(NamedTuple):
    """One reply of the pool."""

    text: str
    source: str
    """Its first occurrence: dialogue id # turn."""
    opener: bool
    """Whether it opened a dialogue anywhere."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplyPool:
    """Replies and their vectors."""

    texts: tuple[str, ...]
    sources: tuple[str, ...]
    """The first occurrence of each: dialogue id # turn."""
    vectors: NDArray[np.float16]  # (n, d)
    openers: tuple[int, ...] = ()
    """Indices of those that opened a dialogue."""
    before: NDArray[np.int64] = field(init=False, repr=False)  # (n,)
    """Index of the turn before each one's first occurrence; -1 if that turn is not in the pool."""
    after: NDArray[np.int64] = field(init=False, repr=False)  # (n,)
    """Index of the turn after each one's first occurrence, or -1."""
    _table: Floats | None = field(init=False, repr=False)
    """The vectors of a small pool in float32."""
    _lsh: LshIndex | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        small = len(self.texts) <= MAX_EXHAUSTIVE
        object.__setattr__(self, "_table", _as_float32(np.array(self.vectors)) if small else None)
        object.__setattr__(self, "_lsh", None if small else LshIndex(self.vectors))
        before, after = _neighbours(self.sources)
        object.__setattr__(self, "before", before)
        object.__setattr__(self, "after", after)

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def of(cls, dialogues: Iterable[Dialogue], ranker: Ranker, progress: Progress | None = None) -> "ReplyPool":
        """All utterances of the dialogues; of those that differ only in case and white space, the first."""
        lines = collect(dialogues)
        if not lines:
            raise DataError("The pool of replies is empty: the dialogues have no turns.", hint="Check the data.")
        vectors = encode([line.text for line in lines], ranker, progress or Silent())
        return cls._from_lines(lines, vectors)

    @classmethod
    def _from_lines(cls, lines: Sequence[Line], vectors: NDArray[np.float16]) -> "ReplyPool":
        openers = tuple(i for i, line in enumerate(lines) if line.opener)
        return cls(tuple(line.text for line in lines), tuple(line.source for line in lines), vectors, openers)

    def save(self, folder: Path) -> list[str]:
        """Save the pool; returns the names of its files."""
        openers = set(self.openers)
        with (folder / LINES).open("w", encoding="utf-8") as out:
            for i, (text, source) in enumerate(zip(self.texts, self.sources, strict=True)):
                out.write(json.dumps(Line(text, source, i in openers), ensure_ascii=False) + "\n")
        np.save(folder / VECTORS, self.vectors, allow_pickle=False)
        return [LINES, VECTORS]

    @classmethod
    def load(cls, folder: Path) -> "ReplyPool":
        """Load what `save` wrote."""
        try:
            with (folder / LINES).open(encoding="utf-8") as lines:
                rows = [Line(*json.loads(line)) for line in lines]
            vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
            if vectors.ndim != 2 or vectors.dtype != np.float16 or len(rows) != len(vectors):
                raise ValueError(f"{len(rows)} replies, but an array {vectors.shape} of {vectors.dtype}")
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                f"The pool of replies in {folder} is missing or damaged ({error}).", hint="Train the run again."
            ) from None
        return cls._from_lines(rows, vectors)

    def rows(self, indices: NDArray[np.int64]) -> Floats:
        """The vectors at these indices, in float32."""
        return _as_float32(np.take(self.vectors, indices, axis=0)) if self._table is None else self._table[indices]

    def nearest(self, vectors: Floats, count: int) -> NearestReplies:
        """The replies with the largest dot product with each vector (n, d), best first; all if the pool is smaller."""
        count = min(count, len(self))
        indices = np.empty((len(vectors), count), dtype=np.int64)
        scores = np.empty((len(vectors), count), dtype=np.float32)
        for row, vector in enumerate(vectors):
            indices[row], scores[row] = self._nearest(vector, count)
        return NearestReplies(indices, scores)

    def _nearest(self, vector: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
        if self._table is not None:
            compared, scores = np.arange(len(self)), self._table @ vector
        else:
            assert self._lsh is not None, "a large pool has an index"
            compared = self._lsh.best(vector, max(COMPARED, 10 * count))
            scores = self.rows(compared) @ vector
        kept = np.argpartition(scores, -count)[-count:] if count < len(scores) else np.arange(len(scores))
        kept = kept[np.lexsort((kept, -scores[kept]))]
        return compared[kept], scores[kept]


def _neighbours(sources: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each line, the indices of the lines before and after it in its dialogue, or -1."""
    before, after = np.full(len(sources), -1, np.int64), np.full(len(sources), -1, np.int64)
    index = {source: i for i, source in enumerate(sources)}
    for i, source in enumerate(sources):
        dialogue, _, turn = source.rpartition("#")
        following = index.get(f"{dialogue}#{int(turn) + 1}") if turn.isdecimal() else None
        if following is not None:
            after[i], before[following] = following, i
    return before, after


def collect(dialogues: Iterable[Dialogue]) -> list[Line]:
    """Every utterance once, with its first occurrence."""
    lines: dict[str, Line] = {}
    for dialogue in dialogues:
        for i, turn in enumerate(dialogue.turns):
            text = squash(turn.text)
            line = lines.setdefault(text.lower(), Line(text, f"{dialogue.id}#{i}", i == 0))
            if i == 0 and not line.opener:
                lines[text.lower()] = line._replace(opener=True)
    lines.pop("", None)
    return list(lines.values())


def encode(texts: Sequence[str], ranker: Ranker, progress: Progress) -> NDArray[np.float16]:
    """Encode texts; those of similar length go together, as models pad to the longest."""
    progress.step(f"Encoding {len(texts):,} replies", len(texts))
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    vectors: NDArray[np.float16] | None = None
    for start in range(0, len(order), BATCH):
        part = order[start : start + BATCH]
        encoded = ranker.replies([texts[i] for i in part])
        if vectors is None:
            vectors = np.empty((len(texts), encoded.shape[1]), dtype=np.float16)
        vectors[part] = encoded
        progress.advance(len(part))
    assert vectors is not None, "no texts"
    if not np.isfinite(vectors).all():
        raise DataError("The ranker's vectors are not finite.", hint="Train it again, with a lower learning_rate.")
    return vectors


def _as_float32(vectors: NDArray[np.float16]) -> Floats:
    """Convert to float32 with torch, which uses the CPU's own instructions: ten times as fast as NumPy."""
    converted: Floats = torch.from_numpy(vectors).float().numpy()
    return converted
