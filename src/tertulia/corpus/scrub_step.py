"""Scrubbing as a step of the commands that make a corpus from another."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tertulia.corpus.derived import Removed, with_texts
from tertulia.corpus.readers.base import Item
from tertulia.corpus.scrub import KINDS, Kind, scrub


@dataclass(frozen=True, slots=True)
class ScrubMaker:
    """Makes the step that replaces personal data."""

    kinds: tuple[Kind, ...] = KINDS

    @property
    def columns(self) -> dict[str, str]:
        """It writes no tags."""
        return {}

    def make(self) -> "ScrubStep":
        """The step."""
        return ScrubStep(self.kinds)


class ScrubStep:
    """Replaces personal data in the texts of turns, personas and evidence."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.kinds = kinds
        self.changes: Counter[str] = Counter()

    def __call__(self, items: Sequence[Item], /) -> list[Item | Removed]:
        """The items without personal data."""
        return [self.change(item) for item in items]

    def change(self, item: Item) -> Item:
        """One item without personal data."""
        return with_texts(item, self._scrub)

    def _scrub(self, text: str) -> str:
        result = scrub(text, self.kinds)
        self.changes.update(result.counts)
        return result.text
