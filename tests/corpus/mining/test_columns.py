"""The fast forms of operations on columns give what the plain ones give."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tertulia.artefacts.folders import DiskFolder
from tertulia.corpus.mining.columns import replace_rows, runs_in_rows, sparse_positions, to_arrow
from tertulia.corpus.mining.hashing import rows_of
from tertulia.corpus.mining.repeats import RepeatsJob, find_repeats
from tertulia.corpus.mining.scatter import HASHES
from tertulia.corpus.mining.segments import index_of, sort_block, write_segments


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
@pytest.mark.parametrize("share", [0.0, 0.02, 1.0])
def test_sparse_positions_are_those_of_all_flags_that_are_set(size: int, share: float) -> None:
    flags = np.random.default_rng(size).random(size) < share
    assert sparse_positions(flags).tolist() == np.flatnonzero(flags).tolist()


def test_a_key_is_found_whichever_others_share_its_slot() -> None:
    rng = np.random.default_rng(1)
    keys = rng.permutation(np.concatenate([np.arange(300) << 40, rng.integers(0, 1 << 62, 300)]).astype(np.uint64))
    row = {key: number for number, key in enumerate(keys.tolist())}
    values = np.concatenate([keys[::-1], (np.arange(300, 400) << 40).astype(np.uint64), keys[:5] + np.uint64(1)])
    assert rows_of(values, keys).tolist() == [row.get(value, len(keys)) for value in values.tolist()]


def test_among_no_keys_nothing_is_found() -> None:
    assert rows_of(np.array([1, 2], np.uint64), np.zeros(0, np.uint64)).tolist() == [0, 0]


def test_rows_are_replaced_in_place() -> None:
    array = pa.array(["x", "", "z\u00fc", "w"])[1:]
    assert replace_rows(array, np.array([0, 2]), pa.array(["a", "\u00e9"])).to_pylist() == ["a", "z\u00fc", "\u00e9"]


def test_runs_are_counted_by_row() -> None:
    inside = np.array([True, True, False, True, True, True, False])
    runs = runs_in_rows(inside, np.array([0, 0, 4, 7]))
    assert list(zip(*(column.tolist() for column in runs[:3]), strict=True)) == [(0, 2, 1), (3, 4, 1), (4, 6, 2)]
    assert runs.offsets.tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_repeats_are_the_texts_of_more_messages_than_the_limit(tmp_path: Path, limit: int) -> None:
    rng = np.random.default_rng(2)
    texts, keys = rng.integers(0, 9, 40).astype(np.uint64), rng.integers(0, 12, 40).astype(np.uint64)
    folder, table = DiskFolder(str(tmp_path)), pa.table({"text": to_arrow(texts), "key": to_arrow(keys)}, HASHES)
    file = write_segments(folder, "hashes", [sort_block(table, np.zeros(40, np.int64), count=1)], compress=False)
    messages = Counter(text for text, _ in set(zip(texts.tolist(), keys.tolist(), strict=True)))
    expected = sorted(text for text, count in messages.items() if count > limit)
    assert find_repeats(RepeatsJob(folder, index_of([("hashes", file)]), limit), 0).tolist() == expected
