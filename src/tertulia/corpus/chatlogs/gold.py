"""Gold links, annotated by hand: which line replies to which, and the clusters (conversations) that follow from them.

The format is that of Kummerfeld et al. (2019, arXiv 1810.11118): `A B -` links line B to the earlier line A it replies
to; A = B starts a conversation. Only part of a log is annotated; the lines before that part are context.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tertulia import sample
from tertulia.core.errors import DamagedLine, DataError
from tertulia.corpus.chatlogs.formats import detect_format, format_named, parse_log
from tertulia.corpus.chatlogs.log import Log, date_in_name
from tertulia.corpus.load import SAMPLE

RAW, ASCII, ANNOTATION = ".raw.txt", ".ascii.txt", ".annotation.txt"
"""A log as it was written, in plain letters, and its links; the second is read where the first is missing."""
Links = Mapping[int, frozenset[int]]
"""For each annotated line the earlier lines it replies to (or itself)."""


@dataclass(frozen=True, slots=True)
class GoldLog:
    """A log with its gold links."""

    log: Log
    links: Links


def read_links(lines: Iterable[str], *, source: str = "<annotation>") -> dict[int, frozenset[int]]:
    """The links of one annotation file.

    >>> read_links(["3 5 -", "4 5 -", "6 6 -"])
    {5: frozenset({3, 4}), 6: frozenset({6})}
    """
    links: dict[int, set[int]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            one, other = (int(word) for word in line.split()[:2])
        except ValueError:
            raise DamagedLine(source, number, f"expected two line numbers and a dash, got {line.strip()!r}") from None
        links.setdefault(max(one, other), set()).add(min(one, other))
    return {line: frozenset(earlier) for line, earlier in sorted(links.items())}


def clusters_of(links: Links) -> set[frozenset[int]]:
    """The connected components of the links, annotated lines only: a context line may join two, but is in neither.

    >>> sorted(map(sorted, clusters_of({5: frozenset({3}), 6: frozenset({3}), 7: frozenset({7})})))
    [[5, 6], [7]]
    """
    parent: dict[int, int] = {}

    def root(line: int) -> int:
        while parent.setdefault(line, line) != line:
            parent[line] = parent[parent[line]]
            line = parent[line]
        return line

    for line, earlier in links.items():
        for other in earlier:
            parent[root(line)] = root(other)
    clusters: dict[int, set[int]] = {}
    for line in links:
        clusters.setdefault(root(line), set()).add(line)
    return {frozenset(cluster) for cluster in clusters.values()}


def read_gold(source: str | Path) -> list[GoldLog]:
    """All annotated logs of a folder (`NAME.raw.txt` beside `NAME.annotation.txt`), or of the sample's chat room."""
    if str(source) == SAMPLE:
        return [_sample_day(day) for day in sample.room()]
    folder = Path(source)
    files = sorted(folder.glob(f"*{ANNOTATION}")) if folder.is_dir() else []
    if not files:
        raise DataError(
            f"No annotated logs found in {folder}.", hint=f"A log is NAME{RAW} with NAME{ANNOTATION} beside it."
        )
    return [_read_gold_file(file) for file in files]


def _read_gold_file(file: Path) -> GoldLog:
    name = file.name.removesuffix(ANNOTATION)
    try:
        # Split at line feeds only: some messages contain other characters at which splitlines() would split.
        log = next((f for f in (file.with_name(name + end) for end in (RAW, ASCII)) if f.is_file()), None)
        log = log or file.with_name(name + RAW)
        raw = log.read_bytes().decode("utf-8", "replace").removesuffix("\n").split("\n")
        links = read_links(file.read_text(encoding="utf-8").splitlines(), source=str(file))
    except OSError as error:
        raise DataError(f"Cannot read {error.filename} ({error.strerror}).") from None
    day = date_in_name(name)
    lines = tuple(parse_log(raw, detect_format(raw, source=str(log)), day=day))
    if links and max(links) >= len(lines):
        raise DataError(f"{file} refers to line {max(links)}, but {log.name} has only {len(lines)} lines.")
    return GoldLog(Log(name, folder_name(file), lines, day), links)


def folder_name(file: Path) -> str:
    """The room of a file: its folder's name."""
    return file.resolve().parent.name


def _sample_day(day: sample.RoomDay) -> GoldLog:
    lines = tuple(parse_log(day.lines, format_named("ubuntu"), day=date_in_name(day.day)))
    links = {number: frozenset({reply_to}) for number, reply_to in enumerate(day.answers)}
    return GoldLog(Log(day.day, "sample", lines, date_in_name(day.day)), links)
