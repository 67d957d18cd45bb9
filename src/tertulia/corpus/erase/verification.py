"""The second search of an erasure: what was searched, what was not, and what is left."""

from dataclasses import dataclass, field
from pathlib import Path

import sentencepiece

from tertulia.artefacts.manifest import MANIFEST
from tertulia.corpus.erase import shards as mined
from tertulia.corpus.erase.files import FileSearch
from tertulia.corpus.erase.journal import JOURNAL, JOURNAL_AGAIN, RECORD
from tertulia.corpus.erase.lineage import Derived, artefact_in
from tertulia.corpus.erase.people import People
from tertulia.corpus.erase.records import Near

LOCK = "erase.lock"
_OWN_FILES = frozenset((JOURNAL, JOURNAL_AGAIN, RECORD, LOCK))


@dataclass(frozen=True, slots=True)
class Verification:
    """What was searched once more, what was not, and what is left."""

    rows: int
    files: int
    traces: tuple[str, ...] = ()
    """Where something of theirs is left; there should be nothing."""
    near: tuple[Near, ...] = ()
    """Near matches that wait for a decision."""
    derived: tuple[Derived, ...] = ()
    """Indexes, models and judged runs that were made from erased data and are still there."""
    unsearched: tuple[str, ...] = ()
    """What was not looked through, and why."""

    @property
    def clean(self) -> bool:
        """Whether nothing is left in what was searched, and nothing waits for a decision."""
        return not (self.traces or self.near or self.derived)


@dataclass(slots=True)
class SearchTotals:
    """What a search found so far."""

    rows: int = 0
    files: int = 0
    traces: list[str] = field(default_factory=list)
    near: list[Near] = field(default_factory=list)
    unsearched: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """Texts of shards whose near matches are listed: a message is in many contexts."""

    def add_shard(self, name: str, search: mined.ShardSearch) -> None:
        """Add what was found in a shard."""
        self.rows += search.rows
        self.files += 1
        self.traces += [f"{name}: {row}" for _, row in search.removed]
        self.near += [Near(name, *match) for text, match in search.near.items() if text not in self.seen]
        self.seen |= set(search.near)

    def add(self, name: str, search: FileSearch) -> None:
        """Add what was found in another file."""
        if search.unsearched:
            self.unsearched.append(f"{name}: {search.unsearched}")
            return
        self.rows += search.records
        self.files += 1
        folder = name[: -len(Path(name).name)]
        self.traces += [f"{name}: {search.removed} records"] if search.removed else []
        self.traces += [f"{name}: {search.masked} records to mask"] if search.masked else []
        self.traces += [f"{folder}{trace.where} ({trace.kind})" for trace in search.traces]
        self.near += [match._replace(where=f"{folder}{match.where}") for match in search.near]


def other_files(folder: Path) -> list[Path]:
    """The files of a mined folder that are not shards, but for those of the erasure itself."""
    shards = set(mined.shards_of(folder))
    return [f for f in sorted(folder.rglob("*")) if f.is_file() and f not in shards and f.name not in _OWN_FILES]


def files_in(place: Path) -> list[Path]:
    """The files of a derived place, without those of artefacts, and without another erasure's."""
    if place.is_file():
        return [place]
    artefacts = artefacts_in(place)
    return [
        file
        for file in sorted(place.rglob("*"))
        if file.is_file() and not any(folder in file.parents for folder in artefacts) and file.name not in _OWN_FILES
    ]


def artefacts_in(place: Path) -> list[Path]:
    """The folders in a place, or the place itself, that are artefacts with a manifest."""
    folders = {file.parent for file in place.rglob(MANIFEST)} if place.is_dir() else set()
    return sorted(folder for folder in folders if artefact_in(folder, "") is not None)


def search_subwords(file: Path, people: People) -> FileSearch:
    """Search the subword model for a name that is a piece of its own."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    pieces = (model.id_to_piece(i).removeprefix("\u2581") for i in range(model.vocab_size()))
    near = [Near(file.name, "name", piece) for piece in pieces if len(piece) > 3 and people.is_author(piece)]
    return FileSearch(records=model.vocab_size(), traces=near)
