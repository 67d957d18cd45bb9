"""Take the picture of a report in the README: docs/images/report.png, from the demo's ranking.

    tertulia demo --no-serve --out demo
    python docs/report_picture.py demo/ranking/report.html

Chromium is the one that the tests use.
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "images" / "report.png"
CHROMIUM = "/usr/bin/chromium"
WIDTH, HEIGHT = 1280, 1130


def main(report: Path) -> None:
    """Open the report and save its upper part."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
