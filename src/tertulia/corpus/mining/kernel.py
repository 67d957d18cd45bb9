"""Mining's rules on a batch of whole threads: columns in, a reason (or none) for every row out.

The same rules as `corpus.rules` and `corpus.trees`, and the same answers; only the form is another: each rule looks at
all rows at once. Cheap rules come first and dear ones see only what is left, which changes nothing, as a message is
charged to the first reason that fits.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tertulia.corpus.mining.columns import (
    Flags,
    Ints,
    StringArray,
    Texts,
    blocks,
    letters_and_length,
    plain_rows,
    rows_at,
    texts_of,
    whole_array,
)
from tertulia.corpus.mining.forest import first_of_each, link, message_keys, with_ancestors
from tertulia.corpus.mining.hashing import Hashes, is_among
from tertulia.corpus.mining.lengths import Lengths
from tertulia.corpus.mining.words import Lexicon, shared_with_parent, word_hashes
from tertulia.corpus.rules import REASONS, URL_PATTERN, MiningRules, without_quotes
from tertulia.corpus.trees import STRUCTURAL, Funnel

MARKED, DELETED = 1, 2
"""Bits of the column `flags`."""
_TEXTS = ("id", "parent", "thread", "author", "text")
_NUMBERS = (("flags", pa.uint8()), ("text_hash", pa.uint64()), ("thread_hash", pa.uint64()))
COLUMNS = pa.schema([*((name, pa.string()) for name in _TEXTS), *_NUMBERS])
"""Messages on their way through the engine; `text_hash` is that of the text as it was written."""
KEPT = 0
CODES = {reason: code for code, reason in enumerate((*STRUCTURAL, *REASONS, "subtree"), 1)}


@dataclass(frozen=True, slots=True)
class Judge:
    """All the kernel needs to know beside the messages."""

    rules: MiningRules
    lengths: Lengths
    lexicon: Lexicon | None = None
    marked_is_unsafe: bool = True
    repeated: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Sorted hashes of the texts that occur too often."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch with its verdicts."""

    ids: StringArray
    threads: StringArray
    authors: StringArray
    texts: StringArray
    """Without what is quoted from the parent."""
    parent: Ints
    why: npt.NDArray[np.uint8]
    """Code of the reason each row goes; 0 where it stays."""
    duplicates: int

    @property
    def kept(self) -> Flags:
        """Rows that stay."""
        return np.asarray(self.why == KEPT)

    @property
    def replies(self) -> Ints:
        """Rows that stay and have a parent (which then stays too)."""
        return np.flatnonzero(self.kept & (self.parent < len(self.parent)))

    def funnel(self) -> Funnel:
        """Where the messages went."""
        counts = np.bincount(self.why, minlength=len(CODES) + 1).tolist()
        removed = {reason: counts[code] for reason, code in CODES.items()} | {"duplicate id": self.duplicates}
        return Funnel(len(self.why) + self.duplicates, removed, counts[KEPT], len(self.replies))


class _Verdicts:
    """The reasons found so far; the first one stands."""

    def __init__(self, rows: int) -> None:
        self.why = np.zeros(rows, np.uint8)

    @property
    def open(self) -> Ints:
        """Rows without a reason yet."""
        return np.flatnonzero(self.why == KEPT)

    def charge(self, reason: str, guilty: Flags) -> None:
        self.why[guilty & (self.why == KEPT)] = CODES[reason]


def judge(table: pa.Table, judge: Judge) -> Judged:
    """Judge every message of a batch of whole threads, in the order of the corpus."""
    keys = message_keys(table["thread_hash"].to_numpy(), whole_array(table["id"]))
    first = first_of_each(keys)
    duplicates = 0
    if first is not None:
        table, keys, duplicates = table.take(pa.array(first)), keys[first], len(keys) - len(first)
    column = {name: whole_array(table[name]) for name in COLUMNS.names}
    wanted = message_keys(column["thread_hash"].to_numpy(), column["parent"])
    links = link(keys, wanted, column["parent"], column["thread"])
    texts = _without_quotes(column["text"], links.parent)
    found = _Verdicts(len(texts))
    flags = column["flags"].to_numpy()
    found.charge("no parent", links.lost)
    found.charge("deleted", (flags & DELETED) != 0)
    found.charge("bot", _mask(pc.match_substring(column["author"], "bot", ignore_case=True)))
    signs = [_judge_signs(texts[part], judge.rules.min_letters) for part in blocks(len(texts))]
    url, plain, few_letters = (np.concatenate(column) for column in zip(*signs, strict=True))
    found.charge("url", url)
    found.charge("letters", few_letters)
    found.charge("repeated", is_among(column["text_hash"].to_numpy(), judge.repeated))
    _judge_words(found, texts, plain, links.parent, (flags & MARKED) != 0, judge)
    rest = found.open
    bad = judge.lengths.out_of_bounds(
        texts.take(pa.array(rest)), plain[rest], low=judge.rules.min_subwords, high=judge.rules.max_subwords
    )
    found.why[rest[bad]] = CODES["length"]
    found.charge("subtree", with_ancestors(found.why != KEPT, links.parent))
    return Judged(column["id"], column["thread"], column["author"], texts, links.parent, found.why, duplicates)


def _mask(column: Any) -> Flags:
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _without_quotes(texts: StringArray, parent: Ints) -> StringArray:
    """Texts as the rules see them. Quoting is seldom, so those rows go through the plain definition one by one."""
    raw = texts_of(texts)
    quoting = rows_at(raw, np.flatnonzero(raw.data == ord(">"))) & (parent < len(parent))
    trimmed = pc.utf8_trim_whitespace(texts)
    if not quoting.any():
        return trimmed
    own = texts.filter(pa.array(quoting)).to_pylist()
    above = texts.take(pa.array(parent[quoting])).to_pylist()
    cut = [without_quotes(text, said) for text, said in zip(own, above, strict=True)]
    return pc.replace_with_mask(trimmed, pa.array(quoting), pa.array(cut, pa.string()))


def _judge_signs(texts: StringArray, min_letters: float) -> tuple[Flags, Flags, Flags]:
    """Rows with a link, rows of plain ASCII, rows with too few letters."""
    flat = texts_of(texts)
    plain = plain_rows(flat)
    return _has_url(texts, flat), plain, _few_letters(flat, plain, min_letters)


def _has_url(texts: StringArray, flat: Texts) -> Flags:
    """Looks for :/ and w. first; few texts have one, and only those meet the regular expression."""
    now, then = flat.data[:-1], flat.data[1:]
    signs = ((now == ord(":")) & (then == ord("/"))) | (((now | 32) == ord("w")) & (then == ord(".")))
    found = rows_at(flat, np.flatnonzero(signs))
    rows = np.flatnonzero(found)
    found[rows] = _mask(pc.match_substring_regex(texts.take(pa.array(rows)), URL_PATTERN))
    return found


def _few_letters(flat: Texts, plain: Flags, least: float) -> Flags:
    letters, length = letters_and_length(flat, plain)
    share = np.divide(letters, length, out=np.zeros(len(length)), where=length > 0)
    return np.asarray(share < least)


def _judge_words(found: _Verdicts, texts: StringArray, plain: Flags, parent: Ints, marked: Flags, judge: Judge) -> None:
    """The two rules that look at words: overlap with the parent, and unsafe phrases."""
    asked = found.why == KEPT
    answering = asked & (parent < len(parent))
    needed = asked if judge.lexicon else answering.copy()
    needed[parent[answering]] = True
    words = word_hashes(texts, plain, np.flatnonzero(needed))
    shared, runs = shared_with_parent(words, parent, answering, n=judge.rules.overlap_n)
    share = np.divide(shared, runs, out=np.zeros(len(runs)), where=runs > 0)
    found.charge("overlap", share > judge.rules.max_overlap)
    if judge.marked_is_unsafe:
        found.charge("unsafe", marked)
    if judge.lexicon:
        found.charge("unsafe", judge.lexicon.rows_with(words, len(texts)))
