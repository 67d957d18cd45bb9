"""What a report says about the best, what it identifies, and what its page holds behind the cells."""

import base64
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tertulia.core.score import Score
from tertulia.judge.html import _aligned, csv_cell, csv_link, table
from tertulia.judge.report import report_run, save_judged
from tertulia.judge.report_compare import ReportConfig, compare_runs
from tertulia.judge.report_data import embed
from tertulia.judge.report_leaderboard import adjust, scores_of, standings
from tertulia.judge.report_texts import view
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, save_run
from tertulia.metrics.metric import MetricInfo
from tertulia.metrics.ratings import holm
from tertulia.metrics.significance import compare, compare_all_units, difference_p

EVIL = "</script><img src=x onerror=alert(1)>\u2028\u202eabc\"'<!--"
N = 80


def judged(means: dict[str, float], *, shift: float = 0.0, own_units: bool = False, **about: Any) -> JudgedRun:
    """Bots whose values have these means, with a spread that they share; hostile texts."""
    noise = np.random.default_rng(1).normal(size=N)
    scores, items = [], []
    for k, (bot, mean) in enumerate(means.items()):
        units = tuple(f"{bot if own_units else 'u'}{i}" for i in range(N))
        own = np.random.default_rng(k + 5).normal(size=N) * 0.3
        values = tuple((mean + shift + noise + own).tolist())
        scores.append(Score(bot, "", "quality", units, values, units))
        scores.append(Score(bot, "", "length", units, tuple(map(float, range(N))), units))
        turns = [{"speaker": "A", "text": EVIL}, {"speaker": "B", "text": "é" * 3, "provenance": {"seed": k}}]
        items += [JudgedItem(unit, {"turns": turns, "judged": "B"}, bot) for unit in units]
    return JudgedRun(
        verb="conversations",
        config={"seed": 0},
        subjects=tuple(Subject(bot, bot, "kind", f"print-{bot}") for bot in means),
        settings=("",),
        scores=tuple(scores),
        metrics={
            "quality": MetricInfo("quality", "conversation", summary=EVIL),
            "length": MetricInfo("length", "conversation", higher_is_better=None),
        },
        items=tuple(items),
        **about,
    )


def test_the_best_is_marked_with_whoever_cannot_be_told_apart_from_it() -> None:
    run = judged({"low": 0.0, "best": 1.0, "close": 0.99})
    badges = standings(scores_of(run), run.estimates())
    assert badges == {("best", "", "quality"): "best", ("close", "", "quality"): "tied"}
    apart = judged({"low": 0.0, "best": 1.0, "close": 0.99}, own_units=True)  # nothing to pair: all units of both
    assert standings(scores_of(apart), apart.estimates()) == badges
    down = JudgedRun(
        **{name: getattr(run, name) for name in ("verb", "config", "subjects", "settings", "scores")},
        metrics=run.metrics | {"quality": MetricInfo("quality", "conversation", higher_is_better=False)},
    )
    assert standings(scores_of(down), down.estimates()) == {("low", "", "quality"): "best"}


def test_p_values_are_those_of_t_tests_and_adjusted_by_holm() -> None:
    run = judged({"a": 0.0, "b": 0.1, "c": 0.0})
    info = run.metrics["quality"]
    a, b, c = (next(s for s in run.scores if s.subject == bot and s.metric == "quality") for bot in "abc")
    for one, other in ((b, a), (c, a)):
        expected = stats.ttest_rel(one.values, other.values).pvalue
        compared = compare(one, other, info)
        assert compared is not None
        assert compared.p_value == pytest.approx(expected)
        assert difference_p(one, other, info) == pytest.approx(expected)
    apart = judged({"a": 0.0, "b": 0.3}, own_units=True)
    first, second = (s for s in apart.scores if s.metric == "quality")
    unpaired = compare_all_units(first, second, info)
    assert unpaired is not None
    # Welch's test, but for the degrees of freedom, and for clusters counted together
    assert unpaired.p_value == pytest.approx(
        stats.ttest_ind(first.values, second.values, equal_var=False).pvalue, rel=0.1
    )
    adjusted = adjust(run.comparisons())
    quality = [one for one in adjusted if one.metric == "quality"]
    assert [one.adjusted_p for one in quality] == pytest.approx(holm([one.p_value for one in quality]))
    assert quality[0].as_json()["significant"] is (quality[0].adjusted_p < 0.05)
    constant = Score("x", "", "quality", ("1", "2", "3"), (1.0, 1.0, 1.0), ("1", "2", "3"))
    zero = Score("y", "", "quality", ("1", "2", "3"), (0.0, 0.0, 0.0), ("1", "2", "3"))
    assert difference_p(constant, zero, info) == 0.25  # three clusters cannot say more
    assert difference_p(zero, zero, info) == 1.0
    assert math.isnan(difference_p(constant, Score("z", "", "quality", (), (), ()), info))


def unpack(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_the_page_holds_every_unit_value_and_text_and_no_markup_of_theirs() -> None:
    run = judged({"a": 0.0, EVIL: 1.0})
    embedded = embed(scores_of(run), run.estimates(), title=EVIL)
    page = embedded.html()
    assert page.count("<script") == page.count("</script>") == 1 + len(embedded.blocks)
    assert "<img" not in page
    assert "\u2028" not in page
    index = json.loads(embedded.index)
    cell = next(c for c in index["cells"] if (c["subject"], c["metric"]) == (EVIL, "quality"))
    assert (cell["fingerprint"], cell["count"]) == (f"print-{EVIL}", N)
    units, values = unpack(embedded.blocks[cell["units"]]), unpack(embedded.blocks[cell["block"]])["values"]
    score = run.scores[2]
    assert tuple(units["units"]) == score.units
    assert values == pytest.approx(score.values, rel=1e-5)
    start, block = next((s, b) for s, b in reversed(index["texts"]) if s <= units["items"][7])
    shown = unpack(embedded.blocks[block])[units["items"][7] - start]
    assert shown["t"] == [["A", EVIL, ""], ["B", "ééé", "judged", {"seed": 1}]]


def test_texts_of_every_judge_have_one_shape() -> None:
    ranked = view({"context": ["a", "b"], "reference": "r", "candidates": ["x", "r"], "truth": 1, "turns": 2})
    assert [(t.speaker, t.text, t.role) for t in ranked.turns] == [
        ("B", "a", ""),
        ("A", "b", ""),
        ("B", "r", "reference"),
    ]
    assert [c.truth for c in ranked.candidates] == [False, True]
    assert ranked.facts == (("turns", "2"),)
    played = view({"turns": [["A", "hi"], ["B", "ho"]], "judged": [False, True], "persona": ["I sail.", "I bake."]})
    assert [t.role for t in played.turns] == ["", "judged"]
    assert played.facts == (("persona", "I sail. I bake."),)
    rated = view({"rater": "r7", "reply": "", "context": [{"speaker": "x", "text": "hm"}], "odd": {"a": [1]}})
    assert [t.text for t in rated.turns] == ["hm", ""]
    assert dict(rated.facts) == {"rater": "r7", "odd": '{"a":[1]}'}
    assert view({}).as_json() == {}


def test_a_saved_report_identifies_what_was_judged(tmp_path: Path) -> None:
    data = {"path": "d.jsonl", "split": "valid", "digest": "abc123"}
    report = save_judged(judged({"a": 0.0, "b": 1.0}), tmp_path / "run", data=data)
    known = json.loads((tmp_path / "run" / "report.json").read_text())["identity"]
    assert known["data"] == data
    assert known["checkpoints"] == {"a": "print-a", "b": "print-b"}
    assert known["version"]
    assert known["created"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for text in ("abc123", "split valid", "print-a", known["created"], known["version"]):
        assert text in page, text
    policy = re.search(r"script-src '(sha256-[^']+)'", page)
    assert policy is not None
    assert "unsafe" not in page.split("style-src")[0]
    assert dict(report.document.identity).keys() >= {"command", "date", "version", "data", "checkpoints"}
    assert all(f"<dt>{name}</dt>" in page for name, _ in report.document.identity)
    assert "quality%20low" in page  # the CSV of the figures


def test_several_runs_share_one_report_and_each_cell_has_its_own_texts(tmp_path: Path) -> None:
    for name, shift in (("one", 0.0), ("two", 0.5)):
        save_run(judged({"bot": 0.0, "other": 1.0}, shift=shift), tmp_path / name)
    report = compare_runs(ReportConfig(runs=(tmp_path / "one", tmp_path / "two")))
    assert [one.subject for one in report.scores[::2]] == [
        f"{s} [{r}]" for r in ("one", "two") for s in ("bot", "other")
    ]
    compared = report.json["comparisons"]
    assert {c["subject"] for c in compared} == {"other [one]", "bot [two]", "other [two]"}
    assert all(c["significant"] for c in compared if c["metric"] == "quality")
    report.save_as(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    index = json.loads(re.search(r'id="index">(.*?)</script>', page)[1])  # type: ignore[index]
    assert index["items"] == 4 * N
    report.save_as(tmp_path / "page.md")
    assert "| other [one] |" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_numbers_stand_below_each_other_and_are_copied_whole() -> None:
    cells = _aligned([".491 [.478, .503]", "12.08 [9.00, 101.2]", "-", "-.020 [-.050, .010]"])
    plain = [re.sub(r"<[^>]+>", "", cell) for cell in cells]
    assert plain == [".491 [.478, .503]", "12.08 [9.00, 101.2]", "-", "-.020 [-.050, .010]"]
    assert cells[0].startswith('<span style="padding-left:2ch">.491</span>')
    assert cells[1].startswith('<span style="padding-right:1ch">12.08</span>')
    assert "<th scope=row" in table(("name", "n"), [("a", 1)])
    assert 'class="n"' not in table(("turns",), [("3-4",), ("17+",)])


def test_csv_is_in_the_page_and_runs_nothing() -> None:
    link = csv_link(("a",), [("=1+1",), (-0.5,)], 'Ta"ble <1>')
    assert "%27%3D1%2B1" in link
    assert "-0.5" in link
    assert 'download="ta-ble-1.csv"' in link
    assert "<1>" not in link
    assert csv_cell("+.020 [-.010, .050]") == "+.020 [-.010, .050]"


def test_pathologies_show_the_worst_conversation() -> None:
    run = judged({"a": 0.0, "b": 1.0})
    renamed = [Score(s.subject, s.setting, "loop", s.units, s.values, s.clusters) for s in run.scores[::2]]
    looping = JudgedRun(
        **{name: getattr(run, name) for name in ("verb", "config", "subjects", "settings", "items")},
        scores=tuple(renamed),
        metrics={"loop": MetricInfo("loop", "conversation", higher_is_better=False)},
    )
    section = next(s for s in report_run(looping, plots=False).document.sections if s.title.startswith("What goes"))
    assert section.title == "What goes wrong: loops"
    worst = max(value for score in renamed for value in score.values)
    assert f"loop {worst:.3f}" in section.examples[0].examples[0].title
    assert section.examples[0].examples[0].turns[1].text == "ééé"
