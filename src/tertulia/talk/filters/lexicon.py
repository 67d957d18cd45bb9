"""Unsafe text by a small lexicon of patterns with context: who does what to whom, not which word occurs.

"I will kill the process" is safe and "I will kill you" is not; "she is nice" holds no slur, since only whole words
count; and a "not" right before it turns a threat or an encouragement around. One pattern looks at the conversation:
a cheerful "sure, do it" is unsafe as an answer to "should I hurt myself?".

What it cannot do: it knows English alone, it does not see through odd spelling, and it misses whatever is hurtful
without using such words. Where that matters, put a trained classifier beside it (`tertulia.talk.filters.safety`).
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Self

from tertulia.core.errors import DataError
from tertulia.core.reply import Ask
from tertulia.core.text import tokens

KINDS = ("slur", "hate", "threat", "self-harm", "sexual", "insult")
"""What is unsafe anywhere, in the order in which a text is charged with it."""
SWEARING = "swearing"
_ASKS, _AGREES = "asks-self-harm", "agrees"
_CLAUSE = frozenset('.,!?;:…()[]"“”')
_NEGATED = re.compile(
    r"(?:^|[ /])(?:not|never|don t|dont|won t|wont|can t|cannot|didn t|wouldn t|nor|without|stop|nobody)"
    r"(?: (?:to|ever|even|want to|think|try to|have to|need to|let you))? $"
)
_TURNED_AROUND = frozenset(("threat", "self-harm", "hate"))


class Lexicon:
    """Patterns by kind."""

    def __init__(self, patterns: dict[str, re.Pattern[str]], *, swearing: bool = False) -> None:
        self.patterns = patterns
        self.kinds = (*KINDS, SWEARING) if swearing else KINDS

    @classmethod
    def built_in(cls, *, swearing: bool = False, more: Path | None = None) -> Self:
        """The one that comes with Tertulia; `more` is a file of words and phrases, one a line, that are unsafe too."""
        patterns = _built_in()
        if more is not None:
            patterns = patterns | {"slur": _any((patterns["slur"].pattern, *_phrases(more)))}
        return cls(patterns, swearing=swearing)

    def reasons(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """Which texts are unsafe, and of what kind."""
        turns = ask.dialogue.turns
        asked = bool(turns) and turns[-1].speaker != ask.speaker and self._finds(_ASKS, plain(turns[-1].text))
        return [self._reason(plain(text), asked) for text in texts]

    def _reason(self, text: str, asked: bool) -> str | None:
        if asked and self.patterns[_AGREES].match(text):
            return "unsafe: agrees to self-harm"
        return next((f"unsafe: {kind}" for kind in self.kinds if self._finds(kind, text)), None)

    def _finds(self, kind: str, text: str) -> bool:
        found = self.patterns[kind].finditer(text)
        return any(kind not in _TURNED_AROUND or not _NEGATED.search(text[: match.start()]) for match in found)


def plain(text: str) -> str:
    """The words of a text as the patterns want them, each with a blank behind it.

    >>> plain("Don't! I'll well-meaningly go.")
    'don t / i ll well meaningly go / '
    """
    found = ("/" if token in _CLAUSE else re.sub(r"[^\w]+", " ", token).strip() for token in tokens(text))
    return "".join(f"{word} " for word in found if word)


def read_lexicon(text: str) -> dict[str, re.Pattern[str]]:
    """The patterns of a lexicon file, by kind."""
    names: dict[str, str] = {}
    lines: dict[str, list[str]] = {}
    kind = ""
    for line in (line.strip() for line in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            kind = line[1:-1]
        elif line.startswith("@"):
            name, _, piece = line[1:].partition("=")
            names[name.strip()] = _filled(piece.strip(), names)
        else:
            lines.setdefault(kind, []).append(_filled(line, names))
    return {kind: _any(found) for kind, found in lines.items()}


@cache
def _built_in() -> dict[str, re.Pattern[str]]:
    return read_lexicon((files(__package__) / "unsafe.txt").read_text(encoding="utf-8"))


def _filled(piece: str, names: dict[str, str]) -> str:
    return re.sub(r"\{([a-z]+)\}", lambda found: names[found[1]], piece)


def _any(pieces: Sequence[str]) -> re.Pattern[str]:
    """Any of them, from the beginning of a word to the end of one."""
    return re.compile(rf"(?<![^ ])(?:{'|'.join(pieces)})(?= )")


def _phrases(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"The lexicon {file} cannot be read ({error}).", hint="It is a text file, one phrase a line."
        ) from None
    return [re.escape(plain(line).strip()) for line in lines if plain(line).strip()]
