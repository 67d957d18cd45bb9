"""CMU-DoG (Zhou et al. 2018): conversations about films; the document that one or both could read is the evidence.

The original is a folder, `Conversations/SPLIT/ID.json` and `WikiData/FILM.json`; the same records also come one per
line, with `documents.json` beside them. A turn's `docIdx` (`meta`) is the section that was open when it was written.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tertulia.core.dialogue import Dialogue, Evidence, Json, Turn
from tertulia.corpus.readers.base import Reader, content_id, objects_of, text_of
from tertulia.corpus.readers.files import base_name, existing_file, read_companion

KEY = "conversation_id"
_SECTIONS = ("0", "1", "2", "3")
Documents = dict[int, tuple[Evidence, ...]]


def decode(record: Json, documents: Documents | None = None, name: str = "") -> Dialogue:
    """Decode a conversation; if it has no id, the id is computed from the content."""
    turns = tuple(
        Turn(
            text_of(turn["uid"], "uid"),
            text_of(turn["text"], "text"),
            meta={field: turn[field] for field in ("docIdx", "utcTimestamp") if turn.get(field) is not None},
        )
        for turn in objects_of(record["history"], "history")
    )
    return Dialogue(
        id=name or str(record.get(KEY) or content_id(str(record.get("date")), *(turn.text for turn in turns))),
        turns=turns,
        evidence=(documents or {}).get(record.get("wikiDocumentIdx"), ()),
        meta={field: value for field, value in record.items() if field not in ("history", KEY) and value is not None},
    )


def document(value: Json) -> tuple[Evidence, ...]:
    """The sections of a film's document; the first is a table, converted to lines `name: value`."""
    table = value.get("0")
    title = str(table.get("movieName", "")) if isinstance(table, dict) else ""
    number = value["wikiDocumentIdx"]
    return tuple(
        Evidence(_section(value[section]), source=title, id=f"{number}/{section}")
        for section in _SECTIONS
        if value.get(section)
    )


def _section(value: Json) -> str:
    if not isinstance(value, dict):
        return str(value)
    parts = ((name, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in value.items())
    return "\n".join(f"{name}: {text}" for name, text in parts)


def beside(file: Path) -> Callable[[Json], Dialogue]:
    """A decoder with access to the documents; in the original folder a conversation's id is the name of its file."""
    root = _root(file)
    documents = _documents(root or file.parent)
    name = base_name(file) if root else ""
    return lambda record: decode(record, documents, name)


def _root(file: Path) -> Path | None:
    """The folder of the original form that a file belongs to, if any."""
    return next((p.parent for p in file.parents if p.name == "Conversations"), None)


@lru_cache(maxsize=4)
def _documents(folder: Path) -> Documents:
    """Documents by number: from WikiData/*.json, or from one file with all of them."""
    wiki = folder / "WikiData"
    if wiki.is_dir():
        values = [read_companion(path) for path in sorted(wiki.glob("*.json"))]
    else:
        path = existing_file(folder / "documents.json") or existing_file(folder / "wiki_data.json")
        values = list(read_companion(path).values()) if path else []
    return {value["wikiDocumentIdx"]: document(value) for value in values if _is_document(value)}


def _is_document(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(value.get("wikiDocumentIdx"), int)


def files(folder: Path, split: str | None) -> list[Path]:
    """The conversations of the original folder."""
    return sorted((folder / "Conversations").glob(f"{split or '*'}/*.json"))


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode the conversation; documents belong to another file, which is not written."""
    history = [
        {"uid": turn.speaker, "text": turn.text}
        | {field: turn.meta[field] for field in ("docIdx", "utcTimestamp") if field in turn.meta}
        for turn in dialogue.turns
    ]
    kept = {name: value for name, value in dialogue.meta.items() if name not in ("history", KEY)}
    return {KEY: dialogue.id, "history": history} | kept


READER = Reader(
    name="cmu-dog",
    recognises=lambda record: isinstance(record.get("history"), list),
    decode=decode,
    encode=encode,
    key=KEY,
    beside=beside,
    companions=("documents.json*", "wiki_data.json*"),
    files=files,
)
