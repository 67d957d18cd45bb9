"""The same work on Ray: one node, two nodes, and two nodes of which one is killed on the way."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.errors import DataError
from tertulia.corpus.mine import mine

from .conftest import config, fingerprint

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    # Ray's own: sockets it leaves to the garbage collector, and what it deprecates while it starts.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def expected(forum: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("expected")
    mine(config(forum, out))
    return fingerprint(out)


def test_one_node_started_for_the_occasion(forum: Path, tmp_path: Path, expected: dict[str, str]) -> None:
    mine(config(forum, tmp_path / "out", engine="ray", workers=2))
    assert fingerprint(tmp_path / "out") == expected
    assert not ray.is_initialized()


def test_a_node_joined_before_is_not_left_and_errors_come_back_as_they_are(tmp_path: Path) -> None:
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    cut = tmp_path / "x.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"id": "a", "text": "hello there"}\n' * 500)[:-12])
    with pytest.raises(DataError, match="cannot be read to its end"):
        mine(config(cut, tmp_path / "out", engine="ray", subwords=None))
    assert ray.is_initialized()
    ray.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, so that all work is done on the two nodes beside it."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_node_killed_in_the_middle_changes_nothing(
    forum: Path, tmp_path: Path, expected: dict[str, str], cluster: Any
) -> None:
    nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]

    class Killer:
        """Kills a node once the second stage has begun to give results."""

        def step(self, title: str, total: int | None = None) -> None:
            self.mining = title == "Mining"

        def advance(self, n: int = 1) -> None:
            if self.mining and n and len(nodes) == 2:
                cluster.remove_node(nodes.pop(), allow_graceful=False)

        def note(self, text: str) -> None: ...

    mine(config(forum, tmp_path, engine="ray", address=cluster.address), Killer())
    assert len(nodes) == 1
    assert fingerprint(tmp_path) == expected
