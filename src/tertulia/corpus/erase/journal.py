"""The two files of an erasure: its journal while it runs, its record when it is done.

Whether a text quotes an erased message can only be told while that message is known, and the first rewritten shard may
have held it. So everything known is written to the journal before anything is rewritten: an erasure that was killed is
finished from it, and so is one that waits for a decision. The record, which stays, contains no names, only salted
hashes, and what was done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tertulia.artefacts.files import read_json, write_json
from tertulia.core.dialogue import Json
from tertulia.corpus.erase.matching import ErasedMessages

RECORD = "erased.json"
JOURNAL, JOURNAL_AGAIN = "erasing.json", "erasing-again.json"
"""They hold what is being erased, by name and by an earlier record, and are removed at the end."""


@dataclass(slots=True)
class Journal:
    """What an erasure needs to be finished."""

    salt: str
    authors: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    derived: tuple[str, ...] = ()
    """Files and folders to erase from, absolute."""
    erased: ErasedMessages = field(default_factory=ErasedMessages)
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files to rewrite as they were, by path."""
    digests: tuple[str, ...] = ()
    """By which records may know the data as it was."""
    removing: tuple[str, ...] = ()
    """Derived folders that are being removed."""
    name: str = JOURNAL

    def save(self, folder: Path) -> None:
        """Write it, so that not even a power cut loses it."""
        record: dict[str, Json] = {
            "salt": self.salt,
            "authors": sorted(self.authors),
            "ids": sorted(self.ids),
            "derived": list(self.derived),
            "erased": self.erased.as_json(),
            "files": self.files,
            "digests": list(self.digests),
            "removing": list(self.removing),
        }
        write_json(folder / self.name, record, durable=True)


def read_journal(folder: Path, name: str = JOURNAL) -> Journal | None:
    """The journal of an erasure that was interrupted, if there is one."""
    if not (folder / name).is_file():
        return None
    record = read_json(folder / name)
    return Journal(
        salt=record["salt"],
        authors=frozenset(record["authors"]),
        ids=frozenset(record["ids"]),
        derived=tuple(record["derived"]),
        erased=ErasedMessages.from_json(record["erased"]),
        files=dict(record["files"]),
        digests=tuple(record["digests"]),
        removing=tuple(record["removing"]),
        name=name,
    )


def read_records(folder: Path) -> list[dict[str, Json]]:
    """The records of all erasures from a folder."""
    return list(read_json(folder / RECORD)["erasures"]) if (folder / RECORD).is_file() else []


def write_record(folder: Path, record: Mapping[str, Json]) -> None:
    """Add the record of an erasure; an erasure that is finished a second time replaces its record."""
    others = [erasure for erasure in read_records(folder) if erasure["salt"] != record["salt"]]
    write_json(folder / RECORD, {"erasures": [*others, dict(record)]}, durable=True)
