"""Going on after an interruption, and only with the same work in mind."""

import json
import os
from pathlib import Path

import pytest

from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.mine import MineConfig, mine
from tertulia.corpus.mining import driver, harvest, scatter
from tertulia.corpus.mining.files import alone, appearing, sweep

from .conftest import config, fingerprint


class Interrupted(Exception):  # noqa: N818
    pass


class Stops:
    """Interrupts a run after so much of a step."""

    def __init__(self, title: str, after: int) -> None:
        self.title, self.left, self.here = title, after, False

    def step(self, title: str, total: int | None = None) -> None:
        self.here = title == self.title

    def advance(self, n: int = 1) -> None:
        self.left -= n if self.here else 0
        if self.here and self.left <= 0:
            raise Interrupted

    def note(self, text: str) -> None: ...


class Counts:
    """How much each step had to do, and what was done when it began."""

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
def test_interrupted_anywhere_it_goes_on_to_the_same_bytes(
    forum: Path, tmp_path: Path, expected: dict[str, str], title: str, after: int
) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), Stops(title, after))
    assert not (tmp_path / "funnel.json").exists()
    mine(config(forum, tmp_path))
    assert fingerprint(tmp_path) == expected


def test_what_is_done_is_not_done_again(forum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), Stops("Mining", 3))
    done: list[int] = []
    monkeypatch.setattr(driver, "scatter", lambda task: pytest.fail("a part was read again"))
    monkeypatch.setattr(driver, "harvest", lambda task: done.append(task.number) or harvest.harvest(task))
    mine(config(forum, tmp_path))
    assert len(done) == 5


@pytest.mark.parametrize("kind", ["messages", "hashes"])
def test_a_part_whose_files_were_cut_is_read_again(
    forum: Path, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), Stops("Reading messages", 5))
    victim = min((tmp_path / "_work").glob(f"{kind}-*.arrow"))
    os.truncate(victim, victim.stat().st_size - 1)
    mine(config(forum, tmp_path))
    assert fingerprint(tmp_path) == expected


def test_a_finished_run_is_not_run_again(forum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = mine(config(forum, tmp_path))
    monkeypatch.setattr("tertulia.corpus.mine.run", lambda *a, **k: pytest.fail("run again"))
    assert mine(config(forum, tmp_path)) == first
    assert mine(config(forum, tmp_path, workers=1, engine="ray")) == first  # the engine is no part of the result
    with_dialogues = mine(config(forum, tmp_path, dialogues=True))
    assert with_dialogues.pairs == tmp_path / "pairs.parquet"
    assert with_dialogues.funnel == first.funnel


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"min_letters": 0.5}, "rules.min_letters was 0.7, now 0.5"),
        ({"buckets": 4}, "buckets was 8, now 4"),
        ({"whole": False}, "whole was True, now False"),
        ({"unsafe": "none"}, "marked is unsafe was True, now False"),
        ({"subwords": None}, "subwords.sha256 was"),
        ({"links": "cut"}, "cleaning.links was 'rule', now 'cut'"),
    ],
)
def test_another_work_in_mind_is_refused_with_what_differs(
    forum: Path, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), Stops("Reading messages", 1))
    with pytest.raises(UsageError, match="was mined from something else") as error:
        mine(config(forum, tmp_path, **change))
    assert told in str(error.value)
    assert "--fresh" in str(error.value)


def test_a_changed_input_is_refused_or_mined_anew(tmp_path: Path) -> None:
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


def test_two_runs_do_not_share_a_folder(forum: Path, tmp_path: Path) -> None:
    (tmp_path / "_work").mkdir()
    with alone(tmp_path / "_work" / "lock"), pytest.raises(DataError, match="Another run is at work"):
        mine(config(forum, tmp_path))


def test_unfinished_files_are_swept(tmp_path: Path) -> None:
    def interrupted() -> None:
        with appearing(tmp_path / "x") as file:
            file.write_text("half")
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    with appearing(tmp_path / "y") as file:
        file.write_text("whole")
        file.with_name("y.1-killed.unfinished").write_text("left by a killed writer")
    assert sweep(tmp_path) == 1
    assert [f.name for f in tmp_path.iterdir()] == ["y"]


def test_the_sample_for_subwords_depends_on_the_seed_alone(forum: Path, tmp_path: Path) -> None:
    learned = {"subwords": None, "vocabulary": 600, "sample": 500}
    models = []
    for name, more in {"a": {}, "b": {"workers": 2}, "c": {"seed": 1}}.items():
        mine(config(forum, tmp_path / name, **learned, **more))
        models.append((tmp_path / name / "subwords.model").read_bytes())
    assert models[0] == models[1] != models[2]


def test_markers_are_what_they_say(forum: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        mine(config(forum, tmp_path), Stops("Mining", 8))
    work = tmp_path / "_work"
    parts = [scatter.Scattered(**json.loads(p.read_text())) for p in sorted(work.glob("part-*.json"))]
    assert sum(part.messages for part in parts) == 20_000
    assert all(part.is_whole(work) for part in parts)
    buckets = [json.loads(p.read_text()) for p in work.glob("bucket-*.json")]
    assert sum(b["funnel"]["messages"] for b in buckets) == 20_000
