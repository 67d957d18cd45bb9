"""Hallucinations as bots write them: replies without the evidence, or from other evidence (Dziri et al. 2021).

Rules make errors of a few kinds; a language model that does not know the evidence makes its own. The replies come from
a function, so that corpora need no models: `tertulia corpus silver --bot smollm2` passes a bot.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tertulia.core.english import content_words
from tertulia.core.progress import Progress

WITHOUT, OTHER = "written without evidence", "written from other evidence"
MAX_OVERLAP = 0.5
"""A reply that shares more than this with the evidence may be supported by it after all, and is left out."""
MIN_CONTENT = 3
"""Content words of a reply at least: with fewer it is generic."""
AT_ONCE = 16
"""Prompts passed to the writer together."""


class WrittenPrompt(NamedTuple):
    """What the writer reads."""

    evidence: str
    """Other evidence than the example's, or none."""
    previous: str


ReplyGenerator = Callable[[Sequence[WrittenPrompt]], Sequence[str]]
"""Answers prompts, in their order."""


class Grounded(Protocol):
    """What is needed of a reply and its evidence."""

    @property
    def evidence(self) -> str:
        """The sentence that the example has as evidence."""
        ...

    @property
    def others(self) -> tuple[str, ...]:
        """Further sentences of the same evidence."""
        ...

    @property
    def previous(self) -> str:
        """The turn before."""
        ...


class Hallucination(NamedTuple):
    """A written reply that its evidence does not support."""

    number: int
    """The situation it answers."""
    operation: str
    response: str


def write_hallucinations(
    situations: Sequence[Grounded], write: ReplyGenerator, *, wanted: int, rng: random.Random, progress: Progress
) -> list[Hallucination]:
    """Replies to situations drawn at random, half of them without evidence; at most three tries for each wanted."""
    made: list[Hallucination] = []
    drawn = [rng.randrange(len(situations)) for _ in range(3 * wanted)]
    for start in range(0, len(drawn), AT_ONCE):
        if len(made) >= wanted:
            break
        numbers = drawn[start : start + AT_ONCE]
        operations = [WITHOUT if (start + i) % 2 else OTHER for i in range(len(numbers))]
        prompts = [
            WrittenPrompt(situations[number].others[0] if operation == OTHER else "", situations[number].previous)
            for number, operation in zip(numbers, operations, strict=True)
        ]
        for number, operation, response in zip(numbers, operations, write(prompts), strict=True):
            if is_unsupported(response, situations[number].evidence) and len(made) < wanted:
                made.append(Hallucination(number, operation, " ".join(response.split())))
                progress.advance()
    return made


def is_unsupported(response: str, evidence: str) -> bool:
    """Whether a reply has content and shares little enough of it with the evidence."""
    content, known = content_words(response), set(content_words(evidence))
    return len(content) >= MIN_CONTENT and sum(word in known for word in content) <= MAX_OVERLAP * len(content)
