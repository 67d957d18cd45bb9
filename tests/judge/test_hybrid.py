"""The hybrid metric on eight simulated bots whose quality is known, and proxies of it."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.score import Score
from tertulia.judge.correlation_tables import read_rows
from tertulia.judge.hybrid import (
    HybridConfig,
    choose_aspect,
    judge_hybrid,
    load_hybrid,
    read_hybrid_data,
    run_hybrid,
    save_hybrid,
)
from tertulia.judge.proxy import ProxyConfig, corrected_r2, proxy_points, proxy_run
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, save_run
from tertulia.metrics.human import RATING
from tertulia.metrics.line import fit_line
from tertulia.metrics.metric import MetricInfo

BOTS, CONVERSATIONS, RATERS = 8, 20, 2
WEIGHTS = {"warmth": 0.6, "questions": -0.4, "noise": 0.0}
SUBJECTS = tuple(Subject(f"bot{i}") for i in range(BOTS))
INFOS = {name: MetricInfo(name, "conversation") for name in WEIGHTS}


def _features(seed: int) -> np.ndarray:
    """(bots, conversations, features); better bots are warmer."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(BOTS, CONVERSATIONS, 3))
    features[:, :, 0] += np.linspace(-2, 2, BOTS)[:, None]
    return features


def human_run() -> JudgedRun:
    """Ratings of 1 to 7 by a linear rule with noise, of two aspects: quality, and taste, which is noise alone."""
    rng, features = np.random.default_rng(9), _features(1)
    quality = 4 + features @ np.array(list(WEIGHTS.values()))
    scores, items = [], {}
    for aspect, truth in (("taste", np.full_like(quality, 4)), ("quality", quality)):
        for b in range(BOTS):
            rows = [(c, r) for c in range(CONVERSATIONS) for r in range(RATERS)]
            units = [f"a{b}-{c}-{r}" for c, r in rows]
            values = [float(truth[b, c] + rng.normal(scale=0.5)) for c, _ in rows]
            clusters = [f"chat-{b}-{c}" for c, _ in rows]
            scores.append(RATING.score(values, subject=f"bot{b}", setting=aspect, units=units, clusters=clusters))
            for unit, (c, r) in zip(units, rows, strict=True):
                items[unit] = JudgedItem(unit, {"rater": f"r{r}", "unit": f"u{b}-{c}", "target": "unit"})
    details = {"bounds": {"quality": [-9, 9], "taste": [-9, 9]}}
    return JudgedRun(
        "study",
        {},
        SUBJECTS,
        ("taste", "quality"),
        tuple(scores),
        {"rating": RATING.info},
        tuple(items.values()),
        (),
        details,
    )


def _run(features: np.ndarray, prefix: str) -> JudgedRun:
    scores = []
    for b in range(BOTS):
        units = tuple(f"{prefix}-{b}-{c}" for c in range(CONVERSATIONS))
        for k, name in enumerate(WEIGHTS):
            scores.append(Score(f"bot{b}", "", name, units, tuple(features[b, :, k].tolist()), units))
    return JudgedRun("conversations", {}, SUBJECTS, ("",), tuple(scores), INFOS)


def metric_run() -> JudgedRun:
    """Metrics of the conversations that people rated, by the ids of the conversations."""
    return _run(_features(1), "chat")


def selfplay_run() -> JudgedRun:
    """Metrics of other conversations."""
    return _run(_features(2), "play")


@pytest.fixture
def config(tmp_path: Path) -> HybridConfig:
    for name, run in (("people", human_run()), ("metrics", metric_run()), ("selfplay", selfplay_run())):
        save_run(run, tmp_path / name)
    folders = {"ratings": tmp_path / "people", "selfplay": tmp_path / "selfplay", "model": tmp_path / "model"}
    return HybridConfig(**folders, metrics=(str(tmp_path / "metrics"),), resamples=100)


def test_a_known_rule_is_recovered_and_transfers_to_self_play(config: HybridConfig) -> None:
    run = run_hybrid(config)
    assert (run.details["aspect"], run.details["features"]) == ("quality", list(WEIGHTS))
    for name, truth in WEIGHTS.items():
        for kind in ("formula", "robust"):
            interval = run.details["coefficients"][name][kind]
            assert interval["low"] < truth < interval["high"]
            assert interval["high"] - interval["low"] < 0.3
    cells = {(r.level, r.metric, r.aspect, r.correlation.kind): r.correlation for r in read_rows(run)}
    for method in ("ols", "ridge", "rank"):
        assert cells["self-play bots", f"hybrid {method}", "quality", "spearman"].estimate.value > 0.9
        together = cells["interactive", f"hybrid {method}", "quality", "pearson"].estimate.value
        assert together > cells["interactive", "warmth", "quality", "pearson"].estimate.value
        assert abs(cells["interactive", f"hybrid {method}", "taste", "pearson"].estimate.value) < 0.3
    assert cells["self-play bots", "warmth", "quality", "kendall"].estimate.n == BOTS
    predicted = run.score("bot7", "interactive", "hybrid ols")
    assert predicted is not None
    assert len(predicted.units) == CONVERSATIONS


def test_the_prediction_of_a_bot_does_not_depend_on_its_ratings(config: HybridConfig) -> None:
    data = read_hybrid_data(config)
    forged = tuple(replace(one, ratings={"quality": (1.0, 7.0)}) if one.system == "bot3" else one for one in data.rated)
    honest, other = (judge_hybrid(replace(data, rated=rated), selfplay_run(), config) for rated in (data.rated, forged))
    for method in ("ols", "ridge", "rank"):
        for setting in ("interactive", "self-play"):
            scores = [run.score("bot3", setting, f"hybrid {method}") for run in (honest, other)]
            assert scores[0] == scores[1]
            assert honest.score("bot4", setting, f"hybrid {method}") != other.score("bot4", setting, f"hybrid {method}")


def test_a_saved_model_reads_back_with_what_it_was_fitted_on(config: HybridConfig, tmp_path: Path) -> None:
    run_hybrid(config)
    model, about = load_hybrid(tmp_path / "model")
    assert (model.method, model.features, model.rows) == ("rank", tuple(WEIGHTS), BOTS * CONVERSATIONS)
    assert about["aspect"] == "quality"
    assert set(about["sources"]) == {"people", "metrics"}
    assert len(about["bots"]) == BOTS
    save_hybrid(model, tmp_path / "copy", aspect="x", bots=[], sources={})
    assert load_hybrid(tmp_path / "copy")[0] == model


def test_a_bot_unlike_the_training_bots_is_reported(config: HybridConfig, tmp_path: Path) -> None:
    run_hybrid(config)
    played = selfplay_run()
    strange = [
        replace(s, values=tuple(v + 50 for v in s.values)) if s.key == ("bot1", "", "questions") else s
        for s in played.scores
    ]
    save_run(replace(played, scores=tuple(strange)), tmp_path / "strange")
    applied = run_hybrid(HybridConfig(apply=tmp_path / "model", selfplay=tmp_path / "strange"))
    warnings = [note for note in applied.notes if "lies outside" in note]
    assert len(warnings) == 1
    assert warnings[0].startswith("bot1 lies outside")
    assert "questions beyond the range" in warnings[0]
    assert "Mahalanobis" in warnings[0]
    fewer = replace(played, scores=tuple(s for s in played.scores if s.metric != "noise"))
    save_run(fewer, tmp_path / "fewer")
    with pytest.raises(DataError, match="has no 'noise'"):
        run_hybrid(HybridConfig(apply=tmp_path / "model", selfplay=tmp_path / "fewer"))


def test_only_what_self_play_has_becomes_a_feature_unless_named(config: HybridConfig, tmp_path: Path) -> None:
    """Chats with people also have personas, whose metrics self-play may lack: the rest is used, and said."""
    played = selfplay_run()
    unknown = [replace(s, values=(math.nan,) * len(s.values)) if s.metric == "noise" else s for s in played.scores]
    for scores in ([s for s in played.scores if s.metric != "noise"], unknown):
        save_run(replace(played, scores=tuple(scores)), tmp_path / "fewer")
        fewer = config.model_copy(update={"selfplay": tmp_path / "fewer"})
        run = run_hybrid(fewer)
        assert run.details["features"] == [name for name in WEIGHTS if name != "noise"]
        assert "self-play has no such values: noise." in run.notes[0]
    save_run(replace(played, scores=tuple(s for s in played.scores if s.metric != "noise")), tmp_path / "fewer")
    with pytest.raises(DataError, match="has no 'noise'"):
        run_hybrid(fewer.model_copy(update={"features": tuple(WEIGHTS)}))


def test_mistakes_are_named(config: HybridConfig) -> None:
    with pytest.raises(UsageError, match="fitted on ratings and metrics"):
        run_hybrid(HybridConfig())
    with pytest.raises(UnknownName, match="'warmht'"):
        run_hybrid(config.model_copy(update={"features": ("warmht",)}))
    with pytest.raises(DataError, match="rates no such units"):
        run_hybrid(config.model_copy(update={"level": "turn"}))
    assert choose_aspect(None, ["dialogue coherent", "dialogue overall"]) == "dialogue overall"
    assert choose_aspect("coherent", ["dialogue coherent", "dialogue overall"]) == "dialogue coherent"
    with pytest.raises(UnknownName, match="'fluent'"):
        choose_aspect("fluent", ["dialogue coherent"])


def test_a_proxy_recovers_the_line(tmp_path: Path) -> None:
    """Quality rises by 0.6 per unit of warmth; the other features average out within a bot."""
    config = ProxyConfig(human=tmp_path, metrics=tmp_path, score="quality", metric="warmth", resamples=300)
    points = proxy_points(human_run(), metric_run(), config)
    assert len(points) == BOTS
    details = proxy_run(points, human_run(), metric_run(), config).details["proxy"]
    line = details["line"]
    assert line["slope"]["low"] < 0.6 < line["slope"]["high"]
    assert line["r2"]["low"] > 0.7
    assert line["r2"]["value"] <= line["r2_corrected"]["value"] <= 1
    assert details["references"] == {}
    taste = proxy_points(human_run(), metric_run(), config.model_copy(update={"score": "taste"}))
    unrelated = fit_line([x.value for x, _ in taste.values()], [y.value for _, y in taste.values()])
    assert unrelated.r2_fisher.low < 0.2
    assert math.isnan(corrected_r2(unrelated, [y for _, y in taste.values()]).value)  # nothing but sampling error
    with pytest.raises(DataError, match="0 bots in common"):
        proxy_points(
            human_run(),
            replace(metric_run(), scores=(metric_run().scores[0],)),
            config.model_copy(update={"names": {"bot0": "x"}}),
        )
