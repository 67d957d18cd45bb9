"""The words by which facts about oneself are recognised: occupations, relatives, pets, places, numbers.

The lists are text files beside this one. A term has a kind (job, pet ...), a value that its spellings share, and a
field: two occupations of one field may go together ("I am a nurse", "I work at a hospital"), others do not.
"""

from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple, get_args

Kind = Literal[
    "job", "child", "sibling", "pet", "marital", "age", "home", "origin", "like", "favorite", "have", "name",
    "gender", "hair", "height", "money", "company", "weight", "faith", "diet", "setting", "meat", "alcohol",
]  # fmt: skip
TRAITS: tuple[Kind, ...] = ("hair", "height", "money", "company", "weight", "faith", "diet", "gender")

NUMBERS = {
    word: number
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
        " seventeen eighteen nineteen twenty".split()
    )
} | {"a": 1, "an": 1, "no": 0, "couple": 2, "only": 1, "single": 1}
TENS = {
    word: 10 * number
    for number, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)
}
MANY = frozenset("several many few some lots dozen bunch multiple".split())
_IRREGULAR = {
    "children": "child", "kids": "kid", "babies": "baby", "puppies": "puppy", "kitties": "kitty", "bunnies": "bunny",
    "mice": "mouse", "ponies": "pony", "wives": "wife", "calves": "calf", "glasses": "glasses", "canaries": "canary",
}  # fmt: skip
PLACE_OF_WORK = "@"


class Fact(NamedTuple):
    """Something that a speaker says of themselves or of a relative."""

    kind: Kind
    value: str
    positive: bool = True
    amount: int | None = None
    """How many there are, where that is said."""
    field: str = ""
    """For occupations, the line of business; for favourites, of what it is the favourite."""
    holder: str = "i"
    """Whom it is about: "i", or a relative."""
    place: bool = False
    """For occupations: only where one works is known."""
    total: bool = False
    """Whether a count covers all of the kind ("two kids") rather than a part ("two sons")."""


class Term(NamedTuple):
    """A word or phrase of the lists."""

    kind: Kind
    value: str
    field: str = ""
    place: bool = False
    """Whether it is where people work rather than what they are."""


@cache
def terms() -> dict[Kind, dict[str, Term]]:
    """By kind, then by spelling."""
    table: dict[Kind, dict[str, Term]] = {}
    kinds: dict[str, Kind] = {name: name for name in get_args(Kind)}
    kind: Kind = "job"
    field = ""
    for line in _lines("lexicon.txt"):
        if line.startswith("["):
            name, _, field = line[1:-1].partition(" ")
            kind = kinds[name]
            continue
        place = line.startswith(PLACE_OF_WORK)
        spellings = [part.strip() for part in line.lstrip(PLACE_OF_WORK).split(",")]
        for spelling in spellings:
            value = spelling if place else spellings[0]
            table.setdefault(kind, {}).setdefault(spelling, Term(kind, value, field, place))
    return table


@cache
def place_paths() -> dict[str, tuple[str, ...]]:
    """By name, the path from the country to the place: ("usa", "ohio", "cleveland").

    >>> place_paths()["cleveland"], place_paths()["paris"]
    (('usa', 'ohio', 'cleveland'), ('france', 'paris'))
    """
    table: dict[str, tuple[str, ...]] = {}
    for line in _lines("places.txt"):
        head, _, inner = line.partition(":")
        names = [name.strip() for name in head.split(",")]
        path = tuple(names[0].split("/"))
        for name in (path[-1], *names[1:]):
            table.setdefault(name, path)
        for name in (part.strip() for part in inner.split(",")):
            if name:
                table.setdefault(name, (*path, name))
    return table


def singular(word: str) -> str:
    """
    >>> [singular(word) for word in ("dogs", "children", "puppies", "buses", "glass", "fish")]
    ['dog', 'child', 'puppy', 'bus', 'glass', 'fish']
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(("ches", "shes", "sses", "xes", "uses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")) else word


def find_term(kind: Kind, listed: list[str], *, last: bool = False) -> Term | None:
    """The longest phrase of a kind among words; with `last`, only one that ends them (the head of a noun phrase).

    >>> find_term("job", "high school teacher".split(), last=True).value, find_term("job", ["tall"])
    ('teacher', None)
    """
    table = terms()[kind]
    base = [singular(word) for word in listed]
    for size in range(min(4, len(listed)), 0, -1):
        starts = [len(listed) - size] if last else range(len(listed) - size + 1)
        for start in starts:
            for part in (listed[start : start + size], base[start : start + size]):
                if (term := table.get(" ".join(part))) is not None:
                    return term
    return None


def find_place(listed: list[str]) -> tuple[str, ...] | None:
    """The most specific known place among words, as a path from its country.

    >>> find_place("a small house in cleveland ohio".split())
    ('usa', 'ohio', 'cleveland')
    """
    table, paths = place_paths(), list[tuple[str, ...]]()
    for size in (3, 2, 1):
        for start in range(len(listed) - size + 1):
            if (path := table.get(" ".join(listed[start : start + size]))) is not None:
                paths.append(path)
        if paths:
            return max(paths, key=len)
    return None


def number(listed: list[str]) -> int | None:
    """The first number among words: digits, or in letters up to ninety-nine.

    >>> number(["thirty", "two"]), number(["12"]), number("my old".split())
    (32, 12, None)
    """
    for i, word in enumerate(listed):
        first, _, second = word.partition("-")
        if word.isdigit() and len(word) < 7:
            return int(word)
        if first in TENS:
            following = second or (listed[i + 1] if i + 1 < len(listed) else "")
            unit = NUMBERS.get(following, 0)
            return TENS[first] + (unit if 0 < unit < 10 and following not in ("a", "an", "only", "single") else 0)
        if word in NUMBERS:
            return NUMBERS[word]
    return None


def _lines(name: str) -> list[str]:
    text = (files("tertulia.core") / name).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
