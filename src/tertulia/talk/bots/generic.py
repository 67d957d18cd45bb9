"""GenericBot of the Meena paper (arXiv 2001.09977): always sensible, never specific: the baseline to beat."""

import time
from collections.abc import Sequence
from typing import ClassVar, Self

from tertulia import __version__
from tertulia.core.config import Config
from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.core.text import is_question, words
from tertulia.talk.bot import BotTraits


class GenericOptions(Config):
    """Its two replies."""

    to_questions: str = "I don't know."
    """The reply to every question."""
    to_statements: str = "ok"
    """The reply to everything else, including an empty message."""


class GenericBot:
    """Says "I don't know." to questions and "ok" to statements."""

    Options: ClassVar[type[Config]] = GenericOptions
    target_help: ClassVar[str] = ""
    traits = BotTraits(instant=True)
    summary = 'Says "I don\'t know." to questions and "ok" to everything else.'

    def __init__(self, options: GenericOptions | None = None) -> None:
        self.options = options or GenericOptions()
        self._settings = self.options.model_dump()
        self.spec = "generic"

    @classmethod
    def build(cls, target: str, options: GenericOptions, /) -> Self:
        """From a specification without a target."""
        return cls(options)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """One of two replies."""
        start = time.perf_counter()
        texts = [self._text(ask) for ask in asks]
        seconds = time.perf_counter() - start
        return [
            Reply(text, Provenance(self.spec, None, dict(self._settings), ask.seed, __version__), seconds=seconds)
            for text, ask in zip(texts, asks, strict=True)
        ]

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """Word F1 of each candidate with its own reply: mostly ties, so close to chance."""
        scores = []
        for ask, texts in zip(asks, candidates, strict=True):
            own = set(words(self._text(ask)))
            scores.append([_f1(own, set(words(text))) for text in texts])
        return scores

    def _text(self, ask: Ask) -> str:
        return self.options.to_questions if is_question(ask.last) else self.options.to_statements


def _f1(own: set[str], other: set[str]) -> float:
    return 2 * len(own & other) / (len(own) + len(other)) if own and other else 0.0
