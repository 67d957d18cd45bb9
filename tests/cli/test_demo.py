import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.docs.shell import call

from tertulia.core.config import resolve
from tertulia.corpus.load import load_dialogues
from tertulia.judge.runs import load_run
from tertulia.lab.demo import DemoConfig

pytestmark = [pytest.mark.slow]


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]


def test_the_demo_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process and with its server; tests/docs/test_package.py runs it as a process of its own."""
    monkeypatch.chdir(tmp_path)
    result = call("tertulia demo --json --conversations 1 --turns 3 --seed 1")
    assert result.code == 0, result.errors
    figures, _ = json.JSONDecoder().raw_decode(result.printed)
    tfidf, generic = (figure for figure in figures["ranking"] if figure["metric"] == "hits@1")
    assert tfidf["low"] > figures["chance"]
    assert generic["value"] < tfidf["value"]
    assert figures["messages"] > figures["pairs"] > 0

    out = tmp_path / "tertulia-demo"
    assert resolve(DemoConfig, out / "config.toml") == DemoConfig(port=0, conversations=1, turns=3, seed=1)
    assert [s.name for s in load_run(out / "ranking").subjects] == [tfidf["subject"], generic["subject"]]
    (talk,) = load_dialogues(out / "selfplay.jsonl")
    assert len(talk.turns) == 3
    assert "bot: " in call("tertulia chat tertulia-demo/tfidf").printed
    assert "hits@1" in call("tertulia report tertulia-demo/ranking").printed
    assert len(list(load_dialogues(out / "mined" / "pairs.parquet"))) == figures["pairs"]

    report = (out / "report.html").read_text(encoding="utf-8")
    page = Page(report)
    assert page.tags.count("svg") >= 2
    assert "script" not in page.tags
    assert all(a.startswith(("#", "data:text/csv;")) for a in page.addresses), "it loads nothing"
    assert all(t.text.split()[0] in report for t in talk.turns if t.text and t.text.split()[0].isalpha())
