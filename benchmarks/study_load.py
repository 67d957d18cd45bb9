"""Many raters in a study at once: they chat with 30 bots and label every reply, and in the middle the server is killed
(SIGKILL) and started again on the same database and port. Latencies, CPU time per label, and a check that every label
and turn that was acknowledged is stored exactly once.

Three processes on the loopback interface: the server, a FastAPI app with one constant route (the lower bound), and this
one, which simulates the raters over plain sockets as the study page would: consent, tutorial, training, then
conversations one after the other, each reply streamed and labelled, five questions at the end, submit, next. A rater
whose connection breaks repeats the request with the same key. At the end the database is compared with what each rater
was told. Requests that were interrupted count as such and are left out of the latencies.
"""

import argparse
import asyncio
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from common import finish, percentile
from serve_load import (
    FLOOR,
    OPENERS,
    Http,
    LoadResult,
    cpu_seconds,
    crowd,
    free_port,
    postgresql,
    process,
    wait_until_ready,
)
from tertulia.store import ConversationStore, Database, StudyStore
from tertulia.web.study.chats import participant_owner
from tertulia.web.study.opening import open_study

T = TypeVar("T")

BOTS = 30
TFIDF_BOTS = 4
"""So many of the bots retrieve their replies; the others name themselves in every reply."""
RATINGS_PER_UNIT = 2
MESSAGES = (3, 4, 5)
"""How many messages a rater sends in one conversation."""
GIVE_UP_SECONDS = 60.0
"""How long a rater tries to reach a server that is down."""
STUDY = """
preset = "interactive-likert"
languages = ["en"]
min_turns = 6
max_turns = 12
ratings_per_unit = {ratings}
conversations_per_bot = {conversations}
units_per_participant = 1000

[[training]]
text = "You: I burnt the rice. Partner: Oh no! Was it for guests?"
question = "vote"
answer = "up"
explanation = "The partner takes part in what happened."

{bots}
"""


@dataclass
class RaterRecord:
    """What one rater has sent, and what the server has acknowledged."""

    sent_labels: set[tuple[str, str, str, Any]] = field(default_factory=set)
    """Assignment, target, question, value."""
    labels: list[tuple[str, str, str, Any]] = field(default_factory=list)
    sent_texts: set[str] = field(default_factory=set)
    user_turns: dict[str, str] = field(default_factory=dict)
    """Texts by id of the messages that were acknowledged, also of those that the rater had to send again."""
    exchanges: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """By assignment, the id and text of every turn of the exchanges that were completed."""
    submitted: set[str] = field(default_factory=set)


@dataclass
class Crowd:
    """All raters: until when they work, and what they observed."""

    port: int
    study: str
    pause: float
    until: float = math.inf
    records: dict[int, RaterRecord] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Latencies of requests that were not interrupted, by what was requested."""
    errors: list[str] = field(default_factory=list)
    retries: int = 0
    """Connections that broke, or could not be made."""
    failed_replies: int = 0
    """Messages that had to be sent again because no reply came."""
    interrupted: list[float] = field(default_factory=list)
    """Seconds that interrupted requests took in all."""

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


class UnexpectedStatus(Exception):  # noqa: N818 - reads better without "Error"
    """A response that the rater did not expect."""


class Rater:
    """One rater, who does what the study page does."""

    def __init__(self, number: int, crowd: Crowd) -> None:
        self.number, self.crowd, self.record = number, crowd, crowd.records.setdefault(number, RaterRecord())
        self.http: Http | None = None
        self.cookie = ""
        self.rng = random.Random(number)
        self.messages = 0

    async def run(self) -> None:
        """Take part until time is up; what is under way is finished first."""
        try:
            await asyncio.sleep(self.rng.random() * self.crowd.pause)
            await self.enter()
            while not self.crowd.is_over:
                task = (await self.post("next", {}))["task"]
                if task is None:  # the bots are still loading, or there is nothing left to do
                    await asyncio.sleep(0.5)
                else:
                    await self.hold_conversation(task)
        except UnexpectedStatus as error:
            self.crowd.errors.append(f"rater {self.number}: {error}")
        finally:
            if self.http is not None:
                self.http.writer.close()

    async def enter(self) -> None:
        """Open the link, then consent, tutorial and training."""
        path = f"/study/{self.crowd.study}?PROLIFIC_PID=rater-{self.number}"
        status, _ = await self.attempt("enter", lambda http: http.call("GET", path))
        if status != 303:
            raise UnexpectedStatus(f"enter: {status}")
        state = await self.state()
        while (step := state["step"]) in ("consent", "tutorial", "training"):
            body: dict[str, Any] = {}
            if step == "consent":
                body = {"version": state["consent"]["version"], "language": "en"}
            elif step == "training":
                body = {"index": state["training"]["index"], "value": "up"}
            await self.post(step, body, allowed=(200, 409))  # 409: done before the connection broke
            state = await self.state()

    async def hold_conversation(self, task: dict[str, Any]) -> None:
        """Chat, label each reply, answer the questions at the end, submit."""
        assignment = task["assignment"]
        self.record.exchanges[assignment] = []
        of_turns, of_units = (
            [question for question in task["questions"] if question["scope"] == scope] for scope in ("turn", "unit")
        )
        for _ in range(self.rng.choice(MESSAGES)):
            if self.crowd.is_over:
                return
            turn = await self.say(assignment)
            await self.label(assignment, f"turn:{turn}", of_turns)
            await asyncio.sleep(self.crowd.pause * (0.5 + self.rng.random()))
        await self.post("finish", {"assignment": assignment})
        await self.label(assignment, "unit", of_units)
        await self.post("submit", {"assignment": assignment, "key": uuid.uuid4().hex})
        self.record.submitted.add(assignment)

    async def say(self, assignment: str) -> str:
        """Send a message until a reply comes; returns the reply's id."""
        text = f"{self.rng.choice(OPENERS)} ({self.number}.{self.messages})"
        self.messages += 1
        self.record.sent_texts.add(text)
        while True:
            body = {"assignment": assignment, "text": text, "key": uuid.uuid4().hex, "stream": True}
            if reply := await self.attempt("reply", lambda http, body=body: self._exchange(http, body)):  # type: ignore[misc]
                return reply
            self.crowd.failed_replies += 1
            await asyncio.sleep(0.5)

    async def _exchange(self, http: Http, body: dict[str, Any]) -> str | None:
        """Send a message and follow the reply; returns its id, or None if none came."""
        start = time.perf_counter()
        status, length = await http.request("POST", self._path("say"), body)
        if length is not None:
            answer = await http.reader.readexactly(length)
            if status == 502:
                return None
            raise UnexpectedStatus(f"say: {status} {answer.decode()}")
        user: tuple[str, str] | None = None
        reply: tuple[str, str] | None = None
        events = b""
        while size := int((await http.reader.readuntil(b"\r\n")).strip(), 16):
            events += (await http.reader.readexactly(size + 2))[:-2]
            *complete, events = events.split(b"\n\n")
            for name, data in map(_parse_event, complete):
                if name == "user":
                    self._measure("say", time.perf_counter() - start)
                    user = (data["id"], data["text"])
                    self.record.user_turns[user[0]] = user[1]
                elif name == "done":
                    reply = (data["id"], data["text"])
        await http.reader.readexactly(2)
        if user is None or reply is None:
            return None
        self.record.exchanges[body["assignment"]] += [user, reply]
        return reply[0]

    async def label(self, assignment: str, target: str, questions: Iterable[dict[str, Any]]) -> None:
        """Answer the questions about a target in one request."""
        answers = [(target, question["id"], self._answer(question)) for question in questions]
        labels = [(assignment, *answer) for answer in answers]
        body = {"assignment": assignment, "key": uuid.uuid4().hex, "seconds": 1.5}
        body["labels"] = [{"target": t, "question": question, "value": value} for t, question, value in answers]
        self.record.sent_labels.update(labels)
        await self.post("labels", body)
        self.record.labels += labels

    def _answer(self, question: dict[str, Any]) -> Any:
        if question["kind"] == "scale":
            return self.rng.randint(question["low"], question["high"])
        return self.rng.choice(question["choices"])["value"]

    async def state(self) -> dict[str, Any]:
        status, state = await self.attempt("state", lambda http: http.call("GET", self._path("state")))
        if status != 200:
            raise UnexpectedStatus(f"state: {status} {state}")
        return dict(state)

    async def post(self, what: str, body: dict[str, Any], allowed: tuple[int, ...] = (200,)) -> dict[str, Any]:
        """Make a request, again and again with the same body while the server is down."""
        status, answer = await self.attempt(what, lambda http: http.call("POST", self._path(what), body))
        if status not in allowed:
            raise UnexpectedStatus(f"{what}: {status} {answer}")
        return dict(answer)

    async def attempt(self, what: str, call: Callable[[Http], Awaitable[T]]) -> T:
        """Call until no connection breaks."""
        start, is_first = time.perf_counter(), True
        while True:
            try:
                if self.http is None:
                    http = Http(self.crowd.port)
                    http.cookie = self.cookie
                    await http.open()
                    self.http = http
                result = await call(self.http)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.http, is_first = None, False
                self.crowd.retries += 1
                if time.perf_counter() - start > GIVE_UP_SECONDS:
                    raise UnexpectedStatus(f"{what}: gave up: {error!r}") from None
                await asyncio.sleep(0.25 + 0.5 * self.rng.random())
            else:
                self.cookie = self.http.cookie
                elapsed = time.perf_counter() - start
                if is_first:
                    self._measure(what, elapsed)
                else:
                    self.crowd.interrupted.append(elapsed)
                return result

    def _measure(self, what: str, seconds: float) -> None:
        self.crowd.seconds.setdefault(what, []).append(seconds)

    def _path(self, what: str) -> str:
        return f"/api/study/{self.crowd.study}/{what}"


def _parse_event(event: bytes) -> tuple[str, dict[str, Any]]:
    """The name and the data of an event; keep-alive comments have none."""
    fields = dict(line.split(": ", 1) for line in event.decode().splitlines() if ": " in line)
    return fields.get("event", ""), json.loads(fields.get("data", "{}"))


@dataclass
class Comparison:
    """What the database holds, compared with what the raters were told. All but the first four must be 0."""

    labels: int = 0
    turns: int = 0
    submitted: int = 0
    unacknowledged: int = 0
    """Labels and turns that were stored, but whose acknowledgement nobody waited for."""
    lost_labels: int = 0
    duplicated_labels: int = 0
    foreign_labels: int = 0
    lost_turns: int = 0
    duplicated_turns: int = 0
    foreign_turns: int = 0
    """Turns that their rater did not send or get, in another order, or from another bot."""
    lost_submissions: int = 0
    crossed_raters: int = 0
    """Raters who share a participant, or are several."""
    overrated_units: int = 0
    """Units that were given to more raters than they want."""

    @property
    def violations(self) -> int:
        return sum(value for name, value in vars(self).items() if name.startswith(("lost", "dup", "for", "cr", "over")))


def compare(database: Database, study: str, records: Iterable[RaterRecord], bots: dict[str, str]) -> Comparison:
    """Read everything that is stored. `bots` are the parts of replies that tell bots apart, by bot."""
    store, conversations, result = StudyStore(database), ConversationStore(database), Comparison()
    stored = Counter(
        (row.assignment, row.target, row.question, row.value)
        for row in store.rows(study, history=True, unfinished=True)
    )
    sent: set[tuple[str, str, str, Any]] = set()
    participants: Counter[str] = Counter()
    for record in records:
        sent |= record.sent_labels
        result.lost_labels += sum((Counter(record.labels) - stored).values())
        result.unacknowledged += sum(label in stored for label in record.sent_labels - set(record.labels))
        own: set[str] = set()
        for assignment, exchanges in record.exchanges.items():
            held = store.assignment(assignment)
            own.add(held.participant)
            result.lost_submissions += assignment in record.submitted and held.state != "submitted"
            bot = store.unit(study, held.unit).bots[0]
            owner = participant_owner(held.participant)
            turns = [turn for id_ in held.conversations for turn in conversations.get(id_, owner, history=True).turns]
            current = [turn for turn in turns if turn.current and turn.status == "done"]
            _compare_turns(result, record, exchanges, turns, bots.get(bot, ""))
            result.turns += len(current)
        participants.update(own)
        result.crossed_raters += len(own) > 1
    result.labels = sum(stored.values())
    result.duplicated_labels = sum(count - 1 for count in stored.values())
    result.foreign_labels = sum(count for label, count in stored.items() if label not in sent)
    result.crossed_raters += sum(count > 1 for count in participants.values())
    progress = store.progress(study)
    result.submitted = progress.total.done
    result.overrated_units = sum(unit.done + unit.live > unit.wanted for unit in progress.units)
    return result


def _compare_turns(
    result: Comparison, record: RaterRecord, exchanges: list[tuple[str, str]], turns: list[Any], marker: str
) -> None:
    """One conversation: the exchanges that were completed, in their order, and nothing else."""
    texts = {turn.id: turn.text for turn in turns}
    done = [turn for turn in turns if turn.current and turn.status == "done"]
    result.lost_turns += sum(texts.get(id_) != text for id_, text in exchanges)
    own = Counter(turn.text for turn in done if turn.speaker == "user")
    result.duplicated_turns += sum(count - 1 for count in own.values())
    result.duplicated_turns += len(exchanges) - len({id_ for id_, _ in exchanges})
    result.foreign_turns += sum(text not in record.sent_texts for text in own)
    result.foreign_turns += sum(marker not in turn.text for turn in done if turn.speaker == "bot")
    result.foreign_turns += [turn.id for turn in done][: len(exchanges)] != [id_ for id_, _ in exchanges]
    result.unacknowledged += max(0, len(done) - len(exchanges))


async def run_study(port: int, db: str, folder: Path, crowd: Crowd, users: int, seconds: float) -> tuple[float, float]:
    """Let all raters work, and kill the server half-way; returns its CPU time, and the seconds it was down."""
    serve = [sys.executable, "-m", "tertulia", "serve", "generic", "--port", str(port), "--db", db]
    serve += ["--messages-per-minute", "0"]  # all raters come from one address
    with ExitStack() as first, ExitStack() as second:
        pid = await asyncio.to_thread(first.enter_context, process(serve, port, folder / "first.log"))
        await wait_until_ready(port)
        await load_bots(crowd, pid)
        cpu, crowd.until = -cpu_seconds(pid), time.monotonic() + seconds
        raters = asyncio.gather(*(Rater(i, crowd).run() for i in range(users)), return_exceptions=True)
        await asyncio.sleep(seconds / 2)
        cpu += cpu_seconds(pid)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        crowd.until = math.inf
        await asyncio.to_thread(first.close)  # it is dead: waits until its port is free
        pid = await asyncio.to_thread(second.enter_context, process(serve, port, folder / "second.log"))
        down = time.monotonic() - killed
        cpu -= cpu_seconds(pid)
        crowd.until = time.monotonic() + seconds / 2
        for ended in await raters:
            if isinstance(ended, BaseException):
                crowd.errors.append(repr(ended))
        return cpu + cpu_seconds(pid), down


async def load_bots(crowd: Crowd, pid: int) -> None:
    """The first rater who asks for a unit makes the server load the bots; wait until it has nothing to do any more."""
    rater = Rater(-1, crowd)
    await rater.enter()
    await rater.post("next", {})
    before = 0.0
    while (now := cpu_seconds(pid)) - before > 0.05:
        before = now
        await asyncio.sleep(0.5)
    assert rater.http is not None
    rater.http.writer.close()
    crowd.seconds.clear()


def main() -> None:
    """Constant route, the study, constant route."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=300, help="number of simultaneous raters")
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds that they work, without the outage")
    parser.add_argument("--pause", type=float, default=3.0, help="mean seconds between a rater's messages")
    parser.add_argument("--db", default="", help="store URL; a SQLite file in a temporary folder by default")
    parser.add_argument("--postgresql", action="store_true", help="store in a PostgreSQL server started for this run")
    parser.add_argument("--quick", action="store_true", help="40 raters, 10 seconds, a message per second")
    args = parser.parse_args()
    users, seconds, pause = (40, 10.0, 1.0) if args.quick else (args.users, args.seconds, args.pause)
    specs = {f"bot-{i:02}": _spec(i) for i in range(BOTS)}
    units = users * (seconds / pause / min(MESSAGES) + 2) / RATINGS_PER_UNIT
    bots = "\n".join(f'[[bots]]\nname = "{name}"\nspec = "{spec}"' for name, spec in specs.items())
    toml = STUDY.format(ratings=RATINGS_PER_UNIT, conversations=math.ceil(units / BOTS), bots=bots)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db = args.db or (postgresql(folder) if args.postgresql else f"sqlite:///{folder}/load.db")
        with Database.open(db) as database:
            study = open_study(StudyStore(database), toml, "load.toml", [], {}, random.Random(0)).id
        port, floor = free_port(), free_port()
        constant = LoadResult()
        raters = Crowd(port, study, pause)
        with process([sys.executable, "-c", FLOOR, str(floor)], floor, folder / "floor.log") as floor_pid:
            for part in range(2):
                span = max(2.0, seconds / 6)
                once = asyncio.run(crowd("constant", floor, floor_pid, users, span, pause))
                constant.seconds += once.seconds
                constant.errors += once.errors
                constant.cpu_seconds += once.cpu_seconds
                if part == 0:
                    cpu, down = asyncio.run(run_study(port, db, folder, raters, users, seconds))
        with Database.open(db) as database:
            markers = {name: _marker(i) for i, name in enumerate(specs) if i < BOTS - TFIDF_BOTS}
            result = compare(database, study, raters.records.values(), markers)
    settings = {"users": users, "seconds": seconds, "pause": pause, "bots": BOTS, "db": db.partition(":")[0]}
    report(raters, constant, result, cpu, down, settings)


def _marker(number: int) -> str:
    """Part of every reply of a bot."""
    return f"(bot {number:02})"


def _spec(number: int) -> str:
    """A bot that says who it is; the last few retrieve their replies."""
    if number >= BOTS - TFIDF_BOTS:
        return f"tfidf?max_ngram=1&candidates={number}"
    marker = _marker(number).replace(" ", "%20")
    return f"generic?to_questions=I%20don't%20know.%20{marker}&to_statements=ok%20{marker}"


def report(
    raters: Crowd, constant: LoadResult, result: Comparison, cpu: float, down: float, settings: dict[str, Any]
) -> None:
    """Print the tables and the JSON object."""
    figures: dict[str, float] = {}
    print(f"{settings['users']} raters, {settings['seconds']:.0f} s, {BOTS} bots; milliseconds")
    print(f"{'':<12}{'requests':>10}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}{'p95 / constant':>16}")
    floor = percentile(constant.seconds, 0.95)
    for kind, values in {"constant": constant.seconds, **raters.seconds}.items():
        cuts = {f"p{100 * share:.0f}": 1000 * percentile(values, share) for share in (0.5, 0.95, 0.99, 1)}
        ratio = percentile(values, 0.95) / floor
        print(f"{kind:<12}{len(values):>10}" + "".join(f"{cut:>9.1f}" for cut in cuts.values()) + f"{ratio:>16.1f}")
        figures |= {f"{kind}_{name}_ms": cut for name, cut in cuts.items()}
        figures |= {f"{kind}_requests": len(values), f"{kind}_p95_over_constant": ratio}
    figures |= {"cpu_ms_per_label": 1000 * cpu / max(1, result.labels)}
    figures |= {"cpu_ms_per_exchange": 1000 * cpu / max(1, result.turns / 2)}
    figures |= {"constant_cpu_ms": constant.cpu_ms, "down_seconds": down, "broken_connections": raters.retries}
    figures |= {"interrupted_requests": len(raters.interrupted), "failed_replies": raters.failed_replies}
    figures |= {"interrupted_max_seconds": max(raters.interrupted, default=0.0)}
    figures |= {"errors": len(raters.errors) + len(constant.errors), **vars(result), "violations": result.violations}
    print(f"server killed and down for {down:.1f} s; {len(raters.interrupted)} interrupted requests were repeated")
    print(f"CPU milliseconds: {figures['cpu_ms_per_label']:.2f} per label, of {constant.cpu_ms:.2f} per constant reply")
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(result).items()))
    for error in raters.errors[:5]:
        print("   ", error[:400])
    finish("study_load", figures, settings)


if __name__ == "__main__":
    main()
