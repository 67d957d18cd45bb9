"""How fast SmolLM2 talks on a CPU: our engines against llama.cpp's own server on the same weights, in one run.

Ways: `torch` (nothing kept between turns), `torch-prefix` (prompts are kept), `llamacpp` (our bot with that engine),
all three through our worker as our server does it; and `server`, llama.cpp's own server object (from xllamacpp), called
without HTTP, one slot for each user, its prompt cache on. `server` reads the file as published (Q4_1), `server-q8`
the file that our bot computes with (the same weights as Q8_0, see models/llamacpp/encoding.py). All have the same
number of threads, prompts with the same words, greedy decoding and replies of the same number of tokens (the server is
told to ignore end tokens, our bots have min_tokens = max_tokens).

A scene is one user or eight at once, in the first or the tenth turn of a conversation (8x10). Earlier turns are given.
For the tenth turn the ninth is replied to first, with one token and untimed, so that whatever a way keeps is there.
Every conversation is a new one, with a persona of its own; in scenes that end with `s` all talk to the same character,
as with a bot that is served. Ways alternate; figures are medians over repetitions. On a busy machine wall time says
little, so CPU seconds of the process are printed beside it, also until the first token, and ratios are given for both.
On an idle core both are the same. The times to load (a file that is in the cache) and the load of the machine are
printed, too.

With `--agreement N` it says instead how far the logits of both engines are apart, on N dialogues of the bundled sample:
torch with the published weights, llama.cpp with the file that our bot computes with.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
import xllamacpp

from common import finish
from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.reply import Ask
from tertulia.models.hf.packaged import packaged_file
from tertulia.models.likelihood import view_as
from tertulia.models.llamacpp.generator import GGUFFile
from tertulia.models.threads import use_threads
from tertulia.talk.bots.huggingface import HuggingFaceBot
from tertulia.talk.chat import chat_messages
from tertulia.talk.spec import make_bot
from tertulia.talk.worker import Worker

SAID = (
    "Hello! How are you today?",
    "I am well, thank you. The weather is lovely here.",
    "Do you have any hobbies?",
    "I like to read, and I often walk along the river.",
    "What do you read at the moment?",
    "A book about ships. It is longer than I thought.",
)
USERS = 8
SAME = "s"
"""Ends the name of a scene in which all talk to the same character."""
_people = count()


@dataclass(frozen=True)
class Timing:
    """What one scene took."""

    first: float
    """Seconds until the first token, the mean over users."""
    first_cpu: float
    """CPU seconds of the process until then."""
    total: float
    """Seconds until all replies were complete."""
    cpu: float
    """CPU seconds of the process."""


Way = Callable[[Sequence[Dialogue], int], Timing]


def conversation(turns: int, *, same: bool = False) -> Dialogue:
    """A new conversation, up to the message before the bot's n-th turn; with somebody new, or always the `same`."""
    number = next(_people)
    who = 0 if same else number
    persona = Persona((f"I am a sailor, and my boat is number {who}.", "I have two cats."), name=f"Ada{who}")
    said = [Turn("user" if i % 2 == 0 else "bot", SAID[i % len(SAID)]) for i in range(2 * turns - 1)]
    said[0] = Turn("user", f"{SAID[0]} This is user {number}.")
    return Dialogue(f"d{number}", tuple(said), {"bot": persona})


def earlier(dialogue: Dialogue) -> Dialogue:
    """The same conversation one turn of the bot before."""
    return Dialogue(dialogue.id, dialogue.turns[:-2], dialogue.personas)


def together(users: Sequence[Any], run: Callable[[Any, Callable[[], None]], None]) -> Timing:
    """All users at once, each on a thread; `run` calls its second argument at the first token."""
    started, cpu = time.perf_counter(), time.process_time()
    firsts: list[tuple[float, float]] = []

    def one(user: Any) -> None:
        seen: list[tuple[float, float]] = []

        def first() -> None:
            if not seen:
                seen.append((time.perf_counter() - started, time.process_time() - cpu))

        run(user, first)
        firsts.append(seen[0])

    threads = [threading.Thread(target=one, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    total_cpu = time.process_time() - cpu
    return Timing(mean(wall for wall, _ in firsts), mean(own for _, own in firsts), seconds, total_cpu)


def way_of_bot(spec: str) -> Way:
    """One of our bots behind a worker."""
    worker = Worker(make_bot(spec))

    def run(dialogues: Sequence[Dialogue], tokens: int) -> Timing:
        options = {"method": "greedy", "max_tokens": tokens, "min_tokens": tokens, "repetition_penalty": 1.0}

        def reply(dialogue: Dialogue, first: Callable[[], None]) -> None:
            worker.submit(Ask(dialogue, options=options), lambda _: first()).result(900)
            first()  # a reply of one token may be all blanks

        return together(dialogues, reply)

    return run


def way_of_server(threads: int, instructions: str, file: Path) -> Way:
    """llama.cpp's own server, without HTTP."""
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 1024 * USERS, USERS, False, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.port = 0
    server = xllamacpp.Server(params)

    def run(dialogues: Sequence[Dialogue], tokens: int) -> Timing:
        def reply(dialogue: Dialogue, first: Callable[[], None]) -> None:
            request = {
                "messages": chat_messages(dialogue, "bot", instructions),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": True,
                "stream": True,
            }

            def piece(chunk: Any) -> None:
                if "error" in chunk or chunk.get("code"):
                    raise RuntimeError(str(chunk))
                if any(choice["delta"].get("content") for choice in chunk["choices"]):
                    first()

            server.handle_chat_completions(request, piece)
            first()

        return together(dialogues, reply)

    return run


def measure(ways: dict[str, Way], scene: str, tokens: int, repetitions: int) -> dict[str, Timing]:
    """Medians of a scene for each way; ways alternate."""
    users, turn = map(int, scene.removesuffix(SAME).split("x"))
    timings: dict[str, list[Timing]] = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, way in ways.items():
            dialogues = [conversation(turn, same=scene.endswith(SAME)) for _ in range(users)]
            if turn > 1:
                way([earlier(dialogue) for dialogue in dialogues], 1)
            timings[name].append(way(dialogues, tokens))
    return {
        name: Timing(*(median(getattr(one, part.name) for one in several) for part in fields(Timing)))
        for name, several in timings.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=40, help="of each reply")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", nargs="*", default=["torch", "torch-prefix", "llamacpp", "server", "server-q8"])
    parser.add_argument("--scenes", nargs="*", default=["1x1", "1x10", "8x1", "8x1s", "8x10"], help="users x turn")
    parser.add_argument("--quick", action="store_true", help="two scenes, once, replies of eight tokens")
    parser.add_argument("--agreement", type=int, default=0, metavar="N", help="compare logits on N dialogues")
    args = parser.parse_args()
    if args.agreement:
        agreement(args.agreement, args.threads)
        return
    if args.quick:
        args.tokens, args.repetitions, args.scenes = 8, 1, ["1x1", "1x10"]
    use_threads(args.threads)
    shared = f"device=cpu&threads={args.threads}"
    makers: dict[str, Callable[[], Way]] = {
        "torch": lambda: way_of_bot(f"smollm2?engine=torch&prefix_cache_mb=0&{shared}"),
        "torch-prefix": lambda: way_of_bot(f"smollm2?engine=torch&{shared}"),
        "llamacpp": lambda: way_of_bot(f"smollm2?engine=llamacpp&{shared}"),
        "server": lambda: way_of_server(args.threads, instructions(), packaged_file()),
        "server-q8": lambda: way_of_server(args.threads, instructions(), GGUFFile.of_smollm2().fast_path()),
    }
    ways: dict[str, Way] = {}
    figures: dict[str, float] = {}
    print(f"load of the machine {os.getloadavg()[0]:.0f}, {os.cpu_count()} cores, {args.threads} thread(s)")
    for name in args.ways:
        start, cpu = time.perf_counter(), time.process_time()
        ways[name] = makers[name]()
        loading = {"load_s": time.perf_counter() - start, "load_cpu_s": time.process_time() - cpu}
        print(f"  {name:14} loaded in {loading['load_s']:.1f} s, {loading['load_cpu_s']:.1f} s of CPU time")
        figures |= {f"{name}_{part}": value for part, value in loading.items()}
    torch.set_num_threads(args.threads)
    for way in ways.values():  # the first pass of each allocates
        way([conversation(1)], 2)
    for scene in args.scenes:
        timings = measure(ways, scene, args.tokens, args.repetitions)
        figures |= show(scene, timings, args.tokens)
    settings = {"tokens": args.tokens, "repetitions": args.repetitions, "threads": args.threads, "users": USERS}
    finish("chat_speed", figures, settings)


def show(scene: str, timings: dict[str, Timing], tokens: int) -> dict[str, float]:
    """Print a scene; returns its figures by name."""
    users, turn = scene.removesuffix(SAME).split("x")
    character = ", the same character" if scene.endswith(SAME) else ""
    print(f"\n{users} at once, turn {turn}{character}, {tokens} tokens each (load {os.getloadavg()[0]:.0f})")
    columns = ("first token s", "of CPU time", "tokens/s", "per CPU s", "CPU s", "time ratio", "CPU ratio")
    print(f"  {'way':12}" + "".join(f"{column:>15}" for column in columns), flush=True)
    figures: dict[str, float] = {}
    for name, one in timings.items():
        base, said = timings.get("server", one), int(users) * tokens
        rates = said / one.total, said / one.cpu
        values = (one.first, one.first_cpu, *rates, one.cpu, one.total / base.total, one.cpu / base.cpu)
        print(f"  {name:12}" + "".join(f"{value:15.2f}" for value in values), flush=True)
        parts = ("first_s", "first_cpu_s", "tokens_per_s", "tokens_per_cpu_s", "cpu_s", "ratio", "cpu_ratio")
        figures |= {f"{name}_{scene}_{part}": value for part, value in zip(parts, values, strict=True)}
    return figures


@torch.inference_mode()
def agreement(dialogues: int, threads: int) -> None:
    """KL divergence from torch's to llama.cpp's next-token distributions, at every token of some dialogues."""
    use_threads(threads)
    bots: list[Any] = [make_bot(f"smollm2?engine={one}&device=cpu&threads={threads}") for one in ("torch", "llamacpp")]
    sums = {"kl": 0.0, "same_best_token": 0.0, "nll_torch": 0.0, "nll_llamacpp": 0.0}
    tokens, largest = 0, 0.0
    for dialogue in sample.dialogues("valid")[:dialogues]:
        ids = bots[0].generator.prompt(view_as(dialogue, dialogue.turns[-1].speaker))
        one, other = (bot.chat.lm.logits_before([ids], [list(range(1, len(ids)))])[0].log_softmax(-1) for bot in bots)
        kl, target = (one.exp() * (one - other)).sum(-1), torch.tensor(ids[1:])[:, None]
        sums["kl"] += float(kl.sum())
        sums["same_best_token"] += float((one.argmax(-1) == other.argmax(-1)).sum())
        sums["nll_torch"] -= float(one.gather(1, target).sum())
        sums["nll_llamacpp"] -= float(other.gather(1, target).sum())
        tokens, largest = tokens + len(kl), max(largest, float(kl.max()))
    figures = {name: value / tokens for name, value in sums.items()} | {"largest_kl": largest}
    file = bots[1].chat.lm.weights.file
    print(f"llama.cpp computes with {file.name} ({bots[1].generator.provenance['weights_encoding']})")
    for name, value in figures.items():
        print(f"  {name:18}{value:10.4f}")
    settings = {"agreement": dialogues, "tokens": tokens, "data": "sample, valid", "file": file.name}
    finish("chat_speed", figures, settings)


def instructions() -> str:
    """What our bot adds to the persona: the server gets the same prompt."""
    return str(HuggingFaceBot.Options().instructions)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
