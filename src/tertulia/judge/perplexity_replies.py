"""The replies a model writes, compared with the true ones: F1 of words, and nearness of the words' vectors.

Writing is slow, so contexts are drawn; all runs and settings have the same ones.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from tertulia.core.dialogue import Dialogue, exchanges
from tertulia.core.text import words
from tertulia.corpus.candidates import Reply
from tertulia.judge.perplexity import Said
from tertulia.judge.rank import Figures, Setting
from tertulia.metrics.embeddings import NAMES, WordVectors, nearness
from tertulia.metrics.overlap import f1
from tertulia.metrics.significance import bootstrap_mean, bootstrap_means
from tertulia.models.vectors import read_vectors
from tertulia.talk.bot import Bot

F1 = "F1"
AT_ONCE = 32
"""Asks that a bot gets at once."""


def drawn_contexts(dialogues: Sequence[Dialogue], count: int, *, speaker: str | None, seed: int) -> list[Reply]:
    """So many replies with what came before them, drawn by the seed; all there are, if they are fewer."""
    found = [Reply(d.id, e) for d in dialogues for e in exchanges(d, speaker=speaker)]
    if count >= len(found):
        return found
    return [found[place] for place in sorted(random.Random(seed).sample(range(len(found)), count))]


def write_replies(
    bot: Bot,
    contexts: Sequence[Reply],
    setting: Setting,
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n: None,
) -> list[Said]:
    """What the bot says in those of the contexts that have the personas of the setting."""
    fit = [(seed + place, one) for place, one in enumerate(contexts) if setting.fits(one.exchange)]
    said = []
    for start in range(0, len(fit), AT_ONCE):
        part = fit[start : start + AT_ONCE]
        replies = bot.reply([setting.ask(one.exchange, seed=own) for own, one in part])
        for (_, one), reply in zip(part, replies, strict=True):
            asked = one.exchange.context[-1].text
            said.append(Said(one.exchange.id, one.dialogue, asked, reply.text, one.text))
        progress(len(part))
    return said


def word_overlap(said: Sequence[Said], *, seed: int = 0) -> Figures:
    """Mean F1 of the replies."""
    values = np.array([f1(one.reply, one.reference) for one in said], dtype=np.float64)
    return {F1: bootstrap_mean(values, [one.dialogue for one in said], seed=seed)}


def vector_nearness(said: Sequence[Said], vectors: WordVectors, *, seed: int = 0) -> tuple[Figures, float]:
    """Mean average, extrema and greedy matching, and the share of words without a vector.

    Replies without a known word have no value and do not count.
    """
    found = nearness([(one.reply, one.reference) for one in said], vectors)
    groups = [one.dialogue for one in said]
    means = bootstrap_means(found.values, groups, counted=~np.isnan(found.values), seed=seed)
    missing = found.unknown / found.words if found.words else float("nan")
    return dict(zip(NAMES, means, strict=True)), missing


def vectors_for(path: Path, said: Iterable[Said]) -> WordVectors:
    """The vectors of all words of replies and references."""
    wanted = {word for one in said for text in (one.reply, one.reference) for word in words(text)}
    return WordVectors.of(read_vectors(path, wanted))
