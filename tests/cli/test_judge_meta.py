"""`judge meta`, `hybrid` and `proxy` on the command line: what they save opens again, and mistakes are named."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.judge.test_hybrid import human_run, metric_run, selfplay_run
from tests.judge.test_meta import write_ratings

from tertulia.judge.runs import load_run, save_run
from tertulia.metrics.human import RATING

Tertulia = Callable[..., Any]


def test_the_command_saves_a_run_that_report_opens(tertulia: Tertulia, tmp_path: Path) -> None:
    ratings, out = write_ratings(tmp_path / "ratings.json"), tmp_path / "run"
    arguments = ["judge", "meta", ratings, "--format", "dstc", "--metric", "words per reply", "--resamples", 200]
    result = tertulia(*arguments, "--out", out)
    assert result.code == 0
    assert "words per reply" in result.out
    assert {"turn-spearman.svg", "report.html"} <= {file.name for file in out.iterdir()}
    saved = load_run(out)
    assert saved.verb == "meta"
    assert all(score.units for score in saved.scores)
    assert {RATING.name, "words per reply"} == set(saved.metric_names())
    again = tertulia("report", out, "--json")
    titles = [table["title"] for table in json.loads(again.out)["tables"]]
    assert any(title.startswith("Spearman with people's ratings, replies (n = 60)") for title in titles)
    as_run = json.loads(tertulia("judge", "meta", out, "--format", "run", "--metric", "words per reply", "--json").out)
    values = [[r["value"] for r in x["run"]["details"]["correlations"]] for x in (as_run, json.loads(again.out))]
    assert values[0] == pytest.approx(values[1])
    assert not math.isnan(values[0][0])
    assert tertulia("judge", "meta", ratings, "--format", "usr").code == 1


def test_a_hybrid_metric_is_fitted_saved_and_applied(tertulia: Tertulia, tmp_path: Path) -> None:
    for name, run in (("people", human_run()), ("metrics", metric_run()), ("selfplay", selfplay_run())):
        save_run(run, tmp_path / name)
    given = ["--ratings", tmp_path / "people", "--metrics", tmp_path / "metrics", "--resamples", 100]
    played = ["--selfplay", tmp_path / "selfplay"]
    out, model = tmp_path / "run", tmp_path / "model"
    result = tertulia("judge", "hybrid", *given, *played, "--model", model, "--method", "ols", "--out", out)
    assert result.code == 0
    assert "Coefficients of the hybrid metric for quality" in result.out
    assert {"self-play-bots-spearman.svg", "interactive-pearson.svg"} <= {file.name for file in out.iterdir()}
    assert "Coefficients" in tertulia("report", out).out
    applied = json.loads(tertulia("judge", "hybrid", "--apply", model, *played, "--json").out)
    values = {figure["subject"]: figure["value"] for figure in applied["figures"]}
    assert sorted(values, key=values.__getitem__) == [f"bot{i}" for i in range(8)]
    assert "fitted on 160 units" in applied["notes"][0]
    unsaved = tertulia(
        "judge", "hybrid", *given, "--out", tmp_path / "new", "--model", tmp_path / "new" / "report.html"
    )
    assert unsaved.code == 1, "the report is in the place of the model's folder"
    assert "Coefficients of the hybrid metric for quality" in unsaved.out, "what was computed is printed all the same"
    assert tertulia("judge", "hybrid").code == 2
    assert "--selfplay RUN" in tertulia("judge", "hybrid", "--apply", model).stderr
    (model / "model.json").write_text("{}")
    assert "damaged" in tertulia("judge", "hybrid", "--apply", model, *played).stderr


def test_a_proxy_is_plotted_with_its_line(tertulia: Tertulia, tmp_path: Path) -> None:
    save_run(human_run(), tmp_path / "people")
    save_run(metric_run(), tmp_path / "metrics")
    arguments = ["judge", "proxy", tmp_path / "people", tmp_path / "metrics", "--score", "quality"]
    result = tertulia(*arguments, "--metric", "warmth", "--out", tmp_path / "run")
    assert result.code == 0
    assert "quality explained by warmth" in result.out
    assert (tmp_path / "run" / "regression.svg").read_text().startswith("<svg")
    assert len((tmp_path / "run" / "report.md").read_text().split("regression.svg")) == 2
    assert "R^2" in tertulia("report", tmp_path / "run").out
    assert "'warmth'" in tertulia(*arguments, "--metric", "warmht").stderr
    assert "quality" in tertulia(*arguments[:4], "--score", "qualty", "--metric", "warmth").stderr
    assert tertulia("judge", "proxy", tmp_path / "metrics", tmp_path / "metrics").code == 1
