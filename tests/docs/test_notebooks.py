"""The notebooks run, and what is stored in them is what they print, but for the digits of figures."""

import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from tests.docs.markdown import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
spec = spec_from_file_location("docs_notebooks", ROOT / "docs/notebooks.py")
assert spec is not None
assert spec.loader is not None
notebooks = module_from_spec(spec)
spec.loader.exec_module(notebooks)


def outline(notebook: dict[str, Any]) -> list[Any]:
    """What each cell shows, with every number masked, and only the kind of pictures and tables."""
    shown: list[Any] = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            text = re.sub(r"[-\d.]+", "#", "".join(output.get("text", ())))
            shown.append((cell["id"], text, sorted(output.get("data", ()))))
    return shown


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare-bots", "explore-a-corpus"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_and_its_stored_outputs_are_true(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored = json.loads(path.read_text(encoding="utf-8"))
    pictures = sum(
        "image/svg+xml" in output.get("data", ()) for c in stored["cells"] for output in c.get("outputs", ())
    )
    assert pictures >= 1
    assert outline(notebooks.run(path)) == outline(stored), f"store new outputs: python docs/notebooks.py {path.name}"


def test_a_notebook_becomes_a_page() -> None:
    page = notebooks.to_markdown(NOTEBOOKS[0])
    assert page.startswith("# Compare bots\n\n[Download the notebook](compare-bots.ipynb)")
    assert "<svg" in page
    assert "```python\nimport altair as alt" in page
