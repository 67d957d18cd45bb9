"""Start-up time of `tertulia --help`, compared with `python -c pass` (the lower bound), alternating in one run."""

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
    """Alternate the two commands and print best and median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="runs of each command")
    parser.add_argument("--quick", action="store_true", help="three runs")
    args = parser.parse_args()
    runs = 3 if args.quick else args.runs
    for command in COMMANDS.values():
        seconds(command)  # the first run compiles and fills the disk cache
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    print(f"{'':<22}{'best':>8}{'median':>8}   seconds, {runs} runs each")
    for name, label in (("python", "python -c pass"), ("help", "tertulia --help")):
        print(f"{label:<22}{min(times[name]):>8.3f}{median(times[name]):>8.3f}")
    figures = {f"{name}_{kind}": f(times[name]) for name in times for kind, f in (("best", min), ("median", median))}
    finish("cli_start", figures | {"ratio_median": figures["help_median"] / figures["python_median"]}, {"runs": runs})


if __name__ == "__main__":
    main()
