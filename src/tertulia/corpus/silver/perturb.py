"""Perturb an English sentence so that its evidence no longer supports it: antonyms, numbers, names, roles, verbs.

Each operation changes the sentence or returns None; none needs a parser or a word net.
"""

import random
import re
from collections.abc import Callable, Sequence

from tertulia.core.english import ANTONYMS, names_in

_VERBS_PAST = """built bought sold wrote directed produced founded created designed discovered invented painted sang
recorded released published won lost received left joined visited studied taught married played coached owned managed
edited performed translated banned cancelled praised criticised opened closed destroyed financed hosted
launched""".split()
_VERBS_PRESENT = """builds buys sells writes directs produces creates designs makes paints sings records releases
publishes wins loses receives leaves joins visits studies teaches plays coaches owns manages hosts opens""".split()
_VERBS_BASE = (
    "build buy sell write direct produce create design paint sing record win lose visit teach own host".split()
)
_VERB_SETS = tuple(frozenset(verbs) for verbs in (_VERBS_PAST, _VERBS_PRESENT, _VERBS_BASE))
Replace = Callable[[str], str | None]
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?")
_NUMBER_WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
_MONTHS = """January February March April May June July August September October November December""".split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def use_antonym(sentence: str, rng: random.Random) -> str | None:
    """One word replaced by its antonym.

    >>> use_antonym("The largest park is in Utah.", random.Random(0))
    'The smallest park is in Utah.'
    """
    return _replace_one(sentence, _WORD, lambda word: ANTONYMS.get(word.lower()), rng)


def change_numbers(sentence: str, rng: random.Random) -> str | None:
    """Every number changed by a plausible amount; if there is none, one number word.

    >>> change_numbers("It opened in 1987 with 40 rooms.", random.Random(0)) != "It opened in 1987 with 40 rooms."
    True
    >>> change_numbers("No numbers here.", random.Random(0)) is None
    True
    """
    if _NUMBER.search(sentence):
        return _NUMBER.sub(lambda match: _other_number(match.group(), rng), sentence)
    others = {word: [w for w in _NUMBER_WORDS if w != word] for word in _NUMBER_WORDS[1:]}
    return _replace_one(sentence, _WORD, lambda word: rng.choice(others.get(word.lower(), [""])) or None, rng)


def _other_number(text: str, rng: random.Random) -> str:
    digits = text.replace(",", "")
    if "." in digits:
        return f"{float(digits) * rng.choice((0.5, 0.8, 1.3, 2.0)):.{len(digits.partition('.')[2])}f}"
    value = int(digits)
    if len(digits) == 4 and 1000 <= value <= 2100 and "," not in text:  # a year
        return str(value + rng.choice([d for d in range(-30, 31) if d]))
    if value < 10:
        return str(rng.choice([n for n in range(1, 13) if n != value]))
    other = int(value * rng.choice((0.3, 0.5, 0.7, 1.4, 2, 3)))
    return f"{other:,}" if "," in text else str(other)


def change_names(sentence: str, pool: Sequence[str], rng: random.Random) -> str | None:
    """Up to two names replaced by others of the pool: months by months, days by days, else by the number of words.

    >>> change_names("He lives in Paris.", ["Deep Purple", "Rome"], random.Random(0))
    'He lives in Rome.'
    """
    names = list(dict.fromkeys(names_in(sentence)))
    if not names:
        return None
    changed = sentence
    for name in rng.sample(names, min(len(names), rng.choice((1, 2)))):
        same = next((group for group in (_MONTHS, _DAYS) if name in group), None)
        same = same or [other for other in pool if len(other.split()) == len(name.split())]
        choices = [other for other in same if other != name and other not in sentence]
        if choices:
            changed = changed.replace(name, rng.choice(choices))
    return changed if changed != sentence else None


def swap_roles(sentence: str, rng: random.Random) -> str | None:
    """Two names of the sentence exchanged, so that who did what to whom is wrong.

    >>> swap_roles("The film follows Anna as she meets Ben.", random.Random(0))
    'The film follows Ben as she meets Anna.'
    """
    names = [name for name in dict.fromkeys(names_in(sentence)) if name not in (*_MONTHS, *_DAYS)]
    if len(names) < 2:
        return None
    one, other = rng.sample(names, 2)
    if one in other or other in one:
        return None
    pattern = re.compile(f"{re.escape(one)}|{re.escape(other)}")
    return pattern.sub(lambda match: other if match.group() == one else one, sentence)


def change_verb(sentence: str, rng: random.Random) -> str | None:
    """A verb replaced by another one in the same form.

    >>> change_verb("She wrote it in May.", random.Random(0)) not in (None, "She wrote it in May.")
    True
    """

    def other(word: str) -> str | None:
        verbs = next((verbs for verbs in _VERB_SETS if word.lower() in verbs), None)
        return rng.choice(sorted(verbs - {word.lower()})) if verbs else None

    return _replace_one(sentence, _WORD, other, rng)


def _replace_one(sentence: str, pattern: re.Pattern[str], other: Replace, rng: random.Random) -> str | None:
    """One match that has a replacement, chosen at random; capitals are kept."""
    options = [(match, new) for match in pattern.finditer(sentence) if (new := other(match.group()))]
    if not options:
        return None
    match, new = rng.choice(options)
    if match.group()[0].isupper():
        new = new[0].upper() + new[1:]
    return sentence[: match.start()] + new + sentence[match.end() :]
