"""Metrics of a reply that need no reference: likelihood, relatedness, specificity, genericness, persona consistency.

There are many good replies and only one reference, so that overlap with it says little (Liu et al. 2016). These metrics
look at the reply, its context and its speaker's persona alone. What they need beside them (a language model, a ranker,
sentence vectors, an entailment classifier) is passed in; a reply without what a metric looks at has no value (nan).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from statistics import fmean
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tertulia.core.consistency import ConsistencyClassifier
from tertulia.core.text import words
from tertulia.metrics.follow_ups import LikelihoodModel, per_token
from tertulia.metrics.metric import Metric, ReplyExample

NAN = float("nan")
SentenceVectors = Callable[[Sequence[str]], NDArray[Any]]
"""From n texts to vectors (n, d); the resource "sentences"."""
GENERIC_REPLIES = (
    "I don't know.",
    "I am not sure.",
    "Okay.",
    "Yes.",
    "No.",
    "That is nice.",
    "That is great!",
    "I see.",
    "Really?",
    "Me too.",
    "Thank you.",
    "What do you mean?",
    "I am doing well, how are you?",
    "What about you?",
    "I like it too.",
)
"""Replies that fit almost any context, and therefore say nothing."""


class ReplyRanker(Protocol):
    """The resource "ranker"."""

    def scores(self, batch: Sequence[ReplyExample]) -> Sequence[float]:
        """How well each reply fits its context, higher is better."""
        ...


def reply_likelihood(batch: Sequence[ReplyExample], *, language_model: LikelihoodModel) -> list[float]:
    """Log-probability per token of each reply given its context."""
    given = language_model.log_likelihoods([one.context for one in batch], [one.reply for one in batch])
    return [per_token(one) for one in given]


def reply_likelihood_gain(batch: Sequence[ReplyExample], *, language_model: LikelihoodModel) -> list[float]:
    """What the context adds to the log-probability per token: pointwise mutual information of reply and context."""
    alone = language_model.log_likelihoods([()] * len(batch), [one.reply for one in batch])
    given = reply_likelihood(batch, language_model=language_model)
    return [one - per_token(other) for one, other in zip(given, alone, strict=True)]


def relatedness(batch: Sequence[ReplyExample], *, ranker: ReplyRanker) -> list[float]:
    """The ranker's score of each reply; nan without a context."""
    with_context = [one for one in batch if one.context]
    scores = iter(ranker.scores(with_context) if with_context else ())
    return [float(next(scores)) if one.context else NAN for one in batch]


@dataclass(frozen=True, slots=True)
class WordIdf:
    """How rare words are, from 0 (the most frequent word) to 1 (the rarest, and those not listed); resource "idf"."""

    by_word: Mapping[str, float]

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Self:
        """The normalised inverse document frequency (NIDF) of the words of texts.

        >>> WordIdf.of_texts(["tea please", "tea", "tea now", "now"]).of("now")
        0.36907...
        """
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(set(words(text)))
        if not counts:
            return cls({})
        most, fewest = log(max(counts.values())), log(min(counts.values()))
        return cls({word: (most - log(count)) / ((most - fewest) or 1.0) for word, count in counts.items()})

    def of(self, word: str) -> float:
        """The value of a word; a compound ("don't", "well-known") that is not listed has that of its rarest part."""
        if word in self.by_word:
            return self.by_word[word]
        parts = [part for part in re.split(r"['-]", word) if part]
        return max(self.by_word.get(part, 1.0) for part in parts) if len(parts) > 1 else 1.0


def idf_specificity(batch: Sequence[ReplyExample], *, idf: WordIdf) -> list[float]:
    """The mean idf of the words of each reply.

    >>> idf_specificity([ReplyExample("I see"), ReplyExample("!")], idf=WordIdf({"i": 0.0, "see": 0.5}))
    [0.25, nan]
    """
    return [fmean(idf.of(word) for word in listed) if (listed := words(one.reply)) else NAN for one in batch]


def genericness(batch: Sequence[ReplyExample], *, sentences: SentenceVectors) -> list[float]:
    """The cosine of each reply with the most similar one of `GENERIC_REPLIES`."""
    if not batch:
        return []
    generic, replies = unit(sentences(GENERIC_REPLIES)), unit(sentences([one.reply for one in batch]))
    best = (replies @ generic.T).max(axis=1)
    return [float(value) if one.reply.strip() else NAN for value, one in zip(best, batch, strict=True)]


def unit(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Vectors (n, d) scaled to length 1; a vector of zeros stays one."""
    wide = np.asarray(vectors, dtype=np.float64)
    size = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.where(size > 0, size, 1.0))


def persona_relation(batch: Sequence[ReplyExample], *, entailment: ConsistencyClassifier, relation: str) -> list[float]:
    """The highest probability that a persona sentence, as the premise, has this relation to the reply.

    >>> from tertulia.core.consistency import RelationProbabilities as Row
    >>> class Opposite:
    ...     def probabilities(self, premises, hypotheses):
    ...         return [Row(0.1, 0.1, 0.8) if "cats" in p else Row(0, 1, 0) for p in premises]
    >>> batch = [ReplyExample("I hate cats.", persona=("I sail.", "I love cats.")), ReplyExample("Hi.")]
    >>> persona_relation(batch, entailment=Opposite(), relation="contradiction")
    [0.8, nan]
    """
    pairs = [(sentence, one.reply) for one in batch for sentence in one.persona]
    judged = iter(entailment.probabilities(*map(list, zip(*pairs, strict=True))) if pairs else ())
    return [max((float(getattr(next(judged), relation)) for _ in one.persona), default=NAN) for one in batch]


LIKELIHOOD = Metric(
    "reply likelihood",
    "reply",
    "mean",
    "log-probability per token of a reply after its context, under a language model",
    "Adiwardana et al. 2020; Pang et al. 2020",
    compute=reply_likelihood,
    needs=("language_model",),
)
LIKELIHOOD_GAIN = Metric(
    "reply likelihood gain",
    "reply",
    "mean",
    "what the context adds to the log-probability per token of a reply (mutual information)",
    "Li et al. 2016 (MMI)",
    compute=reply_likelihood_gain,
    needs=("language_model",),
)
RELATEDNESS = Metric(
    "relatedness",
    "reply",
    "mean",
    "a ranker's score of a reply for its context, by default a cosine of sentence vectors",
    "Tao et al. 2018 (RUBER)",
    compute=relatedness,
    needs=("ranker",),
)
IDF = Metric(
    "specificity by idf",
    "reply",
    "mean",
    "how rare the words of a reply are, from 0 to 1",
    "See et al. 2019",
    bounded=True,
    compute=idf_specificity,
    needs=("idf",),
)
GENERIC = Metric(
    "genericness",
    "reply",
    "mean",
    "similarity of a reply to the most similar of fifteen replies that fit any context",
    "after See et al. 2019",
    higher_is_better=False,
    compute=genericness,
    needs=("sentences",),
)
CONTRADICTS = Metric(
    "contradicts persona",
    "reply",
    "mean",
    "highest probability that a persona sentence contradicts the reply",
    "Welleck et al. 2019",
    higher_is_better=False,
    bounded=True,
    compute=partial(persona_relation, relation="contradiction"),
    needs=("entailment",),
)
ENTAILED = Metric(
    "entailed by persona",
    "reply",
    "mean",
    "highest probability that a persona sentence entails the reply",
    "Welleck et al. 2019; Madotto et al. 2019",
    bounded=True,
    compute=partial(persona_relation, relation="entailment"),
    needs=("entailment",),
)
