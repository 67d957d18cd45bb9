"""A report in a real browser, opened from the disk: hostile texts, keyboard, screen readers, phones, paper."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.e2e.axe import violations

from tertulia.core.score import Score
from tertulia.judge.grounding.config import GroundingConfig
from tertulia.judge.grounding.run import run_grounding
from tertulia.judge.report import report_run
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, identified
from tertulia.metrics.metric import MetricInfo

pytestmark = pytest.mark.slow

EVIL = "</script><img src=x onerror=\"document.title='owned'\">\u2028 \u202eright to left <!-- {{x}}"
ARABIC = "مرحبا كيف حالك"
LONG = "long " * 20_000
UNITS = 50
PHONE = {"viewport": {"width": 360, "height": 640}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report whose texts, names, ids and metrics are hostile; its address."""
    scores, items = [], []
    metrics = ("quality", *(f"metric {k}" for k in range(6)))
    for k, bot in enumerate(("plain", EVIL)):
        units = tuple(f"unit {i:02} {EVIL if i == 0 else ''}" for i in range(UNITS))
        for m, metric in enumerate(metrics):
            scale = 40 if m == 1 else 1  # one column with figures of several digits
            values = tuple(scale * (i * (m + 1) % UNITS) / UNITS / (1 + k * m) + k / 10 for i in range(UNITS))
            scores.append(Score(bot, "", metric, units, values, units))
        for i, unit in enumerate(units):
            source = {"bot": "tfidf", "seed": i, "settings": {"k": EVIL}}
            said = {0: EVIL, 1: LONG, 2: ARABIC}.get(i, f"reply {i} needle-{i * 7:03}")
            turns = [{"speaker": EVIL, "text": "Hi!"}, {"speaker": "B", "text": said, "provenance": source}]
            items.append(JudgedItem(unit, {"turns": turns, "judged": "B", "rater": "r1"}, bot))
    run = JudgedRun(
        verb="conversations",
        config={"seed": 0, "evil": EVIL},
        subjects=(Subject("plain", "tfidf", "tfidf", "f00d"), Subject(EVIL)),
        settings=("",),
        scores=tuple(scores),
        metrics={name: MetricInfo(name, "conversation", summary=EVIL) for name in metrics},
        items=tuple(items),
        notes=(EVIL,),
    )
    file = tmp_path_factory.mktemp("report") / "report.html"
    known = identified(run)
    shared = {"subject": EVIL, "training": EVIL, "files": [EVIL], "judged": 50, "shared": 50, "complete": True}
    known = replace(known, about={**known.about, "contamination": [shared]})
    report_run(known).save_html(file)
    return file.as_uri()


@pytest.fixture
def opened(chromium: Browser, report: str) -> Iterator[Any]:
    """Opens the report; nothing may be requested from elsewhere, and nothing may go wrong in the console."""
    contexts, problems = [], []

    def visit(**options: Any) -> Page:
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if request.url.startswith("http") else None)
        page.goto(report)
        expect(page.locator("html[data-ready=yes]")).to_have_count(1)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


def open_cell(page: Page, row: int = 0) -> None:
    page.locator("tbody tr").nth(row).locator(".cell").first.click()
    expect(page.locator(".units > li")).to_have_count(20)


def test_a_cell_leads_to_units_texts_and_provenance(opened: Any) -> None:
    page = opened()
    open_cell(page)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("plain: quality")
    expect(dialog.locator("dl").first).to_contain_text("f00d")
    expect(dialog.get_by_role("status")).to_have_text(f"1 to 20 of {UNITS}")
    first = dialog.locator(".units > li").first
    first.locator("summary").first.click()
    expect(first.locator(".turn.judged")).to_contain_text(EVIL)
    first.get_by_text("Provenance").click()
    expect(first.locator(".turn.judged dl")).to_contain_text("Seed")
    expect(first).to_contain_text("r1")
    assert page.title() != "owned"
    assert page.locator("img").count() == 0
    dialog.get_by_label("Order").select_option("highest")
    expect(dialog.locator(".units .value").first).to_have_text("0.980")
    dialog.get_by_label("Search").fill("NEEDLE-070")
    expect(dialog.locator(".units > li")).to_have_count(1)
    expect(dialog.locator(".snippet")).to_have_text("reply 10 needle-070")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="CSV of these units").click()
    rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert rows[1][0].startswith("unit 10")
    assert rows[1][2] == "0.2"
    dialog.get_by_label("Search").fill("nothing has this")
    expect(dialog.get_by_role("status")).to_have_text("Nothing found.")


def test_long_texts_are_cut_and_other_scripts_read_from_the_right(opened: Any) -> None:
    page = opened()
    open_cell(page)
    units = page.locator(".units > li")
    units.nth(1).locator("summary").first.click()
    turn = units.nth(1).locator(".turn.judged")
    assert len(turn.inner_text()) < 3000
    turn.get_by_role("button", name="Show all").click()
    assert len(turn.inner_text()) > 99_000
    units.nth(2).locator("summary").first.click()
    arabic = units.nth(2).locator(".turn.judged")
    assert arabic.evaluate("node => getComputedStyle(node).direction") == "ltr"  # its first letter is the speaker's
    assert ARABIC in arabic.inner_text()


def test_every_table_can_be_saved_without_a_network(opened: Any) -> None:
    page = opened()
    tables, links = page.locator(".wide table"), page.get_by_role("link", name="CSV of")
    assert links.count() == tables.count() >= 3
    files = []
    for i in range(links.count()):
        with page.expect_download() as download:
            links.nth(i).click()
        rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
        assert len(rows) == tables.nth(i).locator("tbody tr").count()
        files.append((download.value.suggested_filename, rows))
    (name, figures), (_, compared), *_ = files
    assert name == "figures.csv"
    assert [row["subject"] for row in figures] == ["plain", EVIL]
    assert float(figures[0]["quality low"]) < float(figures[0]["quality"]) == pytest.approx(0.49)
    value, low, high, p = (
        float(compared[0][f"metric 1{part}"].lstrip("<").rstrip("*")) for part in ("", " low", " high", " p")
    )
    assert low < value < high
    assert 0 <= p <= 1


def test_a_warning_stands_above_the_figures_and_the_identity_beside_it(opened: Any) -> None:
    page = opened()
    warning = page.locator(".warning")
    expect(warning).to_have_count(1)
    expect(warning).to_contain_text("was judged on what it was built from")
    expect(warning).to_contain_text(EVIL.partition("\u2028")[0])
    assert warning.bounding_box()["y"] < page.locator("table").first.bounding_box()["y"]
    facts = page.locator(".identity dt")
    assert {"command", "date", "version", "checkpoints"} <= set(facts.all_inner_texts())


def test_charts_fill_their_box_and_can_be_read_on_any_background(opened: Any) -> None:
    page = opened()
    widths = page.locator("figure").evaluate_all(
        """figures => figures.map((figure) => {
          const style = getComputedStyle(figure);
          const room = figure.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
          return figure.querySelector("svg").getBoundingClientRect().width / room;
        })"""
    )
    assert widths
    assert all(share == pytest.approx(1, abs=0.01) for share in widths)
    seen = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        inks = page.locator("figure .role-axis-label text").evaluate_all(
            "texts => texts.map((text) => getComputedStyle(text).fill)"
        )
        assert set(inks) == {page.locator("body").evaluate("body => getComputedStyle(body).color")}
        seen |= set(inks)
    assert len(seen) == 2
    hidden = page.locator("figure svg > rect").evaluate_all("rects => rects.map((one) => getComputedStyle(one).fill)")
    assert set(hidden) == {"none"}


def test_the_report_can_be_used_by_keyboard_and_linked_to(opened: Any, chromium: Browser, report: str) -> None:
    page = opened()
    keys = page.keyboard
    cell = page.locator(".cell").nth(1)
    cell.focus()
    keys.press("Enter")
    expect(page.locator(".units > li")).to_have_count(20)
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    assert page.url.endswith("#cell-1")
    keys.press("Tab")
    expect(page.get_by_label("Search")).to_be_focused()
    page.locator(".units summary").first.focus()
    keys.press("Enter")
    expect(page.locator(".units > li").first.locator(".conversation")).to_be_visible()
    page.get_by_role("button", name="Next").press("Enter")
    expect(page.get_by_role("status")).to_have_text(f"21 to 40 of {UNITS}")
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(cell).to_be_focused()
    linked = page.context.new_page()
    linked.goto(f"{report}#cell-7")
    expect(linked.locator("#cell-title")).to_contain_text("quality")
    expect(linked.locator(".units > li")).to_have_count(20)


@pytest.mark.parametrize("device", [{}, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_violation_and_nothing_is_cut_off(opened: Any, device: dict[str, Any]) -> None:
    page = opened(reduced_motion="reduce", **device)
    width = device.get("viewport", {"width": 1280})["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    open_cell(page)
    page.locator(".units summary").first.click()
    assert page.locator("dialog").evaluate("node => node.scrollWidth - node.clientWidth") <= 0
    assert violations(page) == []


def test_intervals_do_not_wrap_and_points_are_aligned(opened: Any) -> None:
    """In every table and every column, on a desktop and on a phone."""
    for device in ({}, PHONE):
        page = opened(**device)
        tall = page.locator("td.n").evaluate_all(
            """cells => cells.filter((cell) => {
              const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
              const lines = [];
              for (let node = walker.nextNode(); node; node = walker.nextNode()) {
                if (node.parentElement.closest(".spoken")) continue;
                const range = document.createRange();
                range.selectNodeContents(node);
                lines.push(...[...range.getClientRects()].map((box) => box.bottom));
              }
              return Math.max(...lines) - Math.min(...lines) > 2;
            }).map((cell) => cell.textContent)"""
        )
        assert tall == []
        columns = page.evaluate(
            """() => [...document.querySelectorAll(".wide table")].flatMap((table) => {
              const columns = [...table.tHead.rows[0].cells].map(() => []);
              for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => {
                if (!cell.matches(".n")) return;
                const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
                const points = [];
                for (let node = walker.nextNode(); node; node = walker.nextNode())
                  for (let at = node.data.indexOf("."); at >= 0; at = node.data.indexOf(".", at + 1)) {
                    const range = document.createRange();
                    range.setStart(node, at);
                    range.setEnd(node, at + 1);
                    points.push(range.getBoundingClientRect().left);
                  }
                columns[i].push(points);
              });
              return columns.filter((column) => column.some((points) => points.length));
            })"""
        )
        assert len(columns) >= 14
        for column in columns:
            for points in zip(*column, strict=True):
                assert max(points) - min(points) < 0.6
        sides = page.locator("table td:not(.n), table th").evaluate_all(
            "cells => cells.map((cell) => getComputedStyle(cell).textAlign)"
        )
        assert set(sides) <= {"left", "start"}


def test_paper_has_everything_but_the_controls(opened: Any) -> None:
    page = opened()
    page.emulate_media(media="print")
    for hidden in ("nav", ".tools"):
        expect(page.locator(hidden).first).to_be_hidden()
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF")
    page.set_viewport_size({"width": 1030, "height": 700})  # a landscape page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    ends = page.locator(".wide > table").evaluate_all("tables => tables.map((table) => table.getBoundingClientRect())")
    assert max(box["width"] for box in ends) <= 1031


def test_a_report_on_grounding_leads_from_a_figure_to_its_responses(chromium: Browser, tmp_path: Path) -> None:
    run = run_grounding(GroundingConfig(files=("sample",), classifiers=("overlap",), threshold=0.6))
    file = tmp_path / "report.html"
    report_run(identified(run)).save_html(file)
    with chromium.new_context(reduced_motion="reduce") as context:
        page = context.new_page()
        page.goto(file.as_uri())
        expect(page.locator("html[data-ready=yes]")).to_have_count(1)
        heat_maps = page.locator("figure[role=img]")
        expect(heat_maps).to_have_count(3)
        assert "takes for what" in (heat_maps.first.get_attribute("aria-label") or "")
        assert violations(page) == []
        open_cell(page)
        first = page.locator("dialog .units > li").first
        first.locator("summary").first.click()
        for name in ("evidence", "true label", "word overlap", "by word overlap from .60"):
            expect(first.locator("dt", has_text=re.compile(f"^{re.escape(name)}$"))).to_have_count(1)
