"""The worker with sessions, fair queues and stalls: small real bots, and a real model whose steps are counted."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import BotError, ConfigError, UsageError
from tertulia.core.reply import Ask, Piece, Provenance, Reply
from tertulia.models.generator import DialogueView
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.tokenizer import WordTokenizer
from tertulia.talk.bot import BotHealth, BotTraits, ContinuousBot
from tertulia.talk.bots.generative import GenerativeBot, GenerativeOptions
from tertulia.talk.worker import Busy, Job, TooManyPending, Worker

SOURCE = Provenance("test")


def ask(text: str, **options: int | str) -> Ask:
    return Ask(Dialogue("d", (Turn("user", text),)), options=options)


class Speller:
    """Spells the message of each ask, a letter a step, when it is allowed a step. "!" crashes the session."""

    spec = "speller"
    summary = "spells"

    def __init__(self, *, steps: int = 0) -> None:
        self.allowed = threading.Semaphore(steps)
        self.sessions: list[SpellingSession] = []

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply(a.last, SOURCE) for a in asks]

    def open_session(self) -> "SpellingSession":
        self.sessions.append(SpellingSession(self))
        return self.sessions[-1]


class SpellingSession:
    def __init__(self, bot: Speller) -> None:
        self.bot = bot
        self.texts: dict[int, tuple[str, int]] = {}
        self.cancelled: set[int] = set()
        self.batches: list[list[str]] = []

    def add(self, index: int, ask: Ask, /) -> None:
        if ask.last == "wrong":
            raise UsageError("This ask is wrong.", hint="Ask something else.")
        if ask.last == "bug":
            raise ZeroDivisionError
        self.texts[index] = ask.last, 0

    def cancel(self, index: int, /) -> None:
        self.cancelled.add(index)

    def step(self) -> list[Piece]:
        assert self.bot.allowed.acquire(timeout=10)
        self.batches.append([text for text, _ in self.texts.values()])
        pieces = []
        for index, (text, position) in list(self.texts.items()):
            if index in self.cancelled:
                pieces.append(Piece(index, "", Reply(text[:position], SOURCE, finish="cancelled")))
                del self.texts[index]
                continue
            if text[position] == "!":
                raise RuntimeError("cannot say that")
            done = position + 1 == len(text)
            pieces.append(Piece(index, text[position], Reply(text, SOURCE) if done else None))
            self.texts[index] = text, position + 1
            if done:
                del self.texts[index]
        return pieces


@pytest.fixture
def speller() -> Iterator[tuple[Speller, Worker]]:
    bot = Speller()
    worker = Worker(bot, max_batch=4, max_waiting=2000, max_per_owner=None)
    yield bot, worker
    bot.allowed.release(100_000)
    worker.close(5)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.001)


def run_steps(bot: Speller, count: int) -> None:
    """Let the bot take this many steps, and wait until they are done."""
    before = sum(len(session.batches) for session in bot.sessions)
    bot.allowed.release(count)
    wait_until(lambda: sum(len(session.batches) for session in bot.sessions) == before + count)


def test_an_ask_joins_the_running_batch_and_a_short_reply_leaves_it(speller: tuple[Speller, Worker]) -> None:
    bot, worker = speller
    long = worker.submit(ask("l" * 80))
    run_steps(bot, 10)
    short = worker.submit(ask("ab"))
    bot.allowed.release(4)  # the step that may have begun before the ask was there, and those of the short reply
    assert short.result(5).text == "ab"
    assert len(long.text) <= 14
    bot.allowed.release(100)
    assert long.result(5).text == "l" * 80
    assert len(bot.sessions) == 1


def test_a_place_is_free_as_soon_as_a_reply_ends(speller: tuple[Speller, Worker]) -> None:
    bot, worker = speller
    jobs = [worker.submit(ask(text)) for text in ("aaaaaaaa", "bb", "cccccccc", "dddddddd", "ee", "f")]
    bot.allowed.release(100)
    assert [job.result(5).text for job in jobs] == ["aaaaaaaa", "bb", "cccccccc", "dddddddd", "ee", "f"]
    batches = bot.sessions[-1].batches
    assert max(map(len, batches)) <= 4
    assert any("ee" in batch and "aaaaaaaa" in batch for batch in batches)  # it did not wait for the long ones


def test_a_cancelled_ask_frees_its_place_and_keeps_what_was_shown(speller: tuple[Speller, Worker]) -> None:
    bot, worker = speller
    jobs = [worker.submit(ask(letter * 50)) for letter in "abcd"]
    waiting = worker.submit(ask("ef"))
    run_steps(bot, 5)
    jobs[1].cancel()
    bot.allowed.release(8)
    assert waiting.result(5).text == "ef"
    cancelled = jobs[1].result(5)
    assert cancelled.finish == "cancelled"
    assert cancelled.text == jobs[1].text
    assert 0 < len(cancelled.text) < 50
    assert not any(job.done.done() for job in (jobs[0], jobs[2], jobs[3]))


def test_a_poisonous_ask_costs_the_others_nothing(speller: tuple[Speller, Worker]) -> None:
    """Not even those that were half shown: they are repeated, and go on where they were."""
    bot, worker = speller
    received: list[str] = []
    jobs = [worker.submit(ask("a" * 9), received.append), worker.submit(ask("bcd!")), worker.submit(ask("efg"))]
    bot.allowed.release(100)
    assert [jobs[i].result(5).text for i in (0, 2)] == ["a" * 9, "efg"]
    with pytest.raises(BotError, match=r"failed \(RuntimeError\)"):
        jobs[1].result(5)
    assert (jobs[0].text, received, jobs[1].text) == ("a" * 9, ["a"] * 9, "bcd")
    assert worker.submit(ask("xy")).result(5).text == "xy"


@pytest.mark.parametrize(("text", "message"), [("wrong", "This ask is wrong"), ("bug", "ZeroDivisionError")])
def test_an_ask_that_cannot_be_added_fails_alone(speller: tuple[Speller, Worker], text: str, message: str) -> None:
    bot, worker = speller
    jobs = [worker.submit(ask("aaa")), worker.submit(ask(text)), worker.submit(ask("bb"))]
    bot.allowed.release(100)
    assert [jobs[i].result(5).text for i in (0, 2)] == ["aaa", "bb"]
    with pytest.raises(BotError, match=message):
        jobs[1].result(5)
    assert all(not any(text in batch for batch in session.batches) for session in bot.sessions)


def test_whoever_submits_a_thousand_asks_delays_others_by_a_few(speller: tuple[Speller, Worker]) -> None:
    bot, worker = speller
    order: list[str] = []

    def submit(text: str, owner: str) -> Job:
        job = worker.submit(ask(text), owner=owner)
        job.done.add_done_callback(lambda done: order.append(done.result().text))
        return job

    many = [submit(f"a{number:03}", "A") for number in range(1000)]
    run_steps(bot, 6)
    other = submit("b", "B")
    bot.allowed.release(100_000)
    assert other.result(5).text == "b"
    assert order.index("b") <= 8  # at most the asks that were running, and one more of A
    assert many[-1].result(30).text == "a999"


def test_batches_of_other_bots_are_filled_in_turn() -> None:
    gate, entered = threading.Event(), threading.Event()
    batches: list[list[str]] = []

    class Gated:
        spec = "gated"
        summary = "waits"

        def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
            batches.append([a.last for a in asks])
            entered.set()
            assert gate.wait(10)
            return [Reply(a.last, SOURCE) for a in asks]

    worker = Worker(Gated(), max_batch=4)
    jobs = [worker.submit(ask("a0"), owner="A")]
    assert entered.wait(5)
    jobs += [worker.submit(ask(f"a{number}"), owner="A") for number in range(1, 6)]
    jobs += [worker.submit(ask("b0"), owner="B"), worker.submit(ask("c0"), owner="C")]
    gate.set()
    assert [job.result(5).text for job in jobs] == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "c0"]
    assert batches == [["a0"], ["a1", "b0", "c0", "a2"], ["a3", "a4", "a5"]]
    worker.close(5)


def test_an_owner_with_too_many_asks_is_told_when_to_come_back(speller: tuple[Speller, Worker]) -> None:
    bot, worker = speller
    worker.max_per_owner = 6
    jobs = [worker.submit(ask("ab"), owner="A") for _ in range(6)]
    with pytest.raises(TooManyPending, match="You have 6 requests") as caught:
        worker.submit(ask("ab"), owner="A")
    assert isinstance(caught.value, Busy)
    assert 1 <= caught.value.retry_after <= 60
    with pytest.raises(TooManyPending):
        worker.check_room(owner="A")
    jobs.append(worker.submit(ask("cd"), owner="B"))
    jobs += [worker.submit(ask("ef")) for _ in range(10)]  # without an owner: no such limit
    jobs.append(worker.submit(ask("gh"), owner="A", admitted=True))
    bot.allowed.release(1000)
    assert {job.result(5).text for job in jobs} == {"ab", "cd", "ef", "gh"}
    worker.check_room(6, owner="A")


class Hanging:
    """A parallel bot that never answers "hang"."""

    spec = "hanging"
    summary = "hangs"
    traits = BotTraits(max_batch=1, parallel=4)

    def __init__(self) -> None:
        self.gate = threading.Event()

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        if asks[0].last == "hang":
            self.gate.wait(30)
        return [Reply(a.last, SOURCE) for a in asks]


def test_an_owner_whose_asks_hang_does_not_block_others() -> None:
    bot = Hanging()
    worker = Worker(bot, stall_after=0.0)
    stuck = [worker.submit(ask("hang"), owner="A") for _ in range(20)]
    wait_until(lambda: worker.running == 3)  # of four places
    for text in ("b", "c", "d"):
        assert worker.submit(ask(text), owner=text).result(5).text == text
    assert (worker.state, worker.stalled_seconds) == ("busy", 0.0)
    bot.gate.set()
    assert [job.result(5).text for job in stuck] == ["hang"] * 20
    wait_until(lambda: worker.state == "idle")
    worker.close(5)
    assert worker.state == "closed"


def test_a_bot_that_makes_no_progress_is_reported_as_stalled(speller: tuple[Speller, Worker]) -> None:
    bot, worker = speller
    assert (worker.state, worker.stalled_seconds, worker.health()) == ("idle", 0.0, BotHealth())
    job = worker.submit(ask("ab"))
    run_steps(bot, 1)
    assert worker.state == "busy"
    worker.stall_after = 0.02
    wait_until(lambda: worker.state == "stalled")
    assert worker.stalled_seconds > 0.02
    assert (worker.health().ok, worker.health().state) == (False, "stalled")
    bot.allowed.release(10)
    assert job.result(5).text == "ab"
    wait_until(lambda: worker.state == "idle")
    assert worker.health().ok


def test_people_at_the_terminal_are_never_stalled() -> None:
    class Slow(Hanging):
        traits = BotTraits(uses_terminal=True)

    bot = Slow()
    worker = Worker(bot, stall_after=0.0)
    job = worker.submit(ask("hang"))
    wait_until(lambda: worker.running == 1)
    assert worker.state == "busy"
    bot.gate.set()
    assert job.result(5).text == "hang"
    worker.close(5)


def test_the_health_of_the_bot_is_the_workers() -> None:
    class Down(Hanging):
        def health(self) -> BotHealth:
            return BotHealth(False, "down", "The endpoint is down.", 5.0)

    worker = Worker(Down())
    assert worker.health() == BotHealth(False, "down", "The endpoint is down.", 5.0)
    worker.close(5)


# A real model.


class CountedTransformer(Transformer):
    """Counts the rows of each step; reading "poison" fails."""

    def count(self, bot_may_step: threading.Semaphore) -> None:
        self.rows: list[int] = []
        self.may_step = bot_may_step

    def start(self, views: Sequence[DialogueView], /):  # type: ignore[no-untyped-def]
        if any("poison" in view.texts for view in views):
            raise RuntimeError("poison")
        return super().start(views)

    def step(self, state, tokens, /):  # type: ignore[no-untyped-def]
        if tokens is not None:
            assert self.may_step.acquire(timeout=10)
            self.rows.append(len(tokens))
        return super().step(state, tokens)


@pytest.fixture
def counted() -> CountedTransformer:
    torch.manual_seed(1)
    tokenizer = WordTokenizer("a b c d e f g h i j k l poison".split())
    model = CountedTransformer.untrained(TransformerConfig(d_model=16, decoder_layers=1), tokenizer).double().eval()
    model.count(threading.Semaphore(0))
    return model


def bot_of(model: CountedTransformer, **options: object) -> GenerativeBot:
    defaults: dict[str, object] = {"method": "sample", "filters": "none", "max_tokens": 80, "min_tokens": 80}
    return GenerativeBot(model, GenerativeOptions.model_validate(defaults | options))


def test_two_tokens_behind_eighty_take_a_few_steps_of_the_model(counted: CountedTransformer) -> None:
    bot = bot_of(counted)
    assert isinstance(bot, ContinuousBot)
    worker = Worker(bot)
    long = worker.submit(ask("a b c"))
    counted.may_step.release(20)
    wait_until(lambda: len(counted.rows) == 20)
    short = worker.submit(ask("d", max_tokens=2, min_tokens=2))
    counted.may_step.release(4)
    assert len(short.result(10).text.split()) == 2
    assert len(counted.rows) <= 24
    assert not long.done.done()
    counted.may_step.release(10_000)
    assert len(long.result(10).text.split()) == 80
    assert set(counted.rows) == {1, 2}
    alone = bot.reply([ask("a b c"), ask("d", max_tokens=2, min_tokens=2)])
    assert [long.result().text, short.result().text] == [reply.text for reply in alone]
    worker.close(5)


def test_sample_and_rank_with_filters_joins_too(counted: CountedTransformer) -> None:
    counted.may_step.release(100_000)
    bot = bot_of(counted, method="sample-and-rank", samples=6, max_tokens=12, min_tokens=1, filters="empty,too-long")
    worker = Worker(bot)
    asks = [ask(text) for text in ("a b", "c", "d e f", "g", "h i", "j k l", "a", "b", "c d")]
    jobs = [worker.submit(one) for one in asks]
    for job, reply in zip(jobs, bot.reply(asks), strict=True):
        result = job.result(10)
        assert (result.text, result.finish, result.usage) == (reply.text, reply.finish, reply.usage)
        assert [c.text for c in result.candidates] == [c.text for c in reply.candidates]
    worker.close(5)


def test_a_poisonous_prompt_costs_other_replies_of_a_model_nothing(counted: CountedTransformer) -> None:
    bot = bot_of(counted, max_tokens=30, min_tokens=30)
    worker = Worker(bot)
    jobs = [worker.submit(ask("a b")), worker.submit(ask("c d e"))]
    counted.may_step.release(10)
    wait_until(lambda: len(counted.rows) == 10)
    bad = worker.submit(ask("poison"))
    counted.may_step.release(10_000)
    with pytest.raises(BotError, match=r"failed \(RuntimeError\)"):
        bad.result(10)
    assert [job.result(10).text for job in jobs] == [r.text for r in bot.reply([ask("a b"), ask("c d e")])]
    assert [job.text for job in jobs] == [job.result().text for job in jobs]
    worker.close(5)


def test_cancelling_a_reply_removes_its_rows_from_the_model(counted: CountedTransformer) -> None:
    worker = Worker(bot_of(counted))
    kept, dropped = worker.submit(ask("a")), worker.submit(ask("b"))
    counted.may_step.release(10)
    wait_until(lambda: len(counted.rows) == 10)
    dropped.cancel()
    counted.may_step.release(3)
    assert dropped.result(10).finish == "cancelled"
    counted.may_step.release(10_000)
    kept.result(10)
    assert counted.rows[-1] == 1
    assert counted.rows.count(2) <= 12
    worker.close(5)


def test_wrong_options_of_one_ask_fail_that_ask_alone(counted: CountedTransformer) -> None:
    counted.may_step.release(10_000)
    worker = Worker(bot_of(counted, max_tokens=5, min_tokens=5))
    jobs = [worker.submit(ask("a")), worker.submit(ask("b", temperature="hot")), worker.submit(ask("c"))]
    assert all(jobs[i].result(10).text for i in (0, 2))
    with pytest.raises(ConfigError, match="temperature: must be a number"):
        jobs[1].result(10)
    worker.close(5)
