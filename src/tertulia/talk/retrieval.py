"""Searching passages: by words (BM25) and by meaning (sentence vectors), the two rankings combined.

BM25 (Robertson and Zaragoza 2009) finds names and numbers, vectors find paraphrases. Their scores have no common scale,
so ranks are combined: reciprocal rank fusion (Cormack et al. 2009). A passage that shares no content word with the
conversation and is not similar to it either is never returned: small talk needs no evidence.

Vectors take nearly all the time of indexing. They are cached by the digest of each file (`tertulia.artefacts.cache`),
so that only files that have changed are encoded again. The cache has no texts.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from tertulia.artefacts.cache import cache_folder
from tertulia.artefacts.files import atomic_write, fingerprint
from tertulia.core.dialogue import Turn
from tertulia.core.english import STOP_WORDS, stem
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.core.registry import Registry
from tertulia.core.reply import Passage
from tertulia.core.text import words
from tertulia.talk.passages import MAX_CHARACTERS, MAX_SENTENCES, MAX_WORDS, DocumentFile, Documents, read_documents

Floats = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Floats]
"""Unit vectors (n, d) of texts."""
SearchMethod = Literal["hybrid", "words"]

MINILM = "minilm"
ENCODERS = Registry("sentence encoder")
"""A table, because it takes seconds to import, and bots without documents do not need it."""
ENCODERS.add(MINILM, "tertulia.models.sentence_encoder:SentenceEncoder", "all-MiniLM-L6-v2")
MAX_PASSAGES = 100_000
K1, B = 1.2, 0.75
FUSION = 60
"""The constant of reciprocal rank fusion."""
POOL = 100
"""Passages of each ranking that are combined."""
TURN_WEIGHTS = (1.0, 0.5, 0.25)
"""Weights of the words of the last turn, the one before it, and the one before that."""
MIN_SIMILARITY = 0.35
"""Cosine from which a passage fits without a shared content word."""
MIN_SIMILARITY_WITH_WORDS = 0.15
"""Cosine from which a passage with a shared content word fits: "today" alone is no reason."""
BATCH = 512
"""Passages encoded at once, so that short ones can be put together."""
_SPLITTER = f"2-{MAX_SENTENCES}-{MAX_WORDS}-{MAX_CHARACTERS}"
"""Changes whenever files are split into other passages, whose vectors would be others."""


class _Query(NamedTuple):
    """The last turns, as many as `TURN_WEIGHTS` has."""

    terms: dict[str, float]
    text: str


class PassageIndex:
    """The passages of a folder, ready to be searched. Immutable, so that any number of threads may search it."""

    def __init__(self, documents: Documents, *, vectors: Floats | None = None, encode: Encode | None = None) -> None:
        """Without vectors, it searches by words alone."""
        self.texts = tuple(passage for document in documents.files for passage in document.passages)
        self.sources = tuple(
            f"{document.name}#{number}"
            for document in documents.files
            for number in range(1, len(document.passages) + 1)
        )
        self.remark = documents.remark()
        """What could not be read, in one sentence; empty if everything could."""
        self.fingerprint = fingerprint(part for document in documents.files for part in document[:2])
        self._encode, self._vectors = encode, vectors
        self._terms: dict[str, int] = {}
        self._weights = self._bm25()  # (terms, passages)

    @classmethod
    def of(cls, folder: Path, *, search: SearchMethod = "hybrid", progress: Progress | None = None) -> "PassageIndex":
        """Read a folder; encode those of its files that the cache does not have."""
        documents = read_documents(folder)
        if (count := sum(len(document.passages) for document in documents.files)) > MAX_PASSAGES:
            raise DataError(
                f"{folder} has {count:,} passages, more than {MAX_PASSAGES:,}.", hint="Choose a smaller folder."
            )
        if search == "words":
            return cls(documents)
        encoder = ENCODERS.get(MINILM).load(MINILM).eval()
        cache = VectorCache(cache_folder() / "documents", MINILM)
        return cls(documents, vectors=cache.vectors(documents.files, encoder.encode, progress), encode=encoder.encode)

    def __len__(self) -> int:
        return len(self.texts)

    def search(self, turns: Sequence[Turn], count: int) -> list[Passage]:
        """The passages that fit the last turns best, best first; none if none does."""
        query = _query(turns)
        if not query.text.strip():
            return []
        rankings = [self._by_words(query.terms)]
        fits = rankings[0] > 0
        if self._encode is not None and self._vectors is not None:
            # One by one, because the rounding of a product depends on its number of rows.
            similarity = self._vectors @ self._encode([query.text])[0]
            fits = (fits & (similarity >= MIN_SIMILARITY_WITH_WORDS)) | (similarity >= MIN_SIMILARITY)
            rankings.append(similarity)
        scores: dict[int, float] = {}
        for ranking in rankings:
            for rank, passage in enumerate(_best(ranking, fits), 1):
                scores[passage] = scores.get(passage, 0.0) + 1 / (FUSION + rank)
        best = sorted(scores, key=lambda passage: (-scores[passage], passage))[:count]
        top = len(rankings) / (FUSION + 1)
        return [Passage(self.texts[i], self.sources[i], round(scores[i] / top, 4)) for i in best]

    def _by_words(self, terms: dict[str, float]) -> Floats:
        known = {self._terms[term]: weight for term, weight in terms.items() if term in self._terms}
        scores = np.zeros(len(self.texts), np.float32)
        for row, weight in known.items():
            start, end = self._weights.indptr[row], self._weights.indptr[row + 1]
            scores[self._weights.indices[start:end]] += weight * self._weights.data[start:end]
        return scores

    def _bm25(self) -> "scipy.sparse.csr_array":
        """The weight of each term in each passage, (terms, passages)."""
        rows: list[int] = []
        columns: list[int] = []
        counts: list[int] = []
        lengths = np.zeros(len(self.texts))
        for column, text in enumerate(self.texts):
            own = Counter(content_terms(text))
            lengths[column] = own.total()
            for term, count in own.items():
                rows.append(self._terms.setdefault(term, len(self._terms)))
                columns.append(column)
                counts.append(count)
        frequency = np.bincount(rows, minlength=len(self._terms)) if rows else np.zeros(0)
        idf = np.log1p((len(self.texts) - frequency + 0.5) / (frequency + 0.5))
        term_counts = np.array(counts, np.float64)
        norm = K1 * (1 - B + B * lengths[columns] / max(float(lengths.mean()), 1.0)) if rows else np.zeros(0)
        weights = idf[rows] * term_counts * (K1 + 1) / (term_counts + norm) if rows else np.zeros(0)
        shape = (len(self._terms), len(self.texts))
        return scipy.sparse.csr_array((weights.astype(np.float32), (rows, columns)), shape=shape)


class VectorCache:
    """Vectors of passages on disk, one array for each file that was encoded."""

    def __init__(self, folder: Path, encoder: str) -> None:
        self._folder = folder
        self._name = f"{_SPLITTER} {encoder}"

    def vectors(self, files: Sequence[DocumentFile], encode: Encode, progress: Progress | None = None) -> Floats:
        """The vectors of all passages in order; those of new files are computed, and cached."""
        progress = progress or Silent()
        cached = [self._read(document) for document in files]
        new = [document for document, known in zip(files, cached, strict=True) if known is None]
        progress.step("Encoding passages", sum(len(document.passages) for document in new))
        made: list[NDArray[np.float16]] = []
        for batch in _batches(new):
            encoded = encode([passage for document in batch for passage in document.passages]).astype(np.float16)
            parts = np.split(encoded, np.cumsum([len(document.passages) for document in batch])[:-1])
            for document, vectors in zip(batch, parts, strict=True):
                self._write(document, vectors)
            made += parts
            progress.advance(len(encoded))
        rows = iter(made)
        return np.concatenate([(next(rows) if known is None else known).astype(np.float32) for known in cached])

    def _write(self, document: DocumentFile, vectors: NDArray[np.float16]) -> None:
        path = self._path(document)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as unfinished, unfinished.open("wb") as out:
            np.save(out, vectors, allow_pickle=False)

    def _read(self, document: DocumentFile) -> NDArray[np.float16] | None:
        try:
            vectors = np.load(self._path(document), allow_pickle=False)
        except (OSError, ValueError, EOFError):  # not there, or cut off: it is made again
            return None
        whole = vectors.ndim == 2 and len(vectors) == len(document.passages) and vectors.dtype == np.float16
        return vectors if whole else None

    def _path(self, document: DocumentFile) -> Path:
        key = hashlib.sha256(f"{self._name} {document.digest} {document.name.rpartition('.')[2]}".encode()).hexdigest()
        return self._folder / key[:2] / f"{key}.npy"


def content_terms(text: str) -> list[str]:
    """The stems of a text's words that carry content; scripts without spaces give pairs of characters.

    >>> content_terms("Who was the first on the Moon?"), content_terms("月の石")
    (['first', 'moon'], ['月の', 'の石'])
    """
    terms: list[str] = []
    for word in words(text):
        if word in STOP_WORDS:
            continue
        if word.isascii() or not _is_unspaced(word):
            terms.append(stem(word))
        else:
            terms += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
    return terms


def _is_unspaced(word: str) -> bool:
    """Chinese, Japanese, Thai, Lao, Khmer: there, a run of letters is a clause and not a word."""
    return any("\u3040" <= c <= "\u9fff" or "\u0e00" <= c <= "\u0eff" or "\u1780" <= c <= "\u17ff" for c in word)


def _query(turns: Sequence[Turn]) -> _Query:
    terms: dict[str, float] = {}
    for turn, weight in zip(reversed(turns), TURN_WEIGHTS, strict=False):
        for term in set(content_terms(turn.text)):
            terms[term] = max(weight, terms.get(term, 0.0))
    return _Query(terms, "\n".join(turn.text for turn in turns[-len(TURN_WEIGHTS) :]))


def _best(scores: Floats, fits: NDArray[np.bool_]) -> list[int]:
    """The indices of the largest scores among those that fit, best first; ties in the order of the passages."""
    indices = np.flatnonzero(fits & (scores > 0))
    order = np.lexsort((indices, -scores[indices]))[:POOL]
    best: list[int] = indices[order].tolist()
    return best


def _batches(files: Sequence[DocumentFile]) -> Iterator[list[DocumentFile]]:
    """Files in groups of about `BATCH` passages."""
    batch: list[DocumentFile] = []
    for document in files:
        batch.append(document)
        if sum(len(one.passages) for one in batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
