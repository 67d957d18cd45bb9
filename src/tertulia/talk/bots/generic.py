"""GenericBot of the Meena paper (arXiv 2001.09977): always sensible, never specific. The floor every bot must clear."""

import time
from collections.abc import Sequence
from typing import ClassVar, Self

from tertulia import __version__
from tertulia.core.config import Config
from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.core.text import is_question, words


class GenericOptions(Config):
    """What it says."""

    to_questions: str = "I don't know."
    """The answer to every question."""
    to_statements: str = "ok"
    """The answer to everything else, silence included."""


class GenericBot:
    """Says "I don't know." to questions and "ok" to statements."""

    Options: ClassVar[type[Config]] = GenericOptions
    target_help: ClassVar[str] = ""
    summary = 'Says "I don\'t know." to questions and "ok" to everything else.'

    def __init__(self, options: GenericOptions | None = None) -> None:
        self.options = options or GenericOptions()
        self.spec = "generic"

    @classmethod
    def build(cls, target: str, options: GenericOptions, /) -> Self:
        """From a specification; there is nothing to point at."""
        return cls(options)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """One of two answers."""
        start = time.perf_counter()
        texts = [self._answer(ask) for ask in asks]
        seconds = time.perf_counter() - start
        return [
            Reply(text, Provenance(self.spec, None, self.options.model_dump(), ask.seed, __version__), seconds=seconds)
            for text, ask in zip(texts, asks, strict=True)
        ]

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """How many of a candidate's words are those it would have said itself: mostly ties, hence close to chance."""
        scores = []
        for ask, texts in zip(asks, candidates, strict=True):
            own = set(words(self._answer(ask)))
            scores.append([_f1(own, set(words(text))) for text in texts])
        return scores

    def _answer(self, ask: Ask) -> str:
        return self.options.to_questions if is_question(ask.last) else self.options.to_statements


def _f1(own: set[str], other: set[str]) -> float:
    return 2 * len(own & other) / (len(own) + len(other)) if own and other else 0.0
