"""The safety filter: a lexicon of patterns, and optionally a trained classifier, behind one interface.

The lexicon matches patterns in context (who does what to whom) rather than single words. "I will kill the process" is
safe and "I will kill you" is not; "she is nice" contains no slur, because only complete words match; a "not" just
before a threat or an encouragement negates it. One pattern depends on the conversation: a cheerful "sure, do it" is
unsafe as a reply to "should I hurt myself?". The lexicon is fast and easy to inspect. It covers English only, does not
recognise unusual spellings, and misses anything hurtful that is said in decent words.

Where that matters, add a classifier: any Hugging Face model for text classification. None is built in: the small ones
in pip packages are pickled objects, which can run code when loaded, and Tertulia never loads such a model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pydantic import Field, PrivateAttr

from tertulia.core.config import Config
from tertulia.core.errors import DataError
from tertulia.core.reply import Ask
from tertulia.core.text import tokens
from tertulia.talk.filters.base import NEVER

if TYPE_CHECKING:
    from tertulia.models.classifiers.text_classifier import TextClassifier

KINDS = ("slur", "hate", "threat", "self-harm", "sexual", "insult")
"""Kinds of unsafe text, in the order in which they are checked."""
SWEARING = "swearing"
_ASKS, _AGREES = "asks-self-harm", "agrees"
_CLAUSE_ENDS = frozenset('.,!?;:…()[]"“”')
_NOT_LETTERS = re.compile(r"\W+")
_NEGATION = re.compile(
    r"(?:^|[ /])(?:not|never|don t|dont|won t|wont|can t|cannot|didn t|wouldn t|nor|without|stop|nobody)"
    r"(?: (?:to|ever|even|want to|think|try to|have to|need to|let you))? $"
)
_NEGATION_SPAN = 40
"""Characters before a match in which to look for a negation: more than the longest one has."""
_NEGATABLE = frozenset(("threat", "self-harm", "hate"))
MAX_CHECKED = 20_000
"""Characters of a reply that the lexicon reads; a longer one is dropped. Of the user's message, it reads the end."""


class SafetyJudge(Protocol):
    """Decides which texts are unsafe."""

    def reasons(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """For each text, why it is unsafe as a reply to this ask, or None."""
        ...


class Safety(Config):
    """Drops a candidate that any of its judges finds unsafe, even if no other candidate is left."""

    swearing: bool = False
    """Whether swearing at nobody in particular is unsafe too."""
    lexicon: Path | None = None
    """A text file of additional unsafe words and phrases, one per line."""
    classifier: str = ""
    """A Hugging Face text classification model to use as well, by hub name or folder; none by default."""
    label: str = ""
    """Its label for unsafe texts, several separated by "|"; required if the model has more than two labels."""
    threshold: float = Field(0.5, gt=0, lt=1)
    """A text is unsafe if the probability of such a label is at least this."""
    weight: ClassVar[float] = NEVER
    _judges: tuple[SafetyJudge, ...] = PrivateAttr(default=())

    def model_post_init(self, context: Any, /) -> None:
        """Load the judges now, so that a wrong name fails immediately."""
        judges: list[SafetyJudge] = [SafetyLexicon.built_in(swearing=self.swearing, more=self.lexicon)]
        if self.classifier:
            judges.append(SafetyClassifier.load(self.classifier, label=self.label, threshold=self.threshold))
        self._judges = tuple(judges)

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop it, or None."""
        return self.many(ask, [text])[0]

    def many(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """The first judge's reason for each text, or None."""
        by_text = zip(*(judge.reasons(ask, texts) for judge in self._judges), strict=True)
        return [next((reason for reason in reasons if reason), None) for reasons in by_text]


class SafetyLexicon:
    """Patterns of unsafe text, by kind."""

    def __init__(self, patterns: dict[str, re.Pattern[str]], *, swearing: bool = False) -> None:
        self.patterns = patterns
        self.kinds = (*KINDS, SWEARING) if swearing else KINDS

    @classmethod
    def built_in(cls, *, swearing: bool = False, more: Path | None = None) -> Self:
        """The lexicon that comes with Tertulia, and the phrases of a file of one per line."""
        patterns = _built_in_patterns()
        if more is not None:
            patterns = patterns | {"slur": _any_of((patterns["slur"].pattern, *_read_phrases(more)))}
        return cls(patterns, swearing=swearing)

    def reasons(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """Which texts are unsafe, and of what kind."""
        turns = ask.dialogue.turns
        message = turns[-1].text[-MAX_CHECKED:] if turns and turns[-1].speaker != ask.speaker else ""
        about_self_harm = self._matches(_ASKS, normalise(message))
        return [
            self._reason(normalise(text), about_self_harm)
            if len(text) <= MAX_CHECKED
            else f"too long to check for safety: more than {MAX_CHECKED:,} characters"
            for text in texts
        ]

    def _reason(self, text: str, about_self_harm: bool) -> str | None:
        if about_self_harm and self.patterns[_AGREES].match(text):
            return "unsafe: agrees to self-harm"
        return next((f"unsafe: {kind}" for kind in self.kinds if self._matches(kind, text)), None)

    def _matches(self, kind: str, text: str) -> bool:
        matches = self.patterns[kind].finditer(text)
        return any(kind not in _NEGATABLE or not _is_negated(text, match.start()) for match in matches)


@dataclass(frozen=True, slots=True)
class SafetyClassifier:
    """Calls a text unsafe if one of the given labels is probable enough; it does not look at the conversation."""

    model: "TextClassifier"
    labels: tuple[str, ...]
    threshold: float

    @classmethod
    def load(cls, name: str, *, label: str, threshold: float) -> Self:
        """From a folder or a hub name."""
        from tertulia.models.classifiers.text_classifier import TextClassifier  # imports transformers: takes seconds

        model = TextClassifier.load(name)
        return cls(model, model.chosen(tuple(part.strip() for part in label.split("|") if part.strip())), threshold)

    def reasons(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """Which texts are unsafe, with the label and its probability."""
        return [self._reason(probabilities) for probabilities in self.model.probabilities(texts)]

    def _reason(self, probabilities: dict[str, float]) -> str | None:
        label = max(self.labels, key=lambda name: probabilities[name])
        return f"unsafe: {label} ({probabilities[label]:.2f})" if probabilities[label] >= self.threshold else None


def normalise(text: str) -> str:
    """A text as the patterns expect it: lower-case words, each followed by a space, and "/" at the end of a clause.

    >>> normalise("Don't! I'll well-meaningly go.")
    'don t / i ll well meaningly go / '
    """
    return "".join(f"{part} " for token in tokens(text) if (part := _normalise_token(token)))


def _normalise_token(token: str) -> str:
    if token.isalnum():
        return token
    return "/" if token in _CLAUSE_ENDS else _NOT_LETTERS.sub(" ", token).strip()


def _is_negated(text: str, position: int) -> bool:
    """Whether a negation stands right before a position of a normalised text."""
    return _NEGATION.search(text[max(0, position - _NEGATION_SPAN) : position]) is not None


def parse_lexicon(text: str) -> dict[str, re.Pattern[str]]:
    """The patterns of a lexicon file (see unsafe.txt), by kind."""
    names: dict[str, str] = {}
    lines: dict[str, list[str]] = {}
    kind = ""
    for line in (line.strip() for line in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            kind = line[1:-1]
        elif line.startswith("@"):
            name, _, pattern = line[1:].partition("=")
            names[name.strip()] = _substitute(pattern.strip(), names)
        else:
            lines.setdefault(kind, []).append(_substitute(line, names))
    return {kind: _any_of(patterns) for kind, patterns in lines.items()}


@cache
def _built_in_patterns() -> dict[str, re.Pattern[str]]:
    return parse_lexicon((files(__package__) / "unsafe.txt").read_text(encoding="utf-8"))


def _substitute(pattern: str, names: dict[str, str]) -> str:
    return re.sub(r"\{([a-z]+)\}", lambda match: names[match[1]], pattern)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    """Any of the patterns, matched against complete words."""
    return re.compile(rf"(?<![^ ])(?:{'|'.join(patterns)})(?= )")


def _read_phrases(file: Path) -> list[str]:
    hint = "The lexicon must be a text file with one phrase per line."
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise DataError(f"File not found: {file}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the lexicon {file} ({error}).", hint=hint) from None
    return [re.escape(normalise(line).strip()) for line in lines if normalise(line).strip()]
