"""Make a corpus from another, item by item: steps that keep, change or remove dialogues, in parts, on any engine.

The author of a step writes one function of a batch; reading, writing, counting reasons and the history are here. The
result is a folder of shards named after the files they were made from, so that splits stay what they were.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tertulia.artefacts.files import atomic_write
from tertulia.artefacts.outputs import Output
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Exchange, Json, Turn
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress
from tertulia.corpus.card import CARD, licence_of, write_card
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.engines.base import Engine
from tertulia.corpus.history import HISTORY, HistoryStep, read_history, settings_of, write_history
from tertulia.corpus.load import holds
from tertulia.corpus.origin import record_origin
from tertulia.corpus.parts import CorpusPart, batches, merge_problems, parts_of, read_part
from tertulia.corpus.readers.base import Holds, Item
from tertulia.corpus.scale import WORK, Ending, WorkerConfig, encode_item, open_engine, open_lines, working_folder
from tertulia.corpus.shards import SCHEMA, dialogue_row, open_parquet

TAGS = "tags"
"""Where the meta of a dialogue, or of an exchange's response, has its tags; in Parquet they are columns, too."""
TAG_COLUMN = "tag_"
"""How the names of columns of tags begin."""
_BATCH = 1000
_SHARD = re.compile(r".+-\d{5,}\.(?:jsonl|jsonl\.gz|parquet)")
_OWN_FILES = (HISTORY, CARD, "config.toml")


class DeriveConfig(ReadConfig, WorkerConfig):
    """What to read, and where to write the result."""

    out: Annotated[Path, Output("folder", "own")]
    """Folder for the result."""
    ending: Ending = ".parquet"
    """Ending, and so the type, of the files to write; exchanges are always written as .jsonl."""
    force: bool = False
    """Replace the result of an earlier run in the folder."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Why an item was removed."""

    reason: str


class Step(Protocol):
    """Keeps, changes or removes items."""

    def __call__(self, items: Sequence[Item], /) -> Sequence[Item | Removed]:
        """Each item as it stays, or why it goes, in order."""
        ...

    @property
    def changes(self) -> Mapping[str, int]:
        """How much was changed so far, by kind."""
        ...


class StepMaker(Protocol):
    """A picklable description of a step, made where it runs."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The tags that the step writes, with their types in Arrow: string, int64, double or bool."""
        ...

    def make(self) -> Step:
        """The step."""
        ...


@dataclass(slots=True)
class DeriveCounts:
    """What was read, kept, removed and changed."""

    read: int = 0
    kept: int = 0
    removed: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    problems: Problems = field(default_factory=Problems)

    def add(self, other: "DeriveCounts") -> None:
        """Add the counts of the next part."""
        self.read += other.read
        self.kept += other.kept
        self.removed.update(other.removed)
        self.changed.update(other.changed)
        merge_problems(self.problems, other.problems)


def derive(config: DeriveConfig, steps: Sequence[StepMaker], progress: Progress, *, command: str) -> DeriveCounts:
    """Send a corpus through steps into a folder. Shards appear together, at the end; the history is written last."""
    check_out(config)
    kind = holds(config.target, split=config.split, format=config.format)
    parts = parts_of(config, wanted="dialogues" if kind == "dialogues" else None)
    for step in steps:
        step.make()  # a wrong name fails now
    with working_folder(config.out) as work, open_engine(config, parts) as engine:
        title = f"Writing {config.out}"
        counts = run_steps(parts, steps, work, ending_for(config, kind), engine, progress, title=title)
        publish(config, work, counts, command=command)
    return counts


def run_steps(
    parts: Sequence[CorpusPart],
    steps: Sequence[StepMaker],
    work: Path,
    ending: Ending,
    engine: Engine,
    progress: Progress,
    *,
    title: str,
) -> DeriveCounts:
    """Send all parts through steps into shards in a working folder."""
    columns = tag_columns(parts) | {name: kind for step in steps for name, kind in step.columns.items()}
    tasks = [_DeriveTask(part, tuple(steps), str(work), ending, columns) for part in parts]
    progress.step(title, total=len(tasks))
    results: dict[int, _Derived] = {}
    for result in engine.map(_derive_part, tasks):
        results[result.number] = result
        progress.advance()
    counts = DeriveCounts()
    for part in parts:
        counts.add(results[part.number].counts)
    return counts


def collect_shards(folder: Path) -> list[Path]:
    """The shards in a folder, in order."""
    return sorted(file for file in folder.iterdir() if _SHARD.fullmatch(file.name))


def check_out(config: DeriveConfig) -> None:
    """Refuse a folder that holds something else, or the result of another run unless told to replace it."""
    if not config.out.exists():
        return
    if not config.out.is_dir():
        raise UsageError(f"{config.out} is not a folder.", hint="Name another one with --out.")
    files = [file.name for file in config.out.iterdir() if file.name != WORK]
    foreign = [name for name in files if not _SHARD.fullmatch(name) and name not in _OWN_FILES]
    if foreign or (files and not config.force):
        hint = "Name another folder with --out" + ("." if foreign else ", or replace the result with --force.")
        raise UsageError(f"{config.out} is not empty: it contains {(foreign or files)[0]}.", hint=hint)
    if config.target and Path(config.target).exists() and config.out.resolve() == Path(config.target).resolve():
        raise UsageError(f"{config.out} would replace what it is made from.", hint="Name another folder with --out.")


def ending_for(config: DeriveConfig, kind: Holds) -> Ending:
    """How shards end; only dialogues can be in Parquet."""
    return ".jsonl" if kind == "exchanges" and config.ending == ".parquet" else config.ending


def publish(config: DeriveConfig, work: Path, counts: DeriveCounts, *, command: str) -> None:
    """Move finished shards into the folder in the place of those of an earlier run, and write the history."""
    shards = collect_shards(work)
    for file in config.out.iterdir():
        if _SHARD.fullmatch(file.name) or file.name in _OWN_FILES:
            file.unlink()
    for shard in shards:
        shard.replace(config.out / shard.name)
    before = read_history(config.target)
    step = HistoryStep(
        command,
        Path(config.target).name,
        settings_of(config),
        counts.read,
        counts.kept,
        dict(counts.removed.most_common()),
        dict(counts.changed.most_common()),
        counts.problems.count,
        licence=licence_of(config.target, before),
    )
    write_history(config.out, before, step)
    record_origin(config.out, command=command, source=config.target)
    write_card(config.out)


def shard_name(part: CorpusPart, ending: str) -> str:
    """The file for what is made from a part."""
    return f"{part.name}-{part.number:05d}{ending}"


@dataclass(frozen=True, slots=True)
class _DeriveTask:
    part: CorpusPart
    steps: tuple[StepMaker, ...]
    work: str
    ending: Ending
    columns: Mapping[str, str]


class _Derived(NamedTuple):
    number: int
    counts: DeriveCounts


def _derive_part(task: _DeriveTask) -> _Derived:
    counts = DeriveCounts()
    steps = [maker.make() for maker in task.steps]
    items = _apply(batches(read_part(task.part, counts.problems), _BATCH), steps, counts)
    write_shard(items, Path(task.work) / shard_name(task.part, task.ending), task.columns)
    for step in steps:
        counts.changed.update(step.changes)
    return _Derived(task.part.number, counts)


def _apply(batches_of_items: Iterable[list[Item]], steps: Sequence[Step], counts: DeriveCounts) -> Iterator[Item]:
    for batch in batches_of_items:
        counts.read += len(batch)
        items: Sequence[Item] = batch
        for step in steps:
            results = step(items) if items else ()
            counts.removed.update(result.reason for result in results if isinstance(result, Removed))
            items = [result for result in results if not isinstance(result, Removed)]
        counts.kept += len(items)
        yield from items


def write_shard(items: Iterable[Item], path: Path, columns: Mapping[str, str]) -> None:
    """Write items to one file, or none if there are none; in Parquet with a column for each of these tags."""
    groups = batches(items)
    first = next(groups, None)
    if first is None:
        return
    with atomic_write(path) as unfinished:
        if path.name.endswith(".parquet"):
            _write_parquet(chain([first], groups), unfinished, columns)
        else:
            with open_lines(unfinished, gzipped=path.name.endswith(".gz")) as file:
                file.writelines(map(encode_item, first))
                for group in groups:
                    file.writelines(map(encode_item, group))


def _write_parquet(groups: Iterable[list[Item]], path: Path, columns: Mapping[str, str]) -> None:
    kinds = {name: pa.type_for_alias(kind) for name, kind in sorted(columns.items())}
    schema = pa.schema([*SCHEMA, *(pa.field(TAG_COLUMN + name, kind) for name, kind in kinds.items())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for items in groups:
            writer.write_table(pa.Table.from_pylist([_row(item, kinds) for item in items], schema=schema))


def _row(item: Item, kinds: Mapping[str, pa.DataType]) -> dict[str, Json]:
    assert isinstance(item, Dialogue)
    tags = tags_of(item)
    return dialogue_row(item) | {TAG_COLUMN + name: _cast(tags.get(name), kind) for name, kind in kinds.items()}


def tag_columns(parts: Sequence[CorpusPart]) -> dict[str, str]:
    """The tags of a corpus with their types: the columns of its first Parquet file, or those of its first dialogues."""
    if parts and parts[0].ranges and not parts[0].ranges[0].reader:
        with open_parquet(parts[0].ranges[0].path) as file:
            fields = [field for field in file.schema_arrow if field.name.startswith(TAG_COLUMN)]
        return {field.name.removeprefix(TAG_COLUMN): str(field.type) for field in fields}
    kinds: dict[str, str] = {}
    for item in islice(read_part(parts[0], Problems()), _BATCH) if parts else ():
        for name, value in tags_of(item).items():
            kind = _arrow_type(value)
            if kind is not None and (name not in kinds or kind == pa.float64()):
                kinds[name] = str(kind)
    return kinds


def _arrow_type(value: Json) -> pa.DataType | None:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    return pa.string() if isinstance(value, str) else None


def _cast(value: Json, kind: pa.DataType) -> Json:
    """The value if it fits the column, else nothing; the meta has it in any case."""
    own = _arrow_type(value)
    if own == pa.int64() and kind == pa.float64():
        return float(value)
    return value if own == kind else None


def tags_of(item: Item) -> dict[str, Json]:
    """The tags of an item."""
    meta = item.meta if isinstance(item, Dialogue) else item.response.meta
    tags = meta.get(TAGS)
    return tags if isinstance(tags, dict) else {}


def with_tags(item: Item, tags: Mapping[str, Json]) -> Item:
    """The item with these tags, beside those that it has."""
    merged = {TAGS: {**tags_of(item), **tags}}
    if isinstance(item, Dialogue):
        return replace(item, meta={**item.meta, **merged})
    return replace(item, response=replace(item.response, meta={**item.response.meta, **merged}))


def turns_of(item: Item) -> tuple[Turn, ...]:
    """The turns of a dialogue, or of an exchange with its response."""
    return item.turns if isinstance(item, Dialogue) else (*item.context, item.response)


def with_texts(item: Item, change: Callable[[str], str]) -> Item:
    """The item with every text changed: of turns, personas and evidence."""

    def turn(one: Turn) -> Turn:
        return replace(one, text=change(one.text))

    def persona(one: Any) -> Any:
        return one and replace(
            one, sentences=tuple(map(change, one.sentences)), revised=tuple(map(change, one.revised))
        )

    evidence = tuple(replace(one, text=change(one.text)) for one in item.evidence)
    if isinstance(item, Exchange):
        return replace(
            item,
            context=tuple(map(turn, item.context)),
            response=turn(item.response),
            persona=persona(item.persona),
            partner=persona(item.partner),
            evidence=evidence,
        )
    personas = {speaker: persona(one) for speaker, one in item.personas.items()}
    return replace(item, turns=tuple(map(turn, item.turns)), personas=personas, evidence=evidence)
