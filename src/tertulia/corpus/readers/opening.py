"""Files as text and as JSON, packed or not, for readers whose corpora have more than one file."""

import gzip
import json
import zlib
from pathlib import Path
from typing import IO

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError


def open_text(path: Path, *, write: bool = False, gzipped: bool | None = None) -> IO[str]:
    """A text file, packed or not (by its name, unless said). A byte that is no UTF-8 spoils its line, not the file."""
    encoding, errors = ("utf-8", "replace") if write else ("utf-8-sig", "surrogateescape")
    if path.name.endswith(".gz") if gzipped is None else gzipped:
        return gzip.open(path, "wt" if write else "rt", encoding=encoding, errors=errors)
    return path.open("w" if write else "r", encoding=encoding, errors=errors)


def either(path: Path) -> Path | None:
    """The file or its packed twin, whichever is there."""
    return next((p for p in (path, path.with_name(path.name + ".gz")) if p.is_file()), None)


def bare(path: Path) -> str:
    """The name of a file without any ending: `valid` for `valid.json.gz`."""
    return path.name.partition(".")[0]


def companion(path: Path) -> dict[str, Json]:
    """A file of one JSON object that others lean on; without it they would say something else, so damage is refused."""
    try:
        with open_text(path) as text:
            value = json.load(text)
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DataError(f"{path}, which the corpus leans on, cannot be read: {error}.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path}, which the corpus leans on, must hold one JSON object.")
    return value
