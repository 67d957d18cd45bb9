"""Mining on Ray gives the same bytes. With two nodes, one of which is killed: test_stores, where they share no disk."""

import gzip
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path

import pytest

from tertulia.core.errors import DamagedLine
from tertulia.corpus.engines.ray import WINDOW, RayEngine
from tertulia.corpus.mine import mine

from .conftest import config, fingerprint

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [
    pytest.mark.slow,
    # From Ray itself: sockets left to the garbage collector, and deprecations during its start.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def expected(forum: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("expected")
    mine(config(forum, out))
    return fingerprint(out)


def test_a_local_cluster_is_started_and_stopped(forum: Path, tmp_path: Path, expected: dict[str, str]) -> None:
    mine(config(forum, tmp_path / "out", engine="ray", workers=2))
    assert fingerprint(tmp_path / "out") == expected
    assert not ray.is_initialized()


def test_an_existing_connection_is_kept_and_errors_keep_their_type(tmp_path: Path) -> None:
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    truncated = tmp_path / "x.jsonl.gz"
    truncated.write_bytes(gzip.compress(b'{"id": "a", "text": "hello there"}\n' * 500)[:-12])
    with pytest.raises(DamagedLine, match="cannot be read to its end"):
        mine(config(truncated, tmp_path / "out", engine="ray", subwords=None, strict=True))
    drawn = 0

    def endless() -> Iterator[int]:
        nonlocal drawn
        for drawn in count(1):
            yield -drawn

    results = RayEngine().map(partial(divmod, 7), endless())
    assert all(divided in {divmod(7, -n) for n in range(1, drawn + 1)} for divided in islice(results, 3))
    assert drawn <= WINDOW + 3  # and not one for each of millions of tasks
    assert ray.is_initialized()
    ray.shutdown()
