"""How fast `tertulia --help` answers, beside `python -c pass` (the floor) in the same run, alternating."""

import argparse
import subprocess
import sys
import time
from statistics import median

from common import finish

COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "help": [sys.executable, "-m", "tertulia", "--help"],
}


def seconds(command: list[str]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Run both commands in turn and print best and median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="three runs")
    args = parser.parse_args()
    runs = 3 if args.quick else args.runs
    for command in COMMANDS.values():
        seconds(command)  # the first run compiles and fills the disk cache
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    print(f"{'':<22}{'best':>8}{'median':>8}   seconds, {runs} runs each")
    for name, label in (("python", "python -c pass"), ("help", "tertulia --help")):
        print(f"{label:<22}{min(taken[name]):>8.3f}{median(taken[name]):>8.3f}")
    figures = {f"{name}_{kind}": f(taken[name]) for name in taken for kind, f in (("best", min), ("median", median))}
    finish("cli_start", figures | {"ratio_median": figures["help_median"] / figures["python_median"]}, {"runs": runs})


if __name__ == "__main__":
    main()
