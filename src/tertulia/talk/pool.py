"""The replies a ranking bot can choose from: texts, where they stand, and their vectors, encoded once.

On disk they are two files of a run's folder, lines of JSON and a plain NumPy array of half precision. Vectors are
rounded to half precision as soon as they are made, so that a pool finds the same before and after it was saved.

A small pool is multiplied with the query as a whole. In a large one a sketch (`tertulia.talk.sketch`) chooses the few
thousand replies that are multiplied. Libraries for this (usearch, faiss) were measured beside it: their graphs answer
one query faster but take minutes to build, their clusters build fast but miss many of the nearest, and neither is worth
a dependency beside an encoder that takes far longer (docs/design/0010-ranking-bots.md). Each query is looked up by
itself, as the sums of a product of matrices depend on how many rows it has, and a reply must not depend on who else is
asking.
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
from tertulia.models.ranker import Floats, Ranker
from tertulia.talk.sketch import Sketch

LINES = "pool.jsonl"
VECTORS = "pool.npy"
AT_ONCE = 256
"""Replies encoded at once."""
SMALL = 1 << 14
"""Up to so many replies are all compared with the query."""
COMPARED = 2048
"""Of a larger pool so many are, or ten times as many as are asked for."""


class Nearest(NamedTuple):
    """What a search found, best first."""

    places: NDArray[np.int64]  # (n, count)
    scores: Floats  # (n, count)


class Line(NamedTuple):
    """One reply of the pool."""

    text: str
    source: str
    """Where it was first said: dialogue id # turn."""
    opener: bool
    """Whether it opened a dialogue, there or elsewhere."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplyPool:
    """Replies and their vectors."""

    texts: tuple[str, ...]
    sources: tuple[str, ...]
    """Where each was first said: dialogue id # turn."""
    vectors: NDArray[np.float16]  # (n, d)
    openers: tuple[int, ...] = ()
    """Places of those that opened a dialogue."""
    before: NDArray[np.int64] = field(init=False, repr=False)  # (n,)
    """Places of what each answered where it was first said; -1 where that is not in the pool."""
    after: NDArray[np.int64] = field(init=False, repr=False)  # (n,)
    """Places of what answered each."""
    _table: Floats | None = field(init=False, repr=False)
    """A small pool's vectors in the precision they are compared in."""
    _sketch: Sketch | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        small = len(self.texts) <= SMALL
        object.__setattr__(self, "_table", _single(np.array(self.vectors)) if small else None)
        object.__setattr__(self, "_sketch", None if small else Sketch(self.vectors))
        before, after = _neighbours(self.sources)
        object.__setattr__(self, "before", before)
        object.__setattr__(self, "after", after)

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def of(cls, dialogues: Iterable[Dialogue], ranker: Ranker, progress: Progress | None = None) -> "ReplyPool":
        """Every utterance of the dialogues; those that differ in case and blanks only are one, the first."""
        lines = collect(dialogues)
        if not lines:
            raise DataError("There is no utterance to answer with.", hint="Check the data: it has no turns.")
        vectors = encode([line.text for line in lines], ranker, progress or Silent())
        return cls._made(lines, vectors)

    @classmethod
    def _made(cls, lines: Sequence[Line], vectors: NDArray[np.float16]) -> "ReplyPool":
        openers = tuple(place for place, line in enumerate(lines) if line.opener)
        return cls(tuple(line.text for line in lines), tuple(line.source for line in lines), vectors, openers)

    def save(self, folder: Path) -> list[str]:
        """Write the pool; the names of its files, for a manifest to vouch for."""
        openers = set(self.openers)
        with (folder / LINES).open("w", encoding="utf-8") as out:
            for place, (text, source) in enumerate(zip(self.texts, self.sources, strict=True)):
                out.write(json.dumps(Line(text, source, place in openers), ensure_ascii=False) + "\n")
        np.save(folder / VECTORS, self.vectors, allow_pickle=False)
        return [LINES, VECTORS]

    @classmethod
    def load(cls, folder: Path) -> "ReplyPool":
        """Read what `save` wrote."""
        try:
            with (folder / LINES).open(encoding="utf-8") as lines:
                found = [Line(*json.loads(line)) for line in lines]
            vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
            if vectors.ndim != 2 or vectors.dtype != np.float16 or len(found) != len(vectors):
                raise ValueError(f"{len(found)} replies, an array {vectors.shape} of {vectors.dtype}")
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                f"The pool of replies in {folder} is missing or damaged ({error}).", hint="Train the run anew."
            ) from None
        return cls._made(found, vectors)

    def rows(self, places: NDArray[np.int64]) -> Floats:
        """The vectors at these places, in the precision models compute in."""
        return _single(np.take(self.vectors, places, axis=0)) if self._table is None else self._table[places]

    def nearest(self, vectors: Floats, count: int) -> Nearest:
        """The replies whose product with each vector is largest, best first; all where the pool is smaller."""
        count = min(count, len(self))
        places = np.empty((len(vectors), count), dtype=np.int64)
        scores = np.empty((len(vectors), count), dtype=np.float32)
        for row, vector in enumerate(vectors):
            places[row], scores[row] = self._nearest(vector, count)
        return Nearest(places, scores)

    def _nearest(self, vector: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
        if self._table is not None:
            compared, scores = np.arange(len(self)), self._table @ vector
        else:
            assert self._sketch is not None, "a large pool has a sketch"
            compared = self._sketch.best(vector, max(COMPARED, 10 * count))
            scores = self.rows(compared) @ vector
        kept = np.argpartition(scores, -count)[-count:] if count < len(scores) else np.arange(len(scores))
        kept = kept[np.lexsort((kept, -scores[kept]))]
        return compared[kept], scores[kept]


def _neighbours(sources: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For the line at each place, where the lines before and after it in its dialogue are."""
    before, after = np.full(len(sources), -1, np.int64), np.full(len(sources), -1, np.int64)
    place = {source: i for i, source in enumerate(sources)}
    for i, source in enumerate(sources):
        dialogue, _, turn = source.rpartition("#")
        next_one = place.get(f"{dialogue}#{int(turn) + 1}") if turn.isdecimal() else None
        if next_one is not None:
            after[i], before[next_one] = next_one, i
    return before, after


def collect(dialogues: Iterable[Dialogue]) -> list[Line]:
    """Every utterance once."""
    found: dict[str, Line] = {}
    for dialogue in dialogues:
        for i, turn in enumerate(dialogue.turns):
            text = squash(turn.text)
            line = found.setdefault(text.lower(), Line(text, f"{dialogue.id}#{i}", i == 0))
            if i == 0 and not line.opener:
                found[text.lower()] = line._replace(opener=True)
    found.pop("", None)
    return list(found.values())


def encode(texts: Sequence[str], ranker: Ranker, progress: Progress) -> NDArray[np.float16]:
    """The vectors of texts; those of like length go together, as models pad to the longest."""
    progress.step(f"Encoding {len(texts):,} replies", len(texts))
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    vectors: NDArray[np.float16] | None = None
    for start in range(0, len(order), AT_ONCE):
        part = order[start : start + AT_ONCE]
        encoded = ranker.replies([texts[place] for place in part])
        if vectors is None:
            vectors = np.empty((len(texts), encoded.shape[1]), dtype=np.float16)
        vectors[part] = encoded
        progress.advance(len(part))
    assert vectors is not None, "no texts"
    if not np.isfinite(vectors).all():
        raise DataError("The ranker's vectors are not finite numbers.", hint="Train it anew, with a smaller rate.")
    return vectors


def _single(vectors: NDArray[np.float16]) -> Floats:
    """In single precision; torch has the processor do it, which NumPy does not: ten times faster."""
    found: Floats = torch.from_numpy(vectors).float().numpy()
    return found
