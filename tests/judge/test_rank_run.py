import json
import math
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.corpus.load import save_dialogues
from tertulia.judge.config import RankConfig
from tertulia.judge.document import short
from tertulia.judge.paper_tables import PERSONACHAT_RANKERS, UBUNTU, paper_tables
from tertulia.judge.rank import run_rank
from tertulia.judge.report import report_run, save_judged
from tertulia.judge.runs import JudgedRun, Subject
from tertulia.metrics.registry import metric_named

GRID = RankConfig(
    candidates=10, limit=60, persona=("none", "own"), wording=("original", "revised"), metrics=("hits@1", "1in2")
)


@pytest.fixture(scope="module")
def run() -> JudgedRun:
    return run_rank(GRID.model_copy(update={"table": "personachat"}))


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A few dialogues to index."""
    file = tmp_path / "few.jsonl"
    save_dialogues([Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", f"reply {i}"))) for i in range(30)], file)
    return file


SETTINGS = ("none", "own, original", "own, revised")


def test_all_bots_are_judged_in_all_settings_on_the_same_replies(run: JudgedRun) -> None:
    assert run.settings == SETTINGS
    assert [(s.name, s.kind) for s in run.subjects] == [("tfidf:sample", "tfidf"), ("generic", "generic")]
    assert [score.key for score in run.scores] == [
        (bot, setting, metric)
        for bot in ("tfidf:sample", "generic")
        for setting in SETTINGS
        for metric in ("hits@1", "1in2")
    ]
    assert {score.units for score in run.scores} == {run.scores[0].units}
    assert {len(score.units) for score in run.scores} == {run.details["tasks"]} == {60}
    assert run.details["chance"] == pytest.approx(0.1)
    figures = run.estimates()
    compared = [c for c in run.comparisons() if c.metric == "hits@1"]
    assert [(c.subject, c.baseline, c.setting) for c in compared] == [("generic", "tfidf:sample", s) for s in SETTINGS]
    for c in compared:
        expected = figures["generic", c.setting, "hits@1"].value - figures["tfidf:sample", c.setting, "hits@1"].value
        assert c.estimate.value == pytest.approx(expected)


def test_items_lead_from_a_unit_to_its_texts(run: JudgedRun) -> None:
    items = {item.unit: item.content for item in run.items}
    assert set(items) == set(run.scores[0].units)
    for content in items.values():
        assert content["candidates"][content["truth"]] == content["reference"]
        assert len(content["context"]) == content["turns"]


def test_the_report_as_json(run: JudgedRun) -> None:
    report = json.loads(json.dumps(report_run(run).json, allow_nan=False))
    assert [(f["subject"], f["setting"]) for f in report["figures"][::2]] == [
        (bot, setting) for bot in ("tfidf:sample", "generic") for setting in SETTINGS
    ]
    assert report["comparisons"][0]["baseline"] == "tfidf:sample"
    assert report["run"]["config"]["limit"] == report["run"]["details"]["tasks"] == 60
    assert report["tables"][0]["rows"][1][:3] == ["  paper: IR", ".214", ".410"]
    by_length = [
        f for f in report["by_length"] if (f["subject"], f["setting"], f["metric"]) == ("generic", "none", "1in2")
    ]
    assert sum(f["n"] for f in by_length) == 60
    mean = sum(f["value"] * f["n"] for f in by_length) / 60
    assert mean == pytest.approx(run.estimates()["generic", "none", "1in2"].value)


def test_bots_that_differ_only_in_an_option_have_different_names(few: Path) -> None:
    weightless = f"tfidf:{few}?rank_persona_weight=0"
    run = run_rank(RankConfig(bots=(f"tfidf:{few}", weightless), limit=20, metrics=("mrr",)))
    assert [subject.name for subject in run.subjects] == [f"tfidf:{few}", weightless]


def test_personas_that_the_data_does_not_have(few: Path) -> None:
    config = RankConfig(bots=("generic", f"tfidf:{few}"), data=str(few), candidates=5)
    assert run_rank(config).settings == ("none",)
    run = run_rank(config.model_copy(update={"persona": ("none", "own")}))
    figures = run.estimates()
    assert [e.n for (_, _, metric), e in figures.items() if metric == "hits@1"] == [30, 0, 30, 0]
    assert math.isnan(figures["generic", "own, original", "mrr"].value)
    assert {c.setting for c in run.comparisons()} == {"none"}
    assert "persona own, original: the data has no such personas, n = 0." in run.notes
    empty = [f for f in report_run(run).json["figures"] if f["setting"] == "own, original"]
    assert {f["value"] for f in empty} == {None}


def test_a_single_file_has_no_split(few: Path) -> None:
    assert RankConfig(data=str(few)).selected_split is None
    assert RankConfig(data=str(few), split="test").selected_split == "test"
    assert RankConfig().selected_split == "valid"
    assert RankConfig(split="").selected_split is None


def test_a_table_sets_what_it_needs() -> None:
    def config(**given: object) -> dict[str, object]:
        return dict(run_rank(RankConfig(bots=("generic",), limit=20, **given)).config)  # type: ignore[arg-type]

    ubuntu = config(table="ubuntu")
    assert (ubuntu["candidates"], ubuntu["metrics"][0]) == (10, "1in2")  # type: ignore[index]
    given = config(table="ubuntu", candidates=20, metrics=("mrr", "1in2"))
    assert given["candidates"] == 20
    assert given["metrics"] == ["mrr", "1in2", "recall@1in10", "recall@2in10", "recall@5in10"]
    assert config(table="personachat", wording=("original",))["wording"] == ["original"]
    with pytest.raises(UsageError, match="one setting"):
        config(table="ubuntu", persona=("none", "own"))


def judged(table: str, kinds: dict[str, str], settings: tuple[str, ...], metrics: tuple[str, ...]) -> JudgedRun:
    """A run in which every metric has the values 1, 0, 1, 0 everywhere."""
    units = ("a", "b", "c", "d")
    return JudgedRun(
        verb="rank",
        config={"table": table},
        subjects=tuple(Subject(name, kind=kind) for name, kind in kinds.items()),
        settings=settings,
        scores=tuple(
            Score(name, setting, metric, units, (1.0, 0.0, 1.0, 0.0), ("x",) * 4)
            for name in kinds
            for setting in settings
            for metric in metrics
        ),
        metrics={metric: metric_named(metric).info for metric in metrics},
    )


def test_the_persona_chat_table() -> None:
    settings = (*SETTINGS, "their, original")
    kinds = {"tfidf:train": "tfidf", "starspace": "starspace", "mine:x": "mine", "runs/kv": "kv-memory"}
    run = judged("personachat", kinds, settings, ("hits@1",))
    (table,) = paper_tables(run, run.estimates())
    assert table.head == ("", *settings)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["  paper: IR"] == (".214", ".410", ".207", "")
    assert rows["  paper: KV Profile Memory"] == (".349", ".511", ".351", "")
    assert rows["  paper: Starspace, trained on original personas"] == (".318", ".481", ".295", "")
    assert rows["  paper: Starspace, trained on revised personas"] == (".318", ".491", ".322", "")
    assert rows["mine:x"] == (".500 [.103, .897]",) * 4
    assert [row[0] for row in table.rows] == [
        "tfidf:train",
        "  paper: IR",
        "starspace",
        "  paper: Starspace, trained on original personas",
        "  paper: Starspace, trained on revised personas",
        "mine:x",
        "runs/kv",
        "  paper: KV Profile Memory",
    ]
    assert set(PERSONACHAT_RANKERS) == {"tfidf", "starspace", "profile-memory", "kv-memory"}


def test_the_ubuntu_table() -> None:
    metrics = ("1in2", "recall@1in10", "recall@2in10", "recall@5in10")
    run = judged("ubuntu", {"tfidf": "tfidf", "lstm": "lstm"}, ("none",), metrics)
    (table,) = paper_tables(run, run.estimates())
    assert table.head[:4] == ("", "tfidf", "lstm", "paper: TF-IDF, v1")
    assert [row[0] for row in table.rows] == ["1 in 2 R@1", "1 in 10 R@1", "1 in 10 R@2", "1 in 10 R@5"]
    assert table.rows[0][1:3] == ("50.0 [10.3, 89.7]",) * 2
    assert [row[5] for row in table.rows] == ["87.8", "60.4", "74.5", "92.6"]
    assert len(table.head) == len(table.rows[0]) == 3 + len(UBUNTU)


def test_short_figures() -> None:
    assert short(Estimate(-0.02, -0.05, 0.01, 9)) == "-.020 [-.050, .010]"
    assert short(Estimate(1.0, 0.999, 1.0, 9)) == "1.000 [.999, 1.000]"


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_of_a_run(run: JudgedRun, tmp_path: Path) -> None:
    save_judged(run, tmp_path / "inside" / "run")
    page = Page(tmp_path / "inside" / "run" / "report.html")
    assert page.tags.count("svg") == 1
    assert page.tags.count("table") == 5
    for text in ("own, revised", "paper: IR", "Compared with tfidf:sample", "9-16", "chance hits@1 0.100"):
        assert text in page.text
    assert "| paper: IR | .214 |" in (tmp_path / "inside" / "run" / "report.md").read_text()
    alone = run_rank(RankConfig(bots=("generic",), candidates=10, limit=20))
    save_judged(alone, tmp_path / "alone")
    assert "Compared with" not in Page(tmp_path / "alone" / "report.html").text
