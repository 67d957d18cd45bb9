"""Judged runs on disk: exact round trips, and clear errors where a folder cannot be read."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tertulia import __version__
from tertulia.core.errors import DataError
from tertulia.core.score import Score
from tertulia.judge.config import RankConfig
from tertulia.judge.rank import run_rank
from tertulia.judge.runs import (
    JudgedItem,
    JudgedRun,
    Subject,
    describe_data,
    describe_subject,
    load_run,
    save_run,
    unique_ids,
)
from tertulia.metrics.registry import metric_named

SCORES = (
    Score("bot", "none", "mrr", ("a#1", "b#1"), (0.1 + 0.2, math.nan), ("a", "b")),
    Score("bot", "own", "mrr", (), (), ()),
    Score("bot", "none", "perplexity", ("a", "b"), (12.5, 1e-300), ("a", "b"), (3.0, 0.25)),
    Score("bôt 2", "none", "mrr", ("b#1",), (-math.inf,), ("b",)),
)
RUN = JudgedRun(
    verb="rank",
    config={"seed": 3, "bots": ["bot", "bôt 2"], "limit": None},
    subjects=(Subject("bot", "tfidf:x", "tfidf", "0123"), Subject("bôt 2")),
    settings=("none", "own"),
    scores=SCORES,
    metrics={name: metric_named(name).info for name in ("mrr", "perplexity")},
    items=(
        JudgedItem("a#1", {"context": ["hi", "日本 <b>"], "turns": 2}),
        JudgedItem("b#1", {"reply": "x"}, "bot", "none"),
    ),
    notes=("A note.",),
    details={"chance": 0.05},
)


def same_scores(one: tuple[Score, ...], other: tuple[Score, ...]) -> bool:
    """Equality that treats nan as equal to nan, and nothing else as equal to what it is not."""
    return [repr(score) for score in one] == [repr(score) for score in other]


def test_a_run_reads_back_exactly(tmp_path: Path) -> None:
    saved = save_run(RUN, tmp_path / "run", data={"path": "x.jsonl", "split": None, "digest": "abc"})
    loaded = load_run(tmp_path / "run")
    assert same_scores(loaded.scores, SCORES)
    assert replace(loaded, scores=(), about={}) == replace(RUN, scores=())
    assert repr(saved) == repr(loaded)
    assert loaded.about["data"] == {"path": "x.jsonl", "split": None, "digest": "abc"}
    assert loaded.about["versions"]["tertulia"] == __version__
    assert {"python", "numpy"} <= set(loaded.about["versions"])
    assert loaded.about["created"].endswith("+00:00")
    again = save_run(loaded, tmp_path / "copy")
    assert repr(again) == repr(loaded)
    assert str(loaded.estimates()) == str(RUN.estimates())


def test_a_run_without_units_or_items(tmp_path: Path) -> None:
    empty = replace(RUN, scores=(SCORES[1],), items=())
    assert save_run(empty, tmp_path / "run").scores == (SCORES[1],)


def test_a_damaged_run_is_a_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    save_run(RUN, folder)
    (folder / "scores.parquet").write_bytes(b"oops")
    with pytest.raises(DataError, match=r"damaged: scores.parquet has changed"):
        load_run(folder)
    (folder / "scores.parquet").unlink()
    with pytest.raises(DataError, match=r"scores.parquet is missing"):
        load_run(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        load_run(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"not a complete judged run: manifest.json is missing"):
        load_run(folder)
    with pytest.raises(DataError, match="Folder not found"):
        load_run(tmp_path / "nowhere")


def test_a_newer_format_and_another_kind_are_clear_errors(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    save_run(RUN, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))
    with pytest.raises(DataError, match=r"newer Tertulia \(format 2"):
        load_run(folder)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"kind": "model"}))
    with pytest.raises(DataError, match="contains a 'model', not a 'judged-run'"):
        load_run(folder)


def test_the_manifest_describes_data_and_subjects(tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    file.write_text("{}\n")
    one = describe_data(str(file), None)
    file.write_text("{ }\n")
    assert describe_data(str(file), None)["digest"] != one["digest"]
    assert describe_data("sample", "valid")["split"] == "valid"
    assert describe_subject("tfidf:sample", "tfidf") == Subject("tfidf:sample", "tfidf", "tfidf")
    run = run_rank(RankConfig(bots=("generic",), limit=5))
    folder = tmp_path / "run"
    save_run(run, folder)
    assert load_run(folder).config == run.config
    assert "out" not in run.config


def test_ids_are_made_unique() -> None:
    assert unique_ids(["a", "a", "b", "a"]) == ["a", "a (2)", "b", "a (3)"]
