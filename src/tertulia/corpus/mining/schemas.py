"""The schemas in which messages come, and how each becomes the engine's columns.

A schema says which fields of a record hold what, as names to try in turn. Everything is read as text; a numeric id is
read as its digits. Reddit's dumps need more than names: comments and submissions are two kinds of records, and their
texts are cleaned (arXiv 1906.09308, supplement).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import orjson

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.lazy import LazyModule
from tertulia.corpus.mining.filters import DELETED, MARKED, UNMARKED
from tertulia.corpus.rules import BARE_SITE_PATTERN

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")  # a third of a second to import

TEXT_FIELDS = ("id", "parent", "thread", "author", "text")
FIELDS = (*TEXT_FIELDS, "time")
"""What a message has. `time` may be seconds since 1970 or a date and time as ISO 8601 writes it."""
LinkHandling = Literal["rule", "cut"]
_MARKS = ("rude", "unsafe")
_NUMBER = r"^(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false)$"
"""What JSON writes without quotes."""
_FALSE = ("false", "0", "0.0", "", "[]", "{}")
"""JSON's false values as text."""

_EDIT = r"\bedit(?:ed)?\b"
_EDIT_POSITIONS = (
    rf"(?:^|[\n.!?])[\s*_~(\[]*{_EDIT}",  # at the start of a line or a sentence
    rf"[(\[*_~]+{_EDIT}",  # in brackets or asterisks
    rf"{_EDIT}\s*\d*\s*[*_~]*[:=\u2014\u2013-]",  # before a colon or a dash
)
EDIT_NOTE = rf"(?is)(?:{'|'.join(_EDIT_POSITIONS)}).*$"
"""Matches the word alone: neither "credit" nor "reddit", and not the verb in the middle of a sentence."""
_TRAILING = r"[\s*_~(\[]+$"
_MARKDOWN_LINK = r"\[([^\[\]]*)\]\(\s*(?:https?:|www\.|/)[^()\s]*\s*\)"
_BARE_LINK = rf"(?i)(?:\b[a-z][a-z0-9+.-]*://|\bwww\.[a-z0-9])\S*|{BARE_SITE_PATTERN}"


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How texts are cleaned before anything else."""

    edits: bool = True
    """Reddit: keep only the text before an edit note."""
    links: LinkHandling = "rule"
    """`rule` leaves links to the rule that removes messages with one; `cut` removes the link and keeps the text."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One way to write messages as records."""

    name: str
    names: Mapping[str, tuple[str, ...]]
    """For each of our fields, the names to look under."""
    recognises: Callable[[Mapping[str, Json]], bool]
    has_marks: bool = False
    """Whether `meta` may mark a message as rude or unsafe."""
    has_deleted: bool = False
    """Whether "[deleted]" and "[removed]" stand for deleted texts."""
    is_reddit: bool = False
    keep: tuple[str, ...] = ()
    """More fields of a record, or of its `meta`, that are kept with the message."""

    @property
    def polars(self) -> "dict[str, pl.DataType]":
        """The fields to read from a record, with their Polars types."""
        names = [name for names in self.names.values() for name in names]
        types: dict[str, pl.DataType] = {name: pl.String() for name in (*names, *self.keep) if name != "meta"}
        return types | ({"meta": pl.Struct(dict.fromkeys(self.in_meta, pl.String()))} if self.has_marks else {})

    @property
    def in_meta(self) -> tuple[str, ...]:
        """The fields of `meta` that are read, if it is."""
        return tuple(dict.fromkeys((*_MARKS, *self.keep)))

    def missing(self, record: Mapping[str, Json]) -> str | None:
        """The required field that a record lacks, if any."""
        for field in ("id", "text"):
            names = self.names[field] + (("title",) if self.is_reddit and field == "text" else ())
            if all(record.get(name) is None for name in names):
                return names[0]
        return None

    def select(self, record: Mapping[str, Json]) -> dict[str, Json]:
        """The fields of a record that are read, and nothing else."""
        selected = {name: record[name] for name in self.polars if name != "meta" and name in record}
        meta = record.get("meta")
        if self.has_marks and isinstance(meta, dict):
            selected["meta"] = {name: meta.get(name) for name in self.in_meta}
        return selected


def columns(schema: Schema, frame: "pl.DataFrame", cleaning: Cleaning) -> "pl.DataFrame":
    """Id, parent, thread, author, text, flags, time and kept fields of every record; id or text is null where it is
    missing."""
    kept = _kept_fields(schema)
    if schema.is_reddit:
        frame = _reddit(frame, kept)
    else:
        named = [pl.coalesce(list(schema.names[field])).alias(field) for field in FIELDS]
        frame = frame.select(*named, *(["meta"] if schema.has_marks else []), kept)
    flags = pl.lit(0 if schema.has_marks else UNMARKED, pl.UInt8)
    if schema.has_marks:
        flags = flags + _truthy("rude").or_(_truthy("unsafe")).cast(pl.UInt8) * MARKED
    if schema.has_deleted:
        deleted = pl.col("text").str.strip_chars().is_in(["[deleted]", "[removed]"]).fill_null(False)
        flags = flags + deleted.cast(pl.UInt8) * DELETED
    return frame.select(
        "id",
        "parent",
        "thread",
        pl.col("author").fill_null(""),
        _clean_text(schema, cleaning),
        flags.alias("flags"),
        _seconds(frame["time"]),
        "kept",
    )


def _seconds(times: "pl.Series") -> "pl.Series":
    """Seconds since 1970; null where there is no time, or nothing that can be read as one."""
    seconds = times.cast(pl.Float64, strict=False)
    if seconds.null_count() > times.null_count():
        dates = times.filter(seconds.is_null() & times.is_not_null()).unique().to_list()
        read = {date: value for date in dates if (value := _iso_seconds(date)) is not None}
        others = times.replace_strict(read, default=None, return_dtype=pl.Float64) if read else pl.lit(None)
        seconds = pl.select(pl.coalesce(pl.lit(seconds), others)).to_series()
    finite = seconds.is_finite()
    return seconds.set(~finite, None).alias("time") if not finite.all() else seconds.alias("time")


def _iso_seconds(date: str) -> float | None:
    """The seconds of a date and time; of one without a time zone, as if it were UTC.

    >>> _iso_seconds("1970-01-02T00:00:00Z"), _iso_seconds("1970-01-01 01:00:00+01:00"), _iso_seconds("yesterday")
    (86400.0, 0.0, None)
    """
    try:
        parsed = datetime.fromisoformat(date)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _kept_fields(schema: Schema) -> "pl.Expr":
    """The fields to keep, as one JSON object per record; those that a record lacks are left out."""
    if not schema.keep:
        return pl.lit(None, pl.String).alias("kept")
    parts = []
    for name in schema.keep:
        value = pl.coalesce(name, pl.col("meta").struct.field(name)) if schema.has_marks else pl.col(name)
        quoted = pl.struct(value.alias("v")).struct.json_encode().str.slice(5).str.head(-1)
        written = pl.when(value.str.contains(_NUMBER)).then(value).otherwise(quoted)
        entry = pl.concat_str(pl.lit(f"{orjson.dumps(name).decode()}:"), written)
        parts.append(pl.when(value.is_not_null()).then(entry))
    joined = pl.concat_str(parts, separator=",", ignore_nulls=True)
    return pl.when(joined != "").then(pl.lit("{") + joined + pl.lit("}")).alias("kept")


def _truthy(mark: str) -> "pl.Expr":
    value = pl.col("meta").struct.field(mark)
    return value.is_not_null() & ~value.is_in(_FALSE)


def _clean_text(schema: Schema, cleaning: Cleaning) -> "pl.Expr":
    # The cheap tests decide which rows the slow regular expressions have to touch.
    text = pl.col("text")
    if schema.is_reddit and cleaning.edits:
        has_note = text.str.contains("(?i)edit").fill_null(False)
        text = pl.when(has_note).then(text.str.replace(EDIT_NOTE, "").str.replace(_TRAILING, "")).otherwise(text)
    if cleaning.links == "cut":
        has_link = text.str.contains(r"(?i)www\.|://|\]\(|[a-z0-9]\.[a-z]").fill_null(False)
        cut = text.str.replace_all(_MARKDOWN_LINK, "$1").str.replace_all(_BARE_LINK, "")
        text = pl.when(has_link).then(cut).otherwise(text)
    return text.alias("text")


def _reddit(frame: "pl.DataFrame", kept: "pl.Expr") -> "pl.DataFrame":
    """Comments and submissions as messages; a submission opens its thread with its title and text."""
    comment = pl.col("body").is_not_null()
    title_only = pl.col("selftext").is_in(["", "[deleted]", "[removed]"]) | pl.col("selftext").is_null()
    opening = pl.when(title_only).then(pl.col("title")).otherwise(pl.col("title") + "\n\n" + pl.col("selftext"))
    text = pl.when(comment).then(pl.col("body")).otherwise(opening)
    for escaped, plain in (("&gt;", ">"), ("&lt;", "<"), ("&amp;", "&")):  # the dumps contain HTML escapes
        text = text.str.replace_all(escaped, plain, literal=True)
    submission = "t3_" + pl.col("id")
    return frame.select(
        pl.when(comment).then("t1_" + pl.col("id")).otherwise(submission).alias("id"),
        pl.when(comment).then("parent_id").alias("parent"),
        pl.when(comment).then("link_id").otherwise(submission).alias("thread"),
        "author",
        text.alias("text"),
        pl.col("created_utc").alias("time"),
        kept,
    )


def _has(*names: str) -> Callable[[Mapping[str, Json]], bool]:
    return lambda record: all(name in record for name in names)


def _messages(names: Mapping[str, str] | None = None) -> Schema:
    named = {field: ((names or {}).get(field, field),) for field in FIELDS}
    return Schema("messages", named, lambda record: True, has_marks=True)


SCHEMAS = {
    schema.name: schema
    for schema in (
        Schema(
            "reddit",
            {"id": ("id",), "parent": ("parent_id",), "thread": ("link_id",), "author": ("author",)}
            | {"text": ("body", "title", "selftext"), "time": ("created_utc",)},
            lambda record: _has("body", "link_id")(record) or _has("title", "selftext")(record),
            has_deleted=True,
            is_reddit=True,
        ),
        Schema(
            "convokit",
            {"id": ("id",), "parent": ("reply-to", "reply_to"), "thread": ("conversation_id", "root")}
            | {"author": ("speaker", "user"), "text": ("text",), "time": ("timestamp",)},
            lambda r: "text" in r and ("conversation_id" in r or "root" in r) and ("speaker" in r or "user" in r),
            has_deleted=True,
        ),
        _messages(),
    )
}
"""In the order in which they are tried."""


def get_schema(name: str, fields: Mapping[str, str], keep: tuple[str, ...] = ()) -> Schema:
    """A schema by its name; `fields` renames those of plain messages, `keep` names fields to keep."""
    if name != "messages":
        return replace(SCHEMAS[name], keep=keep)
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise UsageError(f"Messages have no field {unknown[0]!r}.", hint=f"Fields are {', '.join(FIELDS)}.")
    return replace(_messages(fields), keep=keep)


def detect_schema(record: Mapping[str, Json]) -> str:
    """The name of the first schema that fits a record."""
    return next(name for name, schema in SCHEMAS.items() if schema.recognises(record))
