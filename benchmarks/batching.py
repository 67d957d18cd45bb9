"""Continuous batching against the old way, in one run: how long a short reply behind a long one takes.

A reply of 2 tokens is submitted while a reply of 80 tokens is being generated. Three ways: `batch` (the worker waits
until the bot is free, as it does for bots without sessions), `joined` (the short reply joins the running batch), and
`interleaved` (both are batches of their own, stepped alternately, as for models whose states cannot be joined). The
ways alternate; figures are medians. The second table is about throughput: replies of 40 tokens, submitted one after the
other every five tokens of the first, and the seconds until all have ended.

The model is SmolLM2 if its weights are in the cache, else a small Transformer with random weights.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from common import finish
from tertulia.artefacts.manifest import is_complete
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask, Piece, Reply
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.packaged import SHA256, cache_folder
from tertulia.models.tokenizer import WordTokenizer
from tertulia.talk.bots.generative import BaseGenerativeBot, GenerativeBot, GenerativeOptions
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions
from tertulia.talk.generation import GenerationSession
from tertulia.talk.worker import Job, Worker

LONG, SHORT, MIDDLE = 80, 2, 40
WAYS = ("batch", "joined", "interleaved")


class WithoutSessions:
    """A bot whose asks the worker batches in the old way."""

    spec, summary = "batch", "without sessions"

    def __init__(self, bot: BaseGenerativeBot[Any]) -> None:
        self.bot = bot

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """As the bot does."""
        return self.bot.reply(asks)

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """As the bot does."""
        return self.bot.stream(asks, alive=alive)


@dataclass(frozen=True)
class Unjoinable:
    """A state without `join`."""

    state: Any

    def expand(self, count: int, /) -> "Unjoinable":
        """As the state does."""
        return Unjoinable(self.state.expand(count))

    def select(self, rows: torch.Tensor, /) -> "Unjoinable":
        """As the state does."""
        return Unjoinable(self.state.select(rows))


class Interleaved:
    """A generator whose states cannot be joined."""

    def __init__(self, model: Any) -> None:
        self.model, self.tokenizer, self.nll, self.save = model, model.tokenizer, model.nll, model.save

    def start(self, views: Any, /) -> Unjoinable:
        """As the model does."""
        return Unjoinable(self.model.start(views))

    def step(self, state: Any, tokens: Any, /) -> tuple[torch.Tensor, Unjoinable]:
        """As the model does."""
        logits, after = self.model.step(state.state, tokens)
        return logits, Unjoinable(after)


class InterleavedBot(WithoutSessions):
    """A bot with sessions that never join."""

    spec, summary = "interleaved", "stepped alternately"

    def open_session(self) -> GenerationSession:
        """A session with a batch for each ask."""
        return GenerationSession(Interleaved(self.bot.model), self.bot.prepare)


def load() -> tuple[str, BaseGenerativeBot[Any]]:
    """SmolLM2 from the cache, or a small model with random weights."""
    folder = cache_folder() / f"smollm2-135m-instruct-{SHA256[:12]}"
    if is_complete(folder):
        return "smollm2", HuggingFaceBot(ChatModel.load(str(folder)), HuggingFaceOptions())
    torch.manual_seed(0)
    words = WordTokenizer([f"word{number}" for number in range(8000)])
    model = Transformer.untrained(TransformerConfig(d_model=256, decoder_layers=4), words).eval()
    return "transformer", GenerativeBot(model, GenerativeOptions(method="sample", filters="none"))


def ask(text: str, tokens: int, seed: int = 0) -> Ask:
    """For a reply of exactly this many tokens."""
    options = {"max_tokens": tokens, "min_tokens": tokens}
    return Ask(Dialogue("d", (Turn("user", text),)), seed=seed, options=options)


class Pieces:
    """Counts the pieces of a reply, and waits for them."""

    def __init__(self) -> None:
        self.count, self.change = 0, threading.Condition()

    def __call__(self, text: str) -> None:
        """Called with each piece."""
        with self.change:
            self.count += 1
            self.change.notify_all()

    def wait(self, count: int, job: Job) -> None:
        """Until so many pieces have arrived, or the reply has ended."""
        with self.change:
            self.change.wait_for(lambda: self.count >= count or job.done.done(), timeout=600)


def short_behind_long(worker: Worker, seed: int) -> tuple[float, float]:
    """Seconds of the short reply, and of the long one."""
    pieces, start = Pieces(), time.perf_counter()
    long = worker.submit(ask("Tell me everything about the sea, please.", LONG, seed), pieces)
    pieces.wait(5, long)
    submitted = time.perf_counter()
    worker.submit(ask("Hello!", SHORT, seed)).result(600)
    short_seconds = time.perf_counter() - submitted
    long.result(600)
    return short_seconds, time.perf_counter() - start


def staggered(worker: Worker, replies: int) -> tuple[float, float]:
    """Seconds until all of these replies have ended, submitted every five tokens of the first; and seconds of CPU."""
    pieces, start, cpu = Pieces(), time.perf_counter(), time.process_time()
    jobs = [worker.submit(ask("What do you do on Sundays?", LONG), pieces)]
    for number in range(1, replies):
        pieces.wait(5 * number, jobs[0])
        jobs.append(worker.submit(ask(f"And what do you do at {number} o'clock?", MIDDLE, number)))
    for job in jobs:
        job.result(600)
    return time.perf_counter() - start, time.process_time() - cpu


def main() -> None:
    """Run, print two tables, and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two repetitions with half as many replies")
    parser.add_argument("--repetitions", type=int, default=7, help="how often each way is measured")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further repetition after this time")
    args = parser.parse_args()
    repetitions, replies = (2, 6) if args.quick else (args.repetitions, 12)
    name, bot = load()
    workers = {
        "batch": Worker(WithoutSessions(bot)),
        "joined": Worker(bot),
        "interleaved": Worker(InterleavedBot(bot)),
    }
    for worker in workers.values():  # warm-up
        worker.submit(ask("Hello!", SHORT)).result(600)
    latencies: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    totals: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    began = time.monotonic()
    for seed in range(repetitions):
        if seed and time.monotonic() - began > 60 * args.minutes:
            break
        for way in WAYS:
            latencies[way].append(short_behind_long(workers[way], seed))
            totals[way].append(staggered(workers[way], replies))
    figures: dict[str, float] = {}
    print(f"{name}: {SHORT} tokens behind {LONG}")
    for way in WAYS:
        short, long = (median(values) for values in zip(*latencies[way], strict=True))
        figures |= {f"{way}_short_seconds": short, f"{way}_long_seconds": long}
        print(f"  {way:12} short reply {short:7.3f} s   long reply {long:7.3f} s")
    print(f"{name}: {replies} replies, submitted every five tokens")
    for way in WAYS:
        seconds, cpu = (median(values) for values in zip(*totals[way], strict=True))
        figures |= {f"{way}_staggered_seconds": seconds, f"{way}_staggered_cpu_seconds": cpu}
        print(f"  {way:12} all replies {seconds:7.3f} s   CPU {cpu:7.3f} s")
    for worker in workers.values():
        worker.close(1)
    finish("batching", figures, {"model": name, "repetitions": len(totals["joined"]), "replies": replies})


if __name__ == "__main__":
    main()
