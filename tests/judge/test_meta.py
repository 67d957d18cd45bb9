"""Metrics against people: a metric that people agree with, one that they do not, and runs read from a folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.score import Score
from tertulia.judge.correlation_tables import read_rows
from tertulia.judge.human_ratings import read_dstc
from tertulia.judge.meta import MetaConfig, example_so_far, match_values, run_meta
from tertulia.judge.runs import JudgedRun, Subject, save_run
from tertulia.metrics import judge_labels
from tertulia.metrics.metric import MetricInfo, ReplyExample
from tertulia.metrics.overlap import F1

WORDS = "tea coffee music films sailing gardens novels trains mountains bread".split()


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    return write_ratings(tmp_path / "ratings.json")


def write_ratings(file: Path) -> Path:
    """Twenty contexts, three systems: people like long replies and do not care about questions."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for i in range(20):
        for s, system in enumerate(("short", "middle", "long")):
            length = int(rng.integers(1, 5)) + 3 * s
            response = " ".join(rng.choice(WORDS, size=length)) + rng.choice([".", "?"])
            liked = [float(np.clip(round(length / 2 + rng.normal(scale=0.8)), 1, 5)) for _ in range(3)]
            rows.append(
                {
                    "dialogid": f"c{i}",
                    "model": system,
                    "context": ["what do you like ?", "many things .", f"{WORDS[i % 10]} too ?"],
                    "response": response,
                    "references": ["tea .", "i like " + WORDS[i % 10]],
                    "annotations": {"Overall": liked, "Odd": [float(rng.integers(3)) for _ in range(3)]},
                }
            )
    file.write_text(json.dumps(rows))
    return file


def config(ratings: Path, **options: Any) -> MetaConfig:
    return MetaConfig(file=ratings, format="dstc", resamples=200, **options)


def test_correlations_ceiling_and_levels(ratings: Path) -> None:
    run = run_meta(config(ratings, metrics=("words per reply", "f1", "question score"), so_far=True))
    cells = {(r.level, r.metric, r.aspect, r.correlation.kind): r.correlation for r in read_rows(run)}
    liked, odd = (cells["turn", "words per reply", aspect, "spearman"] for aspect in ("overall", "odd"))
    rated = read_dstc(json.loads(ratings.read_text())).replies
    lengths = [len(one.response.split()) for one in rated]
    expected = stats.spearmanr(lengths, [np.mean(one.ratings["overall"]) for one in rated]).statistic
    assert liked.estimate.value == pytest.approx(expected)
    assert liked.estimate.n == 60
    assert liked.p < 0.02 < odd.p
    assert cells["system", "words per reply", "overall", "pearson"].estimate.n == 3
    assert ("turn", "question score, so far", "overall", "kendall") in cells
    agreement = {one["aspect"]: one for one in run.details["agreement"]}
    assert agreement["overall"]["ceiling"]["spearman"]["value"] > 0.6 > agreement["odd"]["ceiling"]["spearman"]["value"]
    assert agreement["overall"]["alpha"]["low"] > 0.3 > agreement["odd"]["alpha"]["value"]


def test_of_several_references_the_best_counts(ratings: Path) -> None:
    run = run_meta(config(ratings, metrics=("f1",), level=("turn",), aspects=("overall",)))
    score = run.score("long", "", "f1")
    assert score is not None
    item = next(item for item in run.items if item.unit == score.units[0])
    single = [F1.measure([ReplyExample(item.content["reply"], r)])[0][0] for r in item.content["references"]]
    assert score.values[0] == max(single)
    assert {row.level for row in read_rows(run)} == {"turn"}


def test_scores_of_a_judged_run_are_matched_by_unit(ratings: Path, tmp_path: Path) -> None:
    rated = read_dstc(json.loads(ratings.read_text())).replies
    units = tuple(one.unit for one in rated)
    values = tuple(float(np.mean(one.ratings["overall"])) for one in rated)
    judge = Score("any name", "strict", "verdict", units, values, units)
    verdicts = [replace(judge, metric=metric.name) for metric in (judge_labels.RATING, judge_labels.UNPARSED)]
    info = {
        "verdict": MetricInfo("verdict", "reply"),
        **{metric.name: metric.info for metric in (judge_labels.RATING, judge_labels.UNPARSED)},
    }
    scores = (judge, *verdicts)
    save_run(JudgedRun("llm", {}, (Subject("any name"),), ("strict",), scores, info), tmp_path / "judge")
    run = run_meta(config(ratings, scores=(str(tmp_path / "judge"),), level=("turn",)))
    cells = {(r.metric, r.aspect): r.correlation for r in read_rows(run) if r.correlation.kind == "kendall"}
    assert cells["verdict (strict)", "overall"].estimate.value == pytest.approx(1)
    assert cells["rating (judge) (strict)", "overall"].estimate.value == pytest.approx(1)
    assert not any("unparsed" in metric for metric, _ in cells), "that says something about the judge, not the unit"
    foreign = Score("x", "", "verdict", ("other",), (1.0,), ("other",))
    save_run(JudgedRun("llm", {}, (Subject("x"),), ("",), (foreign,), info), tmp_path / "foreign")
    with pytest.raises(DataError, match="no units in common"):
        run_meta(config(ratings, scores=(str(tmp_path / "foreign"),)))


def test_a_unit_of_two_subjects_is_matched_by_its_system() -> None:
    rated = read_dstc([{"id": "d", "model": "B", "context": "hi", "response": "x", "annotations": {"o": 1}}]).replies
    (unit,) = (one.unit for one in rated)
    assert match_values(rated, {("A", unit): 1.0, ("B", unit): 2.0}) == {unit: 2.0}
    assert match_values(rated, {("A", unit): 1.0, ("C", unit): 2.0}) == {}
    assert match_values(rated, {("B", f"{unit}/unit"): 1.0}) == {unit: 1.0}, "as a judge calls the units of a study"


def test_the_conversation_so_far_is_judged_by_who_replies() -> None:
    entry = {"id": "d", "context": ["hi", "hello", "well ?"], "response": "yes", "annotations": {"o": 1}}
    assert example_so_far(read_dstc([entry]).replies[0]).judged == (False, True, False, True)


def test_what_cannot_be_correlated_is_refused(ratings: Path) -> None:
    with pytest.raises(UnknownName, match="no aspect called 'overal'"):
        run_meta(config(ratings, aspects=("overal",)))
    with pytest.raises(UsageError, match="no rated units of that kind"):
        run_meta(config(ratings, metrics=("question score",)))
    with pytest.raises(UsageError, match="no value for a single unit"):
        run_meta(config(ratings, metrics=("distinct-2",)))
