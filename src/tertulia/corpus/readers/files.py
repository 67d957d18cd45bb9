"""Files of corpora that have more than one: those a reader depends on, and text files to write.

Text is opened for reading by `tertulia.artefacts.files.open_text`, which decompresses it.
"""

import gzip
import json
from pathlib import Path
from typing import IO

from tertulia.artefacts.files import UNREADABLE, open_text
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError


def create_text(path: Path, *, gzipped: bool | None = None) -> IO[str]:
    """Open a text file for writing, compressed if its name ends in .gz (or as `gzipped` says).

    Lone surrogates, which UTF-8 cannot represent, are written as question marks.
    """
    if path.name.endswith(".gz") if gzipped is None else gzipped:
        return gzip.open(path, "wt", encoding="utf-8", errors="replace")
    return path.open("w", encoding="utf-8", errors="replace")


def existing_file(path: Path) -> Path | None:
    """The file or its compressed copy (.gz), whichever exists."""
    return next((p for p in (path, path.with_name(path.name + ".gz")) if p.is_file()), None)


def base_name(path: Path) -> str:
    """The name of a file without any suffix: `valid` for `valid.json.gz`."""
    return path.name.partition(".")[0]


def read_companion(path: Path) -> dict[str, Json]:
    """A JSON object that other files of a corpus depend on.

    Unlike a damaged record it cannot be skipped: without it, all records would be decoded differently.
    """
    try:
        with open_text(path) as text:
            value = json.load(text)
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (*UNREADABLE, DataError, ValueError, RecursionError) as error:
        raise unreadable_companion(path, error) from None
    if not isinstance(value, dict):
        raise unreadable_companion(path, f"expected one JSON object, got {type(value).__name__}")
    return value


def unreadable_companion(path: Path, why: object) -> DataError:
    """The error for a file that a corpus depends on and that cannot be read."""
    return DataError(f"Cannot read {path}, which the corpus depends on ({why}).")
