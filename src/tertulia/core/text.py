"""Words, sentences and n-grams, defined once: every metric and every rule uses these and no others.

A word is a run of letters or digits, with inner apostrophes and hyphens ("don't", "well-known"); anything else that is
not a space is a token of its own in `tokens`. Works on Unicode text of any language, without a language model.

Strangers choose the texts, so every function takes time linear in the length of its text, whatever is in it: no pattern
scans the same run of characters from several starting points, and none backtracks. `tests/core/test_linear_time.py`
feeds each function a megabyte of the worst.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")

# The Unicode blocks of combining marks of living scripts (accents, Hebrew points, Indic vowel signs): \w has none.
_COMBINING = "".join(
    chr(c)
    for block in ((0x300, 0x1CFF), (0x1DC0, 0x1DFF), (0x3099, 0x309A), (0xA8E0, 0xABEF), (0xFE20, 0xFE2F))
    for c in range(block[0], block[1] + 1)
    if unicodedata.category(chr(c)) in ("Mn", "Mc")
)
_PART = rf"[^\W_](?:[^\W_]+|[{_COMBINING}]+)*"
_WORD = re.compile(rf"{_PART}(?:['’\-]{_PART})*")
# Nearly all texts are ASCII, where the same words take half the time.
_ASCII_WORD = re.compile(r"[a-z0-9]++(?:['\-][a-z0-9]++)*+")
# An apostrophe or hyphen that does not stand between two letters or digits; first comes what is searched for.
_STRAY_JOINER = re.compile(r"['\-](?:(?<![a-z0-9].)|(?![a-z0-9]))")
_ASCII_PLAIN = {c: chr(c).lower() if chr(c).isalnum() or chr(c) in "'-" else " " for c in range(128)}
_ASCII_PLAIN_TEXTS = _ASCII_PLAIN | {0: "\0"}
_ASCII_PLAIN_BYTES = "".join(_ASCII_PLAIN.values()).encode().ljust(256)
_TOGETHER = 256
"""How many texts are translated in one go."""
_TOKEN = re.compile(rf"{_WORD.pattern}|[^\w\s]|_")
_ABBREVIATIONS = frozenset("mr mrs ms dr prof st vs etc e.g i.e a.m p.m fig jr sr approx dept est u.s u.k".split())
# The lookbehind and the possessive quantifiers keep this linear: a run of dots before an "x" is scanned only once.
_END = re.compile(
    r"(?<![.!?…؟۔।])[.!?…؟۔।]++[\"'”’)\]]*+(?!\S)"
    r"|[。！？]++[\"'”’)\]」』]*+"
    r"|\n++"
)
_CONTROL = {c: None for c in (*range(32), *range(127, 160)) if c not in (9, 10, 13)} | {0xFEFF: None}
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_MARKS = 32
# Every combining mark is in this class, and so are emoji and most symbols.
_LONG_RUN_OF_MARKS = re.compile(rf"[^\w\s\x00-\u02ff]{{{_MAX_MARKS + 1},}}")


def clean(text: str) -> str:
    """Text that is safe to store and show: NFC, no control characters or lone surrogates, Unix line ends.

    >>> clean("a\\x00b\\r\\nc")
    'ab\\nc'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROL)
    if text.isascii():
        return text
    text = text.encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFC", _LONG_RUN_OF_MARKS.sub(_order_marks, text))


def visible(text: str) -> str:
    """Text that is safe to print in a terminal: what would control it is shown instead, as Python writes it.

    Escape sequences, carriage returns and lone surrogates are such characters; line breaks and tabs are not.

    >>> visible("\\x1b[31mred\\x07\\r\\n\\tplain")
    '\\\\x1b[31mred\\\\x07\\n\\tplain'
    """
    if not _INVISIBLE.search(text):
        return text
    return _INVISIBLE.sub(lambda match: repr(match.group())[1:-1], text.replace("\r\n", "\n"))


def _order_marks(match: re.Match[str]) -> str:
    """A run of marks, decomposed and in canonical order, as `normalize` itself would decompose and order it.

    Python orders marks by insertion sort, which takes hours for a megabyte of accents above and below one letter. In
    short pieces and on sorted marks it is linear.
    """
    run = match.group()
    pieces = (run[i : i + _MAX_MARKS] for i in range(0, len(run), _MAX_MARKS))
    decomposed = "".join(unicodedata.normalize("NFD", piece) for piece in pieces)
    ordered: list[str] = []
    for _, group in groupby(decomposed, key=lambda character: unicodedata.combining(character) > 0):
        ordered += sorted(group, key=unicodedata.combining)  # all other characters have class 0 and keep their order
    return "".join(ordered)


def squash(text: str) -> str:
    """Every run of white space becomes one space, none at the ends.

    >>> squash("  so\\n\\tmany   blanks ")
    'so many blanks'
    """
    return " ".join(text.split())


def words(text: str) -> list[str]:
    """The words of a text, lower case, without punctuation.

    >>> words("Don't panic: it's 4 o'clock, well-known José!")
    ["don't", 'panic', "it's", '4', "o'clock", 'well-known', 'josé']
    """
    if text.isascii():
        plain = text.encode().translate(_ASCII_PLAIN_BYTES).decode()  # with a dictionary it takes five times as long
        return _ASCII_WORD.findall(plain) if "'" in plain or "-" in plain else plain.split()
    return [w.replace("’", "'") for w in _WORD.findall(text.lower())]


def words_of_each(texts: Sequence[str]) -> list[list[str]]:
    """The words of many texts, faster than one by one.

    >>> words_of_each(["Don't panic!", "", "José"])
    [["don't", 'panic'], [], ['josé']]
    """
    blocks = (texts[start : start + _TOGETHER] for start in range(0, len(texts), _TOGETHER))
    return [own for block in blocks for own in _words_of_block(block)]


def _words_of_block(texts: Sequence[str]) -> list[list[str]]:
    """The words of a few texts: together if they are ASCII, else those of the two halves."""
    joined = "\0".join(texts)
    if joined.isascii() and joined.count("\0") == len(texts) - 1:
        plain = _STRAY_JOINER.sub(" ", joined.translate(_ASCII_PLAIN_TEXTS))
        return list(map(str.split, plain.split("\0")))
    if len(texts) == 1:
        return [words(texts[0])]
    half = len(texts) // 2
    return _words_of_block(texts[:half]) + _words_of_block(texts[half:])


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, lower case, in order.

    >>> tokens("Hi, you?!")
    ['hi', ',', 'you', '?', '!']
    """
    return [t.replace("’", "'") for t in _TOKEN.findall(text.lower())]


def sentences(text: str) -> list[str]:
    """The sentences of a text: split after final punctuation and at line breaks, not after abbreviations or in numbers.

    >>> sentences("Dr. No paid 3.50 at 9 a.m. sharp. Really?! Yes…\\nnew line")
    ['Dr. No paid 3.50 at 9 a.m. sharp.', 'Really?!', 'Yes…', 'new line']
    """
    parts = (text[start:end] for start, end in _sentence_bounds(text))
    return [sentence for sentence in (squash(part) for part in parts) if sentence]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences of a text begin and end, without the space around them.

    >>> text = "Really?!  Yes. "
    >>> [text[start:end] for start, end in sentence_spans(text)]
    ['Really?!', 'Yes.']
    """
    spans = []
    for start, end in _sentence_bounds(text):
        part = text[start:end]
        if stripped := part.strip():
            first = start + len(part) - len(part.lstrip())
            spans.append((first, first + len(stripped)))
    return spans


def _sentence_bounds(text: str) -> Iterator[tuple[int, int]]:
    start = previous = 0
    for end in _END.finditer(text):
        # The last word before this end cannot reach back beyond the previous end, which is followed by a space.
        before = text[max(start, previous) : end.start()]
        previous = end.start()
        if end.group().startswith(".") and _is_abbreviation(before, text[end.end() : end.end() + 20].lstrip()):
            continue
        yield start, end.end()
        start = end.end()
    yield start, len(text)


def _is_abbreviation(before: str, after: str) -> bool:
    last = before.rsplit(None, 1)[-1] if before and not before.isspace() else ""
    last = last.lstrip("\"'“‘([").lower()
    if last == "no":  # "no. 5" is an abbreviation, "No. I won't." is a sentence
        return after[:1].isdigit()
    return bool(after) and (last in _ABBREVIATIONS or (len(last) == 1 and last.isalpha() and last != "i"))


def ngrams(items: Sequence[T], n: int) -> Iterator[tuple[T, ...]]:
    """All n-grams: runs of n adjacent items. Takes time proportional to the number of items times n.

    >>> list(ngrams(["to", "be", "or"], 2))
    [('to', 'be'), ('be', 'or')]
    """
    if n < 1:
        raise ValueError("n must be at least 1")
    return (tuple(items[i : i + n]) for i in range(len(items) - n + 1))


def is_question(text: str) -> bool:
    """Whether a text is a question: its last sentence ends in a question mark, or begins like a question.

    That is, with a question word ("how are you") or with an auxiliary verb and a pronoun ("can you swim").

    >>> [is_question(t) for t in ("How are you", "you like tea?", "I know what you did.", "Can you swim")]
    [True, True, False, True]
    """
    all_sentences = sentences(text)
    if not all_sentences:
        return False
    last = all_sentences[-1]
    ending = last.rstrip("\"'”’)]」』 ")
    if set("?？؟") & set(ending[len(ending.rstrip(".!?…！？؟")) :]):
        return True
    first = words(last)[:2]
    return bool(first) and not last.endswith("!") and (first[0] in _QUESTION_WORDS or tuple(first) in _INVERTED)


_QUESTION_WORDS = frozenset(
    "what who whom whose when where why how which what's who's where's how's when's why's".split()
)
_AUXILIARY = "is are was were do does did can could will would should have has am may isn't aren't don't doesn't didn't"
_INVERTED = frozenset(
    (verb, who) for verb in _AUXILIARY.split() for who in "you i we they he she it there this that".split()
)


def plural(count: int, noun: str, several: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "dialogue"), plural(2, "dialogue"), plural(0, "reply", "replies"), plural(1200, "turn")
    ('1 dialogue', '2 dialogues', '0 replies', '1200 turns')
    """
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"
