"""What a file or folder of data was made from: a small hidden record beside it.

Splits and runs have a `config.toml` that names their data. A test set, a conversion or a filtered corpus is only its
records, in formats that have no place for such a name; without one, an erasure could not find it again
(`corpus.erase.lineage`). The record lies beside and not inside, since it names a path of this machine, and what is made
may be shared. It is lost where a file is moved alone: then the file counts as one of unknown origin.
"""

from collections.abc import Iterator
from pathlib import Path

from tertulia import __version__
from tertulia.artefacts.files import read_json, write_json
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.load import SAMPLE

ORIGIN = ".origin"
"""How the name of a record ends; it begins with a dot and the name of what it is about."""


def record_origin(path: Path, *, command: str, source: str) -> None:
    """Record that a file or folder was made from other data; of the bundled sample nobody can be erased."""
    if source == SAMPLE:
        return
    place = path.absolute()
    record: Json = {"command": command, "source": source, "path": str(Path(source).absolute()), "version": __version__}
    write_json(place.with_name(f".{place.name}{ORIGIN}"), record)


def with_origin(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """What lies in a folder and has a record, with the paths that it names; a damaged one names none."""
    for record_file in sorted(folder.glob(f".*{ORIGIN}")):
        made = record_file.with_name(record_file.name.removeprefix(".").removesuffix(ORIGIN))
        if not made.exists():
            continue
        try:
            record = read_json(record_file)
        except (DataError, OSError):
            continue
        if isinstance(record, dict):
            yield made, [str(record[name]) for name in ("path", "source") if record.get(name)]
