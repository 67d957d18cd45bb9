"""How the work is divided changes neither the results nor, per message, its cost."""

from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from tertulia.corpus.engines.pool import Pool
from tertulia.corpus.mine import mine
from tertulia.corpus.mining import plan
from tertulia.corpus.mining.plan import make_plan

from .conftest import config, fingerprint
from .test_resume import InterruptAfter, Interrupted

GIGABYTE = 10**9
BLOCK = 16 << 20


def results(out: Path) -> dict[str, str]:
    """Everything but the manifest, which tells the layout."""
    return {name: digest for name, digest in fingerprint(out).items() if name != "manifest.json"}


@pytest.fixture(scope="module")
def expected(forum: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("expected")
    mine(config(forum, out))
    return results(out)


def test_working_files_grow_with_the_corpus_and_not_with_its_square() -> None:
    def segments(size: int) -> float:
        layout = make_plan(size, block_bytes=BLOCK)
        parts = 1 + size // layout.part_bytes
        groups = -(-parts // layout.partitions) if layout.partitions else 0
        return parts * (layout.segments + layout.ranges) + groups * layout.bundles

    assert segments(2000 * GIGABYTE) / 2000 < 20 * segments(20 * GIGABYTE) / 20
    assert segments(341 * GIGABYTE) < 1_500_000  # 900 million with a bucket per 8 MiB and a part per 16 MiB


def test_buckets_are_as_large_as_the_memory_of_a_worker_allows() -> None:
    large, small = (make_plan(341 * GIGABYTE, block_bytes=BLOCK, memory=m << 20) for m in (2048, 256))
    assert 7 * large.buckets < small.buckets < 9 * large.buckets
    assert make_plan(341 * GIGABYTE, block_bytes=BLOCK, buckets=77).buckets == 77
    assert make_plan(0, block_bytes=BLOCK).buckets == 1


def test_two_levels_give_the_same_bytes_as_one(
    forum: Path, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MAX_SEGMENTS", 1)
    assert make_plan(4 << 20, block_bytes=1 << 18, buckets=8).partitions == 3
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), InterruptAfter("Merging", 4))
    merged = list((tmp_path / "_work").glob("merged-*.json"))
    assert len(merged) == 4
    mine(config(forum, tmp_path))
    assert results(tmp_path) == expected


def test_small_buckets_in_bundles_give_the_same_bytes(
    forum: Path, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MIN_BUNDLES", 3)
    assert make_plan(4 << 20, block_bytes=1 << 18, buckets=8).bundles == 3
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), InterruptAfter("Mining", 2))
    assert len(list((tmp_path / "_work").glob("bundle-*.json"))) == 2
    mine(config(forum, tmp_path))
    assert results(tmp_path) == expected


def test_parts_of_several_blocks_give_the_same_bytes(forum: Path, tmp_path: Path, expected: dict[str, str]) -> None:
    settings = config(forum, tmp_path, block_bytes=1 << 14)
    assert make_plan(forum.stat().st_size, block_bytes=1 << 14).part_bytes == 4 << 14
    mine(settings)
    assert results(tmp_path) == expected


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


def test_tasks_are_drawn_when_they_can_be_assigned(pool: Pool) -> None:
    drawn = 0

    def endless() -> Iterator[int]:
        nonlocal drawn
        for drawn in count(1):
            yield -drawn

    assert len(list(islice(pool.map(abs, endless()), 20))) == 20
    assert drawn <= 22


class Shared:
    """Counts how often it is sent."""

    sent = 0

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        Shared.sent += 1
        return int, (5,)


def test_what_tasks_share_is_sent_to_each_worker_once(pool: Pool) -> None:
    assert list(pool.map(partial(divmod, Shared()), [1] * 20)) == [(5, 0)] * 20
    assert Shared.sent == 2
    assert list(pool.map(partial(max, 7), [1] * 4)) == [7] * 4  # another function replaces it
