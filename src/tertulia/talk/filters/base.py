"""What a filter is: a pure function of the conversation and a candidate, which says nothing (keep) or why not.

Its parameters are a config's fields, and the config itself is the function: what is saved with a run says all there is
to say about a filter. How bad its reason is decides which candidate is used where every one has been dropped.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

from tertulia.core.reply import Ask

NEVER = float("inf")
"""The weight of reasons for which a candidate must not be said in any case."""


class Filter(Protocol):
    """Says why a candidate should not be said."""

    weight: ClassVar[float]
    """How bad its reason is, beside those of the others."""

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """Why not; None where nothing speaks against it."""
        ...


@runtime_checkable
class BatchFilter(Protocol):
    """A filter that is faster on many candidates at once."""

    def many(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """The same for each of them."""
        ...
