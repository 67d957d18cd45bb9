"""The safety filter: drops candidates that the judges of `tertulia.core.safety` find unsafe."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import PrivateAttr

from tertulia.core.reply import Ask
from tertulia.core.safety import Judges, SafetyConfig
from tertulia.talk.filters.base import NEVER


class Safety(SafetyConfig):
    """Drops a candidate that any of its judges finds unsafe, even if no other candidate is left."""

    weight: ClassVar[float] = NEVER
    _judges: Judges = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Load the judges now, so that a wrong name fails immediately."""
        self._judges = self.load()

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        return self.many(ask, [text])[0]

    def many(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """The first judge's reason for each text, or None."""
        turns = ask.dialogue.turns
        message = turns[-1].text if turns and turns[-1].speaker != ask.speaker else ""
        return self._judges.reasons(texts, message=message)
