"""Group commit: waiting units of work share one transaction, but not each other's failures."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, Engine, event

from tertulia.core.errors import StoreError
from tertulia.store.engine import connect, make_engine, parse_url, transaction
from tertulia.store.group_commit import Gate, GroupCommit

Work = Callable[[Connection], int]


@pytest.fixture
def engine(sqlite_url: str) -> Iterator[Engine]:
    engine = make_engine(parse_url(sqlite_url), busy_seconds=5)
    connect(engine, busy_seconds=5)
    with transaction(engine, write=True) as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    yield engine
    engine.dispose()


@pytest.fixture
def committer(engine: Engine) -> Iterator[GroupCommit]:
    committer = GroupCommit(engine)
    yield committer
    committer.close()


def add(number: int) -> Work:
    def work(connection: Connection) -> int:
        connection.exec_driver_sql(f"INSERT INTO numbers VALUES ({number})")
        return number

    return work


def numbers(engine: Engine) -> set[int]:
    with transaction(engine) as connection:
        return set(connection.exec_driver_sql("SELECT number FROM numbers").scalars())


def run_together(committer: GroupCommit, works: list[Work]) -> list[Future[int]]:
    """Run works in one group: they are submitted while another one blocks the writer."""
    started, proceed = threading.Event(), threading.Event()

    def block(_: Connection) -> int:
        started.set()
        assert proceed.wait(10)
        return -1

    with ThreadPoolExecutor(len(works) + 1) as pool:
        first = pool.submit(committer.run, block)
        assert started.wait(10)
        outcomes = [pool.submit(committer.run, work) for work in works]
        while committer._waiting.qsize() < len(works):
            threading.Event().wait(0.001)
        proceed.set()
    return [*outcomes, first]


def test_waiting_work_is_committed_together(engine: Engine, committer: GroupCommit) -> None:
    commits: list[object] = []
    event.listen(engine, "commit", commits.append)
    outcomes = run_together(committer, [add(number) for number in range(20)])
    assert len(commits) == 1
    assert [outcome.result() for outcome in outcomes] == [*range(20), -1]
    assert numbers(engine) == set(range(20))


def test_a_failure_undoes_all_of_its_own_work_and_nothing_else(engine: Engine, committer: GroupCommit) -> None:
    def fail(connection: Connection) -> int:
        add(100)(connection)
        raise LookupError("changed my mind")

    *before, failed, after, _ = run_together(committer, [add(1), add(2), fail, add(3)])
    assert isinstance(failed.exception(), LookupError)
    assert [outcome.result() for outcome in (*before, after)] == [1, 2, 3]
    assert numbers(engine) == {1, 2, 3}


def test_the_first_of_a_group_fails_alone(engine: Engine, committer: GroupCommit) -> None:
    started, proceed = threading.Event(), threading.Event()

    def fail(connection: Connection) -> int:
        add(100)(connection)
        started.set()
        assert proceed.wait(10)
        raise LookupError("changed my mind")

    first = committer.submit(fail, lambda number: number)
    assert started.wait(10)
    others = [committer.submit(add(number), lambda number: 10 * number) for number in (1, 2)]
    proceed.set()
    assert isinstance(first.exception(10), LookupError)
    assert [other.result(10) for other in others] == [10, 20]
    assert numbers(engine) == {1, 2}


def test_cancelled_work_is_not_done(engine: Engine, committer: GroupCommit) -> None:
    proceed = threading.Event()
    first = committer.submit(lambda _: proceed.wait(10), bool)
    cancelled = committer.submit(add(1), str)
    assert cancelled.cancel()
    proceed.set()
    assert first.result(10)
    assert committer.run(add(2)) == 2
    assert numbers(engine) == {2}


def test_errors_of_the_database_are_explained(committer: GroupCommit) -> None:
    failed = committer.submit(lambda c: c.exec_driver_sql("INSERT INTO nowhere VALUES (1)").rowcount, str)
    assert isinstance(failed.exception(10), StoreError)


def test_a_lost_transaction_fails_every_waiting_caller(engine: Engine, committer: GroupCommit) -> None:
    """SQLite rolls back the whole transaction when the disk fails; here the work does so itself."""

    def lose(connection: Connection) -> int:
        connection.exec_driver_sql("ROLLBACK")
        raise OSError("the disk is gone")

    outcomes = run_together(committer, [add(1), lose, add(2)])
    assert [str(outcome.exception()) for outcome in outcomes] == ["the disk is gone"] * 4
    assert numbers(engine) == set()
    assert committer.run(add(3)) == 3
    assert numbers(engine) == {3}


def test_run_returns_after_the_commit(engine: Engine, committer: GroupCommit) -> None:
    for number in range(20):
        committer.run(add(number))
        assert number in numbers(engine)  # another connection can see it


def test_a_closed_committer_refuses_work_instead_of_blocking(engine: Engine) -> None:
    committer = GroupCommit(engine)
    committer.close()
    with pytest.raises(StoreError, match="closed"):
        committer.run(add(1))
    assert numbers(engine) == set()


def test_closing_a_gate_waits_for_the_calls_inside() -> None:
    gate, closed = Gate(), threading.Event()

    def close() -> None:
        gate.close()
        closed.set()

    closer = threading.Thread(target=close)
    with gate:
        closer.start()
        assert not closed.wait(0.1)
    closer.join(10)
    assert closed.is_set()
    with pytest.raises(StoreError, match="closed"), gate:
        pass
