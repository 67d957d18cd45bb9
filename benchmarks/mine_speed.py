"""CPU time, wall time and memory of mining generated messages, compared with only parsing the same file with Polars.

Mining and the lower bound alternate in one run, each in its own process. CPU is user and system time of the driver and
all its workers, including imports; the lower bound is the call of `polars.read_ndjson` alone, which reads more than a
gigabyte in pieces of half of one. Memory is the largest sum
of the resident memory of driver and workers (libraries that they share count once per process). The subword model is
trained before, as by a user who mines month after month; `learn_seconds` is what that takes. Generated messages can
carry marks; `--unsafe judged` has the safety lexicon check them as well, as it does messages of Reddit by default.
Modules are compiled once, as those of an installed package are, also where Python is told not to keep bytecode.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from common import finish
from generate_messages import write

ENGINES = ("pool", "ray", "ray2")
FLOOR = """
import os, sys, time, polars
start = time.process_time()
fields = dict.fromkeys(("id", "parent", "thread", "author", "text"), polars.String)
if os.path.getsize(sys.argv[1]) < 1 << 30:
    polars.read_ndjson(sys.argv[1], schema=fields)
else:
    with open(sys.argv[1], "rb") as file:
        while block := file.read(512 << 20):
            polars.read_ndjson(block + file.readline(), schema=fields)
print(time.process_time() - start)
"""


class Measured(NamedTuple):
    """One run of a program and all its child processes."""

    wall: float
    cpu: float
    memory: float
    """GB."""
    printed: str


class Watch(threading.Thread):
    """Samples the memory and CPU of a process and its descendants until it ends."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root, self.peak = psutil.Process(pid), 0
        self.cpu: dict[int, float] = {}

    def run(self) -> None:
        """Sample ten times per second."""
        while self.root.is_running() and self.root.status() != psutil.STATUS_ZOMBIE:
            total = 0
            try:
                for process in (self.root, *self.root.children(recursive=True)):
                    total += process.memory_info().rss
                    times = process.cpu_times()
                    self.cpu[process.pid] = times.user + times.system
            except psutil.NoSuchProcess:
                pass
            self.peak = max(self.peak, total)
            time.sleep(0.1)


def measure(command: list[str]) -> Measured:
    """Run a program; CPU time is that of all ended children as the system reports it, or the last sample if larger."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start, before = time.perf_counter(), _children_cpu()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        watch = Watch(process.pid)
        watch.start()
        printed = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{command} failed")
    watch.join()
    wall, counted = time.perf_counter() - start, _children_cpu() - before
    return Measured(wall, max(counted, sum(watch.cpu.values())), watch.peak / 1e9, printed)


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def mine_here(engine: str, unsafe: str, buckets: int | None, file: str, out: str, model: str, workers: int) -> None:
    """The work of the measured process."""
    from tertulia.corpus.mine import MineConfig, mine

    settings: dict[str, object] = {
        "source": file,
        "out": Path(out),
        "subwords": Path(model) if model else None,
        "workers": workers,
    }
    settings |= {"unsafe": unsafe, "buckets": buckets}
    if engine == "ray2":
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            cluster.add_node(num_cpus=max(1, workers // 2))
        outcome = mine(MineConfig.model_validate(settings | {"engine": "ray", "address": cluster.address}))
        cluster.shutdown()
    else:
        outcome = mine(MineConfig.model_validate(settings | {"engine": engine}))
    print(json.dumps({"pairs": outcome.funnel.pairs, "kept": outcome.funnel.kept}))


def main() -> None:
    """Alternate mining and the lower bound, print a table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000, help="number of generated messages")
    parser.add_argument("--data", type=Path, help="mine this file of messages instead of generated ones")
    parser.add_argument("--engine", choices=ENGINES, default="pool")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--quick", action="store_true", help="100,000 messages, one run")
    parser.add_argument("--unsafe", choices=("auto", "marked", "judged", "none"), default="auto")
    parser.add_argument("--buckets", type=int, help="number of shards; by default as mining chooses")
    parser.add_argument("--more-buckets", type=int, help="also mine with this many, in turn, and compare the CPU time")
    parser.add_argument("--subwords", type=Path, help="subword model to use, instead of one learned before")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        mine_here(args.engine, args.unsafe, args.buckets, *args.child[:3], int(args.child[3]))
        return
    count, runs = (100_000, 1) if args.quick else (args.messages, args.runs)
    with tempfile.TemporaryDirectory() as folder:
        file = args.data or Path(folder) / "messages.jsonl"
        if args.data:
            with file.open("rb") as lines:
                count = sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 24), b""))
        else:
            write(count, file)
        report(args, file, runs, Path(folder), count)


def report(args: argparse.Namespace, file: Path, runs: int, folder: Path, count: int) -> None:
    """Measure and print."""
    engine, unsafe, workers = args.engine, args.unsafe, args.workers
    child = [
        sys.executable,
        __file__,
        "--engine",
        engine,
        "--unsafe",
        unsafe,
        *(["--buckets", str(args.buckets)] if args.buckets else []),
        "--child",
        str(file),
        str(folder / "out"),
    ]
    learning = [sys.executable, __file__, "--child", str(file), str(folder / "learned"), "", str(workers)]
    learned = None if args.subwords else measure(learning)  # also fills the disk cache
    model = args.subwords or shutil.copy(folder / "learned" / "subwords.model", folder / "subwords.model")
    shutil.rmtree(folder / "learned", ignore_errors=True)
    floors, mined, divided = [], [], []
    for _ in range(runs):
        floors.append(float(measure([sys.executable, "-c", FLOOR, str(file)]).printed))
        mined.append(measure([*child, str(model), str(workers)]))
        shutil.rmtree(folder / "out")
        if args.more_buckets:
            more = [*child[:-3], "--buckets", str(args.more_buckets), *child[-3:]]
            divided.append(measure([*more, str(model), str(workers)]))
            shutil.rmtree(folder / "out")
    best = min(mined, key=lambda m: m.cpu)
    print(f"{'':<30}{'best':>9}{'median':>9}   {count} messages, {runs} runs, {engine}, {workers} workers")
    rows = {
        "Polars only, CPU seconds": floors,
        "mining, CPU seconds": [m.cpu for m in mined],
        "mining, wall seconds": [m.wall for m in mined],
        "mining, GB resident in total": [m.memory for m in mined],
    }
    for name, values in rows.items():
        print(f"{name:<30}{min(values):>9.2f}{median(values):>9.2f}")
    ratios = [m.cpu / floor for m, floor in zip(mined, floors, strict=True)]
    print(f"{'CPU ratio':<30}{min(ratios):>9.2f}{median(ratios):>9.2f}")
    if learned:
        print(f"including training of subwords: {learned.cpu:.2f} CPU seconds, {learned.wall:.2f} wall seconds")
    figures = {
        "cpu_ratio_median": median(ratios),
        "cpu_ratio_best": best.cpu / min(floors),
        "cpu_seconds": best.cpu,
        "floor_cpu_seconds": min(floors),
        "cpu_microseconds_per_message": best.cpu / count * 1e6,
        "wall_seconds": min(m.wall for m in mined),
        "peak_gb": max(m.memory for m in mined),
        "pairs": json.loads(best.printed.splitlines()[-1])["pairs"],
    }
    if divided:
        figures["more_buckets_cpu_ratio"] = median([d.cpu / m.cpu for d, m in zip(divided, mined, strict=True)])
        print(f"{f'CPU with {args.more_buckets} buckets':<30}{figures['more_buckets_cpu_ratio']:>18.3f}")
    if engine == "pool" and learned:  # which also trained the subword model: the rest of that run costs the same
        figures["learn_seconds"] = learned.cpu - median([m.cpu for m in mined])
    settings = {
        "messages": count,
        "runs": runs,
        "engine": engine,
        "unsafe": unsafe,
        "workers": workers,
        "buckets": args.buckets,
        "more_buckets": args.more_buckets,
        "bytes": file.stat().st_size,
    }
    finish("mine_speed", figures, settings)


if __name__ == "__main__":
    main()
