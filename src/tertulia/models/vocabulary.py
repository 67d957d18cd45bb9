"""Words as numbers, for the models that read words: the most frequent ones of the training text, in order."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tertulia.core.errors import DataError
from tertulia.core.text import tokens

PAD, UNKNOWN = 0, 1
RESERVED = ("<pad>", "<unknown>")
"""What the first numbers stand for."""


class Vocabulary:
    """Known words. Numbers 0 and 1 are padding and any unknown word; the rest come by falling frequency."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._number = {word: i for i, word in enumerate(self.words, start=len(RESERVED))}
        self.ids = lru_cache(maxsize=400_000)(self._ids)
        """The numbers of a text's words; remembered, as training asks for the same texts again and again."""

    @classmethod
    def count(cls, texts: Iterable[str], *, min_count: int = 2, max_words: int | None = None) -> "Vocabulary":
        """Of the words of some texts, those that occur often enough."""
        counts = Counter(word for text in texts for word in tokens(text))
        ordered = sorted((word for word in counts if counts[word] >= min_count), key=lambda w: (-counts[w], w))
        if not ordered:
            raise DataError("There is not a single word to learn from.", hint="Check the data: it needs dialogues.")
        return cls(ordered[:max_words])

    def __len__(self) -> int:
        return len(self.words) + len(RESERVED)

    def __contains__(self, word: str) -> bool:
        return word in self._number

    def number(self, word: str) -> int:
        """The number of a word."""
        return self._number.get(word, UNKNOWN)

    def _ids(self, text: str) -> NDArray[np.int64]:
        return np.array([self._number.get(word, UNKNOWN) for word in tokens(text)] or [UNKNOWN], dtype=np.int64)

    def padded(self, texts: Sequence[str], *, longest: int, keep: str = "first") -> torch.Tensor:
        """Texts as a matrix (n, length of the longest), padded on the right; too long ones keep their first or last."""
        rows = [self.ids(text) for text in texts]
        width = min(longest, max((len(row) for row in rows), default=1))
        found = np.zeros((len(rows), width), dtype=np.int64)
        for i, row in enumerate(rows):
            part = row[:width] if keep == "first" else row[-width:]
            found[i, : len(part)] = part
        return torch.from_numpy(found)

    def save(self, file: Path) -> None:
        """One word a line."""
        file.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    @classmethod
    def load(cls, file: Path) -> "Vocabulary":
        """What `save` wrote."""
        return cls(file.read_text(encoding="utf-8").split("\n")[:-1])

    @property
    def fingerprint(self) -> str:
        """Changes with any word or its place."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:16]
