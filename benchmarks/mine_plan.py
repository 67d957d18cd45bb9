"""What mining a large corpus costs on a cluster: the real planner and driver at its size, and the measured work per GB.

Two things are measured on this machine. First, generated messages are mined, and the CPU time of every task and the
bytes of working files and results are counted, by stage. Second, the driver runs at every size of `--sizes`: the real
planner, driver, markers and folders over a sparse input file of that size, with tasks that only write markers and
sparse files of the right size, on the pool of processes or on Ray. Peak memory and CPU time are those of the driver
alone; wall time is that of everything. From the two follows what the largest size costs on `--nodes` machines. That
last part is arithmetic, and assumes cores like this one and nothing else to do.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mine_plan_stubs as stubs
from common import finish
from generate_messages import write
from tertulia.corpus import mine as mining
from tertulia.corpus.engines.pool import Pool
from tertulia.corpus.mine import MineConfig, mine
from tertulia.corpus.mining import driver
from tertulia.corpus.mining.plan import Layout, make_plan

GIGABYTE = 10**9
STAGES = {"scatter": "reading", "find_repeats": "repeats", "merge": "merging", "extract_pairs": "extracting"}


class Measured:
    """The pool of processes, with the CPU time of its tasks by stage."""

    def __init__(self, workers: int) -> None:
        self._pool, self.cpu, self.tasks = Pool(workers), Counter[str](), Counter[str]()

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """The results as they arrive."""
        stage = STAGES[getattr(function, "func", function).__name__]
        for result, cpu in self._pool.map(partial(stubs.timed, function), tasks):
            self.cpu[stage] += cpu
            self.tasks[stage] += 1
            yield result

    def restart_workers(self) -> None:
        """As the pool does."""
        self._pool.restart_workers()

    def close(self) -> None:
        """Stop the workers."""
        self._pool.close()


class Steps:
    """Counts the files and bytes of the working folder when extracting begins."""

    def __init__(self, out: Path) -> None:
        self.work, self.bytes, self.files = out / driver.WORK, Counter[str](), 0

    def step(self, title: str, total: int | None = None) -> None:
        """Called when a stage begins."""
        if title == "Mining":
            for file in self.work.iterdir():
                self.bytes[file.name.split("-")[0]] += file.stat().st_size
                self.files += 1

    def advance(self, n: int = 1) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


def measure_work(source: Path, model: Path | None, folder: Path, workers: int) -> dict[str, float]:
    """Mine for real; CPU seconds and bytes per GB of input, by stage."""
    engine = Measured(workers)
    before, mining._engine = mining._engine, lambda config, job: engine
    size = source.stat().st_size
    # Few segments per level, so that the second level, which this size does not need, is measured, too.
    layout, mining.make_plan = mining.make_plan, _two_levels
    limit, driver._COMPRESSED = driver._COMPRESSED, 0  # as for the sizes that are computed from it
    try:
        config = MineConfig(source=str(source), out=folder / "out", subwords=model)
        steps = Steps(folder / "out")
        outcome = mine(config, steps)
    finally:
        mining._engine, mining.make_plan, driver._COMPRESSED = before, layout, limit
    results = sum(file.stat().st_size for file in (folder / "out" / "pairs").iterdir())
    per_gb = {f"{stage}_cpu_seconds_per_gb": engine.cpu[stage] / size * GIGABYTE for stage in STAGES.values()}
    for kind in ("messages", "hashes", "merged"):
        per_gb[f"{kind}_bytes_per_byte"] = steps.bytes[kind] / size
    return per_gb | {"results_bytes_per_byte": results / size, "messages_per_gb": outcome.funnel.messages / size * 1e9}


def _two_levels(total: int, *, block_bytes: int, memory: int, buckets: int | None) -> Layout:
    plan = make_plan(total, block_bytes=block_bytes, memory=memory, buckets=buckets)
    return Layout(plan.part_bytes, plan.buckets, plan.bundles, 8, plan.ranges)


def simulate_here(size: int, model: str, engine: str) -> None:
    """The work of the measured process: a driver at `size` bytes, whose tasks are stubs."""
    for name in STAGES:
        setattr(driver, name, getattr(stubs, name))
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "sparse.jsonl"
        source.write_text('{"id": "a", "thread": "t", "text": "hello"}\n')
        os.truncate(source, size)
        settings = {"source": str(source), "out": Path(name) / "out", "subwords": Path(model), "engine": engine}
        config = MineConfig.model_validate(settings | {"workers": 2})
        steps, start = Steps(Path(name) / "out"), time.perf_counter()
        mine(config, steps)
        wall = time.perf_counter() - start
    own = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"wall_seconds": wall, "cpu_seconds": own.ru_utime + own.ru_stime, "peak_mb": peak_mb()}
    print(json.dumps(figures | {"working_files": steps.files}))


def peak_mb() -> float:
    """The largest resident memory of this process; `ru_maxrss` would include that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def simulate(size: int, model: Path, engine: str) -> dict[str, float]:
    """Run a driver at this size in a process of its own."""
    command = [sys.executable, __file__, "--child", str(size), str(model), "--engine", engine]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    plan = make_plan(size, block_bytes=16 << 20)
    parts = -(-size // plan.part_bytes)
    merges = -(-parts // plan.partitions) * plan.partitions if plan.partitions else 0
    segments = parts * (plan.segments + plan.ranges) + (-(-parts // plan.partitions) * plan.bundles if merges else 0)
    counts = {"parts": parts, "ranges": plan.ranges, "merges": merges, "buckets": plan.buckets, "segments": segments}
    return counts | {"tasks": parts + plan.ranges + merges + plan.bundles} | figures


def predict(size: int, work: dict[str, float], plan: dict[str, float], nodes: int, cores: int) -> dict[str, float]:
    """What a corpus of this size costs on a cluster."""
    gb = size / GIGABYTE
    stages = [stage for stage in STAGES.values() if stage != "merging" or plan["merges"]]
    cpu = {stage: work[f"{stage}_cpu_seconds_per_gb"] * gb for stage in stages}
    written = work["messages_bytes_per_byte"] + work["hashes_bytes_per_byte"]
    written += work["merged_bytes_per_byte"] if plan["merges"] else 0
    tasks = {"reading": plan["parts"], "repeats": plan["ranges"], "merging": plan["merges"]}
    tasks["extracting"] = plan["buckets"]
    longest = max(cpu[stage] / tasks[stage] for stage in stages)
    seconds = sum(cpu.values())
    return {
        "cpu_hours": seconds / 3600,
        "hours_on_cluster": seconds / 3600 / (nodes * cores),
        "working_gb": written * gb,
        "read_gb": gb * (1 + written),
        "written_gb": gb * (written + work["results_bytes_per_byte"]),
        "mb_per_second_and_node": gb * (1 + 2 * written + work["results_bytes_per_byte"]) * 1000 * cores / seconds,
        "seconds_of_longest_task": longest,
        "cpu_seconds_lost_with_a_node": cores * longest / 2,
    }


def main() -> None:
    """Measure the work, simulate the drivers, predict the cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000, help="generated messages to mine for real")
    parser.add_argument("--data", type=Path, help="mine this file of messages instead of generated ones")
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.469, 4.69, 234, 341], help="GB to simulate")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--cores", type=int, default=16, help="of each node")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--engine", choices=("pool", "ray"), default="pool", help="on which the drivers run")
    parser.add_argument("--quick", action="store_true", help="100,000 messages, and 20 GB")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        simulate_here(int(args.child[0]), args.child[1], args.engine)
        return
    sizes = [20.0] if args.quick else args.sizes
    with tempfile.TemporaryDirectory() as name:
        source = args.data or Path(name) / "messages.jsonl"
        if not args.data:
            write(100_000 if args.quick else args.messages, source)
        input_bytes = source.stat().st_size
        work = measure_work(source, None, Path(name), args.workers)
        model = Path(name) / "out" / "subwords.model"
        plans = {size: simulate(int(size * GIGABYTE), model, args.engine) for size in sizes}
    report(work, plans, input_bytes, args)


def report(work: dict[str, float], plans: dict[float, dict[str, float]], input_bytes: int, args: Any) -> None:
    """Print the tables and the figures."""
    print(f"Measured on {input_bytes / GIGABYTE:.2f} GB, per GB of input:")
    for name, value in work.items():
        print(f"  {name.replace('_', ' '):<36}{value:>14.2f}")
    print(f"Drivers ({args.engine}) with simulated tasks, by GB of input:")
    print(f"  {'':<36}" + "".join(f"{size:>12g}" for size in plans))
    for name in next(iter(plans.values())):
        print(f"  {name.replace('_', ' '):<36}" + "".join(f"{plan[name]:>12.0f}" for plan in plans.values()))
    largest = max(plans)
    predicted = predict(int(largest * GIGABYTE), work, plans[largest], args.nodes, args.cores)
    print(f"Predicted for {largest:g} GB on {args.nodes} nodes of {args.cores} cores:")
    for name, value in predicted.items():
        print(f"  {name.replace('_', ' '):<36}{value:>14.2f}")
    figures = work | {f"driver_{name}": value for name, value in plans[largest].items()} | predicted
    settings = {"messages": args.messages, "bytes": input_bytes, "gb": largest, "engine": args.engine}
    finish("mine_plan", figures, settings | {"nodes": args.nodes, "cores": args.cores})


if __name__ == "__main__":
    main()
