"""Inputs that used to end in a traceback, in a full memory, or silently in nothing."""

import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tertulia.core.dialogue import Message
from tertulia.core.errors import DataError
from tertulia.corpus import mine as mining
from tertulia.corpus.mine import MineConfig, marked, mine
from tertulia.corpus.mining import driver, threads
from tertulia.corpus.mining.pairs import read_pairs
from tertulia.corpus.mining.sources import Source, chunks_of
from tertulia.corpus.subwords import read_subwords
from tertulia.corpus.trees import mine_trees

from .conftest import config
from .test_inputs import EXPECTED, FORUM, lines, pairs, run


@pytest.fixture(scope="module")
def threadless(messages: list[Message], forum: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The forum without threads, with ids that occur twice and replies that go round in circles."""
    folder = tmp_path_factory.mktemp("threadless")
    records: list[dict[str, Any]] = [
        {"id": m.id, "parent": m.parent, "author": m.author, "text": m.text} for m in messages[:6000]
    ]
    circle = ["x1", "x2", "x3"]
    records += [
        {"id": a, "parent": b, "author": "ana", "text": "round and round"}
        for a, b in zip(circle, circle[1:] + circle[:1], strict=True)
    ]
    records += [{"id": "y", "parent": "x2", "author": "ana", "text": "hangs from a circle"}, records[17], records[4321]]
    random.Random(1).shuffle(records)
    file = folder / "forum.jsonl"
    file.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    file.with_name("subwords.model").write_bytes(forum.with_name("subwords.model").read_bytes())
    return file


def test_threads_are_found_by_parents(threadless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "MIN_BYTES", 0)
    settings = config(threadless, tmp_path, workers=2)
    outcome = mine(settings)
    messages = [Message(**record) for record in map(json.loads, threadless.read_text().splitlines())]
    counter = read_subwords(threadless.with_name("subwords.model"))
    reference = mine_trees(messages, settings, subwords=counter, unsafe=marked)
    assert outcome.funnel == reference.funnel
    assert outcome.funnel.removed["duplicate id"] == 2
    assert outcome.funnel.pairs > 1500
    assert sorted(read_pairs(tmp_path), key=lambda d: d.id) == sorted(reference.pairs, key=lambda d: d.id)
    rows = [pq.ParquetFile(shard).metadata.num_rows for shard in (tmp_path / "pairs").iterdir()]
    assert max(rows) < 0.5 * sum(rows)  # and not all in one bucket


@pytest.mark.parametrize("limit", ["of messages that are linked", "of messages that are one thread"])
def test_too_many_messages_without_a_thread_are_refused_with_advice(
    threadless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if "linked" in limit:
        monkeypatch.setattr(mining, "MIN_BYTES", 0)
    monkeypatch.setattr(threads, "MAX_MESSAGES", 1000)
    monkeypatch.setattr(driver, "_MAX_THREADLESS", 1000)
    with pytest.raises(DataError, match=r"6,006 messages have no thread.*\n.*--field thread="):
        mine(config(threadless, tmp_path / "out"))


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def test_parents_that_are_floats_are_matched_with_ids_that_are_integers(tmp_path: Path) -> None:
    texts = [record["text"] for record in FORUM]
    content = parquet(id=[1, 2, 3], parent=[None, 1.0, 2.0], thread=[9.0] * 3, author=["a"] * 3, text=texts)
    (tmp_path / "x.parquet").write_bytes(content)
    outcome = run(str(tmp_path / "x.parquet"), tmp_path / "out")
    assert outcome.funnel.removed["no parent"] == 0
    assert list(pairs(tmp_path / "out")) == ["2", "3"]


def test_lists_and_damaged_pages_of_parquet_are_clear_errors(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    file.write_bytes(parquet(id=["a"], text=[["good", "morning"]]))
    with pytest.raises(DataError, match=r"The column 'text' of .* holds list"):
        run(str(file), tmp_path / "out")
    content = bytearray(parquet(id=[str(i) for i in range(500)], text=[f"good morning {i}" for i in range(500)]))
    content[20:400] = b"\xff" * 380
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.parquet cannot be read"):
        run(str(file), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_named_pipe_and_utf_16_are_clear_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe is neither a file nor a folder.*\n.* - < "):
        run(str(tmp_path / "pipe"), tmp_path / "out")
    (tmp_path / "x.jsonl").write_bytes(lines(FORUM).decode().encode("utf-16"))
    with pytest.raises(DataError, match=r"is UTF-16.*\n.*iconv"):
        run(str(tmp_path / "x.jsonl"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.zst", "x.parquet"])
def test_a_monstrous_text_is_counted_and_not_taken_apart(tmp_path: Path, name: str) -> None:
    monster = FORUM[1] | {"id": "monster", "text": "a" * 5_000_000}
    records = [FORUM[0], monster, *FORUM[1:]]
    every = {key: [record.get(key) for record in records] for key in ("id", "parent", "thread", "author", "text")}
    content = parquet(**every) if "parquet" in name else lines(records)
    (tmp_path / name).write_bytes(zstandard.compress(content) if "zst" in name else content)
    outcome = run(str(tmp_path / name), tmp_path / "out", block_bytes=1 << 19)
    assert pairs(tmp_path / "out") == EXPECTED
    assert outcome.problems.count == 1
    assert "line 2: it is longer than 1,048,576 bytes" in outcome.problems.examples[0]


def test_a_full_disk_is_a_clear_error_and_the_run_continues_later(forum: Path, tmp_path: Path) -> None:
    """The system refuses to write more than some bytes per file, as it refuses to fill a disk beyond its end."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = [sys.executable, "-m", "tertulia", "corpus", "mine", str(forum), "--out", str(tmp_path / "out")]
    command += ["--subwords", str(forum.with_name("subwords.model")), "--workers", "1", "--buckets", "2"]
    full = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit)
    assert full.returncode == 1
    assert "failed: File too large" in full.stderr
    assert "Traceback" not in full.stderr
    assert list(tmp_path.rglob("*.unfinished")) == []
    subwords = forum.with_name("subwords.model")
    assert mine(MineConfig(source=str(forum), out=tmp_path / "out", subwords=subwords, buckets=2)).funnel.pairs > 5000


def test_a_packed_file_is_divided_at_its_frames_wherever_lines_end(tmp_path: Path) -> None:
    content = lines([FORUM[i % 3] | {"id": f"m{i}", "parent": None, "text": f"hello number {i}"} for i in range(300)])
    frames = [content[i : i + 777] for i in range(0, len(content), 777)]
    frames[5:6] = [frames[5][:400], frames[5][400:410], frames[5][410:]]  # a frame within a line
    packed = b"".join(zstandard.compress(frame) for frame in frames)
    (tmp_path / "x.jsonl.zst").write_bytes(packed)
    source = Source(str(tmp_path / "x.jsonl.zst"), "x.jsonl.zst", len(packed), "", "messages")
    assert len(chunks_of(source, size=1)) == len(frames)
    for size in (1, 1500, 1 << 20):
        outcome = run(str(tmp_path / "x.jsonl.zst"), tmp_path / f"out{size}", block_bytes=size, strict=True)
        assert (outcome.funnel.messages, outcome.funnel.removed["duplicate id"]) == (300, 0)


def test_a_packed_file_that_cannot_be_divided_is_told(forum: Path, tmp_path: Path) -> None:
    notes: list[str] = []

    class Notes:
        def step(self, title: str, total: int | None = None) -> None: ...

        def advance(self, n: int = 1) -> None: ...

        def note(self, text: str) -> None:
            notes.append(text)

    packed = tmp_path / "x.jsonl.zst"
    packed.write_bytes(zstandard.compress(forum.read_bytes()))
    mine(config(forum, tmp_path / "out", source=str(packed), block_bytes=1 << 14), Notes())
    assert notes == [
        f"x.jsonl.zst is one packed stream, about {packed.stat().st_size * 6 / 1e9:.1f} GB unpacked, "
        "which one worker reads alone"
    ]
