"""Mining chat rooms as a job: logs in, a folder out with the dialogues, their statistics and the settings."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from tertulia import __version__
from tertulia.core.config import save
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.rooms.folder import load_disentangler, read_manifest
from tertulia.corpus.rooms.line import Log
from tertulia.corpus.rooms.lowe import LoweRules, extract
from tertulia.corpus.rooms.read import day_before, read_logs
from tertulia.corpus.rooms.stats import RoomStats, Tally
from tertulia.corpus.rooms.tags import tag_dialogue
from tertulia.corpus.rooms.talks import dialogues_of
from tertulia.corpus.rooms.turns import Extracted, nicks_of
from tertulia.corpus.shards import write_parquet

Untangle = Callable[[Log, Collection[str]], Extracted]
"""A log and the nicks of the day before in, dialogues out."""


class RoomsConfig(LoweRules):
    """What is mined, how it is pulled apart, and where it goes."""

    source: str = SAMPLE
    """A log, a folder of logs, an export of Slack or Discord, or `sample` for the bundled room."""
    out: Path = Path("rooms")
    """Folder for the results."""
    format: str | None = None
    """The format of text logs; recognised by their lines when not given."""
    threads: Literal["rules", "learned"] = "rules"
    """Pull dialogues of two out by the rules of the Ubuntu corpus, or whole conversations by a learned model."""
    model: Path | None = None
    """Folder of a trained disentangler, for `learned`."""
    tags: bool = False
    """Put `__url__`, `__path__` and `__user__` in the place of addresses, files and nicks, as the Ubuntu papers do."""


@dataclass(frozen=True, slots=True)
class RoomsOutcome:
    """What came of it."""

    stats: RoomStats
    dropped: Counter[str]
    """Dialogues that were not kept, by reason."""
    logs: int
    lines: int
    dialogues: Path
    """The Parquet file."""

    def as_json(self) -> dict[str, Json]:
        """For `--json` and stats.json."""
        counted = {"logs": self.logs, "lines": self.lines, "dropped": dict(sorted(self.dropped.items()))}
        return counted | self.stats.as_json()


def mine_rooms(config: RoomsConfig, progress: Progress | None = None) -> RoomsOutcome:
    """Pull the dialogues out of logs, one log at a time: only the largest has to fit in memory."""
    progress = progress or Silent()
    untangle, fingerprint = _untangle(config)
    passed = _Passed()
    progress.step("Untangling logs")
    found = _dialogues(config, untangle, passed, progress)
    first = next(found, None)  # what cannot be read is refused before anything is written
    if not passed.lines:
        raise DataError(f"There is not a line in {config.source}.", hint="Give a chat log, or a folder of them.")
    config.out.mkdir(parents=True, exist_ok=True)
    file = config.out / "dialogues.parquet"
    write_parquet(chain([] if first is None else [first], found), file)
    outcome = RoomsOutcome(passed.tally.stats(), passed.dropped, passed.logs, passed.lines, file)
    save(config, config.out / "config.toml")
    record = outcome.as_json() | {"threads": config.threads, "model": fingerprint, "version": __version__}
    (config.out / "stats.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    return outcome


@dataclass(slots=True)
class _Passed:
    """What has gone through so far."""

    tally: Tally = field(default_factory=Tally)
    dropped: Counter[str] = field(default_factory=Counter)
    logs: int = 0
    lines: int = 0


def _dialogues(config: RoomsConfig, untangle: Untangle, passed: _Passed, progress: Progress) -> Iterator[Dialogue]:
    for log, seen_before in day_before(read_logs(config.source, format=config.format)):
        found = untangle(log, seen_before)
        passed.dropped += found.dropped
        passed.logs += 1
        passed.lines += len(log.lines)
        nicks = nicks_of(log.lines) | seen_before
        for plain in found.dialogues:
            dialogue = tag_dialogue(plain, nicks) if config.tags else plain
            passed.tally.add(dialogue)
            yield dialogue
        progress.advance()


def _untangle(config: RoomsConfig) -> tuple[Untangle, str | None]:
    """How logs are pulled apart, and the fingerprint of the model that does it."""
    if config.threads == "rules":
        return lambda log, seen_before: extract(log, config, seen_before=seen_before), None
    if config.model is None:
        raise UsageError(
            "Learned threads need a model.",
            hint="Name the folder of a trained disentangler with --model; tertulia train makes one.",
        )
    manifest, model = read_manifest(config.model), load_disentangler(config.model)
    return lambda log, _: dialogues_of(log, model.links(log.lines), config), str(manifest["fingerprint"])
