"""Persona sentences in other words: the nearest sentences of other personas stand in for a speaker's own.

Few corpora have their personas in a second wording, and a model that only ever saw the wording that people talked from
learns to copy its words. A similar sentence of somebody else ("i hike every weekend" for "i love being outdoors") says
about the same with other words, now and then something else: what is left to learn from is the meaning.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tertulia.models.generator import DialogueView
from tertulia.models.sentence_encoder import SentenceEncoder

MIN_SIMILARITY = 0.6
"""Cosine of two sentences, by the encoder, from which one may stand for the other."""
MOST = 5
"""Similar sentences to draw from."""
_ROWS = 1024
"""Sentences that are compared with all others at once."""


@dataclass(frozen=True, slots=True)
class Rewording:
    """For each persona sentence, similar ones of other speakers."""

    similar: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, views: Iterable[DialogueView], encoder: SentenceEncoder) -> "Rewording":
        """Compare all persona sentences of a corpus with each other."""
        sentences = sorted({sentence for view in views for sentence in (*view.persona, *view.partner)})
        return cls(dict(_similar(sentences, encoder)))

    def reword(self, view: DialogueView, rng: random.Random) -> DialogueView:
        """The view with other sentences in its personas; a sentence that none resembles stays."""
        return replace(view, persona=self._others(view.persona, rng), partner=self._others(view.partner, rng))

    def _others(self, persona: Sequence[str], rng: random.Random) -> tuple[str, ...]:
        return tuple(rng.choice(self.similar.get(sentence) or (sentence,)) for sentence in persona)


def _similar(sentences: Sequence[str], encoder: SentenceEncoder) -> Iterator[tuple[str, tuple[str, ...]]]:
    vectors = encoder.encode(sentences)
    for start in range(0, len(sentences), _ROWS):
        cosines = vectors[start : start + _ROWS] @ vectors.T  # (rows, sentences)
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -1.0  # a sentence is no other wording of itself
        for row, values in zip(sentences[start:], cosines, strict=False):
            best = np.argsort(-values, kind="stable")[:MOST]
            yield row, tuple(sentences[i] for i in best if values[i] >= MIN_SIMILARITY)
