"""What a token of SmolLM2 costs in llama.cpp, by the encoding of its weights: why our bot computes with Q8_0.

The published file has Q4_1; the others are made from it. CPU milliseconds on one thread, from the C interface alone:
for a token of a prompt of 200, and for a step of one, two, five, seven or eight conversations of 60 tokens. `eight
apart` is the last one with the conversations in descending order of their sequences, which llama.cpp then computes one
by one: sequences with a memory of their own share a pass only if their numbers are consecutive. Encodings alternate;
figures are the lowest of the repetitions, as a busy machine only ever adds time.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import numpy as np

from common import finish
from tertulia.models.hf.packaged import packaged_file
from tertulia.models.llamacpp.context import Context, Weights
from tertulia.models.llamacpp.encoding import encode_again

PROMPT, SHORT, STREAMS = 200, 60, 8
STEPS = {"one": 1, "two": 2, "five": 5, "seven": 7, "eight": 8}


def measure(context: Context, ids: list[list[int]], steps: int) -> dict[str, float]:
    """Milliseconds of CPU time."""
    for row in range(STREAMS):
        context.truncate(row, 0)
    reading = cpu(lambda: read(context, ids[0][:PROMPT], 0)) / PROMPT
    for row in range(1, STREAMS):
        read(context, ids[row][:SHORT], row)

    length = [PROMPT] + [SHORT] * (STREAMS - 1)

    def step(rows: Sequence[int]) -> float:
        def run() -> None:
            for i in range(steps):
                context.decode([ids[row][i] for row in rows], [length[row] for row in rows], rows, [True] * len(rows))
                for row in rows:
                    length[row] += 1

        return cpu(run) / steps

    by_rows = {f"step_of_{name}": step(range(count)) for name, count in STEPS.items()}
    return {"prompt_token": reading} | by_rows | {"eight_apart": step(range(STREAMS)[::-1])}


def read(context: Context, ids: list[int], row: int) -> None:
    """Put a prompt into a sequence."""
    context.decode(ids, range(len(ids)), [row] * len(ids), [False] * (len(ids) - 1) + [True])


def cpu(run: Callable[[], None]) -> float:
    """Milliseconds of CPU time of this thread, the only one that computes."""
    start = time.thread_time()
    run()
    return 1000 * (time.thread_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encodings", nargs="*", default=["Q8_0", "Q4_0", "BF16"])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    ids = np.random.default_rng(0).integers(100, 40_000, (STREAMS, PROMPT + 2 * args.steps)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        files = {"Q4_1": packaged_file()}
        for name in args.encodings:
            files[name] = Path(folder) / f"{name}.gguf"
            encode_again(packaged_file(), files[name], encoding=gguf.GGMLQuantizationType[name])
        contexts = {
            name: Context(Weights(file), tokens=1024 * STREAMS, sequences=STREAMS, unified=False, threads=1)
            for name, file in files.items()
        }
        runs = [
            {name: measure(one, ids, args.steps) for name, one in contexts.items()} for _ in range(args.repetitions)
        ]
    figures: dict[str, float] = {}
    for name in files:
        lowest = {part: min(run[name][part] for run in runs) for part in runs[0][name]}
        print(f"{name:6}" + "".join(f"  {part.replace('_', ' ')} {value:6.1f} ms" for part, value in lowest.items()))
        figures |= {f"{name}_{part}_ms": value for part, value in lowest.items()}
    finish("weight_encodings", figures, {"steps": args.steps, "repetitions": args.repetitions})


if __name__ == "__main__":
    main()
