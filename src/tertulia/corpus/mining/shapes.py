"""The shapes in which messages come, and how each becomes the engine's columns.

A shape says which fields of a record hold what, as names to try in turn. Everything is read as text; a number that
stands for an id is as good as its digits. Reddit's dumps need more than names: comments and submissions are records of
two kinds, and their texts are cleaned (arXiv 1906.09308, supplement).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.corpus.mining.kernel import DELETED, MARKED

FIELDS = ("id", "parent", "thread", "author", "text")
Links = Literal["rule", "cut"]
_MARKS = pl.Struct({"rude": pl.String, "unsafe": pl.String})
_FALSE = ("false", "0", "0.0", "", "[]", "{}")
"""How JSON's values that mean "no" look as text."""

_EDIT = r"\bedit(?:ed)?\b"
_EDIT_PLACES = (
    rf"(?:^|[\n.!?])[\s*_~(\[]*{_EDIT}",  # opening a line or a sentence
    rf"[(\[*_~]+{_EDIT}",  # in brackets or stars
    rf"{_EDIT}\s*\d*\s*[*_~]*[:=\u2014\u2013-]",  # before a colon or a dash
)
EDIT_NOTE = rf"(?is)(?:{'|'.join(_EDIT_PLACES)}).*$"
"""The word alone: neither "credit" nor "reddit", and not the verb in the middle of a sentence."""
_TRAILING = r"[\s*_~(\[]+$"
_MARKDOWN_LINK = r"\[([^\[\]]*)\]\(\s*(?:https?:|www\.|/)[^()\s]*\s*\)"
_BARE_LINK = r"(?i)(?:https?://|\bwww\.[a-z0-9])\S*"


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What is done to texts before anything else."""

    edits: bool = True
    """Reddit: keep only the text before an edit note."""
    links: Links = "rule"
    """`rule` leaves links to the rule that removes messages with one; `cut` takes the link out and keeps the text."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to write messages as records."""

    name: str
    names: Mapping[str, tuple[str, ...]]
    """For each of our fields, the names to look under."""
    recognises: Callable[[Mapping[str, Json]], bool]
    marks: bool = False
    """Whether `meta` may mark a message as rude or unsafe."""
    deleted: bool = False
    """Whether "[deleted]" and "[removed]" stand for texts that were taken away."""
    reddit: bool = False

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The fields to read from a record."""
        read: dict[str, pl.DataType] = {n: pl.String() for names in self.names.values() for n in names}
        return read | ({"meta": _MARKS} if self.marks else {})

    def missing(self, record: Mapping[str, Json]) -> str | None:
        """The needed field that a record lacks, if it does."""
        for field in ("id", "text"):
            names = self.names[field] + (("title",) if self.reddit and field == "text" else ())
            if all(record.get(name) is None for name in names):
                return names[0]
        return None

    def pick(self, record: Mapping[str, Json]) -> dict[str, Json]:
        """What we read of a record, and nothing else."""
        picked = {name: record[name] for name in self.schema if name != "meta" and name in record}
        meta = record.get("meta")
        if self.marks and isinstance(meta, dict):
            picked["meta"] = {name: meta.get(name) for name in ("rude", "unsafe")}
        return picked


def columns(shape: Shape, frame: pl.DataFrame, cleaning: Cleaning) -> pl.DataFrame:
    """Id, parent, thread, author, text and flags of every record; id or text is null where it was missing."""
    if shape.reddit:
        frame = _reddit(frame)
    else:
        named = [pl.coalesce(list(shape.names[field])).alias(field) for field in FIELDS]
        frame = frame.select(*named, *(["meta"] if shape.marks else []))
    flags = pl.lit(0, pl.UInt8)
    if shape.marks:
        flags = flags + _truthy("rude").or_(_truthy("unsafe")).cast(pl.UInt8) * MARKED
    if shape.deleted:
        gone = pl.col("text").str.strip_chars().is_in(["[deleted]", "[removed]"]).fill_null(False)
        flags = flags + gone.cast(pl.UInt8) * DELETED
    return frame.select(
        "id", "parent", "thread", pl.col("author").fill_null(""), _cleaned(shape, cleaning), flags.alias("flags")
    )


def _truthy(mark: str) -> pl.Expr:
    value = pl.col("meta").struct.field(mark)
    return value.is_not_null() & ~value.is_in(_FALSE)


def _cleaned(shape: Shape, cleaning: Cleaning) -> pl.Expr:
    text = pl.col("text")
    if shape.reddit and cleaning.edits:
        noted = text.str.contains("(?i)edit").fill_null(False)
        text = pl.when(noted).then(text.str.replace(EDIT_NOTE, "").str.replace(_TRAILING, "")).otherwise(text)
    if cleaning.links == "cut":
        linked = text.str.contains(r"(?i)www\.|://|\]\(").fill_null(False)
        cut = text.str.replace_all(_MARKDOWN_LINK, "$1").str.replace_all(_BARE_LINK, "")
        text = pl.when(linked).then(cut).otherwise(text)
    return text.alias("text")


def _reddit(frame: pl.DataFrame) -> pl.DataFrame:
    """Comments and submissions as messages; a submission opens its thread with its title and text."""
    comment = pl.col("body").is_not_null()
    told = pl.col("selftext").is_in(["", "[deleted]", "[removed]"]) | pl.col("selftext").is_null()
    opening = pl.when(told).then(pl.col("title")).otherwise(pl.col("title") + "\n\n" + pl.col("selftext"))
    text = pl.when(comment).then(pl.col("body")).otherwise(opening)
    for escaped, plain in (("&gt;", ">"), ("&lt;", "<"), ("&amp;", "&")):  # the dumps hold HTML's escapes
        text = text.str.replace_all(escaped, plain, literal=True)
    submission = "t3_" + pl.col("id")
    return frame.select(
        pl.when(comment).then("t1_" + pl.col("id")).otherwise(submission).alias("id"),
        pl.when(comment).then("parent_id").alias("parent"),
        pl.when(comment).then("link_id").otherwise(submission).alias("thread"),
        "author",
        text.alias("text"),
    )


def _has(*names: str) -> Callable[[Mapping[str, Json]], bool]:
    return lambda record: all(name in record for name in names)


def _messages(names: Mapping[str, str] | None = None) -> Shape:
    named = {field: ((names or {}).get(field, field),) for field in FIELDS}
    return Shape("messages", named, lambda record: True, marks=True)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "reddit",
            {"id": ("id",), "parent": ("parent_id",), "thread": ("link_id",), "author": ("author",)}
            | {"text": ("body", "title", "selftext")},
            lambda record: _has("body", "link_id")(record) or _has("title", "selftext")(record),
            deleted=True,
            reddit=True,
        ),
        Shape(
            "convokit",
            {"id": ("id",), "parent": ("reply-to", "reply_to"), "thread": ("conversation_id", "root")}
            | {"author": ("speaker", "user"), "text": ("text",)},
            lambda r: "text" in r and ("conversation_id" in r or "root" in r) and ("speaker" in r or "user" in r),
            deleted=True,
        ),
        _messages(),
    )
}
"""In the order in which they are tried."""


def shape_named(name: str, fields: Mapping[str, str]) -> Shape:
    """A shape by its name; `fields` renames those of plain messages."""
    if name != "messages":
        return SHAPES[name]
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise UsageError(f"Messages have no field {unknown[0]!r}.", hint=f"Fields are {', '.join(FIELDS)}.")
    return _messages(fields)


def recognise(record: Mapping[str, Json]) -> str:
    """The name of the first shape that fits a record."""
    return next(name for name, shape in SHAPES.items() if shape.recognises(record))
