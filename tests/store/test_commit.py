"""Group commit: those who wait share one transaction, but not each other's fate."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, Engine, event

from tertulia.core.errors import StoreError
from tertulia.store.commit import Gate, GroupCommit
from tertulia.store.database import make_engine, parse_url, prepare, transaction

Work = Callable[[Connection], int]


@pytest.fixture
def engine(sqlite_url: str) -> Iterator[Engine]:
    made = make_engine(parse_url(sqlite_url), busy_seconds=5)
    prepare(made, busy_seconds=5)
    with transaction(made, write=True) as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    yield made
    made.dispose()


@pytest.fixture
def committer(engine: Engine) -> Iterator[GroupCommit]:
    made = GroupCommit(engine)
    yield made
    made.close()


def add(number: int) -> Work:
    def work(connection: Connection) -> int:
        connection.exec_driver_sql(f"INSERT INTO numbers VALUES ({number})")
        return number

    return work


def numbers(engine: Engine) -> set[int]:
    with transaction(engine) as connection:
        return set(connection.exec_driver_sql("SELECT number FROM numbers").scalars())


def run_together(committer: GroupCommit, works: list[Work]) -> list[Future[int]]:
    """Run works in one group: they come while another one holds the writer up."""
    begun, go_on = threading.Event(), threading.Event()

    def hold_up(_: Connection) -> int:
        begun.set()
        assert go_on.wait(10)
        return -1

    with ThreadPoolExecutor(len(works) + 1) as pool:
        first = pool.submit(committer.run, hold_up)
        assert begun.wait(10)
        outcomes = [pool.submit(committer.run, work) for work in works]
        while committer._waiting.qsize() < len(works):
            threading.Event().wait(0.001)
        go_on.set()
    return [*outcomes, first]


def test_those_who_wait_are_committed_together(engine: Engine, committer: GroupCommit) -> None:
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


def test_when_the_transaction_is_lost_nobody_is_told_otherwise(engine: Engine, committer: GroupCommit) -> None:
    """SQLite gives up the whole transaction when the disk fails; here the work does so itself."""

    def lose(connection: Connection) -> int:
        connection.exec_driver_sql("ROLLBACK")
        raise OSError("the disk is gone")

    outcomes = run_together(committer, [add(1), lose, add(2)])
    assert [str(outcome.exception()) for outcome in outcomes] == ["the disk is gone"] * 4
    assert numbers(engine) == set()
    assert committer.run(add(3)) == 3
    assert numbers(engine) == {3}


def test_it_returns_after_the_commit(engine: Engine, committer: GroupCommit) -> None:
    for number in range(20):
        committer.run(add(number))
        assert number in numbers(engine)  # another connection sees it already


def test_after_closing_nobody_waits_in_vain(engine: Engine) -> None:
    committer = GroupCommit(engine)
    committer.close()
    with pytest.raises(StoreError, match="closed"):
        committer.run(add(1))
    assert numbers(engine) == set()


def test_a_gate_closes_behind_the_last_one_out() -> None:
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
