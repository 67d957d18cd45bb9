"""A report of many conversations in a real browser: its size, the time until it can be used, the time to open a cell.

A judged run of 10,000 conversations of ten turns by twelve subjects is made of turns of a corpus, cut in half and put
together again, so that hardly any turn occurs twice. It is measured by metrics of conversations, saved, and reported;
then a headless Chromium opens the one HTML file from the disk, several times, each time with an empty cache. Usable
means: the page is laid out and its script has run. A cell is open when its first page of units is on the screen.
"""

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from common import finish
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.corpus.load import load_dialogues
from tertulia.judge.conversations import conversation_items, judged_conversations, score_conversations
from tertulia.judge.report import report_run
from tertulia.judge.runs import JudgedRun, Subject, identified
from tertulia.metrics.registry import metric_named

METRICS = ("turns", "words per turn", "question score", "loop", "self-repetition", "parroting")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
READY = "html[data-ready=yes]"
GOAL_SECONDS = 2.0


def make_run(data: str, conversations: int, turns: int, subjects: int, seed: int = 0) -> JudgedRun:
    """Conversations of bots that say halves of what people said."""
    rng = random.Random(seed)
    texts = [turn.text.split() for dialogue in load_dialogues(data) for turn in dialogue.turns]

    def text() -> str:
        first, second = rng.choice(texts), rng.choice(texts)
        return " ".join(first[: len(first) // 2 + 1] + second[len(second) // 2 :])

    dialogues = []
    for i in range(conversations):
        bot = f"bot-{i % subjects:02}"
        source = {"bot": bot, "checkpoint": f"{i % subjects:016x}", "seed": i, "settings": {"temperature": 0.8}}
        said = tuple(Turn("AB"[k % 2], text(), meta={"provenance": source} if k % 2 else {}) for k in range(turns))
        dialogues.append(("file", Dialogue(f"c{i:05}", said)))
    judged = judged_conversations(dialogues, by="bot")
    metrics = [metric_named(name) for name in METRICS]
    scores = score_conversations(judged, metrics, {})
    names = dict.fromkeys(one.subject for one in judged)
    return identified(
        JudgedRun(
            verb="conversations",
            config={"seed": seed},
            subjects=tuple(Subject(name, name) for name in names),
            settings=("",),
            scores=tuple(scores),
            metrics={metric.name: metric.info for metric in metrics},
            items=tuple(conversation_items(judged)),
        )
    )


def visit(browser: Browser, page_file: Path) -> tuple[float, float, float]:
    """Seconds until the page is usable, until a cell is open, and until another cell of that subject is."""
    context = browser.new_context()
    page = context.new_page()
    start = time.perf_counter()
    page.goto(page_file.as_uri(), wait_until="commit")
    page.locator(READY).wait_for(state="attached")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    usable = time.perf_counter() - start
    opened = []
    for cell in (0, 1):
        start = time.perf_counter()
        page.locator(f"[data-cell='{cell}']").first.click()
        page.locator(".units li").first.wait_for()
        opened.append(time.perf_counter() - start)
        page.keyboard.press("Escape")
    context.close()
    return usable, opened[0], opened[1]


def launch_path() -> str:
    """Of an installed Chromium."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        raise SystemExit(f"None of {', '.join(CHROMIUM)} is installed.")
    return path


def main(argv: Sequence[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="sample", help="corpus whose turns are used")
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--subjects", type=int, default=12)
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="500 conversations")
    parser.add_argument("--keep", type=Path, help="keep the report in this folder")
    args = parser.parse_args(argv)
    conversations = 500 if args.quick else args.conversations
    run = make_run(args.data, conversations, args.turns, args.subjects)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        page = (args.keep or Path(temporary)).resolve() / "report.html"
        start = time.perf_counter()
        report = report_run(run)
        computed = time.perf_counter() - start
        start = time.perf_counter()
        report.save_html(page)
        written = time.perf_counter() - start
        browser = playwright.chromium.launch(executable_path=launch_path(), args=ARGUMENTS)
        times = [visit(browser, page) for _ in range(args.visits)]
        browser.close()
        size = page.stat().st_size / 1e6
    usable, first, second = (median(column) for column in zip(*times, strict=True))
    words = sum(len(turn["text"]) for item in run.items for turn in item.content["turns"])
    print(f"{conversations} conversations x {args.turns} turns, {args.subjects} subjects, {len(METRICS)} metrics")
    for name, value in (
        ("texts, MB", words / 1e6),
        ("report.html, MB", size),
        ("computing figures, s", computed),
        ("writing the page, s", written),
        ("until usable, s (median)", usable),
        ("until usable, s (slowest)", max(one[0] for one in times)),
        ("opening a cell, s", first),
        ("opening another, s", second),
    ):
        print(f"{name:<28}{value:>9.2f}")
    print(f"goal: usable in under {GOAL_SECONDS:.0f} s: {'reached' if usable < GOAL_SECONDS else 'missed'}")
    figures = {
        "megabytes": size,
        "compute_seconds": computed,
        "write_seconds": written,
        "usable_seconds": usable,
        "open_cell_seconds": first,
        "open_next_cell_seconds": second,
    }
    finish("report_size", figures, {"conversations": conversations, "turns": args.turns, "subjects": args.subjects})


if __name__ == "__main__":
    main()
