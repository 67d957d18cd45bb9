"""Words, sentences and n-grams, in one place: every metric and every rule counts with these and no others.

A word is a run of letters or digits, with inner apostrophes and hyphens ("don't", "well-known"); anything else that is
not a space is a token of its own where punctuation is asked for. Unicode throughout; no language model.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

# Where living scripts keep their combining marks (accents, Hebrew points, Indic vowel signs): \w knows none of them.
_MARKS = "".join(
    chr(c)
    for block in ((0x300, 0x1CFF), (0x1DC0, 0x1DFF), (0x3099, 0x309A), (0xA8E0, 0xABEF), (0xFE20, 0xFE2F))
    for c in range(block[0], block[1] + 1)
    if unicodedata.category(chr(c)) in ("Mn", "Mc")
)
_PART = rf"[^\W_](?:[^\W_]+|[{_MARKS}]+)*"
_WORD = re.compile(rf"{_PART}(?:['’\-]{_PART})*")
_TOKEN = re.compile(rf"{_WORD.pattern}|[^\w\s]|_")
_ABBREVIATIONS = frozenset("mr mrs ms dr prof st vs etc e.g i.e a.m p.m fig jr sr approx dept est u.s u.k".split())
_END = re.compile(r"[.!?…؟۔।]+[\"'”’)\]]*(?=\s+|$)|[。！？]+[\"'”’)\]」』]*|\n{1,}")
_CONTROL = {c: None for c in (*range(32), *range(127, 160)) if c not in (9, 10, 13)} | {0xFEFF: None}


def clean(text: str) -> str:
    """Text as it may be stored and shown: NFC, no control characters or lone surrogates, Unix line ends.

    >>> clean("a\\x00b\\r\\nc")
    'ab\\nc'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROL)
    return unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


def squash(text: str) -> str:
    """All runs of white space as one blank, none at the ends.

    >>> squash("  so\\n\\tmany   blanks ")
    'so many blanks'
    """
    return " ".join(text.split())


def words(text: str) -> list[str]:
    """The words of a text, lower case, without punctuation.

    >>> words("Don't panic: it's 4 o'clock, well-known José!")
    ["don't", 'panic', "it's", '4', "o'clock", 'well-known', 'josé']
    """
    return [w.replace("’", "'") for w in _WORD.findall(text.lower())]


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, lower case, in order.

    >>> tokens("Hi, you?!")
    ['hi', ',', 'you', '?', '!']
    """
    return [t.replace("’", "'") for t in _TOKEN.findall(text.lower())]


def sentences(text: str) -> list[str]:
    """The sentences of a text: cut after end marks and at line breaks, not after abbreviations or inside numbers.

    >>> sentences("Dr. No paid 3.50 at 9 a.m. sharp. Really?! Yes…\\nnew line")
    ['Dr. No paid 3.50 at 9 a.m. sharp.', 'Really?!', 'Yes…', 'new line']
    """
    found, start = [], 0
    for end in _END.finditer(text):
        before, after = text[start : end.start()], text[end.end() : end.end() + 20].lstrip()
        if end.group().startswith(".") and _is_abbreviation(before, after):
            continue
        found.append(text[start : end.end()])
        start = end.end()
    found.append(text[start:])
    return [s for s in (squash(f) for f in found) if s]


def _is_abbreviation(before: str, after: str) -> bool:
    tail = before.rsplit(None, 1)[-1] if before.strip() else ""
    tail = tail.lstrip("\"'“‘([").lower()
    if tail == "no":  # a number where one follows, else an answer
        return after[:1].isdigit()
    return bool(after) and (tail in _ABBREVIATIONS or (len(tail) == 1 and tail.isalpha() and tail != "i"))


def ngrams(items: Sequence[T], n: int) -> Iterator[tuple[T, ...]]:
    """All runs of n neighbours.

    >>> list(ngrams(["to", "be", "or"], 2))
    [('to', 'be'), ('be', 'or')]
    """
    if n < 1:
        raise ValueError("n must be at least 1")
    return (tuple(items[i : i + n]) for i in range(len(items) - n + 1))


def is_question(text: str) -> bool:
    """Whether a text asks: its last sentence ends in a question mark, or opens with a question word or inverted verb.

    >>> [is_question(t) for t in ("How are you", "you like tea?", "I know what you did.", "Can you swim")]
    [True, True, False, True]
    """
    found = sentences(text)
    if not found:
        return False
    ending = found[-1].rstrip("\"'”’)]」』 ")
    if set("?？؟") & set(ending[len(ending.rstrip(".!?…！？؟")) :]):
        return True
    first = words(found[-1])[:2]
    return bool(first) and not found[-1].endswith("!") and (first[0] in _ASKING or tuple(first) in _INVERTED)


_ASKING = frozenset("what who whom whose when where why how which what's who's where's how's when's why's".split())
_AUXILIARY = "is are was were do does did can could will would should have has am may isn't aren't don't doesn't didn't"
_INVERTED = frozenset(
    (verb, who) for verb in _AUXILIARY.split() for who in "you i we they he she it there this that".split()
)
