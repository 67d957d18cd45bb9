"""The circuit breaker: its states by a clock set by hand, and a bot before a real server that fails or hangs."""

from typing import Any

import pytest

from tertulia.core.errors import BotError, EndpointError
from tertulia.talk.bot import BotHealth, BotWithHealth
from tertulia.talk.bots.openai import OpenAIBot
from tertulia.talk.circuit_breaker import CircuitBreaker, Permit
from tertulia.talk.worker import Worker

from .test_openai_bot import Handler, Server, answer, ask, delta, everyone, refuse, server  # noqa: F401 - a fixture


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(threshold=3, pause=4.0, max_pause=10.0, clock=clock)


def admit(breaker: CircuitBreaker) -> Permit:
    permit = breaker.admit()
    assert permit is not None
    return permit


def open_it(breaker: CircuitBreaker) -> None:
    for _ in range(3):
        admit(breaker).fail()
    assert breaker.state == "open"


def test_it_opens_after_failures_in_a_row_only(breaker: CircuitBreaker) -> None:
    admit(breaker).fail()
    admit(breaker).fail()
    admit(breaker).succeed()
    admit(breaker).fail()
    admit(breaker).release()  # says nothing
    admit(breaker).fail()
    assert (breaker.state, breaker.failures) == ("closed", 2)
    admit(breaker).fail()
    assert (breaker.state, breaker.failures, breaker.retry_seconds) == ("open", 3, 4.0)
    assert breaker.admit() is None


def test_half_open_admits_one_probe_whose_success_closes_it(breaker: CircuitBreaker, clock: Clock) -> None:
    open_it(breaker)
    clock.now += 4
    assert breaker.state == "half-open"
    probe = admit(breaker)
    assert probe.is_probe
    assert breaker.admit() is None
    probe.succeed()
    assert (breaker.state, breaker.failures, breaker.retry_seconds) == ("closed", 0, 0.0)
    assert not admit(breaker).is_probe


def test_pauses_grow_while_probes_fail_and_start_anew_after_a_success(breaker: CircuitBreaker, clock: Clock) -> None:
    open_it(breaker)
    pauses = []
    for _ in range(4):
        pauses.append(breaker.retry_seconds)
        clock.now += breaker.retry_seconds
        admit(breaker).fail()
    assert pauses == [4.0, 8.0, 10.0, 10.0]
    clock.now += 10
    admit(breaker).succeed()
    open_it(breaker)
    assert breaker.retry_seconds == 4.0


def test_a_probe_that_is_cancelled_lets_another_one_through(breaker: CircuitBreaker, clock: Clock) -> None:
    open_it(breaker)
    clock.now += 4
    admit(breaker).release()
    assert breaker.state == "half-open"
    assert admit(breaker).is_probe


def test_requests_from_before_it_opened_do_not_lengthen_the_pause_but_may_close_it(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    late = [admit(breaker) for _ in range(3)]
    open_it(breaker)
    clock.now += 2
    late[0].fail()
    assert breaker.retry_seconds == 2.0
    late[1].succeed()
    assert breaker.state == "closed"
    late[1].fail()  # only the first outcome counts
    assert breaker.failures == 0


def test_a_threshold_of_zero_never_opens(clock: Clock) -> None:
    breaker = CircuitBreaker(threshold=0, pause=4.0, max_pause=10.0, clock=clock)
    for _ in range(50):
        admit(breaker).fail()
    assert breaker.state == "closed"


# With a bot and a server.


def bot_of(server: Server, clock: Clock, **options: Any) -> OpenAIBot:  # noqa: F811
    bot = server.bot(**({"retries": 0, "down_after": 3, "down_seconds": 4.0} | options))
    bot.breaker._clock = clock
    return bot


def fail(bot: OpenAIBot, match: str) -> EndpointError:
    with pytest.raises(EndpointError, match=match) as caught:
        bot.reply([ask()])
    return caught.value


def test_asks_fail_at_once_while_the_endpoint_is_down_and_work_again_later(server: Server, clock: Clock) -> None:  # noqa: F811
    bot = bot_of(server, clock)
    assert isinstance(bot, BotWithHealth)
    assert bot.health() == BotHealth()
    server.usual = refuse(500)
    for _ in range(3):
        fail(bot, "status 500")
    error = fail(bot, "considered down after 3 failures in a row")
    assert error.hint == "It is tried again in 4 seconds."
    assert len(server.requests) == 3  # nothing was sent
    health = bot.health()
    assert (health.ok, health.state, health.retry_seconds) == (False, "down", 4.0)
    assert "127.0.0.1" not in health.detail
    clock.now += 4
    assert bot.health().state == "half-open"
    fail(bot, "status 500")  # the probe
    assert bot.health().retry_seconds == 8.0
    clock.now += 8
    server.usual = answer("I am back")
    assert bot.reply([ask()])[0].text == "I am back"
    assert bot.health() == BotHealth()


def test_a_server_that_hangs_is_down_after_its_timeouts(server: Server, clock: Clock) -> None:  # noqa: F811
    """Each timeout counts, retries included: three of them, and neither the fourth nor any other ask is sent."""
    server.usual = lambda handler, _: handler.await_hang_up()
    bot = bot_of(server, clock, timeout=0.1, retries=5)
    fail(bot, "timed out")
    assert len(server.requests) == 3
    fail(bot, "considered down")
    assert len(server.requests) == 3
    clock.now += 4
    fail(bot, "timed out")
    assert len(server.requests) == 4  # a probe is not retried


def test_a_stream_that_falls_silent_counts_as_a_failure(server: Server, clock: Clock) -> None:  # noqa: F811
    def falls_silent(handler: Handler, body: dict[str, Any]) -> None:
        handler.events(delta("well"))
        handler.await_hang_up()

    server.usual = falls_silent
    bot = bot_of(server, clock, timeout=0.1)
    for _ in range(3):
        with pytest.raises(EndpointError, match="timed out"):
            list(bot.stream([ask()], alive=everyone))
    with pytest.raises(EndpointError, match="considered down"):
        list(bot.stream([ask()], alive=everyone))


def test_an_ask_that_succeeds_after_a_retry_is_no_failure(server: Server, clock: Clock) -> None:  # noqa: F811
    bot = bot_of(server, clock, retries=3, down_after=1)
    server.plan = [refuse(503), refuse(500), answer("here")]
    assert bot.reply([ask()])[0].text == "here"
    assert bot.breaker.failures == 0


@pytest.mark.parametrize("status", [400, 401, 404, 429])
def test_an_endpoint_that_refuses_requests_is_not_down(server: Server, clock: Clock, status: int) -> None:  # noqa: F811
    server.usual = refuse(status)
    bot = bot_of(server, clock)
    for _ in range(5):
        fail(bot, f"status {status}")
    assert len(server.requests) == 5


def test_cancelled_requests_are_no_failures(server: Server, clock: Clock) -> None:  # noqa: F811
    server.usual = lambda handler, _: handler.await_hang_up()
    bot = bot_of(server, clock, timeout=30.0)
    for number in range(4):
        stream = bot.stream([ask()], alive=lambda _: len(server.requests) <= number)  # noqa: B023
        assert [piece.reply.finish for piece in stream if piece.reply] == ["cancelled"]
    assert server.hung_up.wait(5)
    assert (bot.breaker.state, bot.breaker.failures) == ("closed", 0)


def test_a_worker_reports_that_its_endpoint_is_down(server: Server, clock: Clock) -> None:  # noqa: F811
    server.usual = refuse(502)
    worker = Worker(bot_of(server, clock))
    for _ in range(3):
        with pytest.raises(BotError, match="status 502"):
            worker.submit(ask()).result(5)
    assert (worker.health().state, worker.state) == ("down", "idle")
    worker.close(5)
