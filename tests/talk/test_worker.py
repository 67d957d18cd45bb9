"""The worker against small real bots: batches, pieces, failures, cancelling, closing."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import BotError, EndpointError
from tertulia.core.reply import Ask, Piece, Provenance, Reply
from tertulia.talk.bot import BotTraits
from tertulia.talk.worker import Busy, Cancelled, Worker

SOURCE = Provenance("test")


def ask(text: str) -> Ask:
    return Ask(Dialogue("d", (Turn("user", text),)))


class Gated:
    """Echoes its asks in upper case once its gate is open; records its batches."""

    spec = "gated"
    summary = "waits"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.batches: list[list[str]] = []

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        self.batches.append([a.last for a in asks])
        self.entered.set()
        assert self.gate.wait(10)
        if any(a.last == "poison" for a in asks):
            raise ValueError("poison")
        if any(a.last == "down" for a in asks):
            raise EndpointError("The endpoint is down.", hint="Start it.")
        return [Reply(a.last.upper(), SOURCE) for a in asks][: 0 if asks[0].last == "short" else None]


class Letters:
    """Streams a text letter by letter, taking turns between the asks of a batch; obeys `alive`, fails at "!"."""

    spec = "letters"
    summary = "spells"
    pause = 0.0

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply(a.last, SOURCE) for a in asks]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        written = ["" for _ in asks]
        for position in range(max(len(a.last) for a in asks)):
            if not any(alive(i) for i in range(len(asks))):
                break
            for i, a in enumerate(asks):
                if position < len(a.last) and alive(i):
                    if a.last[position] == "!":
                        raise RuntimeError("cannot say that")
                    written[i] += a.last[position]
                    yield Piece(i, a.last[position])
            time.sleep(self.pause)
        for i, a in enumerate(asks):
            if a.last != "endless":
                yield Piece(i, reply=Reply(written[i], SOURCE, finish="stop" if alive(i) else "cancelled"))


@pytest.fixture
def gated() -> Iterator[tuple[Gated, Worker]]:
    bot = Gated()
    worker = Worker(bot, max_batch=4, max_waiting=6)
    yield bot, worker
    bot.gate.set()
    worker.close(5)


def fill(bot: Gated, worker: Worker, *texts: str):  # type: ignore[no-untyped-def]
    """Submit the first ask and, once the bot is working on it, the others, so that they are all queued."""
    first = worker.submit(ask(texts[0]))
    assert bot.entered.wait(5)
    return [first, *(worker.submit(ask(text)) for text in texts[1:])]


def test_everything_in_the_queue_is_one_batch(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    jobs = fill(bot, worker, "a", "b", "c", "d", "e", "f")
    bot.gate.set()
    assert [job.result(5).text for job in jobs] == ["A", "B", "C", "D", "E", "F"]
    assert bot.batches == [["a"], ["b", "c", "d", "e"], ["f"]]


def test_a_bot_can_limit_its_batches(gated: tuple[Gated, Worker]) -> None:
    class Small(Gated):
        traits = BotTraits(max_batch=2)

    bot = Small()
    worker = Worker(bot)
    jobs = fill(bot, worker, "a", "b", "c", "d")
    bot.gate.set()
    assert [job.result(5).text for job in jobs] == ["A", "B", "C", "D"]
    assert [len(batch) for batch in bot.batches] == [1, 2, 1]
    worker.close(5)


def test_an_instant_bot_can_be_asked_on_the_callers_thread(gated: tuple[Gated, Worker]) -> None:
    class Instant(Gated):
        traits = BotTraits(instant=True)

        def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
            return [Reply(str(1 // len(a.last) * threading.get_ident()), SOURCE) for a in asks]

    worker = Worker(Instant())
    assert worker.reply_now is not None
    reply = worker.reply_now(ask("?"))
    assert reply is not None
    assert reply.text == str(threading.get_ident())
    assert worker.submit(ask("?")).result(5).text != reply.text
    # The queue deals with what may take long, and with what fails.
    assert worker.reply_now(ask("?" * 10_000)) is None
    assert worker.reply_now(ask("")) is None
    worker.close(5)
    assert worker.reply_now(ask("?")) is None
    assert gated[1].reply_now is None


def test_a_parallel_bot_gets_several_calls_at_once() -> None:
    meet = threading.Barrier(3)

    class Parallel(Gated):
        traits = BotTraits(max_batch=1, parallel=3)

        def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
            meet.wait(5)  # passes only when three calls are in it
            return [Reply(a.last.upper(), SOURCE) for a in asks]

    worker = Worker(Parallel())
    jobs = [worker.submit(ask(text)) for text in "abc"]
    assert [job.result(5).text for job in jobs] == ["A", "B", "C"]
    worker.close(5)


def test_a_full_queue_is_busy_and_accepts_asks_again_later(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    jobs = fill(bot, worker, *"abcdefg")
    with pytest.raises(Busy, match="Too many requests"):
        worker.submit(ask("h"))
    with pytest.raises(Busy):
        worker.check_room()
    bot.gate.set()
    assert [job.result(5).text for job in jobs] == list("ABCDEFG")
    worker.check_room(6)
    assert worker.submit(ask("h")).result(5).text == "H"


def test_one_bad_ask_does_not_fail_the_others(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    jobs = fill(bot, worker, "a", "b", "poison", "c")
    bot.gate.set()
    assert [jobs[i].result(5).text for i in (0, 1, 3)] == ["A", "B", "C"]
    with pytest.raises(BotError, match=r"failed \(ValueError\)"):
        jobs[2].result(5)


def test_a_user_error_fails_only_its_batch_and_keeps_its_hint(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    jobs = fill(bot, worker, "a", "b", "down")
    bot.gate.set()
    assert jobs[0].result(5).text == "A"
    for job in jobs[1:]:
        with pytest.raises(BotError, match="endpoint is down") as caught:
            job.result(5)
        assert caught.value.hint == "Start it."
    assert bot.batches == [["a"], ["b", "down"]]  # not asked again: it would be down for each of them
    assert worker.submit(ask("z")).result(5).text == "Z"


def test_too_few_replies_are_an_error(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    bot.gate.set()
    with pytest.raises(BotError, match="returned 0 replies to 1 asks"):
        worker.submit(ask("short")).result(5)


def test_pieces_arrive_at_their_own_jobs_in_order() -> None:
    worker = Worker(Letters())
    received: dict[str, list[str]] = {"hello": [], "bye": []}
    jobs = [worker.submit(ask(text), received[text].append) for text in received]
    assert [job.result(5).text for job in jobs] == ["hello", "bye"]
    assert received == {"hello": list("hello"), "bye": list("bye")}
    assert [job.text for job in jobs] == ["hello", "bye"]
    worker.close(5)


def test_a_failing_callback_does_not_fail_the_reply() -> None:
    worker = Worker(Letters())
    job = worker.submit(ask("abc"), lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    assert job.result(5).text == "abc"
    worker.close(5)


def test_a_stream_that_crashes_fails_and_keeps_its_text() -> None:
    worker = Worker(Letters())
    job = worker.submit(ask("ab!cd"))
    with pytest.raises(BotError, match="RuntimeError"):
        job.result(5)
    assert job.text == "ab"
    assert worker.submit(ask("fine")).result(5).text == "fine"
    worker.close(5)


def test_a_stream_without_an_end_is_an_error() -> None:
    worker = Worker(Letters())
    with pytest.raises(BotError, match="in the middle"):
        worker.submit(ask("endless")).result(5)
    worker.close(5)


def test_cancelling_ends_a_stream_where_it_is() -> None:
    bot = Letters()
    bot.pause = 0.01
    worker = Worker(bot)
    started = threading.Event()
    job = worker.submit(ask("x" * 500), lambda _: started.set())
    assert started.wait(5)
    job.cancel()
    reply = job.result(10)
    assert reply.finish == "cancelled"
    assert 0 < len(reply.text) < 500
    worker.close(5)


def test_a_job_cancelled_in_the_queue_never_reaches_the_bot(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    jobs = fill(bot, worker, "a", "b", "c")
    jobs[1].cancel()
    bot.gate.set()
    assert jobs[2].result(5).text == "C"
    with pytest.raises(Cancelled):
        jobs[1].result(5)
    assert bot.batches == [["a"], ["c"]]


def test_cancelling_the_entire_queue_does_not_stop_the_worker(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    jobs = fill(bot, worker, "a", "b")
    jobs[1].cancel()
    bot.gate.set()
    with pytest.raises(Cancelled):
        jobs[1].result(5)
    assert worker.submit(ask("c")).result(5).text == "C"


def test_closing_lets_accepted_asks_finish(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    jobs = fill(bot, worker, "a", "b")
    threading.Timer(0.1, bot.gate.set).start()
    worker.close(5)
    assert [job.done.done() for job in jobs] == [True, True]
    with pytest.raises(Busy, match="shutting down"):
        worker.submit(ask("c"))


def test_closing_does_not_wait_for_a_bot_that_hangs(gated: tuple[Gated, Worker]) -> None:
    bot, worker = gated
    jobs = fill(bot, worker, "a", "b")
    worker.close(0.1)
    assert not any(job.done.done() for job in jobs)  # the bot is still at its gate
    assert all(job.cancelled for job in jobs)
