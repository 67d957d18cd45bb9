"""CPU time of `--help`: of `tertulia`, of every group and of every command, beside `python -c pass` (the lower bound).

All are run alternately, and the best of the runs counts: CPU time is what a busy machine disturbs least.
"""

import argparse
import resource
import subprocess
import sys

from common import finish
from tertulia.cli.commands import COMMANDS, Group, leaves

LIMIT = 0.3
"""CPU seconds that help may take."""


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Alternate the commands and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each command")
    parser.add_argument("--quick", action="store_true", help="one run, without single commands")
    args = parser.parse_args()
    groups = [name for name, entry in COMMANDS.items() if isinstance(entry, Group)]
    singles = [] if args.quick else [" ".join(path) for path, _ in leaves()]
    commands = {"python -c pass": [sys.executable, "-c", "pass"]}
    for path in ("", *groups, *singles):
        commands[f"tertulia {path} --help".replace("  ", " ")] = [
            sys.executable,
            "-m",
            "tertulia",
            *path.split(),
            "--help",
        ]
    runs = 1 if args.quick else args.runs
    for command in commands.values():
        cpu_seconds(command)  # the first run compiles and fills the disk cache
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(runs):
        for name, command in commands.items():
            best[name] = min(best[name], cpu_seconds(command))
    print(f"{'':<36}CPU seconds, best of {runs}")
    for name, seconds in best.items():
        print(f"{name:<36}{seconds:.2f}{'' if seconds < LIMIT else '  above the limit'}")
    of_groups = {name: best[f"tertulia {name} --help"] for name in groups}
    figures = {"python": best["python -c pass"], "help": best["tertulia --help"], **of_groups}
    figures |= {path: best[f"tertulia {path} --help"] for path in singles}
    finish("cli_start", figures, {"runs": runs})


if __name__ == "__main__":
    main()
