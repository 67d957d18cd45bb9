"""The mining rules on a batch of complete threads: columns in, a removal reason (or none) for every row out.

These are the rules of `corpus.rules` and `corpus.trees` with the same results, in another form: each rule looks at all
rows at once. Cheap rules run first and expensive ones see only the rows that are left. That does not change the result,
because a message is charged to the first reason that applies.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tertulia.core.safety import MAX_CHECKED, Judges, SafetyConfig
from tertulia.core.text import squash
from tertulia.corpus.mining.columns import (
    Flags,
    Ints,
    StringArray,
    Texts,
    are_digits,
    are_letters,
    blocks,
    contiguous,
    flags_of,
    letters_and_length,
    numbers_of,
    plain_rows,
    replace_rows,
    row_starts,
    rows_containing,
    sparse_positions,
    strings_to_arrow,
    texts_of,
    to_arrow,
    to_lower_case,
)
from tertulia.corpus.mining.forest import first_of_each, link_parents, message_keys, with_descendants
from tertulia.corpus.mining.hashing import Hashes, is_in_sorted
from tertulia.corpus.mining.lengths import LengthFilter
from tertulia.corpus.mining.words import UnsafePhrases, overlaps_parent, word_hashes
from tertulia.corpus.rules import MAX_QUOTE_SEARCH, REASONS, URL_PATTERN, MiningRules, UnsafeMode, without_quotes
from tertulia.corpus.trees import STRUCTURAL, Funnel

MARKED, DELETED, UNMARKED = 1, 2, 4
"""Bits of the column `flags`; UNMARKED: the source has no marks of unsafe messages."""
_TEXTS = ("id", "parent", "thread", "author", "text")
_KEPT = (("flags", pa.uint8()), ("time", pa.float64()), ("kept", pa.string()))
_HASHES = (("text_hash", pa.uint64()), ("thread_hash", pa.uint64()))
COLUMNS = pa.schema([*((name, pa.string()) for name in _TEXTS), *_KEPT, *_HASHES])
"""Messages between the stages; `text_hash` is that of the original text, quotes included, and `kept` a JSON object of
fields that were asked for."""
_squash_parent = lru_cache(maxsize=32)(squash)
"""Many replies may quote one long message."""
KEPT = 0
CODES = {reason: code for code, reason in enumerate((*STRUCTURAL, *REASONS, "subtree"), 1)}


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Everything the filters need besides the messages."""

    rules: MiningRules
    lengths: LengthFilter
    unsafe_phrases: UnsafePhrases | None = None
    unsafe: UnsafeMode = "auto"
    judges: Callable[[], Judges] = lambda: SafetyConfig().load()
    """Who decides about messages without marks, or about all; loaded when there are such messages."""
    repeated: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Sorted hashes of the texts that occur too often."""


@dataclass(frozen=True, slots=True)
class FilteredMessages:
    """A batch of messages with the reason why each is removed; all columns have one entry per row."""

    ids: StringArray
    threads: StringArray
    authors: StringArray
    texts: StringArray
    """Without quotes of the parent."""
    times: Any
    """Seconds since 1970, or null."""
    kept_fields: StringArray
    """A JSON object of further fields, or null."""
    parent: Ints
    """Row of the parent; the number of rows where there is none."""
    reasons: npt.NDArray[np.uint8]
    """Code of the removal reason; KEPT where the row stays."""
    duplicates: int
    """Messages dropped beforehand because their id occurs earlier in the thread."""
    rows: Ints
    """Where each was in the batch."""

    @property
    def kept(self) -> Flags:
        """Rows that stay."""
        return np.asarray(self.reasons == KEPT)

    @property
    def replies(self) -> Ints:
        """Kept rows with a parent; the parent is then kept too."""
        return np.flatnonzero(self.kept & (self.parent < len(self.parent)))

    def part(self, start: int, end: int) -> "FilteredMessages":
        """The messages that were in these rows of the batch, which hold complete threads."""
        first, last = np.searchsorted(self.rows, (start, end)).tolist()
        if last - first == len(self.rows):
            return self
        own = slice(first, last)
        parent = self.parent[own]
        return FilteredMessages(
            self.ids[own],
            self.threads[own],
            self.authors[own],
            self.texts[own],
            self.times[own],
            self.kept_fields[own],
            np.where(parent < len(self.parent), parent - first, last - first),
            self.reasons[own],
            0,
            self.rows[own],
        )

    def funnel(self) -> Funnel:
        """How many messages each reason removed."""
        counts = np.bincount(self.reasons, minlength=len(CODES) + 1).tolist()
        removed = {reason: counts[code] for reason, code in CODES.items()} | {"duplicate id": self.duplicates}
        return Funnel(len(self.reasons) + self.duplicates, removed, counts[KEPT], len(self.replies))


class _Reasons:
    """The removal reason of each row so far; the first reason wins."""

    def __init__(self, rows: int) -> None:
        self.codes = np.zeros(rows, np.uint8)

    @property
    def remaining(self) -> Ints:
        """Rows without a reason yet."""
        return np.flatnonzero(self.codes == KEPT)

    def remove(self, rows: Flags, reason: str) -> None:
        self.codes[rows & (self.codes == KEPT)] = CODES[reason]


def filter_messages(table: pa.Table, settings: FilterSettings) -> FilteredMessages:
    """Apply all rules to a batch of complete threads, whose messages come in corpus order."""
    keys = message_keys(numbers_of(table["thread_hash"]), contiguous(table["id"]))
    first = first_of_each(keys)
    duplicates, rows = 0, np.arange(len(keys)) if first is None else first
    if first is not None:
        table, keys, duplicates = table.take(to_arrow(first)), keys[first], len(keys) - len(first)
    column = {name: contiguous(table[name]) for name in COLUMNS.names}
    parent_keys = message_keys(numbers_of(column["thread_hash"]), column["parent"])
    links = link_parents(keys, parent_keys, column["parent"], column["thread"])
    texts = _remove_quotes(column["text"], links.parent)
    reasons = _Reasons(len(texts))
    flags = numbers_of(column["flags"])
    reasons.remove(links.invalid, "no parent")
    reasons.remove((flags & DELETED) != 0, "deleted")
    reasons.remove(name_bot(column["author"]), "bot")
    checks = [_check_characters(texts[part], settings.rules.min_letters) for part in blocks(len(texts))]
    url, plain, few_letters = (np.concatenate(parts) for parts in zip(*checks, strict=True))
    reasons.remove(url, "url")
    reasons.remove(few_letters, "letters")
    reasons.remove(is_in_sorted(numbers_of(column["text_hash"]), settings.repeated), "repeated")
    _check_words(reasons, texts, plain, links.parent, settings)
    _check_safety(reasons, texts, flags, settings)
    rest = reasons.remaining  # subword counts are the most expensive check
    bad = settings.lengths.out_of_bounds(
        texts.take(to_arrow(rest)), plain[rest], low=settings.rules.min_subwords, high=settings.rules.max_subwords
    )
    reasons.codes[rest[bad]] = CODES["length"]
    reasons.remove(with_descendants(reasons.codes != KEPT, links.parent), "subtree")
    return FilteredMessages(
        column["id"],
        column["thread"],
        column["author"],
        texts,
        column["time"],
        column["kept"],
        links.parent,
        reasons.codes,
        duplicates,
        rows,
    )


def _remove_quotes(texts: StringArray, parent: Ints) -> StringArray:
    """The texts without quotes of the parent. Rows without a line that begins with ">" cannot have one."""
    raw = texts_of(texts)
    signs = sparse_positions(raw.data == ord(">"))
    signs = signs[_may_begin_line(raw, signs)]
    quoting = rows_containing(raw, signs) & (parent < len(parent))
    trimmed = pc.utf8_trim_whitespace(texts)
    if not quoting.any():
        return trimmed
    own = texts.filter(to_arrow(quoting)).to_pylist()
    quoted, position = np.unique(parent[quoting], return_inverse=True)
    parents = texts.take(to_arrow(quoted)).to_pylist()
    unquoted = [without_quotes_of(text, parents[i]) for text, i in zip(own, position.tolist(), strict=True)]
    return replace_rows(trimmed, np.flatnonzero(quoting), strings_to_arrow(unquoted))


def _may_begin_line(raw: Texts, positions: Ints) -> Flags:
    """Whether what precedes a byte is the start of its row, or a byte that white space or ">" may end with."""
    before = raw.data[positions - 1]  # of the first byte: the last one, but it is the start of a row
    return np.asarray(row_starts(raw)[positions] | (before <= 32) | (before >= 127) | (before == ord(">")))


def without_quotes_of(text: str, parent: str) -> str:
    """`rules.without_quotes`, with a short way for the many that quote in their first line only.

    A line that occurs in the parent as it stands occurs there without superfluous white space, too, and one whose last
    word does not occur there does not.

    >>> without_quotes_of("> the oven  light\\nmine too!", "it was the oven light again")
    'mine too!'
    """
    first, _, rest = text.partition("\n")
    if ">" in rest or not first.startswith(">") or len(parent) >= MAX_QUOTE_SEARCH:
        return without_quotes(text, parent)
    bare = first.lstrip("> ").strip()
    is_quote = bare and (
        bare in parent or (bare.rsplit(None, 1)[-1] in parent and squash(bare) in _squash_parent(parent))
    )
    return (rest if is_quote else text).strip()


def name_bot(authors: StringArray) -> Flags:
    """Rows with "bot", in any case."""
    raw = texts_of(authors)
    data, rows = to_lower_case(raw.data), np.zeros(len(authors), np.bool_)
    starts = np.flatnonzero((data[:-2] == ord("b")) & (data[1:-1] == ord("o")) & (data[2:] == ord("t")))
    row = np.searchsorted(raw.offsets, starts, side="right") - 1
    rows[row[starts + 3 <= raw.offsets[row + 1]]] = True
    return rows


def _check_characters(texts: StringArray, min_letters: float) -> tuple[Flags, Flags, Flags]:
    """Rows with a link, rows of plain ASCII, rows with too few letters."""
    flat = texts_of(texts)
    plain = plain_rows(flat)
    return _has_url(texts, flat), plain, _few_letters(flat, plain, min_letters)


def _has_url(texts: StringArray, flat: Texts) -> Flags:
    """Looks for ":/" and for a dot inside a word; few texts have either, and only those are matched by the regular
    expression."""
    data = flat.data
    colons = sparse_positions((data[:-1] == ord(":")) & (data[1:] == ord("/")))
    dots = np.flatnonzero(data[1:-1] == ord(".")) + 1
    following = data[dots + 1]
    inside = dots[(are_letters(following) | are_digits(following)) & ~row_starts(flat)[dots + 1]]
    has_url = rows_containing(flat, np.sort(np.concatenate([colons, inside])))
    rows = np.flatnonzero(has_url)
    has_url[rows] = flags_of(pc.match_substring_regex(texts.take(to_arrow(rows)), URL_PATTERN))
    return has_url


def _few_letters(flat: Texts, plain: Flags, least: float) -> Flags:
    letters, length = letters_and_length(flat, plain)
    share = np.divide(letters, length, out=np.zeros(len(length)), where=length > 0)
    return np.asarray(share < least)


def _check_words(reasons: _Reasons, texts: StringArray, plain: Flags, parent: Ints, settings: FilterSettings) -> None:
    """The rules that look at words: overlap with the parent, and unsafe phrases."""
    remaining = reasons.codes == KEPT
    replies = remaining & (parent < len(parent))
    # Words are needed of replies and their parents (which may be removed already); with phrases, of all that remain.
    needed = remaining if settings.unsafe_phrases else replies.copy()
    needed[parent[replies]] = True
    words = word_hashes(texts, plain, np.flatnonzero(needed))
    overlaps = overlaps_parent(words, parent, replies, n=settings.rules.overlap_n, share=settings.rules.max_overlap)
    reasons.remove(overlaps, "overlap")
    if settings.unsafe_phrases:
        reasons.remove(settings.unsafe_phrases.rows_with(words, len(texts)), "unsafe")


def _check_safety(
    reasons: _Reasons, texts: StringArray, flags: npt.NDArray[np.uint8], settings: FilterSettings
) -> None:
    """Marks of the source, and the judges of safety where they are asked, on what is left by then."""
    if settings.unsafe == "none":
        return
    reasons.remove((flags & MARKED) != 0, "unsafe")
    if settings.unsafe == "marked":
        return
    rows = reasons.remaining
    if settings.unsafe == "auto":
        rows = rows[(flags[rows] & UNMARKED) != 0]
    if len(rows):
        reasons.codes[rows[_are_unsafe(texts.take(to_arrow(rows)), settings.judges())]] = CODES["unsafe"]


def _are_unsafe(texts: StringArray, judges: Judges) -> Flags:
    """What the judges say of each text. The lexicon itself reads only the few that its loose pattern matches."""
    unsafe = np.zeros(len(texts), np.bool_)
    suspicious = flags_of(pc.match_substring_regex(texts, judges.lexicon.loose_pattern))
    suspicious = suspicious | flags_of(pc.greater(pc.utf8_length(texts), MAX_CHECKED))
    rows = np.flatnonzero(suspicious)
    unsafe[rows] = [reason is not None for reason in judges.lexicon.reasons(texts.take(to_arrow(rows)).to_pylist())]
    if judges.classifier:
        rest = np.flatnonzero(~unsafe)
        reasons = judges.classifier.reasons(texts.take(to_arrow(rest)).to_pylist())
        unsafe[rest] = [reason is not None for reason in reasons]
    return unsafe
