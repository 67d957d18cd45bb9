"""Other benchmarks of this checkout against those of an earlier commit, in one run: is anything slower than before?

The commit is checked out into a temporary folder. Each round runs every benchmark with `--quick` on the old and on the
new code, one after the other in processes of their own, with the same Python and packages. Printed is, for each figure
that both have, the median over the rounds of new over old.

    python benchmarks/against.py COMMIT decode_speed train_speed --rounds 3
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from common import finish

ROOT = Path(__file__).parents[1]


def run(checkout: Path, benchmark: str) -> dict[str, float]:
    """The figures of a benchmark on the code of a checkout."""
    environment = os.environ | {
        "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout / 'benchmarks'}",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(checkout / "benchmarks" / f"{benchmark}.py"), "--quick"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])["figures"]
    return figures


def main() -> None:
    """Alternate old and new; print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD~1", help="the commit to compare with")
    parser.add_argument("benchmarks", nargs="*", help="names of scripts in benchmarks/")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is run on each code")
    parser.add_argument("--quick", action="store_true", help="one round of train_speed")
    args = parser.parse_args()
    names = args.benchmarks or (["train_speed"] if args.quick else ["decode_speed", "train_speed"])
    rounds = 1 if args.quick else args.rounds
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "old")
        git = ["git", "-C", str(ROOT)]
        subprocess.run([*git, "worktree", "add", "-q", "--detach", str(old), args.commit], check=True)
        try:
            for _ in range(rounds):
                for name in names:
                    before, after = run(old, name), run(ROOT, name)
                    for figure in before.keys() & after.keys():
                        if before[figure]:
                            ratios.setdefault(f"{name}.{figure}", []).append(after[figure] / before[figure])
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(old)], check=True)
    figures = {figure: median(values) for figure, values in sorted(ratios.items())}
    print(f"new / old ({args.commit}), median of {rounds}")
    for figure, value in figures.items():
        print(f"{figure:<50}{value:>8.3f}")
    finish("against", figures, {"commit": args.commit, "rounds": rounds})


if __name__ == "__main__":
    main()
