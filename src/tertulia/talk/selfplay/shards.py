"""Playing one shard: in this process, in a worker of the pool or on Ray, with the same bytes.

A shard is a file of JSON lines that appears when all its conversations are complete. Times are in a file beside it,
never in the conversations: their bytes must repeat.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tertulia.artefacts.files import atomic_write, read_json, write_json
from tertulia.core.codec import dialogue_from_json, dialogue_to_json, dump_line, read_lines
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError, TertuliaError, UsageError
from tertulia.talk.bot import Bot
from tertulia.talk.selfplay.conversation import Seat, converse
from tertulia.talk.selfplay.plan import Shard
from tertulia.talk.spec import make_bot


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A shard to play and the folder to save it in."""

    shard: Shard
    folder: str
    run: str

    @property
    def file(self) -> Path:
        """Its conversations; the file exists once they are complete."""
        return Path(self.folder) / f"{self.shard.number:06d}.jsonl"

    @property
    def times(self) -> Path:
        """How long it took."""
        return self.file.with_suffix(".json")


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What became of a shard."""

    shard: Shard
    failure: str = ""
    """Why it could not be played; empty if it is saved."""
    hint: str = ""
    is_usage: bool = False
    """Whether the command is to blame, rather than an endpoint or a file."""


class _LoadedBots:
    """The bots of one run by specification, each loaded when it first talks in this process."""

    def __init__(self) -> None:
        self.run, self.bots = "", dict[str, Bot]()

    def get(self, run: str, spec: str) -> Bot:
        if run != self.run:  # its checkpoints may be others under the same paths
            self.run, self.bots = run, {}
        if spec not in self.bots:
            self.bots[spec] = make_bot(spec, reference=True)
        return self.bots[spec]


_LOADED = _LoadedBots()


def play_shard(task: ShardTask, progress: Callable[[int], None] = lambda turns: None) -> ShardResult:
    """Play and save a shard. A bot that fails fails the shard; the caller decides when to say so."""
    shard = task.shard
    try:
        bots = [_LOADED.get(task.run, bot.spec) for bot in shard.pairing]
        first, second = (Seat(name, bot) for name, bot in zip(shard.pairing.speakers, bots, strict=True))
        start = time.perf_counter()
        with _one_thread():
            dialogues = converse((first, second), shard.scenes, turns=shard.turns, progress=progress)
    except TertuliaError as error:
        return ShardResult(shard, error.message, error.hint, isinstance(error, UsageError))
    write_json(task.times, {"seconds": time.perf_counter() - start})
    with atomic_write(task.file, durable=True) as file:
        lines = (f"{dump_line(dialogue_to_json(dialogue))}\n" for dialogue in dialogues)
        file.write_bytes("".join(lines).encode("utf-8", "replace"))
    return ShardResult(shard)


def read_shard(task: ShardTask) -> list[Dialogue]:
    """The conversations of a finished shard."""
    with task.file.open("rb") as lines:
        dialogues = list(read_lines(lines, dialogue_from_json, source=str(task.file)))
    if [dialogue.id for dialogue in dialogues] != [scene.id for scene in task.shard.scenes]:
        raise DataError(f"{task.file} is damaged.", hint="Delete this file and run the same command again.")
    return dialogues


def seconds_of(task: ShardTask) -> float:
    """How long a finished shard took, without loading bots."""
    return float(read_json(task.times)["seconds"])


def release_bots() -> None:
    """Forget the bots that this process has loaded."""
    _LOADED.run, _LOADED.bots = "", {}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: processes are the parallelism, and sums must not depend on how threads share them."""
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 1
    with threadpool_limits(limits=1):
        try:
            if torch:
                torch.set_num_threads(1)
            yield
        finally:
            if torch:
                torch.set_num_threads(threads)
