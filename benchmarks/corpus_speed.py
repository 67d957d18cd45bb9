"""CPU time and memory of the commands on a mined corpus at two sizes, compared with only reading and parsing it.

Messages are generated and mined, once with a quarter of them and once with all. Each command then runs in a process of
its own with one worker, alternating with the floor: a process that iterates over `load_dialogues` and does nothing.
CPU is user and system time of the driver and its worker, imports included; so it is for the floor. Memory is the
largest sum of the resident memory of driver and worker (libraries that they share count once per process). Memory that
does not depend on the corpus is the same at both sizes.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from common import finish
from generate_messages import write
from mine_speed import Measured, measure

FLOOR = """
import sys
from tertulia.corpus.load import load_dialogues
print(sum(1 for _ in load_dialogues(sys.argv[1])))
"""
COMMANDS: dict[str, Callable[[str, str], list[str]]] = {
    "stats": lambda corpus, out: ["stats", corpus],
    "convert": lambda corpus, out: ["convert", corpus, f"{out}.jsonl"],
    "split": lambda corpus, out: ["split", corpus, "--out", out],
    "split by author": lambda corpus, out: ["split", corpus, "--out", out, "--by", "author"],
    "dedup": lambda corpus, out: ["dedup", corpus, "--out", out, "--on", "reply"],
    "tag": lambda corpus, out: ["tag", corpus, "--out", out],
    "filter": lambda corpus, out: ["filter", corpus, "--out", out, "--scrub", "--where", "words >= 5"],
}


def mine(messages: int, folder: Path) -> str:
    """A mined corpus of generated messages."""
    file, out = folder / "messages.jsonl", folder / f"mined-{messages}"
    write(messages, file)
    command = [sys.executable, "-m", "tertulia", "corpus", "mine", str(file), "--out", str(out), "--workers", "1"]
    measure(command)
    file.unlink()
    return str(out)


def run(command: str, corpus: str, folder: Path) -> Measured:
    """Run one command; what it writes is removed."""
    out = folder / "out"
    arguments = COMMANDS[command](corpus, str(out))
    measured = measure([sys.executable, "-m", "tertulia", "corpus", *arguments, "--workers", "1", "--json"])
    shutil.rmtree(out, ignore_errors=True)
    (folder / "out.jsonl").unlink(missing_ok=True)
    return measured


def main() -> None:
    """Measure all commands at both sizes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=600_000, help="generated messages of the larger corpus")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--quick", action="store_true", help="40,000 messages, one run")
    parser.add_argument("--commands", nargs="*", choices=list(COMMANDS), default=list(COMMANDS))
    args = parser.parse_args()
    messages, runs = (40_000, 1) if args.quick else (args.messages, args.runs)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpora = {"small": mine(messages // 4, folder), "large": mine(messages, folder)}
        floors: dict[str, list[Measured]] = {size: [] for size in corpora}
        measured: dict[tuple[str, str], list[Measured]] = {}
        for _ in range(runs):
            for size, corpus in corpora.items():
                floors[size].append(measure([sys.executable, "-c", FLOOR, corpus]))
                for command in args.commands:
                    measured.setdefault((command, size), []).append(run(command, corpus, folder))
        pairs = {size: int(floors[size][0].printed) for size in corpora}
    print(f"{'':<18}{'CPU s':>9}{'CPU s':>9}{'x floor':>9}{'GB':>8}{'GB':>8}{'GB ratio':>10}   median of {runs} runs")
    print(f"{'pairs':<18}{pairs['small']:>9}{pairs['large']:>9}{'':>9}{pairs['small']:>8}{pairs['large']:>8}")
    floor = {size: median(m.cpu for m in floors[size]) for size in corpora}
    memory = {size: max(m.memory for m in floors[size]) for size in corpora}
    print(f"{'read and parse':<18}{floor['small']:>9.2f}{floor['large']:>9.2f}{1:>9.2f}", end="")
    print(f"{memory['small']:>8.3f}{memory['large']:>8.3f}{memory['large'] / memory['small']:>10.2f}")
    figures |= {"floor_cpu_seconds": floor["large"], "floor_peak_gb": memory["large"]}
    for command in args.commands:
        cpu = {size: median(m.cpu for m in measured[command, size]) for size in corpora}
        memory = {size: max(m.memory for m in measured[command, size]) for size in corpora}
        ratio = median(m.cpu / f.cpu for m, f in zip(measured[command, "large"], floors["large"], strict=True))
        growth = memory["large"] / memory["small"]
        print(f"{command:<18}{cpu['small']:>9.2f}{cpu['large']:>9.2f}{ratio:>9.2f}", end="")
        print(f"{memory['small']:>8.3f}{memory['large']:>8.3f}{growth:>10.2f}")
        key = command.replace(" ", "_")
        figures |= {f"{key}_cpu_ratio": ratio, f"{key}_peak_gb": memory["large"], f"{key}_memory_growth": growth}
    settings = {"messages": messages, "runs": runs, "workers": 1, "pairs": json.dumps(pairs)}
    finish("corpus_speed", figures, settings)


if __name__ == "__main__":
    main()
