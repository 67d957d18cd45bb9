"""Rules of one's own: each looks at one dialogue, or one message of a mined source, and says why it goes, or None.

A rule is a config, whose fields are its options; it is named as in `blocklist:file=words.txt`. Built-in rules and those
of plugins come through the same door, the entry-point group `tertulia.rules`. Reasons are counted and reported, so a
reason should be one of a few texts: "shouts", not "shouts 17 times".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Protocol, runtime_checkable

from tertulia.core.config import Config
from tertulia.core.dialogue import Message
from tertulia.core.errors import DataError, UsageError
from tertulia.core.named import make_named
from tertulia.core.registry import Registry
from tertulia.core.text import words
from tertulia.corpus.derived import Removed, turns_of
from tertulia.corpus.readers.base import Item

RULES = Registry("rule", "tertulia.rules")
_HERE = "tertulia.corpus.custom_rules:"
RULES.add("blocklist", _HERE + "Blocklist", "removes what contains a word or phrase of a file, one per line")
RULES.add("alternating", _HERE + "Alternating", "removes dialogues that are not of two speakers who alternate")


class Rule(Protocol):
    """A reason to remove something, as a config that is called with it."""

    def __call__(self, item: Item, /) -> str | None:
        """Why a dialogue or exchange is removed, or None if it stays."""
        ...


@runtime_checkable
class MessageRule(Protocol):
    """A rule that can also be asked while mining, when there are no dialogues yet."""

    def message(self, message: Message, /) -> str | None:
        """Why a message is removed, or None if it stays."""
        ...


def make_rules(names: Sequence[str]) -> list[Rule]:
    """The rules of these names, with their options."""
    return [make_named(RULES, name) for name in names]


def make_message_rules(names: Sequence[str]) -> list[MessageRule]:
    """The rules of these names for mining; one that knows only dialogues is an error."""
    rules: list[MessageRule] = []
    for name, rule in zip(names, make_rules(names), strict=True):
        if not isinstance(rule, MessageRule):
            raise UsageError(
                f"The rule {name!r} looks at dialogues, not at messages.",
                hint="Use it on the mined corpus: tertulia corpus filter FOLDER --rule NAME --out FOLDER",
            )
        rules.append(rule)
    return rules


def message_reasons(rules: Sequence[MessageRule], messages: Sequence[Message]) -> list[str | None]:
    """For each message, the reason of the first rule that removes it, or None: this is how a miner asks."""
    return [next((r for rule in rules if (r := _text(rule, rule.message(m))) is not None), None) for m in messages]


def _text(rule: object, reason: object) -> str | None:
    if reason is None or (isinstance(reason, str) and reason):
        return reason
    raise UsageError(
        f"The rule {type(rule).__name__} returned {reason!r}.",
        hint="A rule returns the reason to remove something as text, or None.",
    )


@dataclass(frozen=True, slots=True)
class RuleMaker:
    """Makes the step that applies rules."""

    names: tuple[str, ...]

    @property
    def columns(self) -> dict[str, str]:
        """It writes no tags."""
        return {}

    def make(self) -> "RuleStep":
        """The step."""
        return RuleStep(make_rules(self.names))


class RuleStep:
    """Removes items by rules; the first reason counts."""

    changes: Mapping[str, int] = {}

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules

    def __call__(self, items: Sequence[Item], /) -> list[Item | Removed]:
        """The items that no rule removes."""
        return [item if (reason := self._reason(item)) is None else Removed(reason) for item in items]

    def _reason(self, item: Item) -> str | None:
        return next((r for rule in self.rules if (r := _text(rule, rule(item))) is not None), None)


class Blocklist(Config):
    """Removes what contains a word or phrase of a list."""

    file: Path
    """A text file with one word or phrase per line; case and punctuation do not matter."""

    def __call__(self, item: Item, /) -> str | None:
        """The reason if any turn contains one."""
        return next((r for turn in turns_of(item) if (r := self._reason(turn.text))), None)

    def message(self, message: Message, /) -> str | None:
        """The reason if the message contains one."""
        return self._reason(message.text)

    def _reason(self, text: str) -> str | None:
        return "blocklist" if _phrases(self.file).search(f" {' '.join(words(text))} ") else None


class Alternating(Config):
    """Removes dialogues that are not of two speakers who alternate."""

    def __call__(self, item: Item, /) -> str | None:
        """The reason, by what is wrong."""
        turns = turns_of(item)
        if len({turn.speaker for turn in turns}) > 2:
            return "more than two speakers"
        return "speakers do not alternate" if any(a.speaker == b.speaker for a, b in pairwise(turns)) else None


@lru_cache(maxsize=8)
def _phrases(file: Path) -> re.Pattern[str]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(f"Cannot read the blocklist {file}: {reason}.", hint="Give a text file.") from None
    phrases = {" ".join(words(line)) for line in lines} - {""}
    if not phrases:
        raise DataError(f"The blocklist {file} is empty.", hint="Write one word or phrase per line.")
    return re.compile(f" (?:{'|'.join(map(re.escape, sorted(phrases)))}) ")
