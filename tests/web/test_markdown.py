"""Markdown as a tree of harmless elements."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import text

from tertulia.web.page.markdown import MAX_CHARS, markup

ALLOWED = set("p strong em s code pre ul ol li blockquote table thead tbody tr th td hr a span".split())


def elements(nodes: list[Any] | None) -> Iterator[list[Any]]:
    for node in nodes or []:
        if isinstance(node, list):
            yield node
            yield from elements(node[2:])


def test_code_tables_and_lists_are_parsed() -> None:
    assert markup("```py\nx < 1\n```") == [["pre", {"data-language": "py"}, ["code", {}, "x < 1\n"]]]
    assert markup("3. a\n4. b") == [["ol", {"start": 3}, ["li", {}, "a"], ["li", {}, "b"]]]
    assert [e[0] for e in elements(markup("|a|b|\n|-|:-:|\n|1|2|"))].count("td") == 2
    assert markup("# Tea\nnow") == [["p", {"class": "heading"}, ["strong", {}, "Tea"]], ["p", {}, "now"]]


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "JaVaScRiPt:x", "data:text/html,x", "vbscript:x", "/local", "//host", "#c=1"]
)
def test_links_lead_to_the_web_or_mail_only(link: str) -> None:
    assert not any("href" in attributes for _, attributes, *_ in elements(markup(f"[x]({link}) <{link}>")))


@given(text(alphabet="ab*_`~#>|[]()<>!-+1. \n\\\"'&:/", max_size=80))
def test_only_harmless_elements_come_out(source: str) -> None:
    for tag, attributes, *_ in elements(markup(source)):
        assert tag in ALLOWED
        assert set(attributes) <= {"href", "rel", "target", "start", "class", "data-language"}


@pytest.mark.parametrize("unit", ["[", "[a](", "*a ", "*_", "**a *b ", "> ", "- ", "1. a\n", "a|b\n-|-\n", "`", "<a"])
def test_hostile_texts_take_linear_time(unit: str) -> None:
    """Eight times the text may take about eight times as long, with room for a busy machine."""

    def seconds(length: int) -> float:
        times = []
        for turn in range(3):
            source = unit * (length // len(unit)) + str(turn)
            start = time.process_time()
            markup(source)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(MAX_CHARS - 8) < 8 * 4 * seconds(MAX_CHARS // 8) + 0.05


def test_long_and_plain_texts_are_left_alone() -> None:
    assert markup("*a* " * MAX_CHARS) is None
    assert markup("Two lines\nwithout anything: 3 - 1 = 2, isn't it?") is None
