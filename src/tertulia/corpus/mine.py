"""Mining as a job: messages in, a folder out with the pairs, the funnel, the subword model and the settings.

The work is done by `corpus.mining`, on whichever engine; this is what is asked for and what is handed back. The folder:
`pairs/` (shards, one row a reply), `whole/` and `pairs.parquet` on request, `funnel.json`, `subwords.model`,
`config.toml` and `manifest.json`, and `_work/` while the job is not done.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from tertulia import __version__, sample
from tertulia.core.codec import Problems, message_from_json
from tertulia.core.config import save
from tertulia.core.dialogue import Json, Message
from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.engines.base import Engine, Here
from tertulia.corpus.engines.pool import Pool
from tertulia.corpus.engines.ray import RayEngine
from tertulia.corpus.erase import erase_again
from tertulia.corpus.load import SAMPLE, files_of, read_file
from tertulia.corpus.mining.driver import SUBWORDS, WORK, Plan, Yield, run
from tertulia.corpus.mining.files import alone, read_json, sweep, write_json
from tertulia.corpus.mining.manifest import FORMAT, NAME, check_manifest
from tertulia.corpus.mining.pairs import PAIRS, WHOLE, read_pairs
from tertulia.corpus.mining.shapes import Cleaning, shape_named
from tertulia.corpus.mining.sources import find_sources
from tertulia.corpus.rules import MiningRules
from tertulia.corpus.shards import write_parquet
from tertulia.corpus.subwords import read_subwords
from tertulia.corpus.trees import Funnel

FUNNEL = "funnel.json"
DIALOGUES = "pairs.parquet"
_BUCKET_BYTES = 8 << 20
"""Bytes of input for each bucket."""
_SMALL = 8 << 20
"""Inputs below this are mined in this process."""


class MineConfig(MiningRules):
    """What is mined, by which rules, and where it goes."""

    source: str | tuple[str, ...] = SAMPLE
    """Files or folders of messages (JSON lines, packed or not, or Parquet), `-` for a pipe, or `sample` for the bundled
    forum."""
    out: Path = Path("mined")
    """Folder for the results."""
    format: Literal["messages", "reddit", "convokit"] | None = None
    """Shape of the records; recognised by the first one when not given."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Where plain messages keep what: a field name for id, parent, thread, author or text."""
    vocabulary: int = Field(8000, ge=300)
    """Most subwords to learn; a small corpus has fewer."""
    subwords: Path | None = None
    """A SentencePiece model to count with, instead of learning one."""
    sample: int = Field(100_000, ge=1)
    """About how many texts to learn subwords from."""
    seed: int = 0
    """For that sample."""
    unsafe: Literal["marked", "none"] = "marked"
    """Which messages count as unsafe: those marked `rude` or `unsafe` in their meta, or none."""
    lexicon: Path | None = None
    """A file of words and phrases, one a line, that make a message unsafe too."""
    edits: bool = True
    """Of Reddit's texts, keep only what comes before an edit note."""
    links: Literal["rule", "cut"] = "rule"
    """Messages with a link go by rule, or the link is cut out of them."""
    whole: bool = False
    """Also write the dialogues from root to leaf."""
    dialogues: bool = False
    """Also write the pairs as one Parquet file of dialogues, which every command reads."""
    strict: bool = False
    """Refuse damaged lines instead of skipping and counting them."""
    fresh: bool = False
    """Start anew where the folder holds the work of another run."""
    engine: Literal["pool", "ray"] = "pool"
    """What does the work: processes on this machine, or a Ray cluster that shares the disk."""
    address: str | None = None
    """Address of the Ray cluster; a local one is started when not given."""
    workers: int | None = Field(None, ge=1)
    """How many processes; as many as there are cores when not given, none at all for a small input."""
    buckets: int | None = Field(None, ge=1, le=100_000)
    """Into how many shards the threads are dealt; by the size of the input when not given."""
    block_bytes: int = Field(16 << 20, ge=1)
    """Bytes of input read at a time: memory is a dozen times that for each worker."""


@dataclass(frozen=True, slots=True)
class MineOutcome:
    """What came of it."""

    funnel: Funnel
    problems: Problems
    subwords: int
    """Size of the subword vocabulary."""
    pairs: Path
    """The Parquet file with one dialogue per reply where that was asked for, else the folder of shards."""
    whole: int = 0
    """Dialogues from root to leaf, where they were asked for."""


def mine(config: MineConfig, progress: Progress | None = None) -> MineOutcome:
    """Mine a corpus, or go on where an earlier run was interrupted."""
    progress = progress or Silent()
    new = not config.out.exists()
    work = config.out / WORK
    work.mkdir(parents=True, exist_ok=True)
    try:
        with alone(work / "lock"):
            sweep(config.out)
            if config.fresh:
                _clear(config.out)
            plan = _plan(config)
            begun = check_manifest(config.out, _manifest(plan))
            if not (begun and (config.out / FUNNEL).is_file()):
                _record(config, _run(config, plan, progress))
            erase_again(config.out)
            if config.dialogues and not (config.out / DIALOGUES).is_file():
                progress.step("Writing dialogues")
                write_parquet(read_pairs(config.out), config.out / DIALOGUES)
            save(config, config.out / "config.toml")
            shutil.rmtree(work)
    except (DataError, UsageError):
        if new and not any(read_json(marker)["messages"] for marker in work.glob("part-*.json")):
            shutil.rmtree(config.out)  # nothing was found that is worth going on with
        raise
    return outcome_of(config.out)


def outcome_of(folder: Path) -> MineOutcome:
    """What came of an earlier run, from its folder."""
    record = read_json(folder / FUNNEL)
    funnel = Funnel(**{name: record[name] for name in ("messages", "removed", "kept", "pairs")})
    problems = Problems(record["damaged lines"], record["damaged examples"])
    dialogues = folder / DIALOGUES
    pairs = dialogues if dialogues.is_file() else folder / PAIRS
    return MineOutcome(funnel, problems, record["subwords"], pairs, record["whole"])


def _run(config: MineConfig, plan: Plan, progress: Progress) -> Yield:
    engine = _engine(config, plan)
    try:
        return run(plan, engine, progress, strict=config.strict)
    finally:
        engine.close()


def _engine(config: MineConfig, plan: Plan) -> Engine:
    if config.engine == "ray":
        return RayEngine(address=config.address, workers=config.workers)
    if config.workers is None and plan.weight < _SMALL:
        return Here()
    return Pool(config.workers or os.cpu_count() or 1)


def _plan(config: MineConfig) -> Plan:
    shape_named("messages", config.fields)
    targets = (config.source,) if isinstance(config.source, str) else config.source
    sources = find_sources(targets, shape=config.format, fields=config.fields, spool=config.out / WORK)
    if config.subwords:
        read_subwords(config.subwords)  # now, and not after the messages have been read
    return Plan(
        out=config.out,
        sources=tuple(sources),
        rules=MiningRules(**config.model_dump(include=set(MiningRules.model_fields))),
        buckets=config.buckets or 1 + sum(source.weight for source in sources) // _BUCKET_BYTES,
        block_bytes=config.block_bytes,
        fields=config.fields,
        cleaning=Cleaning(config.edits, config.links),
        subwords=config.subwords,
        vocabulary=config.vocabulary,
        sample=config.sample,
        seed=config.seed,
        lexicon=_lexicon(config.lexicon) if config.lexicon else (),
        marked_is_unsafe=config.unsafe == "marked",
        whole=config.whole,
    )


def _lexicon(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(
            f"The lexicon {path} cannot be read: {why}.", hint="--lexicon names a text file of words, one a line."
        ) from None
    return tuple(line for line in lines if line.strip())


def _manifest(plan: Plan) -> dict[str, Json]:
    """Everything that shapes the bytes that come out; not the engine, which does not."""
    learned = {"vocabulary": plan.vocabulary, "sample": plan.sample, "seed": plan.seed}
    return {
        "format": FORMAT,
        "inputs": [source.as_json() for source in plan.sources],
        "rules": plan.rules.model_dump(mode="json"),
        "subwords": {"sha256": _sha256(plan.subwords.read_bytes())} if plan.subwords else learned,
        "marked is unsafe": plan.marked_is_unsafe,
        "lexicon": _sha256("\n".join(plan.lexicon).encode()) if plan.lexicon else None,
        "cleaning": asdict(plan.cleaning),
        "fields": dict(plan.fields),
        "whole": plan.whole,
        "buckets": plan.buckets,
        "block bytes": plan.block_bytes,
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _record(config: MineConfig, found: Yield) -> None:
    record = asdict(found.funnel) | {
        "whole": found.whole,
        "damaged lines": found.problems.count,
        "damaged examples": found.problems.examples,
        "subwords": found.subwords,
        "version": __version__,
    }
    write_json(config.out / FUNNEL, record, durable=True)


def _clear(out: Path) -> None:
    for name in (FUNNEL, NAME, DIALOGUES, SUBWORDS):
        (out / name).unlink(missing_ok=True)
    for folder in (out / PAIRS, out / WHOLE):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (out / WORK).iterdir():
        if file.name != "lock":
            file.unlink()


def read_messages(source: str, problems: Problems | None = None) -> Iterator[Message]:
    """The messages of the sample's forum, a file or a folder, one by one: the plain way, for small corpora."""
    if source == SAMPLE:
        yield from sample.messages()
        return
    for file in files_of(Path(source)):
        yield from read_file(file, message_from_json, problems)


def marked(message: Message) -> bool:
    """Whether whoever prepared the data marked the message as rude or unsafe."""
    return bool(message.meta.get("rude") or message.meta.get("unsafe"))
