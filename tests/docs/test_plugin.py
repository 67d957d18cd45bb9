"""The complete plugin of docs/extending.md: built from the page, installed, and used from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.markdown import ROOT, blocks

PAGE = ROOT / "docs" / "extending.md"


def call(*arguments: object, folder: Path, site: Path | None = None, stdin: str = "") -> str:
    path = os.pathsep.join(filter(None, (str(site or ""), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_plugin_of_the_page_is_built_installed_and_used(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    folder, site = tmp_path / "plugin", tmp_path / "site"
    for block in blocks(PAGE):
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
    call("hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", folder=folder)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    call("pip", "install", "-q", "--no-deps", "--no-index", "--no-compile", "--target", site, wheel, folder=folder)

    def tertulia(*arguments: object, stdin: str = "") -> str:
        return call("tertulia", *arguments, folder=tmp_path, site=site, stdin=stdin)

    run = tmp_path / "run" / "words"
    trained = json.loads(tertulia("train", folder / "words.toml", "--out", run, "--json"))
    assert trained["turns"] == 4345
    ranked = json.loads(tertulia("judge", "rank", run, f"{run}?rare=true", "--limit", 60, "--json"))
    hits = [figure for figure in ranked["figures"] if figure["metric"] == "hits@1"]
    assert [figure["n"] for figure in hits] == [60, 60]
    judged: dict[str, Any] = json.loads(
        tertulia("judge", "replies", run, "--replies", 20, "--metric", "shouting", "--json")
    )
    assert [figure["metric"] for figure in judged["figures"]] == ["shouting"]
    tertulia("corpus", "convert", "sample", tmp_path / "lines.jsonl", "--to", "lines", "--split", "valid")
    assert set(json.loads((tmp_path / "lines.jsonl").read_text().splitlines()[0])) == {"name", "lines"}
    assert json.loads(tertulia("corpus", "stats", tmp_path / "lines.jsonl", "--json"))["dialogues"] == 32
    replied = tertulia("chat", run, stdin="Hi!\n/quit\n")
    assert "bot: " in replied
