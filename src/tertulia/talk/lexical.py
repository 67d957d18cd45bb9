"""A tf-idf index over messages and the replies they got: what the retrieval bot looks things up in.

Kept on disk as a folder that explains itself: the pairs, the vocabulary with its weights, the settings, and a manifest
written last, so that a folder with a manifest is whole.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from tertulia import __version__
from tertulia.core.dialogue import Dialogue, exchanges
from tertulia.core.errors import DataError
from tertulia.core.text import ngrams, sentences, squash, words
from tertulia.talk.spec import MANIFEST

FORMAT = 1
FILES = ("pairs.jsonl", "vocabulary.json", "idf.npy")
"""What an index is made of, beside its manifest."""


class Pair(NamedTuple):
    """A message and the reply it got; the message is empty where the reply opened a conversation."""

    message: str
    reply: str
    source: str
    """Where the reply stands: dialogue id # turn."""


class TfidfIndex:
    """Pairs, and the tf-idf rows of their messages."""

    def __init__(self, pairs: Sequence[Pair], vocabulary: dict[str, int], idf: np.ndarray, *, max_ngram: int) -> None:
        self.pairs = tuple(pairs)
        self.max_ngram = max_ngram
        self._vectorizer = _vectorizer(max_ngram, vocabulary)
        self._vectorizer.idf_ = idf
        self.openers = [i for i, pair in enumerate(self.pairs) if not pair.message]
        rows = list(_rows(self.pairs))
        self.pair_of = np.array([row.pair for row in rows], dtype=np.int64)
        """Which pair each row of the index stands for: a message has one row, and one for its last sentence alone."""
        self._by_word: sparse.csr_array = sparse.csr_array(self.vectors([row.text for row in rows]).T)
        self.fingerprint = _fingerprint(self.pairs, max_ngram)

    @classmethod
    def from_dialogues(cls, dialogues: Iterable[Dialogue], *, max_ngram: int = 2) -> "TfidfIndex":
        """An index of every reply of every dialogue, and of the turns that opened them."""
        return cls.from_pairs([pair for dialogue in dialogues for pair in pairs_of(dialogue)], max_ngram=max_ngram)

    @classmethod
    def from_pairs(cls, pairs: Sequence[Pair], *, max_ngram: int = 2) -> "TfidfIndex":
        """An index of the given pairs; words are weighed over messages and replies alike."""
        texts = [text for pair in pairs for text in (pair.message, pair.reply) if words(text)]
        if not texts:
            raise DataError(
                "There is not a single word to index.", hint="Check the data: it needs dialogues of two turns or more."
            )
        fitted = _vectorizer(max_ngram).fit(texts)
        return cls(pairs, dict(fitted.vocabulary_), fitted.idf_, max_ngram=max_ngram)

    def vectors(self, texts: Sequence[str]) -> sparse.csr_array:
        """One row of unit length (or zero, for a text of unknown words) per text."""
        if not texts:  # scikit-learn refuses none
            return sparse.csr_array(np.zeros((0, len(self._vectorizer.vocabulary_)), dtype=np.float32))
        return sparse.csr_array(self._vectorizer.transform(texts))

    def similarity(self, queries: sparse.csr_array) -> sparse.csr_array:
        """Cosine of each query row with each row of the index; queries must have rows of unit length."""
        return sparse.csr_array(queries @ self._by_word)

    def save(self, folder: Path) -> None:
        """Write the index; the manifest comes last."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        vocabulary = {str(term): int(column) for term, column in self._vectorizer.vocabulary_.items()}
        with (folder / "pairs.jsonl").open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(pair, ensure_ascii=False) + "\n" for pair in self.pairs)
        (folder / "vocabulary.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
        np.save(folder / "idf.npy", self._vectorizer.idf_)
        manifest = {"format": FORMAT, "bot": "tfidf", "pairs": len(self.pairs), "max_ngram": self.max_ngram}
        manifest |= {"fingerprint": self.fingerprint, "version": __version__}
        manifest |= {"files": {name: _digest(folder / name) for name in FILES}}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "TfidfIndex":
        """Read what `save` wrote, and check that it is whole."""
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if manifest["format"] != FORMAT:
                raise DataError(f"{folder} has format {manifest['format']}; this version reads format {FORMAT}.")
            for name in FILES:
                if _digest(folder / name) != manifest["files"][name]:
                    raise ValueError(f"{name} is not the file the manifest was written for")
            with (folder / "pairs.jsonl").open(encoding="utf-8") as lines:
                pairs = [Pair(*json.loads(line)) for line in lines]
            vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
            return cls(pairs, vocabulary, np.load(folder / "idf.npy"), max_ngram=manifest["max_ngram"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"The index in {folder} is damaged ({error}).", hint="Build it anew from its data."
            ) from None


def pairs_of(dialogue: Dialogue) -> list[Pair]:
    """A dialogue's replies with the messages they answer, its opening turn among them."""
    opening = [Pair("", turn.text, f"{dialogue.id}#0") for turn in dialogue.turns[:1]]
    return opening + [Pair(e.context[-1].text, e.response.text, e.id) for e in exchanges(dialogue)]


class _Row(NamedTuple):
    pair: int
    text: str


def _rows(pairs: Sequence[Pair]) -> Iterator[_Row]:
    """A reply mostly answers the last thing said: "I should sleep. Good night." is found by "good night" too."""
    for i, pair in enumerate(pairs):
        yield _Row(i, pair.message)
        last = sentences(pair.message)[-1:]
        if last and last[0] != squash(pair.message):
            yield _Row(i, last[0])


def _vectorizer(max_ngram: int, vocabulary: dict[str, int] | None = None) -> TfidfVectorizer:
    def terms(text: str) -> list[str]:
        found = words(text)
        return [" ".join(gram) for n in range(1, max_ngram + 1) for gram in ngrams(found, n)]

    return TfidfVectorizer(analyzer=terms, sublinear_tf=True, vocabulary=vocabulary, dtype=np.float32)


def _digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _fingerprint(pairs: Sequence[Pair], max_ngram: int) -> str:
    digest = hashlib.sha256(f"{FORMAT} {max_ngram}\n".encode())
    for pair in pairs:
        digest.update(json.dumps(pair, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()[:16]
