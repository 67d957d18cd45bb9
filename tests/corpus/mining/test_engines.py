"""The resulting bytes do not depend on the engine, on the number of workers, or on processes killed meanwhile."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tertulia.core.errors import DataError, MissingExtra
from tertulia.corpus.engines.base import InProcess
from tertulia.corpus.engines.forkserver import IS_SAFE
from tertulia.corpus.engines.pool import Pool
from tertulia.corpus.mine import mine
from tertulia.corpus.mining import driver

from .conftest import config, fingerprint

linux = pytest.mark.skipif(not IS_SAFE, reason="workers are forked on Linux only")
LIMIT = 10
"""Seconds within which a worker must have ended."""


@pytest.fixture(scope="module")
def expected(forum: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The result of an undisturbed run in this process."""
    out = tmp_path_factory.mktemp("expected") / "out"
    mine(config(forum, out))
    files = fingerprint(out)
    assert {f"pairs/0000{i}.parquet" for i in range(8)} | {"funnel.json", "manifest.json"} <= set(files)
    assert not any("_work" in name or "unfinished" in name for name in files)
    return files


@pytest.fixture(params=[(), ("csv",)], ids=["started", "forked"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    pool = Pool(2, preload=request.param)
    yield pool
    pool.close()


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """The pools that mining makes."""
    made: list[Pool] = []

    def make(workers: int, *, preload: Sequence[str]) -> Pool:
        made.append(Pool(workers, preload=preload))
        return made[-1]

    monkeypatch.setattr("tertulia.corpus.mine.Pool", make)
    return made


@pytest.fixture
def forked() -> Iterator[Pool]:
    pool = Pool(2, preload=("csv", "tertulia.corpus.mining.lengths"))
    yield pool
    pool.close()


def test_a_pool_runs_all_tasks_in_other_processes(pool: Pool) -> None:
    assert sorted(pool.map(abs, range(-50, 0))) == list(range(1, 51))
    assert len(pool.pids) == 2
    assert os.getpid() not in pool.pids
    assert list(pool.map(abs, [])) == []
    assert list(InProcess().map(abs, [-1, 2])) == [1, 2]


def test_killed_workers_are_replaced(pool: Pool) -> None:
    assert sorted(pool.map(abs, [-1, -2])) == [1, 2]
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    assert sorted(pool.map(abs, [-1, -2, -3])) == [1, 2, 3]
    victim = pool.pids[0]
    threading.Timer(0.3, os.kill, (victim, signal.SIGKILL)).start()
    assert list(pool.map(time.sleep, [0.6] * 4)) == [None] * 4
    assert victim not in pool.pids


def test_a_task_that_kills_its_workers_is_abandoned(pool: Pool) -> None:
    with pytest.raises(DataError, match="died 3 times"):
        list(pool.map(os._exit, [7]))


def test_an_exception_in_a_task_reaches_the_driver(pool: Pool) -> None:
    with pytest.raises(RuntimeError, match="could not convert string to float"):
        list(pool.map(float, ["x"]))


def test_output_of_a_task_does_not_disturb_the_results(pool: Pool) -> None:
    assert list(pool.map(print, ["to standard error"])) == [None]


PARENT = "__import__('os').getppid()"
CACHE = "__import__('tertulia.corpus.mining.lengths', fromlist=['lengths'])._CACHE"


@linux
def test_forked_workers_have_imported_what_was_named(forked: Pool) -> None:
    assert list(forked.map(eval, ["'csv' in __import__('sys').modules"])) == [True]
    (server,) = set(forked.map(eval, [PARENT] * 8))
    assert server != os.getpid()
    forked.close()
    assert not is_running(server)
    assert list(forked.map(abs, [-1])) == [1]  # with a new one


@linux
def test_forked_workers_share_the_cache_of_words(forked: Pool) -> None:
    list(forked.map(eval, [f"{CACHE}.__setitem__(5, 7)"]))
    assert set(forked.map(eval, [f"(__import__('time').sleep(0.1), int({CACHE}[5]))[1]"] * 4)) == {7}
    assert len(forked.pids) == 2


@linux
def test_without_its_fork_server_a_pool_starts_workers_itself(forked: Pool) -> None:
    (server,) = set(forked.map(eval, [PARENT] * 2))
    os.kill(server, signal.SIGKILL)
    for pid in forked.pids:
        os.kill(pid, signal.SIGKILL)
    assert set(forked.map(eval, [PARENT] * 4)) == {os.getpid()}


@linux
def test_a_process_with_threads_is_not_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "threaded_on_import.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with closing(Pool(2, preload=("threaded_on_import",))) as pool:
        assert set(pool.map(eval, [PARENT] * 2)) == {os.getpid()}


@linux
def test_what_mining_preloads_starts_no_threads(forum: Path, tmp_path: Path, pools: list[Pool]) -> None:
    mine(config(forum, tmp_path, workers=2))
    with closing(pools[0]) as pool:
        assert os.getpid() not in set(pool.map(eval, [PARENT] * 2))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_does_not_change_the_bytes(
    forum: Path, tmp_path: Path, expected: dict[str, str], workers: int
) -> None:
    mine(config(forum, tmp_path, workers=workers))
    assert fingerprint(tmp_path) == expected


def test_killing_a_worker_does_not_change_the_bytes(
    forum: Path, tmp_path: Path, expected: dict[str, str], pools: list[Pool]
) -> None:
    killed = []

    class Killer:
        """Kills a worker at the first progress of each stage."""

        def step(self, title: str, total: int | None = None) -> None:
            self.fresh = True

        def advance(self, n: int = 1) -> None:
            if self.fresh and pools and pools[0].pids:
                killed.append(pools[0].pids[0])
                os.kill(killed[-1], signal.SIGKILL)
                self.fresh = False

        def note(self, text: str) -> None: ...

    mine(config(forum, tmp_path, workers=2), Killer())
    assert len(set(killed)) >= 2
    assert fingerprint(tmp_path) == expected


DRIVER = """
import sys
from pathlib import Path
from tests.corpus.mining.conftest import config
from tertulia.corpus.mine import mine
class Printed:
    def step(self, title, total=None): print("step", title, flush=True)
    def advance(self, n=1): print("advance\\n" * n, end="", flush=True)
    def note(self, text): pass
mine(config(Path(sys.argv[1]), Path(sys.argv[2]), workers=2), Printed())
"""


def descendants_of(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [grandchild for child in children for grandchild in descendants_of(child)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize(("step", "advances"), [("Reading messages", 3), ("Mining", 2)])
def test_workers_end_with_a_killed_driver_and_a_rerun_continues(
    forum: Path, tmp_path: Path, expected: dict[str, str], step: str, advances: int
) -> None:
    command = [sys.executable, "-c", DRIVER, str(forum), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout
        for line in process.stdout:
            if line == f"step {step}\n":
                break
        for _ in range(advances):
            assert process.stdout.readline() == "advance\n"
        workers = descendants_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(workers) == 3  # two, and the process that they are copies of
    until = time.monotonic() + LIMIT
    while any(is_running(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in workers)
    assert not (tmp_path / "funnel.json").exists()
    done = list((tmp_path / driver.WORK).glob("part-*.json"))
    assert len(done) >= 3
    mine(config(forum, tmp_path, workers=1))
    assert fingerprint(tmp_path) == expected


def test_the_error_without_ray_says_what_to_install(
    forum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"tertulia\[ray\]"):
        mine(config(forum, tmp_path, engine="ray"))
