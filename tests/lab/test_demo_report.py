from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.corpus.mine import MineOutcome
from tertulia.corpus.stats import corpus_stats
from tertulia.corpus.trees import Funnel
from tertulia.judge.runs import JudgedRun, Subject
from tertulia.lab.demo import DemoOutcome
from tertulia.lab.demo_report import write_demo_report
from tertulia.metrics.registry import metric_named
from tertulia.talk.tfidf_index import TfidfIndex

EVIL = "<script>alert(1)</script><img src=http://evil.example/x.png>"
TALK = Dialogue(
    "d",
    (Turn("tfidf", f"hello {EVIL}"), Turn(f"bot {EVIL}", "good day to you")),
    {"tfidf": Persona((f"I sail {EVIL}.",), name=f"Ana {EVIL}")},
)
BOT = f"tfidf {EVIL}"
RANKING = JudgedRun(
    verb="rank",
    config={"candidates": 20, "split": "valid", "seed": 0},
    subjects=(Subject(BOT),),
    settings=("none",),
    scores=(Score(BOT, "none", "hits@1", ("a", "b"), (1.0, 0.0), ("a", "b")),),
    metrics={"hits@1": metric_named("hits@1").info},
    details={"chance": 0.05},
)


@pytest.fixture
def outcome(tmp_path: Path) -> DemoOutcome:
    return DemoOutcome(
        corpus=corpus_stats([TALK]),
        mined=MineOutcome(Funnel(messages=9, kept=5, pairs=3), Problems(), 300, tmp_path / "pairs.parquet"),
        index=TfidfIndex.from_dialogues([TALK]),
        ranking=RANKING,
        conversations=(TALK,),
        distinct={f"tfidf {EVIL}": Estimate(0.7, n=20)},
        without_model="",
        retrieval=f"folder {EVIL}",
        bots=("companion", f"folder {EVIL}", "generic"),
    )


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_everything_from_the_data_is_escaped(outcome: DemoOutcome, tmp_path: Path) -> None:
    write_demo_report(outcome, tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert {"script", "img", "link", "iframe"}.isdisjoint(page.tags)
    assert {a.partition(",")[0] for a in page.addresses if not a.startswith("#")} == {"data:text/csv;charset=utf-8"}
    for shown in (f"hello {EVIL}", f"I sail {EVIL}.", f"Ana {EVIL}", f"tfidf {EVIL}", f"folder {EVIL}"):
        assert shown in page.text


def test_the_report_has_figures_with_intervals(outcome: DemoOutcome, tmp_path: Path) -> None:
    write_demo_report(outcome, tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert page.tags.count("svg") == 2
    assert page.tags.count("h2") == 5
    assert ".500 [.000, 1.000]2" in page.text, "hits@1 and n, in cells of their own"
    assert "9 forum messages" in page.text
    assert "did not take part" not in page.text


def test_the_report_says_if_the_language_model_is_missing(outcome: DemoOutcome, tmp_path: Path) -> None:
    write_demo_report(replace(outcome, without_model="no torch"), tmp_path / "report.html")
    assert "The language model did not take part: no torch" in Page(tmp_path / "report.html").text
