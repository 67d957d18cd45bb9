"""The course of an erasure: collect, plan, keep a journal, rewrite, search again, keep a record.

Removed are every pair in which one of the person's messages is the response or part of the context, every dialogue
they take part in, and every row that quotes them, in the mined folder and in all data derived from it. Replies further
down, more than a context away from their messages, are kept unless they quote them. What names them, or shares a few
words with them, is listed, masked or removed, as the user decides. Indexes and models made from the data cannot be
edited: they are listed, or removed as a whole.

Also kept are counts (funnel.json records how many pairs there are now) and the subword model, which does not contain a
single person's words except as a piece that many others wrote too; it is searched for their name.

The record of an erasure contains no name, only a salted hash, by which the same people are erased again when a corpus
is mined again in the same folder. Whoever has the folder and a guess can still check the guess: delete erased.json if
that must not be possible. The source is not changed: whoever keeps the dump must erase there too.
"""

import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from tertulia import __version__
from tertulia.artefacts.files import exclusive_lock, read_json, remove_unfinished, sha256_of, write_json
from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.config import Cli, Config
from tertulia.core.errors import DataError, MissingFile, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.card import CARD, write_card
from tertulia.corpus.chatlogs.stats import chatlog_stats
from tertulia.corpus.erase import shards as mined
from tertulia.corpus.erase.files import FileSearch, rewrite_file, search_file, search_text
from tertulia.corpus.erase.journal import (
    JOURNAL,
    JOURNAL_AGAIN,
    Journal,
    read_journal,
    read_records,
    write_record,
)
from tertulia.corpus.erase.lineage import Derived, Lineage, artefact_in, digests_of, find_derived
from tertulia.corpus.erase.people import NamedPeople, People, RecordedPeople, salted_hashes
from tertulia.corpus.erase.records import NearDecision, RecordJudge
from tertulia.corpus.erase.verification import (
    LOCK,
    SearchTotals,
    Verification,
    artefacts_in,
    files_in,
    other_files,
    search_subwords,
)
from tertulia.corpus.mining.pairs import FUNNEL, PAIRS, WHOLE, read_pairs
from tertulia.corpus.shards import read_parquet, read_rows, write_parquet

_WORK, _PAIRS_FILE, _SUBWORDS = "_work", "pairs.parquet", "subwords.model"
_ROOM_DIALOGUES, _ROOM_STATS = "dialogues.parquet", "stats.json"
_MAX_UNKNOWN = 20
"""Files near the corpus that the report names; it counts the others."""


class EraseConfig(Config):
    """Whose messages, or which messages, to erase from a mined corpus and from what was made from it."""

    folder: Annotated[Path, Cli(argument=True)]
    """Folder of a mined corpus: of message trees, or of chat logs."""
    authors: Annotated[tuple[str, ...], Cli("--author")] = ()
    """Erase everything by this author; repeat the option for more."""
    ids: Annotated[tuple[str, ...], Cli("--id")] = ()
    """Erase the message with this id; repeat the option for more."""
    near: NearDecision = "list"
    """What to do where others name them or share five to seven words in a row with them: list it for a decision, mask
    it as [erased], remove the dialogue, or keep it."""
    derived: tuple[Path, ...] = ()
    """A file or folder made from the corpus, to be erased from as well; repeat the option for more. Splits and runs
    that record their data are found without it."""
    look_in: Annotated[tuple[Path, ...], Cli("--look-in")] = ()
    """Folder to search for what was made from the corpus; repeat the option for more. By default the folder that holds
    the corpus."""
    remove_derived: bool = False
    """Remove the folders of indexes, models and judged runs that were made from erased data, instead of listing
    them."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What was removed."""

    pairs: int = 0
    whole: int = 0
    """Dialogues from root to leaf."""
    messages: int = 0
    """Distinct messages of theirs that were in the corpus."""
    shards: int = 0
    """Files of the corpus that were rewritten."""
    records: int = 0
    """Records removed from derived data, and dialogues of chat rooms."""
    masked: int = 0
    """Records that stayed with a text masked."""
    folders: tuple[str, ...] = ()
    """Derived folders that were removed."""
    verification: Verification = field(default_factory=lambda: Verification(0, 0))


def erase(
    folder: Path,
    *,
    authors: Iterable[str] = (),
    ids: Iterable[str] = (),
    near: NearDecision = "list",
    derived: Sequence[Path] = (),
    look_in: Sequence[Path] | None = None,
    remove_derived: bool = False,
    progress: Progress | None = None,
) -> Erased:
    """Erase people and messages from a mined corpus and what was made from it, search again, and record the erasure.

    An erasure that was interrupted, even by a kill, is finished by the next one in the same folder. So is one that left
    something to decide on or to edit: until then, the journal keeps the names and texts that are searched for.
    """
    progress = progress or Silent()
    _check_mined(folder)
    look_in = [folder.resolve().parent] if look_in is None else look_in
    for place in (*derived, *look_in):
        if not place.exists():
            raise UsageError(f"There is no {place}.", hint="Check --derived and --look-in.")
    with exclusive_lock(folder / LOCK):
        try:
            journal = _start(folder, frozenset(authors), frozenset(ids), derived)
            remove_unfinished(folder)
            eraser = _Eraser(folder, NamedPeople(journal.authors, journal.ids), journal, near, progress)
            erased = eraser.erase(look_in, remove_derived=remove_derived)
            if not erased.verification.traces and not erased.verification.near:
                (folder / JOURNAL).unlink()
        finally:
            (folder / LOCK).unlink(missing_ok=True)
    return erased


def preview_erasure(
    folder: Path,
    *,
    authors: Iterable[str] = (),
    ids: Iterable[str] = (),
    near: NearDecision = "list",
    derived: Sequence[Path] = (),
    look_in: Sequence[Path] | None = None,
) -> Verification:
    """What an erasure would find: traces are what it would remove or mask, near matches what it would list. Nothing is
    written.
    """
    _check_mined(folder)
    journal = _start(folder, frozenset(authors), frozenset(ids), derived)
    eraser = _Eraser(folder, NamedPeople(journal.authors, journal.ids), journal, near, Silent())
    return eraser.preview([folder.resolve().parent] if look_in is None else look_in)


def erase_again(folder: Path) -> Erased:
    """Erase everyone who was erased from this folder before: for a corpus that was mined again."""
    if (interrupted := read_journal(folder)) is not None:  # the command itself finishes it in derived data
        people = NamedPeople(interrupted.authors, interrupted.ids)
        _Eraser(folder, people, interrupted, "keep", Silent()).erase_own()
    records = read_records(folder)
    if not records:
        return Erased()
    decisions = {record.get("near") for record in records}
    near: NearDecision = "remove" if "remove" in decisions else "mask" if "mask" in decisions else "keep"
    journal = read_journal(folder, JOURNAL_AGAIN) or Journal(secrets.token_hex(16), name=JOURNAL_AGAIN)
    remove_unfinished(folder)
    erased = _Eraser(folder, RecordedPeople(records), journal, near, Silent()).erase_own()
    (folder / JOURNAL_AGAIN).unlink()
    return erased


def verify(
    folder: Path,
    *,
    authors: Iterable[str] = (),
    ids: Iterable[str] = (),
    near: NearDecision = "list",
    derived: Sequence[Path] = (),
) -> Verification:
    """Search all files of a mined corpus, and derived ones, for these authors and ids; their words are not known."""
    _check_mined(folder)
    journal = Journal("", frozenset(authors), frozenset(ids), tuple(str(path.resolve()) for path in derived))
    return _Eraser(folder, NamedPeople(journal.authors, journal.ids), journal, near, Silent()).verify(Lineage())


def _start(folder: Path, authors: frozenset[str], ids: frozenset[str], derived: Sequence[Path]) -> Journal:
    """The journal to work by: a new one, or that of an interrupted erasure with what is asked for now."""
    paths = tuple(str(path.resolve()) for path in derived)
    before = read_journal(folder)
    if before is None:
        if not authors and not ids:
            raise UsageError("Nothing to erase was given.", hint="Name authors with --author, or messages with --id.")
        return Journal(secrets.token_hex(16), authors, ids, paths)
    return replace(
        before,
        authors=before.authors | authors,
        ids=before.ids | ids,
        derived=tuple(dict.fromkeys((*before.derived, *paths))),
    )


def _check_mined(folder: Path) -> None:
    if not folder.is_dir():
        raise MissingFile(f"Folder not found: {folder}", hint="Give the folder of a mined corpus.")
    is_trees = (folder / FUNNEL).is_file() and not (folder / _WORK).exists()
    if not is_trees and not is_room(folder):
        raise DataError(
            f"{folder} is not a mined corpus, or mining is not finished.",
            hint="Finish mining it first with `tertulia corpus mine`.",
        )


def is_room(folder: Path) -> bool:
    """Whether a folder holds the dialogues of chat logs."""
    return (folder / _ROOM_DIALOGUES).is_file() and (folder / _ROOM_STATS).is_file()


class _Eraser:
    """One erasure from one folder."""

    def __init__(self, folder: Path, people: People, journal: Journal, near: NearDecision, progress: Progress) -> None:
        self.folder, self.people, self.journal, self.near, self.progress = folder, people, journal, near, progress
        self.erased = journal.erased

    def erase(self, look_in: Sequence[Path], *, remove_derived: bool) -> Erased:
        """Erase from the folder and from derived data."""
        self.progress.step("Searching for what was made from the corpus")
        if not self.journal.digests:
            self.journal.digests = tuple(sorted(digests_of(self.folder)))
        given = [Path(path) for path in self.journal.derived]
        lineage = find_derived(self.folder, look_in=look_in, given=given, digests=self.journal.digests)
        result = self.erase_own()
        self.progress.step("Erasing from derived data")
        result, artefacts = self._erase_derived(result, lineage)
        removed = self._remove(artefacts) if remove_derived or self.journal.removing else ()
        self.progress.step("Searching once more")
        left = [derived for derived in artefacts if derived.path not in removed]
        verification = self.verify(lineage, artefacts=left)
        result = replace(result, folders=removed, verification=verification)
        self._record(result)
        for folder in dict.fromkeys((self.folder, *(place.parent for place in self._places(lineage)))):
            if (folder / CARD).is_file():
                write_card(folder)  # its counts are others now
        return result

    def preview(self, look_in: Sequence[Path]) -> Verification:
        """Search as an erasure would."""
        digests = self.journal.digests or tuple(sorted(digests_of(self.folder)))
        given = [Path(path) for path in self.journal.derived]
        lineage = find_derived(self.folder, look_in=look_in, given=given, digests=digests)
        self._collect()
        return self.verify(lineage, artefacts=list(self._artefacts(lineage if self.erased.messages else None)))

    def erase_own(self) -> Erased:
        """Erase from the folder itself."""
        self.progress.step("Collecting their messages")
        self._collect()
        judge = self._plan()
        self.progress.step("Erasing from the corpus")
        counts = {PAIRS: 0, WHOLE: 0}
        changed = masked = records = 0
        for shard in mined.shards_of(self.folder):
            search = mined.rewrite(shard, judge)
            counts[shard.parent.name] += len(search.removed)
            changed += bool(search.removed or search.masked)
            masked += search.masked
        if (self.folder / FUNNEL).is_file():
            mined.update_funnel(self.folder)
            if (self.folder / _PAIRS_FILE).is_file() and self._is_stale(judge):
                write_parquet(read_pairs(self.folder), self.folder / _PAIRS_FILE)
        if (self.folder / _ROOM_DIALOGUES).is_file():
            room = search_file(self.folder / _ROOM_DIALOGUES, judge)
            if room.is_changed:
                rewrite_file(self.folder / _ROOM_DIALOGUES, judge)
            records, masked, changed = room.removed, masked + room.masked, changed + room.is_changed
            _update_room(self.folder)
        return Erased(
            counts[PAIRS],
            counts[WHOLE],
            messages=len(self.erased.messages),
            shards=changed,
            records=records,
            masked=masked,
        )

    def verify(self, lineage: Lineage, *, artefacts: Sequence[Derived] = ()) -> Verification:
        """Search everything that can be searched."""
        judge = RecordJudge(self.people, self.erased, near=self.near)
        totals = SearchTotals()
        for shard in mined.shards_of(self.folder):
            totals.add_shard(str(shard.relative_to(self.folder)), mined.search(shard, judge))
        for file in other_files(self.folder):
            totals.add(str(file.relative_to(self.folder)), self._search_other(file, judge))
        for place in self._places(lineage):
            for file in files_in(place):
                totals.add(str(file), search_file(file, judge))
        for derived in artefacts:
            for file in sorted(Path(derived.path).rglob("*")):
                if file.is_file():
                    self._search_artefact(file, judge, totals)
        unsearched = [*totals.unsearched, *self._not_searched(lineage)]
        return Verification(
            totals.rows, totals.files, tuple(totals.traces), tuple(totals.near), tuple(artefacts), tuple(unsearched)
        )

    def _collect(self) -> None:
        for shard in mined.shards_of(self.folder):
            mined.collect(shard, self.people, self.erased)
        if (self.folder / _ROOM_DIALOGUES).is_file():
            for dialogue in read_parquet(self.folder / _ROOM_DIALOGUES):
                for turn in dialogue.turns:
                    if self.people.is_author(turn.speaker) or any(map(self.people.is_id, turn.source)):
                        self.erased.add(None, turn.source[0] if turn.source else dialogue.id, turn.text)
                        self.erased.messages |= {("", name) for name in turn.source}

    def _plan(self) -> RecordJudge:
        """Find all that will be removed, and keep it in the journal before anything is."""
        judge = RecordJudge(self.people, self.erased, near=self.near)
        files = dict(self.journal.files)
        for shard in mined.shards_of(self.folder):
            search = mined.search(shard, judge)
            self.erased.rows |= set(search.removed)
            if search.removed or search.masked:
                files.setdefault(str(shard.relative_to(self.folder)), sha256_of(shard))
        if (self.folder / _ROOM_DIALOGUES).is_file():
            for row in read_rows(self.folder / _ROOM_DIALOGUES):
                if judge.judge(row).remove:
                    self.erased.rows.add(("", row["id"]))
            files.setdefault(_ROOM_DIALOGUES, sha256_of(self.folder / _ROOM_DIALOGUES))
        for shard in mined.shards_of(self.folder):
            mined.collect_ambiguous(shard, self.erased)
        self.journal.files = files
        self.journal.save(self.folder)
        return RecordJudge(self.people, self.erased, near=self.near)

    def _is_stale(self, judge: RecordJudge) -> bool:
        """Whether the pairs as one file still hold what the shards no longer do."""
        return search_file(self.folder / _PAIRS_FILE, judge).is_changed

    def _erase_derived(self, result: Erased, lineage: Lineage) -> tuple[Erased, list[Derived]]:
        """Erase from derived data; also returns the artefacts that were made from it."""
        judge = RecordJudge(self.people, self.erased, near=self.near)
        changed = []
        for file in (file for place in self._places(lineage) for file in files_in(place)):
            _remove_leftovers(file)
            search = search_file(file, judge)
            if search.is_changed:
                changed.append(file)
                self.journal.files.setdefault(str(file), sha256_of(file))
                result = replace(result, records=result.records + search.removed, masked=result.masked + search.masked)
        self.journal.save(self.folder)
        for file in changed:
            rewrite_file(file, judge)
        has_erased = bool(self.erased.messages or result.records)
        return result, list(self._artefacts(lineage if has_erased else None))

    def _artefacts(self, lineage: Lineage | None) -> Iterator[Derived]:
        """Folders that cannot be edited: left over by earlier erasures, and found now, if anything was erased now."""
        seen = set()
        for derived in (*self._recorded_artefacts(), *(self._found_artefacts(lineage) if lineage else ())):
            if derived.path not in seen:
                seen.add(derived.path)
                yield derived

    def _recorded_artefacts(self) -> Iterator[Derived]:
        """Those that earlier erasures listed and that were not made again since."""
        for record in read_records(self.folder):
            for fields in record.get("derived", []):
                old = Derived(**fields)
                now = artefact_in(Path(old.path), old.why)
                if now is not None and now.fingerprint == old.fingerprint:
                    yield old

    def _found_artefacts(self, lineage: Lineage) -> Iterator[Derived]:
        """By their lineage, and in the places that the user named."""
        yield from lineage.artefacts
        for place in self._places(lineage):
            for folder in artefacts_in(place):
                if (derived := artefact_in(folder, "in a place that was named as derived")) is not None:
                    yield derived

    def _places(self, lineage: Lineage) -> list[Path]:
        """The derived files and folders of records, none of which is inside another."""
        derived = [Path(path) for path in self.journal.derived] + lineage.data
        unique = {place.resolve(): place for place in derived if place.exists()}
        own = self.folder.resolve()
        return [
            place
            for path, place in unique.items()
            if path != own and own not in path.parents and not any(other in path.parents for other in unique)
        ]

    def _search_other(self, file: Path, judge: RecordJudge) -> FileSearch:
        """A file of the folder itself that is not a shard."""
        if file.name == _SUBWORDS:
            return search_subwords(file, self.people)
        return search_file(file, judge) if file.suffix == ".parquet" else search_text(file, judge)

    def _search_artefact(self, file: Path, judge: RecordJudge, totals: SearchTotals) -> None:
        """A file of an index or a run: the folder is listed as a whole, so only the count of files matters."""
        search = search_file(file, judge)
        totals.files += not search.unsearched
        totals.rows += search.records
        if search.unsearched:
            totals.unsearched.append(f"{file}: {search.unsearched}")

    def _not_searched(self, lineage: Lineage) -> Iterator[str]:
        """What no search looks at, in words."""
        if (self.folder / MANIFEST).is_file():
            names = [str(source["name"]) for source in read_json(self.folder / MANIFEST).get("inputs", [])]
            yield f"the source ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}): erase there, too"
        else:
            yield "the source: erase there, too"
        for file in lineage.unknown[:_MAX_UNKNOWN]:
            yield f"{file}: no record of what it was made from; if from this corpus, name it with --derived"
        if len(lineage.unknown) > _MAX_UNKNOWN:
            yield f"... and {len(lineage.unknown) - _MAX_UNKNOWN} more such near the corpus"
        if not lineage.is_complete:
            yield "some folders near the corpus, which are too many or too deep: name them with --look-in"
        if short := self.erased.short:
            yield f"texts of others for {short} of their messages, which have fewer than five words"

    def _remove(self, artefacts: Sequence[Derived]) -> tuple[str, ...]:
        paths = dict.fromkeys((*self.journal.removing, *(derived.path for derived in artefacts)))
        self.journal.removing = tuple(paths)
        self.journal.save(self.folder)
        for path in paths:
            if Path(path).exists():
                (Path(path) / MANIFEST).unlink(missing_ok=True)  # from now on it is incomplete
                shutil.rmtree(path)
        return tuple(paths)

    def _record(self, result: Erased) -> None:
        """Write what was done, without names or texts."""
        verification = result.verification
        after = {
            name: sha256_of(path)
            for name in self.journal.files
            if (path := self.folder / name).is_file()  # an absolute name stays as it is
        }
        write_record(
            self.folder,
            {
                "salt": self.journal.salt,
                "hashes": salted_hashes(self.journal.salt, self.journal.authors, self.journal.ids),
                "when": datetime.now(UTC).isoformat(timespec="seconds"),
                "version": __version__,
                "near": self.near,
                "messages": result.messages,
                "files": [
                    {"file": name, "before": before, "after": after.get(name)}
                    for name, before in sorted(self.journal.files.items())
                    if after.get(name) != before
                ],
                "removed folders": list(result.folders),
                "derived": [derived._asdict() for derived in verification.derived],
                "undecided": len(verification.near),
                "not searched": list(verification.unsearched),
            },
        )


def _remove_leftovers(file: Path) -> None:
    """Remove what a killed erasure left beside a file."""
    for leftover in file.parent.glob(f"{file.name}.*.unfinished"):
        leftover.unlink(missing_ok=True)


def _update_room(folder: Path) -> None:
    """Count the dialogues of a chat room again; the counts of the logs stay as they were."""
    if (folder / _ROOM_STATS).is_file():
        record = read_json(folder / _ROOM_STATS)
        updated = record | chatlog_stats(read_parquet(folder / _ROOM_DIALOGUES)).as_json()
        if updated != record:
            write_json(folder / _ROOM_STATS, updated, durable=True)
