"""Continuing after an interruption, and only with the same inputs and settings."""

import json
import os
from pathlib import Path

import pytest

from tertulia.artefacts.files import atomic_write, exclusive_lock, remove_unfinished
from tertulia.artefacts.folders import open_folder
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.mine import MineConfig, mine
from tertulia.corpus.mining import driver, extract, scatter

from .conftest import config, fingerprint


class Interrupted(Exception):  # noqa: N818
    pass


class InterruptAfter:
    """Interrupts a run after part of a step."""

    def __init__(self, title: str, after: int) -> None:
        self.title, self.remaining, self.active = title, after, False

    def step(self, title: str, total: int | None = None) -> None:
        self.active = title == self.title

    def advance(self, n: int = 1) -> None:
        self.remaining -= n if self.active else 0
        if self.active and self.remaining <= 0:
            raise Interrupted

    def note(self, text: str) -> None: ...


class Advances:
    """Records the progress of each step."""

    def __init__(self) -> None:
        self.advances: dict[str, list[int]] = {}

    def step(self, title: str, total: int | None = None) -> None:
        self.advances[title] = []

    def advance(self, n: int = 1) -> None:
        list(self.advances.values())[-1].append(n)

    def note(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def expected(forum: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("expected")
    mine(config(forum, out))
    return fingerprint(out)


@pytest.mark.parametrize(("title", "after"), [("Reading messages", 5), ("Counting repeated texts", 1), ("Mining", 3)])
def test_continuing_after_any_interruption_gives_the_same_bytes(
    forum: Path, tmp_path: Path, expected: dict[str, str], title: str, after: int
) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), InterruptAfter(title, after))
    assert not (tmp_path / "funnel.json").exists()
    mine(config(forum, tmp_path))
    assert fingerprint(tmp_path) == expected


def test_finished_tasks_are_not_run_again(forum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), InterruptAfter("Mining", 3))
    done: list[int] = []
    monkeypatch.setattr(driver, "scatter", lambda job, task: pytest.fail("a part was read again"))
    monkeypatch.setattr(driver, "extract_pairs", lambda job, n: done.append(n) or extract.extract_pairs(job, n))
    mine(config(forum, tmp_path))
    assert len(done) == 5


@pytest.mark.parametrize("kind", ["messages", "hashes"])
def test_a_chunk_with_truncated_files_is_read_again(
    forum: Path, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), InterruptAfter("Reading messages", 5))
    victim = min((tmp_path / "_work").glob(f"{kind}-*.arrow"))
    os.truncate(victim, victim.stat().st_size - 1)
    mine(config(forum, tmp_path))
    assert fingerprint(tmp_path) == expected


def test_a_finished_run_is_not_run_again(forum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = mine(config(forum, tmp_path))
    monkeypatch.setattr("tertulia.corpus.mine.run_stages", lambda *a, **k: pytest.fail("run again"))
    assert mine(config(forum, tmp_path)) == first
    assert mine(config(forum, tmp_path, workers=1, engine="ray")) == first  # the engine does not affect the result
    with_dialogues = mine(config(forum, tmp_path, dialogues=True))
    assert with_dialogues.pairs == tmp_path / "pairs.parquet"
    assert with_dialogues.funnel == first.funnel


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"min_letters": 0.5}, "rules.min_letters was 0.7, now 0.5"),
        ({"buckets": 4}, "buckets was 8, now 4"),
        ({"whole": False}, "whole was True, now False"),
        ({"unsafe": "none"}, "unsafe was 'auto', now 'none'"),
        ({"subwords": None}, "subwords.sha256 was"),
        ({"links": "cut"}, "cleaning.links was 'rule', now 'cut'"),
    ],
)
def test_other_settings_are_rejected_with_what_differs(
    forum: Path, tmp_path: Path, change: dict[str, object], difference: str
) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), InterruptAfter("Reading messages", 1))
    with pytest.raises(UsageError, match="was mined with different inputs or settings") as error:
        mine(config(forum, tmp_path, **change))
    assert difference in str(error.value)
    assert "--fresh" in str(error.value)


def test_a_changed_input_is_rejected_or_mined_afresh(tmp_path: Path) -> None:
    source, out = tmp_path / "x.jsonl", tmp_path / "out"
    lines = [json.dumps({"id": str(i), "author": "ana", "text": f"good morning number {i}"}) for i in range(50)]
    source.write_text("\n".join(lines))
    settings = MineConfig(source=str(source), out=out, vocabulary=300)
    assert mine(settings).funnel.messages == 50
    source.write_text("\n".join(lines[:40]))
    with pytest.raises(UsageError, match=r"inputs 1\.size was"):
        mine(settings)
    assert mine(settings.model_copy(update={"fresh": True})).funnel.messages == 40
    again = {"source": (str(source), str(source))}
    with pytest.raises(UsageError, match="inputs was 1 files, now 2 files"):
        mine(settings.model_copy(update=again))


def test_starting_over_removes_only_what_mining_wrote(forum: Path, tmp_path: Path) -> None:
    mine(config(forum, tmp_path))
    before = fingerprint(tmp_path)
    others = [
        tmp_path / name for name in ("pairs/mine.parquet", "pairs/00001.parquet.old", "notes.txt", "_work/plan.txt")
    ]
    for file in others:
        file.parent.mkdir(exist_ok=True)
        file.write_text("somebody's own")
    mine(config(forum, tmp_path, fresh=True))
    assert all(file.read_text() == "somebody's own" for file in others)
    assert {name: digest for name, digest in fingerprint(tmp_path).items() if name in before} == before


def test_a_folder_of_something_else_is_not_cleared(forum: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"kind": "model"}')
    with pytest.raises(UsageError, match="something else than mined pairs"):
        mine(config(forum, tmp_path, fresh=True))
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]


def test_two_runs_cannot_share_a_folder(forum: Path, tmp_path: Path) -> None:
    (tmp_path / "_work").mkdir()
    with exclusive_lock(tmp_path / "_work" / "lock"), pytest.raises(DataError, match="Another process is working"):
        mine(config(forum, tmp_path))


def test_unfinished_files_are_removed(tmp_path: Path) -> None:
    def interrupted() -> None:
        with atomic_write(tmp_path / "x") as file:
            file.write_text("half")
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    with atomic_write(tmp_path / "y") as file:
        file.write_text("complete")
        file.with_name("y.1-killed.unfinished").write_text("left by a killed writer")
    assert remove_unfinished(tmp_path) == 1
    assert [f.name for f in tmp_path.iterdir()] == ["y"]


def test_the_sample_for_subwords_depends_only_on_the_seed(forum: Path, tmp_path: Path) -> None:
    learned = {"subwords": None, "vocabulary": 600, "sample": 500}
    models = []
    for name, more in {"a": {}, "b": {"workers": 2}, "c": {"seed": 1}}.items():
        mine(config(forum, tmp_path / name, **learned, **more))
        models.append((tmp_path / name / "subwords.model").read_bytes())
    assert models[0] == models[1] != models[2]


def test_markers_describe_the_files_written(forum: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), InterruptAfter("Mining", 8))
    work = tmp_path / "_work"
    sizes = open_folder(work).sizes()
    chunks = [scatter.ScatterResult.from_json(json.loads(p.read_text())) for p in sorted(work.glob("part-*.json"))]
    assert sum(chunk.messages for chunk in chunks) == 20_000
    assert all(chunk.is_intact(sizes) for chunk in chunks)
    buckets = [json.loads(p.read_text()) for p in work.glob("bundle-*.json")]
    assert sum(b["funnel"]["messages"] for b in buckets) == 20_000
