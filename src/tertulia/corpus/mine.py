"""Mine message trees: messages in, a folder out with the pairs, the funnel, the subword model and the settings.

`corpus.mining` does the work on any engine; this module has the config, the engine's choice and the outcome. The folder
contains `pairs/` (shards, one row per reply), `whole/` and `pairs.parquet` on request, `funnel.json`, `subwords.model`,
`config.toml`, `manifest.json` and a dataset card, and `_work/` until the job is done.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, field_validator

from tertulia import __version__, sample
from tertulia.artefacts.files import exclusive_lock, read_json, remove_unfinished, save_config, sha256_of
from tertulia.artefacts.folders import DiskFolder, Folder, open_folder, read_json_from, write_json_to
from tertulia.artefacts.manifest import MANIFEST
from tertulia.artefacts.outputs import Output
from tertulia.artefacts.stores import is_url
from tertulia.core.codec import Problems, message_from_json
from tertulia.core.config import Cli
from tertulia.core.dialogue import Json, Message
from tertulia.core.errors import DataError, Interrupted, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.safety import SafetyConfig
from tertulia.corpus.card import write_card, write_card_to_store
from tertulia.corpus.engines.base import Engine, InProcess
from tertulia.corpus.engines.pool import Pool
from tertulia.corpus.engines.ray import RayEngine
from tertulia.corpus.erase import RECORD, erase_again
from tertulia.corpus.load import SAMPLE, files_of, read_file
from tertulia.corpus.mining import extract
from tertulia.corpus.mining.driver import WORK, MiningJob, MiningResult, run_stages
from tertulia.corpus.mining.extract import SUBWORDS
from tertulia.corpus.mining.manifest import FORMAT, check_manifest, compare_manifest
from tertulia.corpus.mining.pairs import FUNNEL, PAIRS, WHOLE, read_pairs
from tertulia.corpus.mining.plan import MEMORY, make_plan
from tertulia.corpus.mining.schemas import FIELDS, Cleaning, get_schema
from tertulia.corpus.mining.sources import find_sources
from tertulia.corpus.mining.threads import MIN_BYTES
from tertulia.corpus.rules import MiningRules, UnsafeMode
from tertulia.corpus.scrub import KINDS, Kind
from tertulia.corpus.shards import write_parquet
from tertulia.corpus.subwords import read_subwords
from tertulia.corpus.trees import Funnel

DIALOGUES = "pairs.parquet"
LOCK = "lock"
_SHARD = re.compile(r"\d{5,}\.parquet")
_WORKING_FILE = re.compile(
    r"(?:part|bucket|bundle)-\d{5,}\.json|(?:messages|hashes|sample)-\d{5,}-\d{5,}\.arrow|"
    r"merged-\d{5,}-\d{5,}\.(?:arrow|json)|(?:repeated|repeats|threads|links-\d{5,})\.npy|(?:sample|stdin)\.jsonl"
)
_LOCK_FILE = re.compile(LOCK)
"""Names of what mining writes: a folder may hold other files, too, which it must not touch."""
_ARROW_DETAIL = "Detail: [errno "
"""Before the system's own words in an error of Arrow."""
_SMALL = 8 << 20
"""Inputs below this size are mined in this process."""


_FOLDER = Output("folder", "own", known_by=(MANIFEST, RECORD))


def _path_or_url(value: object) -> object:
    return value if is_url(value) or not isinstance(value, str) else Path(value)


class MineConfig(MiningRules):
    """What to mine, by which rules, and where to write the results."""

    source: Annotated[str | tuple[str, ...], Cli(argument=True)] = SAMPLE
    """Files or folders of messages (JSON lines, optionally compressed, or Parquet) by path or URL (s3://, gs://, hf://,
    https://), `-` for standard input, or `sample` for the bundled forum. With --threads: a chat log or a folder of
    logs."""
    out: Annotated[Path | str, BeforeValidator(_path_or_url), _FOLDER] = Path("mined")
    """Folder for the results, or the URL of one in an object store (s3://bucket/folder); by default `mined`, or
    `chatlogs` with --threads."""
    format: Literal["messages", "reddit", "convokit"] | None = None
    """Schema of the records; detected from the first record by default. With --threads: the format
    of the logs (ubuntu, irssi, weechat, energymech or generic)."""
    fields: Annotated[dict[str, str], Cli("--field")] = Field(default_factory=dict)
    """Name of a field in the records, e.g. text=body; repeat the option for more. Messages have id, parent, thread,
    author, text and time."""
    keep: tuple[str, ...] = ()
    """Further fields of a reply to keep with its pair, e.g. score,subreddit; from its record or the record's meta."""
    vocabulary: int = Field(default=8000, ge=300)
    """Maximum number of subwords to learn; a small corpus yields fewer."""
    subwords: Path | None = None
    """SentencePiece model to count subwords with, instead of learning one."""
    sample: int = Field(default=100_000, ge=1)
    """Approximate number of texts to learn subwords from."""
    seed: int = 0
    """Random seed of that sample."""
    unsafe: UnsafeMode = "auto"
    """Which messages are unsafe: those marked `rude` or `unsafe` in their meta and, where a source has no such marks
    (Reddit, ConvoKit), those that the safety lexicon or the classifier calls unsafe (auto); only those marked (marked);
    both for every source (judged); or none."""
    lexicon: Path | None = None
    """Text file of words and phrases, one per line; messages that contain one are unsafe too."""
    swearing: bool = False
    """Whether swearing at nobody in particular is unsafe too."""
    classifier: str = ""
    """A Hugging Face text classification model that judges safety beside the lexicon, by hub name or folder; slow."""
    label: str = ""
    """Its label for unsafe texts, several separated by "|"; required if the model has more than two labels."""
    threshold: float = Field(default=0.5, gt=0, lt=1)
    """A message is unsafe if the probability of such a label is at least this."""
    edits: bool = True
    """Reddit: keep only the text before an edit note."""
    links: Literal["rule", "cut"] = "rule"
    """Remove messages that contain a link (rule), or only the link (cut)."""
    scrub: bool = False
    """Replace personal data (e-mail and IP addresses, phone numbers, keys, cards, postal addresses) in the texts by
    placeholders; user names and fields of --keep stay."""
    kinds: Annotated[tuple[Kind, ...], Cli("--kind")] = KINDS
    """Kind of personal data to replace with --scrub; repeat the option for more."""
    whole: bool = False
    """Also write complete dialogues, from root to leaf."""
    dialogues: bool = False
    """Also write the pairs as one Parquet file of dialogues, which every command reads."""
    strict: bool = False
    """Stop at the first damaged line instead of skipping and counting damaged lines."""
    fresh: bool = False
    """Start over if the folder contains the work of another run."""
    engine: Literal["pool", "ray"] = "pool"
    """Where to run: in processes on this machine, or on a Ray cluster, whose machines share a disk or read and write an
    object store."""
    address: str | None = None
    """Address of the Ray cluster; by default a local one is started."""
    workers: int | None = Field(default=None, ge=1)
    """Number of processes; by default one per core, and none for a small input."""
    buckets: int | None = Field(default=None, ge=1, le=100_000)
    """Number of shards for the threads; by default chosen by the size of the input and --worker-memory."""
    worker_memory: int = Field(default=MEMORY >> 20, ge=64)
    """Megabytes that a worker may use for a part of the input or a bucket; more means fewer and larger working
    files."""
    block_bytes: int = Field(default=16 << 20, ge=1)
    """Bytes of input parsed at a time; each worker needs about twelve times as much memory."""

    @field_validator("keep", mode="before")
    @classmethod
    def _split_names(cls, names: object) -> object:
        """Several names may be given at once, separated by commas."""
        if not isinstance(names, tuple | list):
            return names
        return tuple(dict.fromkeys(n.strip() for name in names for n in str(name).split(",") if n.strip()))

    @field_validator("keep")
    @classmethod
    def _check_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name in (*FIELDS, "meta"):
                raise ValueError(f"{name} is kept in any case" if name != "meta" else "name the fields of meta")
        return names


@dataclass(frozen=True, slots=True)
class MineOutcome:
    """The results of mining."""

    funnel: Funnel
    problems: Problems
    subwords: int
    """Size of the subword vocabulary."""
    pairs: Path | str
    """The Parquet file with one dialogue per reply if requested, otherwise the folder of shards."""
    whole: int = 0
    """Dialogues from root to leaf, if requested."""
    replaced: dict[str, int] = field(default_factory=dict)
    """Personal data that was replaced, by kind, if requested."""


def mine(config: MineConfig, progress: Progress | None = None) -> MineOutcome:
    """Mine a corpus, or continue an interrupted run."""
    out = open_folder(config.out)
    try:
        if isinstance(config.out, Path):
            _mine_on_disk(config, config.out, progress or Silent())
        else:
            _mine(config, out, progress or Silent())
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        reason = reason.split(_ARROW_DETAIL)[-1].split("] ", 1)[-1] if _ARROW_DETAIL in reason else reason
        raise DataError(
            f"Mining into {config.out} failed: {reason}{f' ({error.filename})' if error.filename else ''}.",
            hint="Run the same command again once that is remedied: it continues where it stopped.",
        ) from None
    except KeyboardInterrupt:
        if isinstance(config.out, Path) and not (config.out / WORK).exists():
            raise  # nothing was read yet
        raise Interrupted(
            f"What was mined so far is kept in {config.out}.",
            hint="Run the same command again to continue where it stopped.",
        ) from None
    return outcome_of(config.out)


class MiningPreview(NamedTuple):
    """What mining would do."""

    sources: tuple[tuple[str, int], ...]
    """The files that would be read, with their approximate bytes of JSON lines."""
    buckets: int
    """Shards that would be written."""
    state: Literal["new", "continue", "done", "start over"]
    """What is in the folder for the results: nothing, or the same run, begun or finished; or it would be cleared."""


def preview_mining(config: MineConfig) -> MiningPreview:
    """Check the sources, the settings and the folder as `mine` does, and write nothing."""
    targets = (config.source,) if isinstance(config.source, str) else config.source
    if "-" in targets:
        raise UsageError("A pipe cannot be looked at before it is read.", hint="Write it to a file first.")
    out = open_folder(config.out)
    if not out.is_local:
        _check_store(config, out)
    with tempfile.TemporaryDirectory(prefix="tertulia-mine-") as folder:
        job = _job(config, out, work=DiskFolder(folder))
        names = out.sizes() if not isinstance(config.out, Path) or config.out.is_dir() else {}
        state: Literal["new", "continue", "done", "start over"] = "new"
        if MANIFEST in names and config.fresh:
            state = "start over"
        elif MANIFEST in names:
            compare_manifest(out, _manifest(job))
            state = "done" if FUNNEL in names else "continue"
        sources = tuple((source.name, source.estimated_bytes) for source in job.sources)
        return MiningPreview(sources, job.plan.buckets, state)


def _mine_on_disk(config: MineConfig, out: Path, progress: Progress) -> None:
    """A folder on a disk is locked, and removed again if nothing came of it."""
    work = out / WORK
    is_new, is_new_work = not out.exists(), not work.exists()
    work.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(work / LOCK):
        try:
            remove_unfinished(out)
            _mine(config, open_folder(out), progress)
        except (DataError, UsageError, KeyboardInterrupt):
            if is_new_work and not any(read_json(marker)["messages"] for marker in work.glob("part-*.json")):
                shutil.rmtree(out if is_new else work)  # it contains nothing worth continuing
            elif [file.name for file in work.iterdir()] == [LOCK]:
                _remove_files(DiskFolder(str(work)), _LOCK_FILE)
            raise
        _remove_files(DiskFolder(str(work)), _LOCK_FILE)


def _mine(config: MineConfig, out: Folder, progress: Progress) -> None:
    if not out.is_local:
        _check_store(config, out)
    if config.fresh:
        _clear(out)
    job = _job(config, out)
    started = check_manifest(out, _manifest(job))
    if not (started and FUNNEL in out.sizes()):
        with closing(_engine(config, job)) as engine:
            result = run_stages(job, engine, progress, strict=config.strict)
        _write_funnel(out, result, scrubbed=config.scrub)
    _finish(config, out, progress)
    _remove_files(out.subfolder(WORK), _WORKING_FILE)


def _check_store(config: MineConfig, out: Folder) -> None:
    """What can be done on a disk only is refused before any work."""
    if config.dialogues:
        raise UsageError(
            f"--dialogues cannot write to {out.location()}.",
            hint="Mine without it: the pairs can be read as dialogues, too, once they are on a disk.",
        )
    if RECORD in out.sizes():
        raise UsageError(
            f"People were erased from {out.location()} before, and would come back.",
            hint="Mine into a folder on a disk with a copy of its erased.json, which erases them again.",
        )


def _finish(config: MineConfig, out: Folder, progress: Progress) -> None:
    """What is made from the pairs: erasures, dialogues."""
    if isinstance(config.out, Path):
        erase_again(config.out)
        if config.dialogues and not (config.out / DIALOGUES).is_file():
            progress.step("Writing dialogues")
            write_parquet(read_pairs(config.out), config.out / DIALOGUES)
    with out.write("config.toml") as file:
        save_config(config, file)
    if isinstance(config.out, Path):
        write_card(config.out)
    else:
        write_card_to_store(out)


def outcome_of(target: Path | str) -> MineOutcome:
    """The outcome of an earlier run, read from its folder."""
    folder = open_folder(target)
    record = read_json_from(folder, FUNNEL)
    funnel = Funnel(**{name: record[name] for name in ("messages", "removed", "kept", "pairs")})
    problems = Problems(record["damaged lines"], record["damaged examples"])
    if isinstance(target, Path):
        dialogues = target / DIALOGUES
        pairs: Path | str = dialogues if dialogues.is_file() else target / PAIRS
    else:
        pairs = folder.location(PAIRS)
    return MineOutcome(funnel, problems, record["subwords"], pairs, record["whole"], record.get("replaced", {}))


def _engine(config: MineConfig, job: MiningJob) -> Engine:
    if config.engine == "ray":
        return RayEngine(address=config.address, workers=config.workers)
    if config.workers is None and job.estimated_bytes < _SMALL:
        return InProcess()
    return Pool(config.workers or os.cpu_count() or 1, preload=(extract.__name__,))  # which imports the other stages


def _job(config: MineConfig, out: Folder, *, work: Folder | None = None) -> MiningJob:
    get_schema("messages", config.fields)  # rejects unknown field names
    targets = (config.source,) if isinstance(config.source, str) else config.source
    sources = find_sources(targets, schema=config.format, fields=config.fields, work=work or out.subfolder(WORK))
    if config.classifier:
        safety_of(config).load()  # a wrong name fails now
    if config.subwords:
        read_subwords(config.subwords)  # fails now rather than after reading all messages
    total = sum(source.estimated_bytes for source in sources)
    return MiningJob(
        out=out,
        sources=tuple(sources),
        rules=MiningRules(**config.model_dump(include=set(MiningRules.model_fields))),
        plan=make_plan(
            total, block_bytes=config.block_bytes, memory=config.worker_memory << 20, buckets=config.buckets
        ),
        block_bytes=config.block_bytes,
        fields=config.fields,
        keep=config.keep,
        by_parents=total > MIN_BYTES and not all(source.names_threads for source in sources),
        cleaning=Cleaning(config.edits, config.links),
        subwords=config.subwords,
        vocabulary=config.vocabulary,
        sample=config.sample,
        seed=config.seed,
        unsafe_phrases=_read_phrases(config.lexicon) if config.lexicon else (),
        unsafe=config.unsafe,
        safety=safety_of(config),
        whole=config.whole,
        scrub=config.kinds if config.scrub else (),
    )


def safety_of(config: MineConfig) -> SafetyConfig:
    """The part of the config that the judges of safety know. Their own file of phrases is not used: `lexicon` is
    matched by the engine, for every source."""
    return SafetyConfig(
        swearing=config.swearing, classifier=config.classifier, label=config.label, threshold=config.threshold
    )


def _read_phrases(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(
            f"Cannot read the lexicon {path}: {reason}.", hint="--lexicon expects a text file with one phrase per line."
        ) from None
    return tuple(line for line in lines if line.strip())


def _manifest(job: MiningJob) -> dict[str, Json]:
    """Everything that affects the resulting bytes; the engine does not."""
    learned = {"vocabulary": job.vocabulary, "sample": job.sample, "seed": job.seed}
    phrases = "\n".join(job.unsafe_phrases).encode()
    return {
        "format": FORMAT,
        "inputs": [source.as_json() for source in job.sources],
        "rules": job.rules.model_dump(mode="json"),
        "subwords": {"sha256": sha256_of(job.subwords)} if job.subwords else learned,
        "unsafe": job.unsafe,
        "safety": job.safety.model_dump(mode="json") if job.unsafe in ("auto", "judged") else None,
        "lexicon": hashlib.sha256(phrases).hexdigest() if job.unsafe_phrases else None,
        "cleaning": asdict(job.cleaning),
        "fields": dict(job.fields),
        "keep": list(job.keep),
        "by parents": job.by_parents,
        "whole": job.whole,
        "buckets": job.plan.buckets,
        "block bytes": job.block_bytes,
        "layout": job.plan.as_json(),
    } | ({"scrub": list(job.scrub)} if job.scrub else {})


def _write_funnel(out: Folder, result: MiningResult, *, scrubbed: bool) -> None:
    record = asdict(result.funnel) | {
        "whole": result.whole,
        "damaged lines": result.problems.count,
        "damaged examples": result.problems.examples,
        "subwords": result.subwords,
        "version": __version__,
    }
    if scrubbed:
        record["replaced"] = dict(result.replaced.most_common())
    write_json_to(out, FUNNEL, record, durable=True)


def _clear(out: Folder) -> None:
    """Remove what an earlier run wrote into the folder, and nothing else."""
    files = out.sizes()
    if MANIFEST in files and not {"inputs", "rules"} <= set(read_json_from(out, MANIFEST)):
        raise UsageError(
            f"{out.location()} holds something else than mined pairs, by its {MANIFEST}.",
            hint="Choose another folder with --out.",
        )
    out.remove(name for name in (FUNNEL, MANIFEST, DIALOGUES, SUBWORDS) if name in files)
    for kind in (PAIRS, WHOLE):
        _remove_files(out.subfolder(kind), _SHARD)
    _remove_files(out.subfolder(WORK), _WORKING_FILE)


def _remove_files(folder: Folder, names: re.Pattern[str]) -> None:
    """Remove the files of these names, and the folder if nothing else is in it."""
    folder.remove([name for name in folder.sizes() if names.fullmatch(name)])
    path = Path(folder.location())
    if folder.is_local and path.is_dir() and not any(path.iterdir()):
        path.rmdir()


def read_messages(source: str, problems: Problems | None = None) -> Iterator[Message]:
    """The messages of the sample's forum, a file or a folder, one by one; for small corpora."""
    if source == SAMPLE:
        yield from sample.messages()
        return
    for file in files_of(Path(source)):
        yield from read_file(file, message_from_json, problems)


def marked(message: Message) -> bool:
    """Whether the data marks the message as rude or unsafe."""
    return bool(message.meta.get("rude") or message.meta.get("unsafe"))
