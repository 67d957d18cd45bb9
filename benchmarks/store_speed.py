"""How many messages per second the store writes.

One pair is a `say` and the `finish` of its reply. Group commit is compared with the plain way, one transaction per call
under a lock, in alternating rounds; the last line is JSON.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, Engine

from tertulia.store import ConversationStore, Database
from tertulia.store.group_commit import SingleCommit

T = TypeVar("T")
USERS = 200


class Round(NamedTuple):
    """One measurement."""

    pairs_per_second: float
    median_ms: float
    p99_ms: float
    max_ms: float
    cpu_ms: float
    """CPU time of this process per pair: unlike the other figures, robust on a busy machine."""


class LockedCommit(SingleCommit):
    """The plain way: a lock, and one transaction per unit of work."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._lock = threading.Lock()

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        with self._lock:
            return super().run(work)


def measure(store: ConversationStore, *, pairs: int, threads: int) -> Round:
    """Simulate 200 users on several threads; latencies of single calls are in milliseconds."""
    owner = f"{time.time_ns()}"
    conversations = [store.create(owner, "tfidf").id for _ in range(USERS)]
    seconds: list[float] = []

    def chat(thread: int) -> None:
        for number in range(pairs // threads):
            conversation = conversations[(thread + number * threads) % USERS]
            start = time.perf_counter()
            said = store.say(conversation, owner, "how are you today?", key=f"{thread}.{number}", bot="tfidf")
            between = time.perf_counter()
            about = {"seconds": 0.1, "score": 1.0, "provenance": {"bot": "tfidf", "seed": 1}}
            store.finish(said.bot.id, text="fine, thank you, and you?", status="done", reply=about)
            seconds.extend((between - start, time.perf_counter() - between))

    start, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(chat, range(threads)))
    made = len(seconds) / 2
    rate, cpu = made / (time.perf_counter() - start), (time.process_time() - cpu) / made
    cuts = statistics.quantiles(seconds, n=100)
    return Round(rate, cuts[49] * 1000, cuts[98] * 1000, max(seconds) * 1000, cpu * 1000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="database to use instead of a temporary SQLite file")
    parser.add_argument("--pairs", type=int, default=4000, help="messages with replies per round")
    parser.add_argument("--threads", type=int, default=40, help="threads that write at once")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each way")
    parser.add_argument("--quick", action="store_true", help="one round of 400 pairs")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.rounds = 400, 1
    results: dict[str, list[Round]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for way in ("ours", "plain"):
                url = options.url or f"sqlite:///{Path(folder) / f'{way}{number}.db'}"
                with Database.open(url) as database:
                    store = ConversationStore(database)
                    ours = database._committer
                    if way == "plain":
                        database._committer = LockedCommit(database.engine)
                    results.setdefault(way, []).append(measure(store, pairs=options.pairs, threads=options.threads))
                    database._committer = ours
    figures = {}
    for way, rounds in results.items():
        best = max(rounds)
        cpu = min(one.cpu_ms for one in rounds)
        middle = statistics.median(one.pairs_per_second for one in rounds)
        sys.stdout.write(
            f"{way:6}{best.pairs_per_second:6.0f} pairs/s at best, median {middle:.0f}; {cpu:.2f} ms of CPU time "
            f"per pair; a call takes {best.median_ms:.1f} ms, p99 {best.p99_ms:.1f}, max {best.max_ms:.1f}\n"
        )
        figures |= {
            f"{way}_best": best.pairs_per_second,
            f"{way}_median": middle,
            f"{way}_p99_ms": best.p99_ms,
            f"{way}_cpu_ms": cpu,
        }
    settings = {"pairs": options.pairs, "threads": options.threads, "rounds": options.rounds}
    sys.stdout.write(json.dumps({"benchmark": "store", "figures": figures, "settings": settings}) + "\n")


if __name__ == "__main__":
    main()
