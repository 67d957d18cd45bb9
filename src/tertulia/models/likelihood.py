"""Perplexity of whole dialogues under a model that writes, and how dialogues become talks and batches of them."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from tertulia.core.dialogue import Dialogue, Whose
from tertulia.models.generator import Generator, Nll, Talk, counted
from tertulia.models.tokenizer import Tokenizer, count_words


class Likelihood(NamedTuple):
    """How improbable the turns that count are, for each talk."""

    nats: float
    """Negative log-likelihood."""
    words: int
    """Over how many words, ends of turns included."""
    tokens: int
    """Over how many of the model's tokens."""


def talks_of(dialogue: Dialogue, whose: Whose, speaker: str | None = None) -> Iterator[Talk]:
    """The dialogue as each of its speakers sees it, or as one of them does, with the personas that are shown."""
    for me in dialogue.speakers:
        if speaker is None or me == speaker:
            yield talk_as(dialogue, me, whose)


def talk_as(dialogue: Dialogue, speaker: str, whose: Whose = "both") -> Talk:
    """The dialogue as one of its speakers sees it, also one who has not said anything yet."""
    sentences = [(who == speaker, one) for who, known in dialogue.personas.items() for one in known.sentences]
    return Talk(
        turns=tuple(turn.text for turn in dialogue.turns),
        own=tuple(turn.speaker == speaker for turn in dialogue.turns),
        persona=tuple(one for own, one in sentences if own and whose in ("own", "both")),
        partner=tuple(one for own, one in sentences if not own and whose in ("their", "both")),
    )


def talk_size(talk: Talk, tokenizer: Tokenizer) -> int:
    """Tokens of a talk as one stream."""
    return sum(len(tokenizer.encode(text)) + 2 for text in talk.texts)


def batches_of(sizes: Sequence[int], tokens: int, rng: random.Random | None) -> list[list[int]]:
    """Places in batches of about so many tokens, padding included; neighbours in size go together.

    Without a generator the batches come in the order of sizes; with one they are drawn: talks are shuffled, sorted by
    size within stretches of some thousand, and the batches shuffled again.
    """
    order = list(range(len(sizes)))
    if rng:
        rng.shuffle(order)
    stretch = 4000 if rng else len(order)
    found: list[list[int]] = []
    for start in range(0, len(order), max(1, stretch)):
        batch: list[int] = []
        for place in sorted(order[start : start + stretch], key=lambda i: sizes[i]):
            if batch and sizes[place] * (len(batch) + 1) > tokens:
                found.append(batch)
                batch = []
            batch.append(place)
        found.append(batch)
    if rng:
        rng.shuffle(found)
    return found


@torch.no_grad()
def likelihoods(
    model: Generator,
    talks: Sequence[Talk],
    *,
    tokens: int = 3000,
    nll: Callable[[list[Talk]], Nll] | None = None,
) -> list[Likelihood]:
    """Of the own turns of each talk, by the model's own count, or by `nll`."""
    sizes = [talk_size(talk, model.tokenizer) for talk in talks]
    found: dict[int, Likelihood] = {}
    for batch in batches_of(sizes, tokens, None):
        some = [talks[place] for place in batch]
        told = nll(some) if nll else model.nll(some, scored="own")
        for place, talk, nats, count in zip(batch, some, told.total.tolist(), told.tokens.tolist(), strict=True):
            found[place] = Likelihood(nats, _own_words(talk), count)
    return [found[place] for place in range(len(talks))]


def perplexity(found: Sequence[Likelihood]) -> dict[str, float]:
    """Of some talks together: per word whatever the tokens, and per token.

    >>> perplexity([Likelihood(nats=0.0, words=4, tokens=5)])
    {'perplexity': 1.0, 'perplexity per token': 1.0}
    """
    nats = math.fsum(one.nats for one in found)
    words, tokens = sum(one.words for one in found), sum(one.tokens for one in found)
    return {"perplexity": math.exp(nats / words), "perplexity per token": math.exp(nats / tokens)}


def _own_words(talk: Talk) -> int:
    return sum(count_words(text) for text, counts in zip(talk.turns, counted(talk, "own"), strict=True) if counts)
