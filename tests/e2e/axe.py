"""axe-core in a page of the browser."""

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong in either theme, as lines. Only contrast depends on the theme."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    lines: list[str] = []
    for scheme, rules in (("dark", {"runOnly": ["color-contrast"]}), ("light", {})):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        options = {"resultTypes": ["violations"], **rules}
        broken = page.evaluate("async (options) => (await axe.run(document, options)).violations", options)
        lines += [
            f"{scheme}, {rule['id']}: {node['html'][:150]} {node['failureSummary']}"
            for rule in broken
            for node in rule["nodes"]
        ]
    return lines
