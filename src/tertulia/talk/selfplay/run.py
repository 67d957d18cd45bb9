"""Run self-play: play the shards of a plan on any engine, continue what was interrupted, put the results together.

While a run is unfinished, a working folder has its plan and the finished shards. A second run of the same command plays
the rest; another command is refused. At the end the conversations become one file, in the order of the plan, and the
working folder goes. An output folder also gets a manifest, written last: plan, times and digest.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tertulia.artefacts.files import exclusive_lock, read_json, remove_unfinished, write_json
from tertulia.artefacts.manifest import MANIFEST, is_complete, open_folder, read_about, read_manifest, seal
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import BotError, DataError, Interrupted, TertuliaError, UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.engines.base import Engine, InProcess
from tertulia.corpus.engines.pool import Pool
from tertulia.corpus.engines.ray import RayEngine
from tertulia.corpus.load import load_dialogues, save_dialogues
from tertulia.corpus.write import check_target
from tertulia.metrics.diversity import distinct
from tertulia.talk.selfplay.config import SelfplayConfig
from tertulia.talk.selfplay.plan import FORMAT, Plan, differences, make_plan
from tertulia.talk.selfplay.shards import ShardResult, ShardTask, play_shard, read_shard, release_bots, seconds_of

KIND = "selfplay"
CONVERSATIONS = "conversations.jsonl"
WORK, PLAN, LOCK = "_work", "plan.json", "lock"
_OTHER = "Choose another --out, or replace the conversations there with --force."


@dataclass(frozen=True, slots=True)
class PairingSummary:
    """What one pairing has said."""

    name: str
    conversations: int
    turns: int
    distinct2: dict[str, Estimate]
    """distinct-2 of each bot's own turns, by the bot's name; given openers do not count."""
    seconds: float | None
    """Time the conversations took, without loading bots; None if it is not known any more."""


@dataclass(frozen=True, slots=True)
class SelfplayOutcome:
    """Where the conversations are, and a summary of each pairing."""

    file: Path
    pairings: tuple[PairingSummary, ...]
    first: Dialogue
    """The first conversation."""
    shards: int
    continued: int
    """Shards that an earlier run had finished."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the results go, and the work until then."""

    out: Path
    is_folder: bool

    @property
    def file(self) -> Path:
        return self.out / CONVERSATIONS if self.is_folder else self.out

    @property
    def work(self) -> Path:
        return self.out / WORK if self.is_folder else self.out.with_name(f"{self.out.name}.work")


def run_selfplay(config: SelfplayConfig, progress: Progress | None = None) -> SelfplayOutcome:
    """Play the conversations of a command, or those that an interrupted run has left."""
    progress = progress or Silent()
    progress.step("Planning")
    place = _place(config.out)
    plan = make_plan(config)
    if not config.force and (done := _finished(place, plan)):
        return done
    _check(place, plan, force=config.force)
    is_new = not place.out.exists()
    place.work.mkdir(parents=True, exist_ok=True)
    tasks = [ShardTask(shard, str(place.work.resolve()), plan.run) for shard in plan.shards]
    with exclusive_lock(place.work / LOCK):
        if _unfinished(place) != plan.record:
            _clear(place.work)
        remove_unfinished(place.work)
        if not (place.work / PLAN).is_file():
            write_json(place.work / PLAN, dict(plan.record), durable=True)
        continued = sum(task.file.exists() for task in tasks)
        try:
            _play(config, tasks, progress)
        except (TertuliaError, KeyboardInterrupt) as error:
            finished = sum(task.file.exists() for task in tasks)
            if not finished:  # nothing worth continuing
                shutil.rmtree(place.out if place.is_folder and is_new else place.work)
            if isinstance(error, KeyboardInterrupt):
                raise _interrupted(place, finished, len(tasks)) from None
            raise
        progress.step("Saving")
        outcome = _save(config, place, plan, tasks, continued)
        shutil.rmtree(place.work)
    return outcome


def _interrupted(place: _Place, finished: int, shards: int) -> Interrupted:
    if not finished:
        return Interrupted("No shard was finished: nothing is kept.", hint="Smaller shards (--shard) are kept earlier.")
    return Interrupted(
        f"{finished} of {shards} shards are finished and kept in {place.work}.",
        hint="Run the same command again to play the others.",
    )


def _place(out: Path) -> _Place:
    if out.is_dir() or not out.suffix:
        if out.is_file():
            raise UsageError(f"{out} is a file, not a folder.", hint="Choose another --out.")
        return _Place(out, is_folder=True)
    check_target(out)
    return _Place(out, is_folder=False)


def _finished(place: _Place, plan: Plan) -> SelfplayOutcome | None:
    """The outcome of an earlier run of the same command, if there is one."""
    seconds: dict[str, float] | None = None
    if place.is_folder:
        if not is_complete(place.out) or read_about(place.out).get("run") != plan.run:
            return None
        seconds = read_manifest(place.out, kind=KIND, format=FORMAT).about["seconds"]
    elif _run_of(place.file) != plan.run:
        return None
    shutil.rmtree(place.work, ignore_errors=True)  # it may have been killed while it did this
    tally = _Tally()
    for _ in tally.watch(load_dialogues(place.file)):
        pass
    return tally.outcome(place, plan, seconds, continued=len(plan.shards))


def _unfinished(place: _Place) -> dict[str, Json] | None:
    """The plan of the work that was begun there."""
    return dict(read_json(place.work / PLAN)) if (place.work / PLAN).is_file() else None


def _check(place: _Place, plan: Plan, *, force: bool) -> None:
    """Refuse to write where something else is, or to continue the work of another command."""
    unfinished = _unfinished(place)
    if unfinished is None and place.work.is_dir() and any(f.name != LOCK for f in place.work.iterdir()):
        raise UsageError(f"{place.work} was not written by self-play.", hint="Choose another --out.")
    about = read_about(place.out) if place.is_folder and is_complete(place.out) else {}
    if place.is_folder and place.out.is_dir():
        foreign = [f.name for f in place.out.iterdir() if f.name not in (WORK, CONVERSATIONS, MANIFEST)]
        if foreign or (about and about.get("kind") != KIND) or (place.file.exists() and not _is_ours(place)):
            raise UsageError(
                f"{place.out} is not empty and was not written by self-play.", hint="Choose another --out."
            )
    if force or unfinished == plan.record:
        return
    if unfinished is not None:
        raise UsageError(
            f"{place.work} has the unfinished work of another command: {differences(unfinished, plan.record)}.",
            hint=f"Run that command again to finish it. {_OTHER}",
        )
    if about:
        raise UsageError(
            f"{place.out} has the conversations of another command: {differences(about['plan'], plan.record)}.",
            hint=_OTHER,
        )
    if not place.is_folder and place.out.exists():
        raise UsageError(f"{place.out} exists and was not written by this command.", hint=_OTHER)


def _is_ours(place: _Place) -> bool:
    """Whether the file of conversations in a folder is one of self-play."""
    return is_complete(place.out) or (place.work / PLAN).is_file() or bool(_run_of(place.file))


def _run_of(file: Path) -> str:
    """The run that a file of conversations is from; empty if it is none of self-play's."""
    try:
        first = next(load_dialogues(file), None) if file.is_file() else None
        return str(first.meta["selfplay"]["run"]) if first else ""
    except (TertuliaError, KeyError, TypeError):
        return ""


def _clear(work: Path) -> None:
    """Remove the unfinished work of another command; its results, if there are any, stay until they are replaced."""
    for file in work.iterdir():
        if file.name != LOCK:
            file.unlink()


def _play(config: SelfplayConfig, tasks: list[ShardTask], progress: Progress) -> None:
    """Play the shards that are not finished; failures are reported when all others are."""
    waiting = [task for task in tasks if not task.file.exists()]
    total = sum(task.shard.new_turns for task in tasks)
    report = _Report(progress, total, total - sum(task.shard.new_turns for task in waiting))
    if not waiting:
        return
    failures: list[ShardResult] = []
    with closing(_engine(config, len(waiting))) as engine:
        in_process = isinstance(engine, InProcess)
        play = partial(play_shard, progress=report.advance) if in_process else play_shard
        try:
            for result in engine.map(play, waiting):
                if result.failure:
                    failures.append(result)
                elif not in_process:
                    report.advance(result.shard.new_turns)
        except DataError as error:  # a worker died again and again
            raise BotError(error.message, hint="It may have run out of memory: use fewer --processes.") from None
        finally:
            release_bots()
    if failures:
        _raise(failures, len(tasks))


class _Report:
    """Counts turns, and says how many there are per second."""

    def __init__(self, progress: Progress, total: int, done: int) -> None:
        self._progress, self._start, self._turns = progress, time.perf_counter(), 0
        progress.step("Talking", total=total)
        progress.advance(done)

    def advance(self, turns: int) -> None:
        """Some more turns are done."""
        self._turns += turns
        self._progress.note(f"{self._turns / max(time.perf_counter() - self._start, 1e-9):.1f} turns/s")
        self._progress.advance(turns)


def _engine(config: SelfplayConfig, shards: int) -> Engine:
    if config.engine == "ray":
        return RayEngine(address=config.address, workers=config.processes)
    return InProcess() if config.processes == 1 else Pool(min(config.processes, shards))


def _raise(failures: list[ShardResult], shards: int) -> None:
    first = min(failures, key=lambda failure: failure.shard.number)
    others = len({failure.shard.pairing for failure in failures}) - 1
    pairing = f"{first.shard.pairing.name!r}" + (f" and {others} other pairings" if others else "")
    kept = f" The other {shards - len(failures)} shards are kept: run the same command again to continue."
    kind = UsageError if all(failure.is_usage for failure in failures) else BotError
    raise kind(
        f"{len(failures)} of {shards} shards failed, of {pairing}: {first.failure}",
        hint=f"{first.hint}{kept if len(failures) < shards else ''}".strip(),
    )


def _save(config: SelfplayConfig, place: _Place, plan: Plan, tasks: list[ShardTask], continued: int) -> SelfplayOutcome:
    """Put the shards together; the working folder is the place for the file until it is complete."""
    seconds: dict[str, float] = {}
    for task in tasks:
        name = task.shard.pairing.name
        seconds[name] = seconds.get(name, 0.0) + seconds_of(task)
    tally = _Tally()
    complete = place.work / place.file.name
    save_dialogues(tally.watch(dialogue for task in tasks for dialogue in read_shard(task)), complete)
    if place.is_folder:
        open_folder(place.out)  # not complete, until the manifest fits the new file
    complete.replace(place.file)
    if place.is_folder:
        about: dict[str, Json] = {
            "run": plan.run,
            "plan": dict(plan.record),
            "config": config.model_dump(mode="json", exclude={"out", "force"}),
            "seconds": seconds,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        seal(place.out, kind=KIND, format=FORMAT, files=[CONVERSATIONS], about=about)
    return tally.outcome(place, plan, seconds, continued)


@dataclass(slots=True)
class _PairingTally:
    conversations: int = 0
    turns: int = 0
    texts: dict[str, list[str]] = field(default_factory=dict)
    """What each bot said, by its name."""


class _Tally:
    """Sums up conversations while they pass by."""

    def __init__(self) -> None:
        self.pairings: dict[str, _PairingTally] = {}
        self.first: Dialogue | None = None

    def watch(self, dialogues: Iterable[Dialogue]) -> Iterator[Dialogue]:
        """The same conversations."""
        for dialogue in dialogues:
            self.first = self.first or dialogue
            self._add(dialogue)
            yield dialogue

    def outcome(
        self, place: _Place, plan: Plan, seconds: Mapping[str, float] | None, continued: int
    ) -> SelfplayOutcome:
        """The summary of what has passed by."""
        assert self.first is not None
        summaries = tuple(
            PairingSummary(
                name,
                tally.conversations,
                tally.turns,
                {bot: distinct(texts, 2) for bot, texts in tally.texts.items()},
                None if seconds is None else seconds[name],
            )
            for name, tally in self.pairings.items()
        )
        return SelfplayOutcome(place.file, summaries, self.first, len(plan.shards), continued)

    def _add(self, dialogue: Dialogue) -> None:
        names: list[str] = dialogue.meta["names"]
        tally = self.pairings.setdefault(
            dialogue.meta["selfplay"]["pairing"], _PairingTally(texts={name: [] for name in names})
        )
        tally.conversations += 1
        tally.turns += len(dialogue.turns)
        for i, turn in enumerate(dialogue.turns):
            if "provenance" in turn.meta:  # not a given opener
                tally.texts[names[i % 2]].append(turn.text)
