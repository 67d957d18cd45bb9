from pathlib import Path

import numpy as np
import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import DataError
from tertulia.core.text import squash
from tertulia.models.rankers.base import Floats, Ranker
from tertulia.talk import pool as pools
from tertulia.talk.pool import ReplyPool

DIALOGUES = [
    Dialogue("sea", (Turn("a", "do you sail?"), Turn("b", "I sail  every\nweek"), Turn("a", "how nice"))),
    Dialogue("tea", (Turn("a", "How nice"), Turn("b", "  "), Turn("a", "i SAIL every week"), Turn("b", "with milk"))),
]


class RecordingProgress:
    def __init__(self) -> None:
        self.steps: list[tuple[str, int | None]] = []
        self.done = 0

    def step(self, title: str, total: int | None = None) -> None:
        self.steps.append((title, total))

    def advance(self, n: int = 1) -> None:
        self.done += n

    def note(self, text: str) -> None:
        raise AssertionError(text)


def clustered(count: int, dim: int, *, seed: int = 0) -> Floats:
    """Unit vectors around a few hundred centres."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((300, dim))
    vectors = centres[rng.integers(0, len(centres), count)] + 0.7 * rng.standard_normal((count, dim))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def pool_of(vectors: Floats) -> ReplyPool:
    names = tuple(map(str, range(len(vectors))))
    return ReplyPool(names, names, vectors.astype(np.float16))


def test_every_utterance_is_in_the_pool_once_with_its_first_source(ranker: Ranker) -> None:
    progress = RecordingProgress()
    pool = ReplyPool.of(DIALOGUES, ranker, progress)
    assert pool.texts == ("do you sail?", "I sail every week", "how nice", "with milk")
    assert pool.sources == ("sea#0", "sea#1", "sea#2", "tea#3")
    assert [pool.texts[i] for i in pool.openers] == ["do you sail?", "how nice"]
    assert len(pool) == 4
    assert pool.vectors.dtype == np.float16
    assert (progress.steps, progress.done) == ([("Encoding 4 replies", 4)], 4)


def test_vectors_belong_to_their_texts_whatever_the_batches(ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "BATCH", 3)
    pool = ReplyPool.of(DIALOGUES, ranker)
    assert np.array_equal(pool.vectors, ranker.replies(pool.texts).astype(np.float16))


def test_dialogues_without_utterances_are_refused(ranker: Ranker) -> None:
    with pytest.raises(DataError, match="pool of replies is empty"):
        ReplyPool.of([Dialogue("d", (Turn("a", " \n"),))], ranker)


def test_a_ranker_whose_vectors_are_not_finite_is_refused(ranker: Ranker) -> None:
    class Diverged:
        queries, scores, symmetric = ranker.queries, ranker.scores, False

        def replies(self, texts: list[str], /) -> Floats:
            return np.full((len(texts), 4), np.nan, dtype=np.float32)

    with pytest.raises(DataError, match="not finite"):
        ReplyPool.of(DIALOGUES, Diverged())


def test_a_saved_pool_gives_the_same_results(ranker: Ranker, tmp_path: Path) -> None:
    pool = ReplyPool.of(DIALOGUES, ranker)
    names = pool.save(tmp_path)
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    again = ReplyPool.load(tmp_path)
    assert (again.texts, again.sources, again.openers) == (pool.texts, pool.sources, pool.openers)
    wanted = ranker.replies(["sail", "milk and tea"])
    for one, other in zip(pool.nearest(wanted, 3), again.nearest(wanted, 3), strict=True):
        assert np.array_equal(one, other)


def test_texts_of_any_kind_are_saved_and_loaded(ranker: Ranker, tmp_path: Path) -> None:
    odd = ["\u2028 line", 'quote " and \\', "🙂", "\x00", "ñandú"]
    pool = ReplyPool.of([Dialogue("d\n1", tuple(Turn("a", text) for text in odd))], ranker)
    pool.save(tmp_path)
    assert ReplyPool.load(tmp_path).texts == tuple(squash(text) for text in odd)
    assert ReplyPool.load(tmp_path).sources[0] == "d\n1#0"


@pytest.mark.parametrize("damage", ["gone", "lines", "short", "wide", "flat"])
def test_a_damaged_pool_is_refused(ranker: Ranker, tmp_path: Path, damage: str) -> None:
    pool = ReplyPool.of(DIALOGUES, ranker)
    pool.save(tmp_path)
    match damage:
        case "gone":
            (tmp_path / pools.VECTORS).unlink()
        case "lines":
            (tmp_path / pools.LINES).write_text("oops\n")
        case "short":
            np.save(tmp_path / pools.VECTORS, pool.vectors[:-1])
        case "wide":
            np.save(tmp_path / pools.VECTORS, pool.vectors.astype(np.float64))
        case "flat":
            np.save(tmp_path / pools.VECTORS, pool.vectors[:, 0])
    with pytest.raises(DataError, match="missing or damaged"):
        ReplyPool.load(tmp_path)


def test_a_small_pool_is_searched_exactly_best_first() -> None:
    pool, wanted = pool_of(clustered(500, 24)), clustered(20, 24, seed=1)
    nearest = pool.nearest(wanted, 7)
    products = wanted @ pool.vectors.astype(np.float32).T
    assert np.take_along_axis(products, nearest.indices, axis=1) == pytest.approx(nearest.scores, abs=1e-6)
    assert nearest.scores == pytest.approx(-np.sort(-products, axis=1)[:, :7], abs=1e-6)
    assert nearest.scores.dtype == np.float32


def test_a_count_above_the_size_of_the_pool_returns_all() -> None:
    nearest = pool_of(clustered(5, 8)).nearest(clustered(2, 8, seed=1), 100)
    assert nearest.indices.shape == nearest.scores.shape == (2, 5)
    assert [sorted(row) for row in nearest.indices.tolist()] == [[0, 1, 2, 3, 4]] * 2
    assert pool_of(clustered(5, 8)).nearest(np.empty((0, 8), dtype=np.float32), 3).indices.shape == (0, 3)


@pytest.fixture(scope="module")
def large() -> ReplyPool:
    return pool_of(clustered(pools.MAX_EXHAUSTIVE + 4000, 48))


def test_a_large_pool_misses_hardly_any_of_the_nearest(large: ReplyPool) -> None:
    wanted = clustered(50, 48, seed=1)
    nearest = large.nearest(wanted, 200)
    products = wanted @ large.vectors.astype(np.float32).T
    true = np.argsort(-products, axis=1)[:, :200]
    share = [
        np.mean([len(set(a[:n]) & set(b)) / n for a, b in zip(true, nearest.indices, strict=True)]) for n in (10, 200)
    ]
    assert share[0] >= 0.998
    assert share[1] >= 0.97
    assert nearest.scores == pytest.approx(np.take_along_axis(products, nearest.indices, axis=1), abs=1e-6)
    assert (np.diff(nearest.scores, axis=1) <= 0).all()


@pytest.mark.parametrize("count", [1, 200])
def test_results_do_not_depend_on_the_batch(large: ReplyPool, count: int) -> None:
    for pool in (large, pool_of(clustered(3000, 48))):
        wanted = clustered(9, 48, seed=2)
        together = pool.nearest(wanted, count)
        for row, vector in enumerate(wanted):
            alone = pool.nearest(vector[None], count)
            assert np.array_equal(alone.indices[0], together.indices[row])
            assert np.array_equal(alone.scores[0], together.scores[row])


def test_a_large_pool_is_memory_mapped(large: ReplyPool, tmp_path: Path) -> None:
    large.save(tmp_path)
    again = ReplyPool.load(tmp_path)
    assert isinstance(again.vectors, np.memmap)
    wanted = clustered(3, 48, seed=3)
    assert np.array_equal(again.nearest(wanted, 10).indices, large.nearest(wanted, 10).indices)
    indices = np.array([5, 3, 20_000])
    assert np.array_equal(again.rows(indices), large.vectors[indices].astype(np.float32))


def test_the_pool_records_which_turn_follows_which(ranker: Ranker, tmp_path: Path) -> None:
    pool = ReplyPool.of(DIALOGUES, ranker)
    assert pool.after.tolist() == [1, 2, -1, -1]
    assert pool.before.tolist() == [-1, 0, 1, -1]  # the turn before "with milk" is in the pool under another source
    pool.save(tmp_path)
    assert ReplyPool.load(tmp_path).before.tolist() == pool.before.tolist()
