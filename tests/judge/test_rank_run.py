import json
import math
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import UsageError
from tertulia.core.estimate import Estimate
from tertulia.corpus.load import save_dialogues
from tertulia.judge.rank import RankConfig, RankResult, Setting
from tertulia.judge.rank_report import write_rank_report
from tertulia.judge.rank_run import RankOutcome, run_rank
from tertulia.judge.rank_tables import PERSONACHAT, UBUNTU, paper_table, planned, short

GRID = RankConfig(
    candidates=10, limit=60, persona=("none", "own"), wording=("original", "revised"), metrics=("hits@1", "1in2")
)


@pytest.fixture(scope="module")
def outcome() -> RankOutcome:
    return run_rank(GRID.model_copy(update={"table": "personachat"}))


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A few dialogues to index."""
    file = tmp_path / "few.jsonl"
    save_dialogues([Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", f"reply {i}"))) for i in range(30)], file)
    return file


def test_all_bots_in_all_settings_on_the_same_replies(outcome: RankOutcome) -> None:
    assert [str(s) for s in outcome.settings] == ["none", "own, original", "own, revised"]
    assert [[r.bot for r in row] for row in outcome.results] == [["tfidf:sample"] * 3, ["generic"] * 3]
    assert [[r.setting for r in row] for row in outcome.results] == [list(outcome.settings)] * 2
    assert {r.figures["hits@1"].n for r in outcome.rows} == {outcome.tasks} == {60}
    assert outcome.chance == pytest.approx(0.1)
    assert [(d.bot, d.than, d.setting) for d in outcome.differences] == [
        ("tfidf:sample", "generic", s) for s in outcome.settings
    ]
    for found, ours, theirs in zip(outcome.differences, *outcome.results, strict=True):
        expected = ours.figures["hits@1"].value - theirs.figures["hits@1"].value
        assert found.figures["hits@1"].value == pytest.approx(expected)


def test_everything_is_json(outcome: RankOutcome) -> None:
    told = json.loads(json.dumps(outcome.as_json(), allow_nan=False))
    assert [row["bot"] for row in told["bots"]] == ["tfidf:sample"] * 3 + ["generic"] * 3
    assert told["bots"][2]["wording"] == "revised"
    assert told["differences"][0]["than"] == "generic"
    assert told["settings"]["limit"] == told["tasks"] == 60
    assert told["table"]["rows"][1][:3] == ["  paper: IR", ".214", ".410"]


def test_bots_that_differ_in_an_option_only_are_told_apart(few: Path) -> None:
    weightless = f"tfidf:{few}?rank_persona_weight=0"
    outcome = run_rank(RankConfig(bots=(f"tfidf:{few}", weightless), limit=20, metrics=("mrr",)))
    assert [row[0].bot for row in outcome.results] == [f"tfidf:{few}", weightless]


def test_personas_that_the_data_does_not_have(few: Path) -> None:
    config = RankConfig(bots=("generic", f"tfidf:{few}"), data=str(few), candidates=5)
    assert [r.setting for r in run_rank(config).rows] == [Setting("none")] * 2
    outcome = run_rank(config.model_copy(update={"persona": ("none", "own")}))
    assert [r.figures["hits@1"].n for r in outcome.rows] == [30, 0, 30, 0]
    assert math.isnan(outcome.rows[1].figures["mrr"].value)
    assert [d.setting for d in outcome.differences] == [Setting("none")]
    assert "persona own, original: the data has no such personas, n = 0." in outcome.notes
    assert outcome.as_json()["bots"][1]["mrr"]["value"] is None


def test_a_table_brings_what_it_needs() -> None:
    ubuntu = planned(RankConfig(table="ubuntu"))
    assert (ubuntu.candidates, ubuntu.metrics[0]) == (10, "1in2")
    given = planned(RankConfig(table="ubuntu", candidates=20, metrics=("mrr", "1in2")))
    assert given.candidates == 20
    assert given.metrics == ("mrr", "1in2", "recall@1in10", "recall@2in10", "recall@5in10")
    assert planned(RankConfig(table="personachat", wording=("original",))).wording == ("original",)
    assert planned(RankConfig()) == RankConfig()


def result(bot: str, setting: Setting, value: float) -> RankResult:
    names = ("hits@1", "1in2", "recall@1in10", "recall@2in10", "recall@5in10")
    return RankResult(bot, dict.fromkeys(names, Estimate(value, value - 0.01, value + 0.01, 99)), (1,), setting)


def test_the_table_of_persona_chat() -> None:
    settings = [Setting(), Setting("own", "original"), Setting("own", "revised"), Setting("their", "original")]
    results = [[result(bot, s, 0.3) for s in settings] for bot in ("tfidf:train", "starspace", "mine:x", "kv-memory")]
    table = paper_table("personachat", results, ["Ours: so and so."])
    assert table.head == ("", "none", "own, original", "own, revised", "their, original")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["  paper: IR"] == (".214", ".410", ".207", "")
    assert rows["  paper: KV Profile Memory"] == (".349", ".511", ".351", "")
    assert rows["mine:x"] == (".300 [.290, .310]",) * 4
    assert [row[0] for row in table.rows] == [
        "tfidf:train",
        "  paper: IR",
        "starspace",
        "  paper: Starspace",
        "mine:x",
        "kv-memory",
        "  paper: KV Profile Memory",
    ]
    assert table.notes[-1] == "Ours: so and so."
    assert set(PERSONACHAT) == {"tfidf", "starspace", "profile-memory", "kv-memory"}


def test_the_table_of_ubuntu() -> None:
    table = paper_table("ubuntu", [[result("tfidf", Setting(), 0.5)], [result("lstm", Setting(), 0.6)]], [])
    assert table.head[:4] == ("", "tfidf", "lstm", "paper: TF-IDF, v1")
    assert [row[0] for row in table.rows] == ["1 in 2 R@1", "1 in 10 R@1", "1 in 10 R@2", "1 in 10 R@5"]
    assert table.rows[0][1:3] == ("50.0 [49.0, 51.0]", "60.0 [59.0, 61.0]")
    assert [row[5] for row in table.rows] == ["87.8", "60.4", "74.5", "92.6"]
    assert len(table.head) == len(table.rows[0]) == 3 + len(UBUNTU)
    with pytest.raises(UsageError, match="one setting"):
        paper_table("ubuntu", [[result("tfidf", Setting(), 0.5), result("tfidf", Setting("own"), 0.5)]], [])


def test_figures_in_little_room() -> None:
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


def test_the_report(outcome: RankOutcome, tmp_path: Path) -> None:
    write_rank_report(outcome, tmp_path / "inside" / "report.html")
    page = Page(tmp_path / "inside" / "report.html")
    assert page.tags.count("svg") == 1
    assert page.tags.count("table") == 4
    for text in ("tfidf:sample (own, revised)", "paper: IR", "Differences", "9-16", "Chance hits@1: 0.100"):
        assert text in page.text
    one = run_rank(RankConfig(bots=("generic",), candidates=10, limit=20))
    write_rank_report(one, tmp_path / "one.html")
    assert "Differences" not in Page(tmp_path / "one.html").text
