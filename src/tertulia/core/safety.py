"""Which texts are unsafe: a lexicon of patterns, and optionally a trained classifier, behind one interface.

The miner asks it about messages, the bots' safety filter about candidates, so both mean the same by "unsafe".

The lexicon matches patterns in context (who does what to whom) rather than single words. "I will kill the process" is
safe and "I will kill you" is not; "she is nice" contains no slur, because only complete words match; a "not" just
before a threat or an encouragement negates it. One pattern depends on the conversation: a cheerful "sure, do it" is
unsafe as a reply to "should I hurt myself?". The lexicon is fast and easy to inspect. It covers English only, does not
recognise unusual spellings, and misses anything hurtful that is said in decent words.

Where that matters, add a classifier by name. None is built in: the small ones in pip packages are pickled objects,
which can run code when loaded, and Tertulia never loads such a model.
"""

import re
from collections.abc import Sequence
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Protocol, Self

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.errors import DataError, MissingFile
from tertulia.core.registry import Registry
from tertulia.core.text import tokens

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
_LOOKAHEAD = re.compile(r"\(\?!(?:[^()]|\([^()]*\))*\)")
_GAP = re.compile(r" ?/ ?| ")
MAX_CHECKED = 20_000
"""Characters of a text that the lexicon reads; a longer one is unsafe. Of the message before it, it reads the end."""
CLASSIFIERS = Registry("safety classifier")
CLASSIFIERS.add(
    "hf", "tertulia.models.classifiers.safety:SafetyClassifier", "a Hugging Face model for text classification"
)


class SafetyJudge(Protocol):
    """Decides which texts are unsafe."""

    def reasons(self, texts: Sequence[str], /, *, message: str = "") -> list[str | None]:
        """For each text, why it is unsafe (as a reply to `message`, if there is one), or None."""
        ...


class SafetyConfig(Config):
    """What counts as unsafe."""

    swearing: bool = False
    """Whether swearing at nobody in particular is unsafe too."""
    lexicon: Path | None = None
    """A text file of additional unsafe words and phrases, one per line."""
    classifier: str = ""
    """A Hugging Face text classification model to use as well, by hub name or folder; none by default."""
    label: str = ""
    """Its label for unsafe texts, several separated by "|"; required if the model has more than two labels."""
    threshold: float = Field(default=0.5, gt=0, lt=1)
    """A text is unsafe if the probability of such a label is at least this."""

    def load(self) -> "Judges":
        """The judges, ready to use. A wrong name fails here."""
        lexicon = SafetyLexicon.built_in(swearing=self.swearing, more=self.lexicon)
        if not self.classifier:
            return Judges(lexicon)
        load = CLASSIFIERS.get("hf").load
        return Judges(lexicon, load(self.classifier, label=self.label, threshold=self.threshold))


class Judges:
    """The lexicon and perhaps a classifier: a text is unsafe if either says so."""

    def __init__(self, lexicon: "SafetyLexicon", classifier: SafetyJudge | None = None) -> None:
        self.lexicon, self.classifier = lexicon, classifier

    def reasons(self, texts: Sequence[str], /, *, message: str = "") -> list[str | None]:
        """The first judge's reason for each text, or None."""
        reasons = self.lexicon.reasons(texts, message=message)
        if self.classifier:
            others = self.classifier.reasons(texts, message=message)
            reasons = [reason or other for reason, other in zip(reasons, others, strict=True)]
        return reasons


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
            patterns = patterns | {"slur": _any_of((_bare(patterns["slur"]), *_read_phrases(more)))}
        return cls(patterns, swearing=swearing)

    @cached_property
    def loose_pattern(self) -> str:
        """A regular expression over texts as they are: every text that is unsafe by itself matches it, and few others.

        It is in RE2's dialect, so that whoever has millions of texts can find the few to look at closely in one pass.
        Any signs may stand between two words, and lookaheads and the ends of words are left out.
        """
        patterns = (_LOOKAHEAD.sub("", _bare(self.patterns[kind])) for kind in self.kinds)
        joined = "|".join(patterns).replace("\\ ", " ").replace(r"\w", r"\S")
        return "(?i)" + _GAP.sub("[^a-z0-9]+", joined)

    def reasons(self, texts: Sequence[str], /, *, message: str = "") -> list[str | None]:
        """Which texts are unsafe, and of what kind."""
        about_self_harm = self._matches(_ASKS, normalise(message[-MAX_CHECKED:])) if message else False
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


_BEFORE, _AFTER = r"(?<![^ ])(?:", r")(?= )"


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    """Any of the patterns, matched against complete words."""
    return re.compile(f"{_BEFORE}{'|'.join(patterns)}{_AFTER}")


def _bare(pattern: re.Pattern[str]) -> str:
    """What `_any_of` was given."""
    return pattern.pattern.removeprefix(_BEFORE).removesuffix(_AFTER)


def _read_phrases(file: Path) -> list[str]:
    hint = "The lexicon must be a text file with one phrase per line."
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise MissingFile(f"File not found: {file}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the lexicon {file} ({error}).", hint=hint) from None
    return [re.escape(normalise(line).strip()) for line in lines if normalise(line).strip()]
