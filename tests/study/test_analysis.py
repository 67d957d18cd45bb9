"""Results against numbers computed by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tertulia.core.dialogue import Json
from tertulia.judge.report_compare import ReportConfig, compare_runs
from tertulia.judge.runs import load_run, save_run
from tertulia.metrics.metric import Metric
from tertulia.metrics.ratings import SubjectRating
from tertulia.metrics.registry import metric_named
from tertulia.study import analysis
from tertulia.study.config import StudyConfig
from tertulia.study.labels import LabelSet, read_labels
from tertulia.study.presets import load_preset
from tertulia.study.reference import published_ssa
from tertulia.study.report import study_report, study_run, study_sections


@dataclass(frozen=True, slots=True)
class Row:
    """A label as the store has it."""

    unit: str
    bots: tuple[str, ...]
    participant: str
    question: str
    value: Json
    target: str = "unit"
    side_order: tuple[int, ...] = (0,)
    assignment: str = ""
    conversations: tuple[str, ...] = ()
    conversation: str | None = None
    study: str = "s"
    state: str = "submitted"
    number: int = 0
    created: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float | None = None
    current: bool = True
    turn_text: str | None = None
    reply: dict[str, Json] | None = None


def rows(*given: Row) -> list[Row]:
    return [replace(row, assignment=row.assignment or f"{row.unit}-{row.participant}") for row in given]


def ssa_rows(bot: str, answers: Sequence[Sequence[tuple[bool, bool]]]) -> Iterable[Row]:
    """Answers by context and rater."""
    for context, by_rater in enumerate(answers):
        for rater, (sensible, specific) in enumerate(by_rater):
            unit, who = f"{bot}-{context}", f"r{rater}"
            yield Row(unit, (bot,), who, "sensible", sensible)
            yield Row(unit, (bot,), who, "specific", specific)


YES, VAGUE, NO = (True, True), (True, False), (False, False)


@pytest.fixture
def ssa_study() -> LabelSet:
    config = load_preset("ssa-static")
    good = [[YES, YES, VAGUE], [YES, VAGUE, NO], [YES, YES, YES], [YES, YES, NO]]
    bad = [[VAGUE, NO, NO], [NO, NO, NO], [VAGUE, NO, VAGUE], [NO, YES, NO]]
    labels = rows(*ssa_rows("good", good), *ssa_rows("bad", bad))
    payloads: dict[str, dict[str, Json]] = {
        f"{bot}-{i}": {
            "source": f"c{i}",
            "context": [{"speaker": "a", "text": f"Context {i}"}],
            "responses": [f"{bot} reply {i}"],
        }
        for bot in ("good", "bad")
        for i in range(4)
    }
    attention = Row("good-0", ("good",), "r0", "attention", "blue")
    return read_labels(config, [*labels, *rows(attention)], payloads)


def test_ssa_majorities_and_agreement_are_those_computed_by_hand(ssa_study: LabelSet) -> None:
    figures = analysis.ssa_figures(ssa_study)
    assert figures["good"].sensibleness.value == pytest.approx(10 / 12)
    assert figures["good"].specificity.value == pytest.approx(8 / 12)
    assert figures["good"].ssa.value == pytest.approx(9 / 12)
    assert figures["bad"].ssa.value == pytest.approx((4 + 1) / 24)
    assert figures["good"].ssa.low < 0.75 < figures["good"].ssa.high

    majority = analysis.majorities(ssa_study)["sensible"]
    assert (majority.shares["good"].value, majority.shares["bad"].value) == (1.0, 0.25)
    assert (majority.items, majority.ambiguous) == (8, 0)

    sensible = next(one for one in analysis.agreement(ssa_study) if one.question == "sensible")
    # Pairs that agree, by item: 3, 1, 3, 1 and 1, 3, 1, 1, of 3 each.
    assert sensible.percent.value == pytest.approx(14 / 24)
    assert set(sensible.alpha) == {"nominal"}
    # 14 yes and 10 no: expected disagreement 2 * 14 * 10 / (24 * 23), observed 1 - 14/24.
    assert sensible.alpha["nominal"].value == pytest.approx(1 - (10 / 24) / (2 * 14 * 10 / (24 * 23)))


def test_contexts_that_bots_share_are_one_cluster_and_attention_checks_are_left_out(ssa_study: LabelSet) -> None:
    assert {ssa_study.clusters["good-0/unit"], ssa_study.clusters["bad-0/unit"]} == {"c0"}
    assert "attention" not in ssa_study.agreement
    assert ssa_study.labels == 48


def test_scores_are_registered_metrics_of_ratings(ssa_study: LabelSet) -> None:
    scores = {score.key: score for score in analysis.study_scores(ssa_study)}
    assert set(scores) == {(bot, "", m) for bot in ("good", "bad") for m in ("sensibleness", "specificity", "SSA")}
    score = scores["good", "", "SSA"]
    assert sum(score.values) / 12 == pytest.approx(0.75)
    assert set(score.clusters) == {"c0", "c1", "c2", "c3"}
    for _, _, name in scores:
        metric = metric_named(name)
        assert isinstance(metric, Metric)
        assert metric.unit == "rating"


def test_bots_are_compared_and_ranked(ssa_study: LabelSet) -> None:
    (pair,) = analysis.comparisons(ssa_study)["ssa"]
    assert (pair.subject, pair.baseline) == ("bad", "good")  # without [[bots]], in alphabetical order
    assert pair.difference.value == pytest.approx(5 / 24 - 0.75)
    assert analysis.ranking(ssa_study, "ssa", [pair._replace(adjusted_p=0.01)]) == "good > bad"
    assert analysis.ranking(ssa_study, "ssa", [pair._replace(adjusted_p=0.2)]) == "good ~ bad"


def test_a_report_has_figures_published_lines_and_can_be_opened_again(ssa_study: LabelSet, tmp_path: Path) -> None:
    sections = study_sections(ssa_study, plots=True)
    run = save_run(study_run(ssa_study, sections, name="pilot", notes=["A note."]), tmp_path / "run")
    report = study_report(run, ssa_study, sections)
    report.save(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<svg") == 2  # SSA, agreement
    assert "Meena full" in page
    assert "A note." in page
    assert (tmp_path / "run" / "ssa.svg").read_text().count("human") >= 1

    opened = load_run(tmp_path / "run")
    assert opened.estimates()["good", "", "SSA"] == analysis.ssa_figures(ssa_study)["good"].ssa
    again = compare_runs(ReportConfig(runs=(tmp_path / "run",)))
    titles = [section.title for section in again.document.sections]
    assert "Agreement of raters" in titles
    assert "conversations and raters" in again.document.lead
    shown = next(s for s in again.document.sections if s.title.startswith("SSA in per cent"))
    assert shown.rows[0][0] == "good"
    assert any("Meena base" in str(row[0]) for row in shown.rows)


def pairwise_study(answers: Sequence[tuple[str, str, tuple[int, int]]]) -> LabelSet:
    """One item after the other, three raters each: what each chose, in which order."""
    config = load_preset("pairwise-static")
    given = [
        Row(f"u{i // 3}", ("x", "y"), who, "quality", value, side_order=order)
        for i, (who, value, order) in enumerate(answers)
    ]
    return read_labels(config, rows(*given), {f"u{i}": {"source": f"c{i}"} for i in range(len(answers))})


def test_sides_are_undone_and_ambiguous_items_left_out() -> None:
    labels = pairwise_study(
        [
            *(("a", "A", (0, 1)), ("b", "B", (1, 0)), ("c", "A", (0, 1))),  # x, x, x
            *(("a", "A", (0, 1)), ("b", "A", (1, 0)), ("c", "tie", (0, 1))),  # x, y, tie: ambiguous
            *(("a", "B", (0, 1)), ("b", "A", (1, 0)), ("c", "A", (0, 1))),  # y, y, x
        ]
    )
    assert [vote.winner for vote in labels.votes["quality"]] == [
        *("first", "first", "first", "first", "second", "tie", "second", "second", "first")
    ]
    result = analysis.head_to_heads(labels)["quality"]["x", "y"]
    assert (result.items, result.ambiguous) == (3, 1)
    assert result.win.value == pytest.approx(4 / 6)
    assert result.tie.value == 0
    assert result.win.level == 0.90
    fit = analysis.strengths(labels)["quality"]
    assert list(fit.strengths) == ["x", "y"]
    wins = {s.setting: s for s in analysis.study_scores(labels) if s.metric == "wins" and s.subject == "y"}
    assert sum(wins["quality, against x"].values) == 3
    assert [r.value for r in labels.subject_ratings("quality")][4:6] == [0.0, 0.5]


def test_both_bad_counts_as_a_tie() -> None:
    config = load_preset("arena")
    row = Row("u", ("x", "y"), "a", "better_partner", "both_bad", side_order=(1, 0), conversations=("k1", "k2"))
    labels = read_labels(config, rows(row))
    assert labels.votes["better_partner"][0].winner == "tie"
    assert labels.clusters == {"u/unit": "k1"}


def test_persona_detection_is_right_where_the_own_persona_was_chosen() -> None:
    config = load_preset("persona-chat")
    given = [
        Row(f"u{i}", ("kv",), f"r{i}", "persona", value, side_order=order, conversations=(f"k{i}",))
        for i, (value, order) in enumerate([("A", (0, 1)), ("A", (1, 0)), ("B", (1, 0)), ("B", (0, 1))])
    ]
    labels = read_labels(config, rows(*given))
    assert [one.rating.value for one in labels.detections] == [1.0, 0.0, 1.0, 0.0]
    assert analysis.detection_accuracy(labels)["kv"].value == 0.5


def test_begin_labels_are_the_worst_of_the_sentences() -> None:
    config = load_preset("begin")
    supported = {"on_topic": 5, "cooperative": 5, "personal": 1, "informs": 5, "contradicted": 1, "supported": 5}
    sentences: list[list[dict[str, Json]]] = [
        [supported, {"on_topic": 1, "why_not": "generic"}],
        [supported, {**supported, "supported": 1, "cooperative": 2}],
    ]
    given = [
        Row(f"u{u}", ("bot",), "a", question, value, target=f"sentence:{s}")
        for u, by_sentence in enumerate(sentences)
        for s, answers in enumerate(by_sentence)
        for question, value in answers.items()
    ]
    labels = read_labels(config, rows(*given))
    assert [label for label, _ in labels.begin] == ["entailment", "hallucination"]
    assert analysis.begin_shares(labels)["entailment"]["bot"].value == 0.5
    assert analysis.cooperativeness(labels)["bot"].value == 0.5  # of four sentences, two are cooperative


def likert_config() -> StudyConfig:
    return load_preset("interactive-likert")


def test_ratings_are_normalised_for_annotators_with_ten_of_them() -> None:
    strict = [Row(f"u{i}", ("x" if i % 2 else "y",), "strict", "quality", 2 + i % 2) for i in range(10)]
    lenient = [Row(f"v{i}", ("x" if i % 2 else "y",), "lenient", "quality", 6 + i % 2) for i in range(10)]
    labels = read_labels(likert_config(), rows(*strict, *lenient, Row("w", ("x",), "new", "quality", 1)))
    assert analysis.rating_means(labels)["quality"]["y"].value == 4.0
    assert labels.bounds("quality") == (1, 7)
    means, normal = analysis.normalised(labels)["quality"]
    assert (normal.excluded_raters, len(normal.ratings)) == (1, 20)
    deviation = (10 / 9 * 0.25) ** 0.5
    assert means["x"].value == pytest.approx(0.5 / deviation)
    assert means["y"].value == pytest.approx(-0.5 / deviation)


def test_votes_are_1_and_minus_1_and_belong_to_their_conversation() -> None:
    given = [
        Row("u", ("x",), "a", "vote", vote, target=f"turn:{i}", conversations=("k",), conversation="k", turn_text="Hi")
        for i, vote in enumerate(("up", "up", "down", "up"))
    ]
    labels = read_labels(likert_config(), rows(*given))
    assert labels.subject_ratings("vote") == [SubjectRating("x", "k", "a", value) for value in (1, 1, -1, 1)]
    (score,) = analysis.study_scores(labels)
    assert (score.metric, score.setting) == ("vote balance", "vote")
    assert labels.contents[score.units[0]]["reply"] == "Hi"


def test_published_ssa_is_the_mean_of_its_parts() -> None:
    for preset in ("ssa-static", "ssa-interactive"):
        for row in published_ssa(preset).values():
            assert row.ssa == pytest.approx((row.sensibleness + row.specificity) / 2, abs=0.0101)
    assert published_ssa("arena") == {}
