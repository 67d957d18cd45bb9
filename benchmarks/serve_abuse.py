"""Twenty polite users of `tertulia serve`, in quiet and while somebody abuses it: does the abuse reach them?

The server runs `tfidf`, `generic` and a remote bot whose endpoint never answers. The abuser is a process of its own, on
the loopback interface like everything here, and does four things at once:

- floods: one visitor sends messages and other requests as fast as 20 connections allow;
- half-opens: 250 connections, each with half a request, opened again when the server closes them;
- sends the worst strings: a /v1 system message of 60,000 dots and an x, which regular expressions choke on;
- hangs a bot: asks the bot that never answers, again and again.

Quiet and abused phases alternate. The figure is the polite users' 95th percentile in each, and their ratio. Every
refusal or error that a polite user sees is counted: there should be none. A server that freezes makes the polite users
time out, not this script.
"""

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from common import finish, percentile
from serve_load import HOST, OPENERS, LoadResult, connection, free_port, process, wait_until_ready

ATTACKS = ("flood", "half-open", "worst", "hang")
TIMEOUT = 10.0
"""Seconds after which a polite user gives up."""
POLITE, HALF_OPEN, FLOODING, WORST, HANGING = 20, 250, 20, 2, 20
WORST_STRING = "." * 60_000 + "x"
HALF_SENT = (
    b"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    b"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
)
BLACK_HOLE = """
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
kept = []
while True:
    kept.append(listening.accept())
"""


async def polite(port: int, number: int, until: float, pause: float, result: LoadResult) -> None:
    """One user, who creates a conversation, and sends a message, reads, and sends the next."""
    rng = random.Random(number)
    await asyncio.sleep(rng.random() * pause)
    async with connection(port) as http:
        await http.call("GET", "/api/bots")  # as the page does; sets the cookie
        status, conversation = await http.call("POST", "/api/conversations", {"bot": "tfidf", "persona": None})
        if status != 201:
            result.errors.append(f"opening: {status} {conversation}")
            return
        path = f"/api/conversations/{conversation['id']}/messages"
        while time.monotonic() < until:
            body = {"text": f"{rng.choice(OPENERS)} {rng.random()}", "key": uuid.uuid4().hex, "stream": False}
            start = time.perf_counter()
            try:
                status, answer = await asyncio.wait_for(http.call("POST", path, body), TIMEOUT)
            finally:
                result.seconds.append(time.perf_counter() - start)
            if status != 200 or answer["bot"]["status"] != "done":
                result.errors.append(f"message: {status} {answer}")
            await asyncio.sleep(pause * (0.5 + rng.random()))


async def polite_users(port: int, seconds: float, pause: float, result: LoadResult) -> None:
    until = time.monotonic() + seconds
    tasks = [asyncio.wait_for(polite(port, n, until, pause, result), seconds + TIMEOUT) for n in range(POLITE)]
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException):
            result.errors.append(repr(ended))


# The abuser.


async def again_and_again(action: Callable[[], Awaitable[None]]) -> None:
    """Repeat until cancelled, whatever the server does about it."""
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, RuntimeError):
            await action()
        await asyncio.sleep(0.01)


class Abuser:
    """All attacks, and the status codes they got."""

    def __init__(self, port: int, attacks: list[str]) -> None:
        self.port = port
        self.attacks = attacks
        self.codes: Counter[str] = Counter()
        self.cookie = ""

    async def run(self) -> None:
        async with connection(self.port) as http:
            await http.call("GET", "/api/bots")
            self.cookie = http.cookie
            _, conversation = await http.call("POST", "/api/conversations", {"bot": "tfidf", "persona": None})
        self.path = f"/api/conversations/{conversation['id']}/messages"
        crowds = {
            "flood": [self.flood] * FLOODING,
            "half-open": [self.half_open] * HALF_OPEN,
            "worst": [self.worst] * WORST,
            "hang": [self.hang] * HANGING,
        }
        await asyncio.gather(*(again_and_again(attack) for name in self.attacks for attack in crowds[name]))

    async def flood(self) -> None:
        async with connection(self.port) as http:
            http.cookie = self.cookie
            while True:
                body = {"text": "x" * 15_000, "key": uuid.uuid4().hex, "stream": False}
                await self.count("flood", http.call("POST", self.path, body))
                await self.count("flood", http.call("GET", "/api/conversations"))

    async def half_open(self) -> None:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(random.choice(HALF_SENT))
            received = await reader.read()
            self.codes[f"half-open {received[9:12].decode() or 'closed'}"] += 1
        finally:
            writer.close()

    async def worst(self) -> None:
        system = {"role": "system", "content": WORST_STRING}
        await self.complete("worst", "tfidf", [system, {"role": "user", "content": WORST_STRING[-15_000:]}])

    async def hang(self) -> None:
        await self.complete("hang", "hang", [{"role": "user", "content": "hello"}])

    async def complete(self, attack: str, bot: str, messages: list[dict[str, str]]) -> None:
        async with connection(self.port) as http:
            await self.count(attack, http.call("POST", "/v1/chat/completions", {"model": bot, "messages": messages}))

    async def count(self, attack: str, call: Awaitable[tuple[int, object]]) -> None:
        status, _ = await call
        self.codes[f"{attack} {status}"] += 1


async def abuse(port: int, seconds: float, attacks: list[str]) -> None:
    """All attacks for a while; prints the status codes as JSON."""
    abuser = Abuser(port, attacks)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(abuser.run(), seconds)
    print(json.dumps(abuser.codes), flush=True)


@contextlib.contextmanager
def abusing(port: int, seconds: float, attacks: list[str], codes: Counter[str]) -> Iterator[None]:
    """The abuser as a process: its work must not slow down the clock of the polite users."""
    command = [sys.executable, __file__, "--abuse", str(port), "--seconds", str(seconds), "--attacks", *attacks]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            time.sleep(min(1.0, seconds / 4))  # until it is at work
            yield
            output, _ = running.communicate(timeout=30)
            codes.update(json.loads(output))
        finally:
            if running.poll() is None:
                running.kill()


async def health_seconds(port: int) -> float:
    """The time of one request to /healthz; nan if it is not answered."""
    start = time.perf_counter()
    try:
        async with asyncio.timeout(TIMEOUT), connection(port) as http:
            await http.call("GET", "/healthz")
    except (OSError, TimeoutError):
        return float("nan")
    return time.perf_counter() - start


def main() -> None:
    """Quiet, abused, quiet, abused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds in all")
    parser.add_argument("--pause", type=float, default=0.8, help="mean seconds between a user's messages")
    parser.add_argument("--quick", action="store_true", help="10 seconds")
    parser.add_argument("--attacks", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="what the abuser does")
    parser.add_argument("--abuse", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.abuse:
        asyncio.run(abuse(args.abuse, args.seconds, args.attacks))
        return
    seconds = 10.0 if args.quick else args.seconds
    results, codes = {"quiet": LoadResult(), "abused": LoadResult()}, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        port, hole = free_port(), free_port()
        hanging = f"hang=openai:nobody?base_url=http://{HOST}:{hole}/v1"
        serve = [sys.executable, "-m", "tertulia", "serve", "tfidf", "generic", hanging, "--port", str(port)]
        serve += ["--db", f"sqlite:///{folder}/abuse.db", "--log", "json"]
        with (
            process([sys.executable, "-c", BLACK_HOLE, str(hole)], hole, Path(folder, "hole.log")),
            process(serve, port, Path(folder, "server.log")),
        ):
            asyncio.run(wait_until_ready(port))
            asyncio.run(polite_users(port, 2.0, args.pause, LoadResult()))  # warm-up
            for phase in ("quiet", "abused", "quiet", "abused"):
                with abusing(port, seconds / 4, args.attacks, codes) if phase == "abused" else contextlib.nullcontext():
                    asyncio.run(polite_users(port, max(1.0, seconds / 4 - 1), args.pause, results[phase]))
            health = asyncio.run(health_seconds(port))
    report(results, codes, health, {"seconds": seconds, "pause": args.pause, "attacks": args.attacks})


def report(results: dict[str, LoadResult], codes: Counter[str], health: float, settings: dict[str, object]) -> None:
    """Print the table and the JSON object."""
    figures: dict[str, float] = {"health_after_ms": 1000 * health}
    print(f"{POLITE} polite users, a message every {settings['pause']} s each; milliseconds")
    print(f"{'':<10}{'messages':>10}{'p50':>8}{'p95':>8}{'p99':>8}{'max':>8}{'errors':>8}")
    for phase, result in results.items():
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1}
        cuts = {name: 1000 * percentile(result.seconds, share) for name, share in shares.items()}
        row = "".join(f"{value:>8.1f}" for value in cuts.values())
        print(f"{phase:<10}{len(result.seconds):>10}{row}{len(result.errors):>8}")
        figures |= {f"{phase}_{name}_ms": value for name, value in cuts.items()}
        figures |= {f"{phase}_messages": len(result.seconds), f"{phase}_errors": len(result.errors)}
        for error in result.errors[:3]:
            print("   ", error[:300])
    figures["p95_ratio"] = figures["abused_p95_ms"] / figures["quiet_p95_ms"]
    print("The abuser got: " + ", ".join(f"{what} x {count}" for what, count in sorted(codes.items())))
    print(f"p95 under abuse is {figures['p95_ratio']:.2f}x of the quiet figure (wanted: at most 2)")
    finish("serve_abuse", figures, {**settings, "polite": POLITE, "half_open": HALF_OPEN})


if __name__ == "__main__":
    main()
