"""The safety layer: what an unsafe candidate is, by as many judges as there are, each behind the same interface.

Built in is a lexicon with context (`tertulia.talk.filters.lexicon`): quick, open to reading, and blind to whatever is
hurtful in decent words. A trained classifier is an option, by the name or folder of any Hugging Face model for text
classification. None is built in: the small ones that pip packages carry come as pickled objects, which can run code as
they are loaded, and Tertulia never loads such a model.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field, PrivateAttr

from tertulia.core.config import Config
from tertulia.core.reply import Ask
from tertulia.talk.filters.base import NEVER
from tertulia.talk.filters.lexicon import Lexicon


class SafetyJudge(Protocol):
    """Tells what is unsafe to say."""

    def reasons(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """For each text, why it is unsafe in this conversation; None where it is not."""
        ...


class Safety(Config):
    """Drops what any judge finds unsafe; it is never said, whatever else there is."""

    swearing: bool = False
    """Whether swearing that hits nobody is unsafe too."""
    lexicon: Path | None = None
    """A file of words and phrases, one a line, that are unsafe beside the built-in ones."""
    classifier: str = ""
    """A Hugging Face model for text classification that judges too, by name or folder; none by default."""
    label: str = ""
    """Its label for unsafe texts, several with "|" between; needed where the model has more than two labels."""
    threshold: float = Field(0.5, gt=0, lt=1)
    """A text is unsafe from this probability of such a label on."""
    weight: ClassVar[float] = NEVER
    _judges: tuple[SafetyJudge, ...] = PrivateAttr(default=())

    def model_post_init(self, context: Any, /) -> None:
        """Load the judges now, so that a wrong name fails at once."""
        judges: list[SafetyJudge] = [Lexicon.built_in(swearing=self.swearing, more=self.lexicon)]
        if self.classifier:
            from tertulia.talk.filters.classifier import Classifier  # brings transformers along, which takes seconds

            judges.append(Classifier.load(self.classifier, label=self.label, threshold=self.threshold))
        self._judges = tuple(judges)

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """Why not."""
        return self.many(ask, [text])[0]

    def many(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """The first judge's reason for each text."""
        found = zip(*(judge.reasons(ask, texts) for judge in self._judges), strict=True)
        return [next((reason for reason in reasons if reason), None) for reasons in found]
