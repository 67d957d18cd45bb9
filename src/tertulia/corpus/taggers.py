"""Tags: what is measured of a dialogue once, so that thresholds can be chosen and changed later.

A tagger is a config that is called with a batch of items and returns a tag by name for each. It says which tags it
writes and what they mean. Plugins add rows through the entry-point group `tertulia.taggers`.
"""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tertulia.core.config import Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import MissingExtra
from tertulia.core.registry import Registry
from tertulia.core.safety import MAX_CHECKED, Judges, SafetyConfig, SafetyLexicon
from tertulia.core.text import ngrams, words_of_each
from tertulia.corpus.derived import turns_of
from tertulia.corpus.readers.base import Item
from tertulia.corpus.rules import URL, share_of_letters
from tertulia.corpus.scrub import scrub

TAGGERS = Registry("tagger", "tertulia.taggers", requires=("tags",))
_HERE = "tertulia.corpus.taggers:"
TAGGERS.add("length", _HERE + "LengthTagger", "how long the dialogue and its turns are")
TAGGERS.add("language", _HERE + "LanguageTagger", "in which language it is (py3langid)")
TAGGERS.add("repetition", _HERE + "RepetitionTagger", "how much it repeats itself")
TAGGERS.add("characters", _HERE + "CharacterTagger", "how much of it is letters, and how many turns have links")
TAGGERS.add("safety", _HERE + "SafetyTagger", "how unsafe its worst turn is")
TAGGERS.add("pii", _HERE + "PersonalDataTagger", "how many personal data it contains")
TAGGERS.add(
    "perplexity",
    "tertulia.judge.perplexity_tagger:PerplexityTagger",
    "how surprising its replies are to a language model; slow",
)
DEFAULT = ("length", "language", "repetition", "characters", "safety", "pii")
LANGUAGE_CHARACTERS = 400
"""Characters by which a language is identified: more hardly change the result."""


class TagInfo(NamedTuple):
    """What a tag is."""

    kind: Literal["string", "int64", "double", "bool"]
    """Its type in Arrow; a tag may also have no value (none)."""
    summary: str


class Tagger(Protocol):
    """Measures items."""

    tags: ClassVar[Mapping[str, "TagInfo"]]
    """The tags that it writes, by name."""

    def __call__(self, items: Sequence[Item], /) -> list[dict[str, Json]]:
        """The tags of each item, in order."""
        ...


class LengthTagger(Config):
    """How long the dialogue and its turns are."""

    tags: ClassVar[Mapping[str, TagInfo]] = {
        "turns": TagInfo("int64", "number of turns"),
        "words": TagInfo("int64", "number of words"),
        "shortest_turn": TagInfo("int64", "words of the shortest turn"),
        "longest_turn": TagInfo("int64", "words of the longest turn"),
        "last_turn": TagInfo("int64", "words of the last turn"),
    }

    def __call__(self, items: Sequence[Item], /) -> list[dict[str, Json]]:
        """Counts of each item."""
        tags: list[dict[str, Json]] = []
        for lengths in ([len(own) for own in turns] for turns in _words_of_turns(items)):
            bounds = {"shortest_turn": min(lengths, default=0), "longest_turn": max(lengths, default=0)}
            last = lengths[-1] if lengths else 0
            tags.append({"turns": len(lengths), "words": sum(lengths), **bounds, "last_turn": last})
        return tags


class LanguageTagger(Config):
    """In which language it is, by naive Bayes over byte n-grams (langid.py, Lui and Baldwin 2012)."""

    tags: ClassVar[Mapping[str, TagInfo]] = {
        "language": TagInfo("string", "ISO 639 code of the most probable language; zxx for what is no language"),
        "language_confidence": TagInfo("double", "its probability, from 0 to 1; low for short texts"),
    }

    def __call__(self, items: Sequence[Item], /) -> list[dict[str, Json]]:
        """The language of each item, by its first 400 characters."""
        identify = _language_identifier()
        tags: list[dict[str, Json]] = []
        for item in items:
            language, confidence = identify(_text(item, LANGUAGE_CHARACTERS))
            tags.append({"language": str(language), "language_confidence": round(float(confidence), 4)})
        return tags


class RepetitionTagger(Config):
    """How much it repeats itself."""

    tags: ClassVar[Mapping[str, TagInfo]] = {
        "repetition": TagInfo("double", "share of its word 3-grams that occurred before in it"),
        "repeated_turns": TagInfo("int64", "number of turns with the same words as an earlier one"),
    }

    def __call__(self, items: Sequence[Item], /) -> list[dict[str, Json]]:
        """The repetition of each item."""
        tags: list[dict[str, Json]] = []
        for turns in _words_of_turns(items):
            grams = [gram for own in turns for gram in ngrams(own, 3)]
            share = round(1 - len(set(grams)) / len(grams), 4) if grams else 0.0
            repeated = len(turns) - len({tuple(own) for own in turns})
            tags.append({"repetition": share, "repeated_turns": repeated})
        return tags


class CharacterTagger(Config):
    """Which characters it consists of."""

    tags: ClassVar[Mapping[str, TagInfo]] = {
        "letters": TagInfo("double", "share of letters among its characters"),
        "links": TagInfo("int64", "number of turns that contain a link"),
    }

    def __call__(self, items: Sequence[Item], /) -> list[dict[str, Json]]:
        """Letters and links of each item."""
        return [
            {
                "letters": round(share_of_letters(" ".join(turn.text for turn in turns_of(item))), 4),
                "links": sum(URL.search(turn.text) is not None for turn in turns_of(item)),
            }
            for item in items
        ]


class SafetyTagger(SafetyConfig):
    """How unsafe it is, by the judges that the miner and the bots use: the lexicon says 0 or 1, a classifier a
    probability. The worst turn counts."""

    tags: ClassVar[Mapping[str, TagInfo]] = {
        "safety": TagInfo("double", "how unsafe its worst turn is, from 0 (safe) to 1"),
        "safety_reason": TagInfo("string", "why its worst turn is unsafe; empty if it is not"),
    }

    def __call__(self, items: Sequence[Item], /) -> list[dict[str, Json]]:
        """The safety of each item."""
        judges = _judges(self.model_dump_json())
        texts = list(dict.fromkeys(turn.text for item in items for turn in turns_of(item)))
        reasons = _lexicon_reasons(judges.lexicon, texts)
        scores = [float(reason is not None) for reason in reasons]
        if judges.classifier:
            others = judges.classifier.reasons(texts)
            probabilities = judges.classifier.scores(texts)  # type: ignore[attr-defined]
            reasons = [reason or other for reason, other in zip(reasons, others, strict=True)]
            scores = [max(pair) for pair in zip(scores, probabilities, strict=True)]
        judged = dict(zip(texts, zip(scores, reasons, strict=True), strict=True))
        tags: list[dict[str, Json]] = []
        for item in items:
            score, reason = max((judged[t.text] for t in turns_of(item)), key=lambda one: one[0], default=(0.0, None))
            tags.append({"safety": round(score, 4), "safety_reason": reason or ""})
        return tags


class PersonalDataTagger(Config):
    """How many personal data a dialogue contains."""

    tags: ClassVar[Mapping[str, TagInfo]] = {
        "pii": TagInfo("int64", "number of e-mail addresses, phone numbers, keys and so on in its turns")
    }

    def __call__(self, items: Sequence[Item], /) -> list[dict[str, Json]]:
        """The number of each item."""
        return [{"pii": sum(sum(scrub(turn.text).counts.values()) for turn in turns_of(item))} for item in items]


def _lexicon_reasons(lexicon: SafetyLexicon, texts: Sequence[str]) -> list[str | None]:
    """What the lexicon says of each text. It reads only the few that its loose pattern matches, in one pass of RE2."""
    column = pa.array(texts, pa.large_string())
    suspicious = pc.or_(
        pc.match_substring_regex(column, lexicon.loose_pattern), pc.greater(pc.utf8_length(column), MAX_CHECKED)
    ).to_pylist()
    read = iter(lexicon.reasons([text for text, close in zip(texts, suspicious, strict=True) if close]))
    return [next(read) if close else None for close in suspicious]


def _words_of_turns(items: Sequence[Item]) -> list[list[list[str]]]:
    """The words of each turn of each item; equal turns are cut into words once."""
    texts = list(dict.fromkeys(turn.text for item in items for turn in turns_of(item)))
    words = dict(zip(texts, words_of_each(texts), strict=True))
    return [[words[turn.text] for turn in turns_of(item)] for item in items]


def _text(item: Item, length: int) -> str:
    """The beginning of an item's text."""
    parts: list[str] = []
    for turn in turns_of(item):
        parts.append(turn.text[:length])
        length -= len(turn.text) + 1
        if length <= 0:
            break
    return "\n".join(parts)


@cache
def _language_identifier() -> Any:
    try:
        package = import_module("py3langid.langid")
    except ImportError:
        raise MissingExtra("The tagger 'language' needs py3langid, which", "pip install 'tertulia[tags]'") from None
    return package.LanguageIdentifier.from_model_file(package.MODEL_FILE, norm_probs=True).classify


@lru_cache(maxsize=2)
def _judges(config: str) -> Judges:
    return SafetyConfig.model_validate_json(config).load()
