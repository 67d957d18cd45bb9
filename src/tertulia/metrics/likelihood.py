"""Metrics of likelihoods: perplexity of human turns under a model, and the model's own view of what it generates.

Perplexity depends on the vocabulary, so it is reported per word (words, punctuation marks and the end of each turn)
beside the model's own tokens. For models with latent variables there are the evidence lower bound and its KL term
(Serban et al. 2017).
"""

from collections.abc import Sequence

from tertulia.core.text import words
from tertulia.metrics.metric import DialogueLikelihood, LatentTerms, Metric, ReplyExample

Pair = tuple[list[float], list[float]]
"""Values and weights."""


def nats_and_words(batch: Sequence[DialogueLikelihood]) -> Pair:
    """Nats over words."""
    return [one.nats for one in batch], [one.words for one in batch]


def nats_and_tokens(batch: Sequence[DialogueLikelihood]) -> Pair:
    """Nats over tokens."""
    return [one.nats for one in batch], [one.tokens for one in batch]


def spelled_nats_and_words(batch: Sequence[DialogueLikelihood]) -> Pair:
    """Nats, spelling included, over words.

    >>> spelled_nats_and_words([DialogueLikelihood(nats=6.0, words=3, tokens=3, turns=1, spelling=12.0)])
    ([18.0], [3])
    """
    return [one.nats + one.spelling for one in batch], [one.words for one in batch]


def bound_and_words(batch: Sequence[DialogueLikelihood], *, latent: Sequence[LatentTerms]) -> Pair:
    """The negative evidence lower bound over words."""
    return [terms.bound for terms in latent], [one.words for one in batch]


def kl_and_words(batch: Sequence[DialogueLikelihood], *, latent: Sequence[LatentTerms]) -> Pair:
    """KL divergence over words."""
    return [terms.kl for terms in latent], [one.words for one in batch]


def logprob_per_token(batch: Sequence[ReplyExample], *, logprobs: Sequence[float]) -> list[float]:
    """As the decoder computed it."""
    return list(logprobs)


def words_per_reply(batch: Sequence[ReplyExample]) -> list[int]:
    """Words, without punctuation.

    >>> words_per_reply([ReplyExample("Yes, I do!")])
    [3]
    """
    return [len(words(one.reply)) for one in batch]


def seconds_per_reply(batch: Sequence[ReplyExample], *, seconds: float) -> Pair:
    """The time of the batch, spread evenly; replies generated together have no times of their own."""
    return [seconds / len(batch)] * len(batch), [1.0] * len(batch)


PERPLEXITY = Metric(
    "perplexity", "dialogue", "perplexity", "perplexity per word", higher_is_better=False, compute=nats_and_words
)
PERPLEXITY_PER_TOKEN = Metric(
    "perplexity per token",
    "dialogue",
    "perplexity",
    "perplexity per token of the model",
    higher_is_better=False,
    compute=nats_and_tokens,
)
PERPLEXITY_WITH_SPELLING = Metric(
    "perplexity with spelling",
    "dialogue",
    "perplexity",
    "perplexity per word, unknown words spelled by a model of characters",
    "Witten and Bell 1991 (characters)",
    higher_is_better=False,
    compute=spelled_nats_and_words,
)
PERPLEXITY_BOUND = Metric(
    "perplexity bound",
    "dialogue",
    "perplexity",
    "perplexity per word by the evidence lower bound",
    "Serban et al. 2017",
    False,
    compute=bound_and_words,
    needs=("latent",),
)
KL = Metric(
    "KL",
    "dialogue",
    "ratio",
    "KL divergence between posterior and prior, in nats per word",
    "Serban et al. 2017",
    None,
    compute=kl_and_words,
    needs=("latent",),
)
LOGPROB = Metric(
    "log-probability per token",
    "reply",
    "mean",
    "log-probability per token of a reply under the model that generated it",
    "Adiwardana et al. 2020",
    compute=logprob_per_token,
    needs=("logprobs",),
)
LENGTH = Metric("words per reply", "reply", summary="length in words", higher_is_better=None, compute=words_per_reply)
SECONDS = Metric(
    "seconds per reply",
    "reply",
    "pooled",
    "time to generate a reply on this machine",
    higher_is_better=False,
    compute=seconds_per_reply,
    needs=("seconds",),
)
