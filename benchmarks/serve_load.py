"""Many people chatting at once with `tertulia serve`: latencies, and proof that no message is lost or crossed.

Three real processes on the loopback: the server with `generic` and `tfidf`, a FastAPI app with one constant route (the
floor), and this one, which plays the users over plain sockets. Each user waits a moment between messages, as people do.
At the end every conversation is read back and compared, message by message, with what its user sent.
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
from typing import Any

from common import finish, percentile

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


@dataclass
class Tally:
    """What the users saw."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    lost: int = 0
    crossed: int = 0
    conversations: int = 0


class Http:
    """A keep-alive HTTP/1.1 connection with a cookie: as little client as will do, so that the server is measured."""

    def __init__(self, port: int) -> None:
        self.port, self.cookie = port, ""

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(HOST, self.port)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else b""
        head = [f"{method} {path} HTTP/1.1", f"Host: {HOST}:{self.port}", f"Content-Length: {len(data)}"]
        if data:
            head.append("Content-Type: application/json")
        if self.cookie:
            head.append(f"Cookie: {self.cookie}")
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
        top = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, length = int(top.split(" ", 2)[1]), 0
        for line in top.split("\r\n")[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
            elif name.lower() == "set-cookie":
                self.cookie = value.strip().partition(";")[0]
            elif name.lower() == "transfer-encoding":
                raise RuntimeError("chunked answers are not expected here")
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


async def chatting(port: int, bot: str, number: int, until: float, pause: float, tally: Tally) -> None:
    """One person: opens a conversation, talks until time is up, then reads it all back."""
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
        _, whole = await http.call("GET", path)
        kept = [turn["text"] for turn in whole["turns"] if turn["speaker"] == "user"]
        answers = [turn for turn in whole["turns"] if turn["speaker"] == "bot" and turn["status"] == "done"]
        tally.lost += len(set(sent) - set(kept)) + abs(len(answers) - len(sent))
        tally.crossed += len(set(kept) - set(sent)) + (kept != sent)
        tally.conversations += 1


async def constant(port: int, number: int, until: float, pause: float, tally: Tally) -> None:
    """The same person talking to a wall."""
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


async def crowd(kind: str, port: int, users: int, seconds: float, pause: float) -> Tally:
    """All users at once, for so long."""
    tally, until = Tally(), time.monotonic() + seconds
    people = [
        constant(port, i, until, pause, tally) if kind == "constant" else chatting(port, kind, i, until, pause, tally)
        for i in range(users)
    ]
    for ended in await asyncio.gather(*people, return_exceptions=True):
        if isinstance(ended, BaseException):
            tally.errors.append(repr(ended))
    return tally


@contextmanager
def process(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A server of ours on a port; ended with the block."""
    with log.open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"NO_COLOR": "1"})
        try:
            for _ in range(600):
                if running.poll() is not None:
                    raise RuntimeError(f"the server ended: {log.read_text()[-2000:]}")
                with socket.socket() as probe:
                    if probe.connect_ex((HOST, port)) == 0:
                        break
                time.sleep(0.1)
            yield
        finally:
            running.terminate()
            running.wait(20)


def free_port() -> int:
    """A port nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Floor, generic, floor, tfidf, floor: alternating in one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="per bot")
    parser.add_argument("--pause", type=float, default=3.0, help="mean seconds between a user's messages")
    parser.add_argument("--db", default="", help="store URL; a SQLite file in a temporary folder by default")
    parser.add_argument("--quick", action="store_true", help="40 users, 4 seconds")
    args = parser.parse_args()
    users, seconds = (40, 4.0) if args.quick else (args.users, args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        ours, floor = free_port(), free_port()
        db = args.db or f"sqlite:///{folder}/load.db"
        serve = [sys.executable, "-m", "tertulia", "serve", "generic", "tfidf", "--port", str(ours), "--db", db]
        with (
            process(serve, ours, Path(folder, "ours.log")),
            process([sys.executable, "-c", FLOOR, str(floor)], floor, Path(folder, "floor.log")),
        ):
            tallies: dict[str, Tally] = {"constant": Tally()}
            for kind in ("constant", "generic", "constant", "tfidf", "constant"):
                port, span = (floor, max(2.0, seconds / 6)) if kind == "constant" else (ours, seconds)
                tally = asyncio.run(crowd(kind, port, users, span, args.pause))
                if kind == "constant":
                    tallies[kind].seconds += tally.seconds
                    tallies[kind].errors += tally.errors
                else:
                    tallies[kind] = tally
    report(tallies, users, seconds, args.pause, db)


def report(tallies: dict[str, Tally], users: int, seconds: float, pause: float, db: str) -> None:
    """The table, and the JSON line."""
    figures: dict[str, float] = {}
    print(f"{users} users, {seconds:.0f} s per bot, a message every {pause:.1f} s each; milliseconds")
    print(f"{'':<10}{'messages':>10}{'p50':>8}{'p95':>8}{'p99':>8}{'max':>8}{'errors':>8}{'lost':>6}{'crossed':>8}")
    for kind, tally in tallies.items():
        cuts = {
            name: 1000 * percentile(tally.seconds, share)
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1))
        }
        row = "".join(f"{value:>8.1f}" for value in cuts.values())
        print(f"{kind:<10}{len(tally.seconds):>10}{row}{len(tally.errors):>8}{tally.lost:>6}{tally.crossed:>8}")
        figures |= {f"{kind}_{name}_ms": value for name, value in cuts.items()}
        figures |= {f"{kind}_messages": len(tally.seconds), f"{kind}_errors": len(tally.errors)}
        figures |= {f"{kind}_lost": tally.lost, f"{kind}_crossed": tally.crossed}
        for error in tally.errors[:3]:
            print("   ", error[:300])
    for kind in ("generic", "tfidf"):
        over = {p: figures[f"{kind}_{p}_ms"] / figures[f"constant_{p}_ms"] for p in ("p50", "p95", "p99")}
        figures |= {f"{kind}_{p}_over_constant": ratio for p, ratio in over.items()}
        print(f"{kind}: " + ", ".join(f"{p} {ratio:.1f}x" for p, ratio in over.items()) + " the constant route's")
    finish("serve_load", figures, {"users": users, "seconds": seconds, "pause": pause, "db": db.partition(":")[0]})


if __name__ == "__main__":
    main()
