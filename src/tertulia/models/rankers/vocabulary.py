"""The vocabulary of models that read words: the most frequent words of the training text, in order."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tertulia.core.errors import DataError
from tertulia.core.text import tokens

PAD, UNKNOWN = 0, 1
RESERVED = ("<pad>", "<unknown>")
"""What the first indices mean."""


class Vocabulary:
    """Words and their indices: 0 is padding, 1 any unknown word; the others are sorted by falling frequency."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._index = {word: i for i, word in enumerate(self.words, start=len(RESERVED))}
        self.ids = lru_cache(maxsize=400_000)(self._ids)
        """The indices of a text's words; cached, as training reads the same texts again and again."""

    @classmethod
    def count(cls, texts: Iterable[str], *, min_count: int = 2, max_words: int | None = None) -> "Vocabulary":
        """The words of some texts that occur often enough."""
        counts = Counter(word for text in texts for word in tokens(text))
        ordered = sorted((word for word in counts if counts[word] >= min_count), key=lambda w: (-counts[w], w))
        if not ordered:
            raise DataError(
                f"No word occurs at least {min_count} times in the training text.", hint="Check the data, or min_count."
            )
        return cls(ordered[:max_words])

    def __len__(self) -> int:
        return len(self.words) + len(RESERVED)

    def __contains__(self, word: str) -> bool:
        return word in self._index

    def index(self, word: str) -> int:
        """The index of a word."""
        return self._index.get(word, UNKNOWN)

    def _ids(self, text: str) -> NDArray[np.int64]:
        return np.array([self._index.get(word, UNKNOWN) for word in tokens(text)] or [UNKNOWN], dtype=np.int64)

    def save(self, file: Path) -> None:
        """One word per line."""
        file.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    @classmethod
    def load(cls, file: Path) -> "Vocabulary":
        """Load what `save` wrote."""
        return cls(file.read_text(encoding="utf-8").split("\n")[:-1])
