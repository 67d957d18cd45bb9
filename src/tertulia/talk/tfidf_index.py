"""A tf-idf index of messages and the replies they received: what the retrieval bot searches.

On disk it is a folder with the pairs, the vocabulary, its idf weights, and a manifest (`tertulia.artefacts.manifest`).
"""

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from tertulia.artefacts.files import fingerprint
from tertulia.artefacts.manifest import open_folder, read_manifest, seal
from tertulia.core.dialogue import Dialogue, exchanges
from tertulia.core.errors import DataError
from tertulia.core.text import ngrams, sentences, squash, words

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

KIND, FORMAT = "tfidf-index", 2
PAIRS, VOCABULARY, IDF = FILES = ("pairs.jsonl", "vocabulary.json", "idf.npy")


class MessageReply(NamedTuple):
    """A message and the reply it received; the message is empty if the reply opened a conversation."""

    message: str
    reply: str
    source: str
    """Where the reply is from: dialogue id # turn."""


Query = Mapping[int, float]
"""The weights of a text's known terms, by their columns."""


class TfidfIndex:
    """Pairs of message and reply, and the tf-idf rows of the messages."""

    def __init__(
        self, pairs: Sequence[MessageReply], vocabulary: dict[str, int], idf: np.ndarray, *, max_ngram: int
    ) -> None:
        self.pairs = tuple(pairs)
        self.max_ngram = max_ngram
        self._vectorizer = _vectorizer(max_ngram, vocabulary)
        self._vectorizer.idf_ = idf
        self.openers = [i for i, pair in enumerate(self.pairs) if not pair.message]
        rows = list(_rows(self.pairs))
        self.pair_of = [row.pair for row in rows]
        """The pair of each row of the index: a message has one row, and another one for its last sentence alone."""
        by_term = scipy.sparse.csr_array(self.vectors([row.text for row in rows]).T)
        # Where in the next two the rows of each term begin. Arrays, not lists: a query jumps to a few of many thousand
        # values, and a list has each of them somewhere else.
        self._starts = array("q", by_term.indptr.tolist())
        self._rows, self._weights = by_term.indices, by_term.data
        self._columns: dict[str, int] = self._vectorizer.vocabulary_
        self._idf = array("d", np.asarray(idf).tolist())
        self.fingerprint = fingerprint([str(max_ngram), *(json.dumps(pair) for pair in self.pairs)])

    @classmethod
    def from_dialogues(cls, dialogues: Iterable[Dialogue], *, max_ngram: int = 2) -> "TfidfIndex":
        """An index of every reply of every dialogue, and of the opening turns."""
        return cls.from_pairs([pair for dialogue in dialogues for pair in pairs_of(dialogue)], max_ngram=max_ngram)

    @classmethod
    def from_pairs(cls, pairs: Sequence[MessageReply], *, max_ngram: int = 2) -> "TfidfIndex":
        """An index of the given pairs; idf weights are computed over messages and replies alike."""
        texts = [text for pair in pairs for text in (pair.message, pair.reply) if words(text)]
        if not texts:
            raise DataError(
                "There are no words to index.", hint="Check the data: it needs dialogues of two turns or more."
            )
        fitted = _vectorizer(max_ngram).fit(texts)
        return cls(pairs, dict(fitted.vocabulary_), fitted.idf_, max_ngram=max_ngram)

    def vectors(self, texts: Sequence[str]) -> "scipy.sparse.csr_array":
        """One row of unit length per text; a zero row for a text without known words."""
        if not texts:  # scikit-learn rejects an empty list
            return scipy.sparse.csr_array(np.zeros((0, len(self._vectorizer.vocabulary_)), dtype=np.float32))
        return scipy.sparse.csr_array(self._vectorizer.transform(texts))

    def query(self, text: str) -> Query:
        """The vector of one text, of unit length; empty without known words.

        The same as a row of `vectors`, without what scikit-learn and SciPy do around it, which takes ten times as long.
        """
        counts: dict[int, int] = {}
        for term in _terms(text, self.max_ngram):
            if (column := self._columns.get(term)) is not None:
                counts[column] = counts.get(column, 0) + 1
        idf = self._idf
        return _unit(
            {
                column: idf[column] if count == 1 else (1 + math.log(count)) * idf[column]
                for column, count in counts.items()
            }
        )

    def search(self, query: Query) -> np.ndarray:
        """The cosine of each row of the index with a query of unit length."""
        if not query:
            return np.zeros(len(self.pair_of))
        rows, products = [], []
        for column, weight in query.items():
            start, end = self._starts[column], self._starts[column + 1]
            rows.append(self._rows[start:end])
            products.append(weight * self._weights[start:end])
        return np.bincount(np.concatenate(rows), np.concatenate(products), len(self.pair_of))

    def products(self, query: Query, texts: Sequence[str]) -> list[float]:
        """The cosine of a query of unit length with each text."""
        return [
            sum(weight * other.get(column, 0.0) for column, weight in query.items()) for other in map(self.query, texts)
        ]

    def save(self, folder: Path) -> None:
        """Write the index to a folder."""
        open_folder(folder)
        vocabulary = {str(term): int(column) for term, column in self._vectorizer.vocabulary_.items()}
        with (folder / PAIRS).open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(pair, ensure_ascii=False) + "\n" for pair in self.pairs)
        (folder / VOCABULARY).write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
        np.save(folder / IDF, self._vectorizer.idf_)
        about = {"bot": "tfidf", "pairs": len(self.pairs), "max_ngram": self.max_ngram}
        seal(folder, kind=KIND, format=FORMAT, files=FILES, about=about, content=self.fingerprint)

    @classmethod
    def load(cls, folder: Path) -> "TfidfIndex":
        """Read an index that `save` wrote; its files are verified."""
        manifest = read_manifest(folder, kind=KIND, format=FORMAT, remake="Build it again from its data.")
        with (folder / PAIRS).open(encoding="utf-8") as lines:
            pairs = [MessageReply(*json.loads(line)) for line in lines]
        vocabulary = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
        return cls(pairs, vocabulary, np.load(folder / IDF), max_ngram=manifest.about["max_ngram"])


def pairs_of(dialogue: Dialogue) -> list[MessageReply]:
    """The replies of a dialogue with the messages they answer; the opening turn answers an empty message."""
    opening = [MessageReply("", turn.text, f"{dialogue.id}#0") for turn in dialogue.turns[:1]]
    return opening + [MessageReply(e.context[-1].text, e.response.text, e.id) for e in exchanges(dialogue)]


class _Row(NamedTuple):
    pair: int
    text: str


def _rows(pairs: Sequence[MessageReply]) -> Iterator[_Row]:
    """The texts to index. A reply mostly answers the last sentence of a message, so that is indexed on its own, too:
    a "good night" retrieves replies to "I should sleep. Good night."."""
    for i, pair in enumerate(pairs):
        yield _Row(i, pair.message)
        last = sentences(pair.message)[-1:]
        if last and last[0] != squash(pair.message):
            yield _Row(i, last[0])


def mixed(one: Query, other: Query, weight: float) -> Query:
    """One query plus another one by a weight, of unit length."""
    if not other or not weight:
        return one
    return _unit({column: one.get(column, 0.0) + weight * other.get(column, 0.0) for column in {**one, **other}})


def _unit(weights: dict[int, float]) -> Query:
    length = math.sqrt(sum(weight * weight for weight in weights.values()))
    return {column: weight / length for column, weight in weights.items()} if length else {}


def _terms(text: str, max_ngram: int) -> list[str]:
    terms = unigrams = words(text)
    for n in range(2, max_ngram + 1):
        terms = terms + [" ".join(gram) for gram in ngrams(unigrams, n)]
    return terms


def _vectorizer(max_ngram: int, vocabulary: dict[str, int] | None = None) -> "TfidfVectorizer":
    analyzer = partial(_terms, max_ngram=max_ngram)
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import

    return TfidfVectorizer(analyzer=analyzer, sublinear_tf=True, vocabulary=vocabulary, dtype=np.float32)
