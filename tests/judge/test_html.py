import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.estimate import Estimate
from tertulia.judge.html import HtmlSection, code, conversation, figure, paragraph, table, write_html
from tertulia.metrics.plots import estimate_plot, funnel_plot

EVIL = "<script>alert('x')</script>\"&<img src=http://evil.example onerror=boo>"


class Page(HTMLParser):
    """The tags, attributes and text of a page, as a browser would see them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def loads(self) -> list[str]:
        """Addresses that a browser would fetch."""
        return [
            v for _, attrs in self.tags for k, v in attrs.items() if k in ("src", "href", "xlink:href", "data") and v
        ]


@pytest.mark.parametrize(
    "html",
    [
        paragraph(EVIL),
        paragraph(EVIL, quiet=True),
        code(EVIL),
        table((EVIL, EVIL), [(EVIL, EVIL), (EVIL, 3)]),
        figure("<svg></svg>", EVIL),
        conversation(Dialogue(EVIL, (Turn(EVIL, EVIL), Turn("b", EVIL)))),
    ],
)
def test_everything_from_the_data_is_escaped(html: str) -> None:
    page = Page(html)
    assert EVIL in page.text
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img"})
    assert page.loads == []


def test_a_plot_has_a_label_for_screen_readers() -> None:
    page = Page(figure("<svg></svg>", 'so "many"'))
    assert ("figure", {"role": "img", "tabindex": "0", "aria-label": 'so "many"'}) in page.tags


def test_the_first_speaker_is_on_the_left() -> None:
    page = Page(conversation(Dialogue("d", (Turn("ana", "hi"), Turn("ben", "ho"), Turn("ana", "bye")))))
    sides = [attrs["class"] for tag, attrs in page.tags if tag == "div" and attrs.get("dir") == "auto"]
    assert sides == ["turn left", "turn right", "turn left"]
    assert Page(conversation(Dialogue("d", ()))).text == ""


def test_a_complete_report_is_self_contained(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    svg = funnel_plot([("messages", 9), ("after url", 4), ("pairs", 2)])
    write_html(
        file,
        title=EVIL,
        lead=EVIL,
        sections=[HtmlSection(EVIL, (paragraph(EVIL), figure(svg, "9 messages"))), HtmlSection("Second", ())],
    )
    page = Page(file.read_text(encoding="utf-8"))
    tags = [tag for tag, _ in page.tags]
    assert tags.count("h2") == 2
    assert tags.count("svg") == 1
    assert ("meta", {"charset": "utf-8"}) in page.tags
    assert {"script", "img", "link", "iframe", "object"}.isdisjoint(tags)
    assert [v for v in page.loads if not v.startswith("#")] == []
    assert "url(http" not in page.text
    assert "@import" not in page.text


SVG = "{http://www.w3.org/2000/svg}"


def texts_in(svg: str) -> list[str]:
    return ["".join(t.itertext()) for t in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_funnel_shows_the_steps_that_changed_something() -> None:
    svg = funnel_plot([("messages", 90), ("after bot", 90), ("after url", 40), ("after subtree", 30), ("pairs", 30)])
    texts = texts_in(svg)
    assert {"messages", "after url", "after subtree", "pairs", "90", "40"} <= set(texts)
    assert "after bot" not in texts


def test_a_plot_shows_chance() -> None:
    figures = {"tfidf": Estimate(0.4, 0.3, 0.5, 100), "generic": Estimate(0.06, 0.04, 0.08, 100)}
    texts = texts_in(estimate_plot(figures, title="hits@1 of 20", rule=0.05, rule_name="chance"))
    assert {"tfidf", "generic", "hits@1 of 20", "chance"} <= set(texts)
    assert "chance" not in texts_in(estimate_plot(figures, title="hits@1 of 20"))


def test_names_in_plots_are_escaped() -> None:
    for svg in (funnel_plot([(EVIL, 3), ("pairs", 1)]), estimate_plot({EVIL: Estimate(0.5, 0.4, 0.6, 9)}, title=EVIL)):
        root = ET.fromstring(svg)
        assert EVIL in texts_in(svg)
        assert root.find(f".//{SVG}script") is None
        assert root.find(f".//{SVG}image") is None
        addresses = [v for e in root.iter() for k, v in e.attrib.items() if k.endswith(("href", "src"))]
        assert [v for v in addresses if not v.startswith("#")] == []


def test_figures_without_interval_or_value_can_be_plotted() -> None:
    figures = {"nothing": Estimate(float("nan")), "no interval": Estimate(0.5, n=4), "tfidf": Estimate(0.4, 0.3, 0.5)}
    assert {"no interval", "tfidf"} <= set(texts_in(estimate_plot(figures, title="x")))
