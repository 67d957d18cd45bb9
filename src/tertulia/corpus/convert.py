"""Convert a corpus of any size to another format, in bounded memory.

Formats whose records do not depend on each other are encoded part by part, on any engine, and joined in order: the
bytes are those of a conversion in one process, which all other formats take.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from tertulia.artefacts.outputs import Force, Output, write_output
from tertulia.core.codec import Problems, dump_line
from tertulia.core.config import Cli
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.engines.base import Engine
from tertulia.corpus.load import holds
from tertulia.corpus.origin import record_origin
from tertulia.corpus.parts import CorpusPart, merge_problems, parts_of, read_dialogues, read_exchanges
from tertulia.corpus.readers.base import JSON_LINES, AnyReader, Holds, Item, Reader
from tertulia.corpus.readers.files import create_text
from tertulia.corpus.readers.messages import merge_turns, repeats_role
from tertulia.corpus.registry import READERS
from tertulia.corpus.scale import WorkerConfig, concatenate, open_engine, working_folder
from tertulia.corpus.scrub import KINDS, Kind
from tertulia.corpus.scrub_step import ScrubStep
from tertulia.corpus.write import check_target, save_dialogues, save_exchanges

T = TypeVar("T", bound=Item)
WITH_ROLES = ("messages", "sharegpt")
"""Formats with the roles of a user and an assistant."""


class ConvertConfig(ReadConfig, WorkerConfig):
    """What to convert, and into what."""

    out: Annotated[Path, Cli(argument=True), Output("either", replaces_folders=False)]
    """File to write, with an ending that fits the format (.jsonl, .json, .parquet, .txt, .tsv, .csv), or a folder."""
    to: str | None = None
    """Format to write; by default Tertulia's own dialogues, or its own exchanges if the corpus has exchanges."""
    scrub: bool = False
    """Replace personal data (e-mail and IP addresses, phone numbers, keys, cards, postal addresses) by placeholders."""
    kinds: Annotated[tuple[Kind, ...], Cli("--kind")] = KINDS
    """Kind of personal data to replace with --scrub; repeat the option for more."""
    merge_turns: bool = False
    """Make two roles that alternate of every dialogue, as many trainers need it: the second speaker (or `assistant`) is
    the assistant, all others are the user, and turns of one role in a row become one."""
    force: Force = False


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written."""

    kind: Holds
    count: int
    problems: Problems
    replaced: Counter[str] = field(default_factory=Counter)
    """Personal data by kind."""
    repeating: int = 0
    """Dialogues in which a role has two turns in a row, in formats with roles."""


@dataclass(frozen=True, slots=True)
class _Changes:
    """What is to be changed on the way."""

    scrubbed: tuple[Kind, ...] = ()
    merge_turns: bool = False
    with_roles: bool = False
    """Whether the format has the roles of a user and an assistant."""

    @classmethod
    def of(cls, config: ConvertConfig, to: str) -> "_Changes":
        return cls(config.kinds if config.scrub else (), config.merge_turns, to in WITH_ROLES)


class _ChangeStep:
    """Changes items and counts what it changed or noticed."""

    def __init__(self, changes: _Changes) -> None:
        self._changes = changes
        self.scrub = ScrubStep(changes.scrubbed)
        self.repeating = 0

    def change(self, item: Item) -> Item:
        """One item."""
        if self.scrub.kinds:
            item = self.scrub.change(item)
        if isinstance(item, Dialogue):
            if self._changes.merge_turns:
                item = merge_turns(item)
            self.repeating += self._changes.with_roles and repeats_role(item)
        return item


def convert_corpus(config: ConvertConfig, progress: Progress | None = None) -> Converted:
    """Convert a corpus; the file or folder appears only when it is complete."""
    converted = _convert(config, progress or Silent())
    record_origin(config.out, command="convert", source=config.target)
    return converted


def _convert(config: ConvertConfig, progress: Progress) -> Converted:
    own = holds(config.target, split=config.split, format=config.format)
    to = config.to or ("tertulia" if own == "dialogues" else "exchanges")
    reader: AnyReader = READERS.get(to)
    if config.merge_turns and reader.holds == "exchanges":
        raise UsageError("--merge-turns applies to dialogues, not to exchanges.")
    parts = parts_of(config, wanted="dialogues" if reader.holds == "dialogues" else None)
    if _by_part(reader, config.out) and (len(parts) > 1 or config.workers):
        return _convert_parts(config, to, parts, progress)
    progress.step(f"Writing {config.out}", total=None)
    problems, step = Problems(), _ChangeStep(_Changes.of(config, to))
    items = _with_progress(_items(parts, reader.holds, problems, step), progress)
    if reader.holds == "exchanges":
        count = save_exchanges(items, config.out, format=to)  # type: ignore[arg-type]
    else:
        count = save_dialogues(items, config.out, format=to)  # type: ignore[arg-type]
    return Converted(reader.holds, count, problems, step.scrub.changes, step.repeating)


def _by_part(reader: AnyReader, path: Path) -> bool:
    """Whether files of this format are their records one after the other."""
    if reader.encode is None or reader.write_folder or path.name.endswith(".parquet"):
        return False
    return path.name.endswith(JSON_LINES) if isinstance(reader, Reader) else reader.join is None


def _convert_parts(config: ConvertConfig, to: str, parts: list[CorpusPart], progress: Progress) -> Converted:
    check_target(config.out, format=to)
    if config.out.is_dir():
        raise UsageError(f"{config.out} is a folder.", hint="Give the path of a file.")
    reader: AnyReader = READERS.get(to)
    with working_folder(config.out.with_name(f"{config.out.name}.parts")) as work:
        outs = [str(work / f"{part.number:06d}{config.out.name}") for part in parts]
        changes = _Changes.of(config, to)
        tasks = [_EncodeTask(part, to, out, changes) for part, out in zip(parts, outs, strict=True)]
        progress.step(f"Writing {config.out}", total=len(tasks))
        with open_engine(config, parts) as engine:
            encoded = _encode_all(tasks, engine, progress)
        files = [Path(task.out) for task in tasks]
        if not isinstance(reader, Reader) and reader.head:
            head = work / f"head{config.out.name}"
            with create_text(head) as file:
                file.write(reader.head)
            files.insert(0, head)
        try:
            with write_output(config.out) as unfinished:
                concatenate(files, unfinished, gzipped=config.out.name.endswith(".gz"))
        except OSError as error:
            raise DataError(f"Cannot write {config.out}: {error.strerror or error}.") from None
    problems, replaced = Problems(), Counter[str]()
    for task in tasks:
        merge_problems(problems, encoded[task.part.number].problems)
        replaced.update(encoded[task.part.number].replaced)
    count, repeating = (sum(getattr(one, name) for one in encoded.values()) for name in ("count", "repeating"))
    return Converted(reader.holds, count, problems, replaced, repeating)


@dataclass(frozen=True, slots=True)
class _EncodeTask:
    part: CorpusPart
    to: str
    out: str
    changes: _Changes


@dataclass(slots=True)
class _Encoded:
    number: int
    count: int = 0
    problems: Problems = field(default_factory=Problems)
    replaced: Counter[str] = field(default_factory=Counter)
    repeating: int = 0


def _encode_all(tasks: list[_EncodeTask], engine: Engine, progress: Progress) -> dict[int, _Encoded]:
    encoded: dict[int, _Encoded] = {}
    for result in engine.map(_encode, tasks):
        encoded[result.number] = result
        progress.advance()
    return encoded


def _encode(task: _EncodeTask) -> _Encoded:
    reader: AnyReader = READERS.get(task.to)
    result = _Encoded(task.part.number)
    as_text, step = _line_encoder(reader), _ChangeStep(task.changes)
    with create_text(Path(task.out)) as out:
        for item in _items([task.part], reader.holds, result.problems, step):
            out.write(as_text(item))
            result.count += 1
    result.replaced, result.repeating = step.scrub.changes, step.repeating
    return result


def _line_encoder(reader: AnyReader) -> Callable[[Item], str]:
    if isinstance(reader, Reader):
        as_record = reader.encode
        assert as_record is not None
        return lambda item: dump_line(as_record(item)) + "\n"
    assert reader.encode is not None
    return reader.encode


def _items(parts: Iterable[CorpusPart], kind: Holds, problems: Problems, step: _ChangeStep) -> Iterator[Item]:
    for part in parts:
        items = read_dialogues(part, problems) if kind == "dialogues" else read_exchanges(part, problems)
        yield from map(step.change, items)


def _with_progress(items: Iterator[T], progress: Progress) -> Iterator[T]:
    for item in items:
        progress.advance()
        yield item
