"""Mine chat logs: read logs, extract dialogues by rules or a learned model, write a folder with statistics."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from tertulia import __version__
from tertulia.artefacts.files import save_config, write_json
from tertulia.artefacts.outputs import Output
from tertulia.core.codec import Problems
from tertulia.core.config import Cli, load_toml
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.chatlogs.checkpoint import load_disentangler, read_disentangler_manifest
from tertulia.corpus.chatlogs.dialogues import ExtractedDialogues, dialogues_from_links, nicks_of
from tertulia.corpus.chatlogs.log import Log
from tertulia.corpus.chatlogs.lowe import LoweRules, extract_dialogues
from tertulia.corpus.chatlogs.read import read_logs, with_nicks_before
from tertulia.corpus.chatlogs.stats import ChatlogStats, StatsCounter, chatlog_stats
from tertulia.corpus.chatlogs.tags import tag_dialogue
from tertulia.corpus.erase import erase_again
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.shards import read_parquet, write_parquet

Extractor = Callable[[Log, Collection[str]], ExtractedDialogues]
"""Maps a log and the nicks of the day before to dialogues."""
STATS, CONFIG = "stats.json", "config.toml"
_WHERE = ("out", "fresh")


class ChatlogConfig(LoweRules):
    """What to mine, how to extract dialogues, and where to write the results."""

    source: str = SAMPLE
    """A chat log, a folder of logs, an export of Slack or Discord, or `sample` for the bundled chat room."""
    out: Annotated[Path, Output("folder", "own", known_by=(STATS, "dialogues.parquet", "erased.json"))] = Path(
        "chatlogs"
    )
    """Folder for the results."""
    format: str | None = None
    """Format of text logs; detected by default."""
    threads: Annotated[Literal["rules", "learned"], Cli(show_default=False)] = "rules"
    """Mine chat logs: extract two-party dialogues by the rules of the Ubuntu corpus, or full conversations with a
    trained disentangler."""
    model: Path | None = None
    """Folder of the trained disentangler for `--threads learned`."""
    fresh: bool = False
    """Start over if the folder contains the work of another run."""
    tags: bool = False
    """Replace URLs, file paths and nicks by `__url__`, `__path__` and `__user__`, as the Ubuntu papers do."""


@dataclass(frozen=True, slots=True)
class ChatlogOutcome:
    """The result of mining chat logs."""

    stats: ChatlogStats
    dropped: Counter[str]
    """Dropped dialogues by reason."""
    logs: int
    lines: int
    dialogues: Path
    """The Parquet file."""
    problems: Problems = field(default_factory=Problems)
    """Records of exports that were skipped."""

    def as_json(self) -> dict[str, Json]:
        """For `--json` and stats.json."""
        totals = {
            "logs": self.logs,
            "lines": self.lines,
            "damaged_lines": self.problems.count,
            "dropped": dict(sorted(self.dropped.items())),
        }
        return totals | self.stats.as_json()


def mine_chatlogs(config: ChatlogConfig, progress: Progress | None = None) -> ChatlogOutcome:
    """Extract the dialogues of logs, one log at a time: only the largest has to fit in memory."""
    progress = progress or Silent()
    _check_folder(config)
    extractor, fingerprint = _extractor(config)
    totals = _Totals()
    progress.step("Disentangling logs")
    dialogues = _dialogues(config, extractor, totals, progress)
    first = next(dialogues, None)  # an unreadable source must fail before anything is written
    if not totals.lines:
        raise DataError(f"{config.source} is empty.", hint="Give a chat log, or a folder of them.")
    config.out.mkdir(parents=True, exist_ok=True)
    file = config.out / "dialogues.parquet"
    (config.out / STATS).unlink(missing_ok=True)  # it is written last: without it, the folder is incomplete
    write_parquet(chain([] if first is None else [first], dialogues), file)
    stats = totals.stats.stats() if not erase_again(config.out).records else chatlog_stats(read_parquet(file))
    outcome = ChatlogOutcome(stats, totals.dropped, totals.logs, totals.lines, file, totals.problems)
    save_config(config, config.out / CONFIG)
    record = outcome.as_json() | {"threads": config.threads, "model": fingerprint, "version": __version__}
    write_json(config.out / STATS, record)
    return outcome


class ChatlogPreview(NamedTuple):
    """What mining chat logs would read."""

    logs: int
    lines: int


def preview_chatlogs(config: ChatlogConfig) -> ChatlogPreview:
    """Check the logs, the model and the folder as `mine_chatlogs` does, and write nothing."""
    _check_folder(config)
    _extractor(config)
    lines = [len(log.lines) for log in read_logs(config.source, format=config.format, problems=Problems())]
    if not sum(lines):
        raise DataError(f"{config.source} is empty.", hint="Give a chat log, or a folder of them.")
    return ChatlogPreview(len(lines), sum(lines))


def _check_folder(config: ChatlogConfig) -> None:
    """Only the same command may replace what is there."""
    file = config.out / CONFIG
    if config.fresh or not file.is_file():
        return
    now = config.model_dump(mode="json", exclude_none=True, exclude=set(_WHERE))
    if {key: value for key, value in load_toml(file).items() if key not in _WHERE} != now:
        raise UsageError(
            f"{config.out} was mined from another source or with different settings.",
            hint="Choose another folder with --out, or start over in this one with --fresh.",
        )


@dataclass(slots=True)
class _Totals:
    """Running totals over the logs read so far."""

    stats: StatsCounter = field(default_factory=StatsCounter)
    dropped: Counter[str] = field(default_factory=Counter)
    logs: int = 0
    lines: int = 0
    problems: Problems = field(default_factory=Problems)


def _dialogues(config: ChatlogConfig, extractor: Extractor, totals: _Totals, progress: Progress) -> Iterator[Dialogue]:
    logs = read_logs(config.source, format=config.format, problems=totals.problems)
    for log, nicks_before in with_nicks_before(logs):
        extracted = extractor(log, nicks_before)
        totals.dropped += extracted.dropped
        totals.logs += 1
        totals.lines += len(log.lines)
        nicks = nicks_of(log.lines) | nicks_before
        for untagged in extracted.dialogues:
            dialogue = tag_dialogue(untagged, nicks) if config.tags else untagged
            totals.stats.add(dialogue)
            yield dialogue
        progress.advance()


def _extractor(config: ChatlogConfig) -> tuple[Extractor, str | None]:
    """How dialogues are extracted, and the fingerprint of the model that does it, if any."""
    if config.threads == "rules":
        return lambda log, nicks_before: extract_dialogues(log, config, nicks_before=nicks_before), None
    if config.model is None:
        raise UsageError(
            "--threads learned needs a model.",
            hint="Give the folder of a trained disentangler with --model; `tertulia train` makes one.",
        )
    manifest, model = read_disentangler_manifest(config.model), load_disentangler(config.model)
    return lambda log, _: dialogues_from_links(log, model.links(log.lines), config), manifest.fingerprint
