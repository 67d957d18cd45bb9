"""Twelve bots of all families, each 100 conversations of 10 turns with itself, in one command: time, kill, continue.

Trains what is missing in --runs on the bundled sample (small models, minutes in all), then runs `tertulia selfplay ...
--with-itself` twice: undisturbed in --out, and in a folder beside it, killed (SIGKILL) when half of the shards are done
and continued with one process more. The bytes must be the same.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import finish
from tertulia.artefacts.files import sha256_of
from tertulia.core.progress import Silent
from tertulia.train.recipe import read_recipe

CONFIGS = Path(__file__).parents[1] / "configs"
RANKER = {"epochs": 20, "max_steps": 150}
GENERATOR = {"vocabulary": 2000, "batch_tokens": 2000, "learning_rate": 2e-3, "validate_every": 200, "epochs": 100}
BLOCKS = {"d_model": 96, "heads": 4, "max_length": 512}
RECURRENT = {"dim": 64, "hidden": 128}
HRED = {"dim": 64, "encoder": 96, "context": 128, "decoder": 96}
TRAINED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "starspace": ("personachat-starspace", RANKER),
    "transformer": ("personachat-transformer", GENERATOR | {"model": {**BLOCKS, "decoder_layers": 2}}),
    "profile-memory": ("personachat-memory", RANKER),
    "evolved": ("personachat-evolved", GENERATOR | {"model": {**BLOCKS, "decoder_blocks": 1}}),
    "kv-memory": ("personachat-kv", RANKER),
    "seq2seq": ("personachat-seq2seq", GENERATOR | {"model": RECURRENT}),
    "dual-encoder": ("ubuntu-rnn", RANKER),
    "generative-memory": ("personachat-generative-profile-memory", GENERATOR | {"model": RECURRENT}),
    "hred": ("selfplay-hred", GENERATOR | {"model": HRED}),
    "vhcr": ("selfplay-vhcr", GENERATOR | {"model": HRED, "samples": 2, "kl_steps": 400}),
}
"""By name: the config, and what is smaller here."""


def main() -> None:
    """Train, talk, kill, continue, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("run/selfplay-bots"), help="folder of the trained models")
    parser.add_argument("--out", type=Path, default=Path("run/selfplay"), help="folder for the conversations")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=150, help="updates of each generative model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="5 updates each, 4 conversations of 4 turns")
    args = parser.parse_args()
    conversations, turns, shard = (4, 4, 2) if args.quick else (100, 10, 20)
    os.environ["OMP_NUM_THREADS"] = "1"
    bots, training = train_all(args)
    disturbed = args.out.with_name(f"{args.out.name}-interrupted")
    for folder in (args.out, disturbed):
        shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "tertulia", "selfplay", *bots, "--with-itself", "--personas", "sample"]
    command += ["-n", str(conversations), "--turns", str(turns), "--shard", str(shard), "--seed", str(args.seed)]
    processes, more = (["--processes", str(args.processes + extra), "--json"] for extra in (0, 1))
    undisturbed, outcome = run([*command, "--out", str(args.out), *processes])
    command += ["--out", str(disturbed)]
    before, done = kill_halfway([*command, *processes], disturbed, outcome["shards"])
    after, continued = run([*command, *more])
    same = sha256_of(args.out / "conversations.jsonl") == sha256_of(disturbed / "conversations.jsonl")
    print(f"{'bot':<20}{'training':>10}{'talking':>10}{'turns/s':>10}{'distinct-2':>12}")
    figures: dict[str, float] = {}
    for row in outcome["pairings"]:
        name, seconds = row["pairing"], row["seconds"]
        generated = row["turns"] - row["conversations"]
        value = row["distinct2"][name]["value"]
        distinct = float("nan") if value is None else value
        print(f"{name:<20}{training[name]:>9.0f}s{seconds:>9.1f}s{generated / seconds:>10.1f}{distinct:>12.3f}")
        figures |= {f"{name}_seconds": seconds, f"{name}_turns_per_second": generated / seconds}
    shards = outcome["shards"]
    print(f"{outcome['conversations']} conversations, {outcome['turns']} turns, {shards} shards")
    print(f"undisturbed, {args.processes} processes: {undisturbed:.0f} s")
    print(
        f"killed after {before:.0f} s with {done} shards saved; continued with {continued['continued']}: {after:.0f} s"
    )
    print(f"same bytes: {'yes' if same else 'NO'}")
    figures |= {"undisturbed_seconds": undisturbed, "killed_seconds": before, "continued_seconds": after}
    figures |= {"same_bytes": float(same), "conversations": outcome["conversations"], "turns": outcome["turns"]}
    figures |= {"training_seconds": sum(training.values()), "shards_kept": continued["continued"], "shards": shards}
    finish("selfplay", figures, {"processes": args.processes, "seed": args.seed, "quick": args.quick})
    if not same or continued["continued"] < done:
        sys.exit(1)


def train_all(args: argparse.Namespace) -> tuple[list[str], dict[str, float]]:
    """The bots as specifications, and how long the training of each took."""
    seconds = {"generic": 0.0, "tfidf": 0.0}
    for name, (config, smaller) in TRAINED.items():
        folder, start = args.runs / name, time.perf_counter()
        if not (folder / "manifest.json").is_file():
            settings = {"max_steps": args.steps} | smaller | {"out": folder, "seed": args.seed, "data": "sample"}
            settings |= {"max_steps": 5, "validate_every": 5} if args.quick else {}
            recipe, resolved = read_recipe(CONFIGS / f"{config}.toml", settings)
            recipe.train(resolved, Silent())
            print(f"trained {name} in {time.perf_counter() - start:.0f} s", flush=True)
        training = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["training"]
        seconds[name] = float(training.get("cpu_seconds", 0.0))
    return ["generic=generic", "tfidf=tfidf:sample", *(f"{name}={args.runs / name}" for name in TRAINED)], seconds


def run(command: list[str]) -> tuple[float, Any]:
    """Run to the end; seconds, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return time.perf_counter() - start, json.loads(done.stdout)


def kill_halfway(command: list[str], out: Path, shards: int) -> tuple[float, int]:
    """Start, kill when half of the shards are saved; seconds, and how many were saved."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(list((out / "_work").glob("*.jsonl"))) < shards // 2:
            if process.poll() is not None:
                sys.exit(f"self-play ended with {process.returncode} before it could be killed")
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    return time.perf_counter() - start, len(list((out / "_work").glob("*.jsonl")))


if __name__ == "__main__":
    main()
