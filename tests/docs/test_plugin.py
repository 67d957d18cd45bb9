"""The plugins of docs/extending.md: made from the page, installed, and used by the page's own commands."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.markdown import ROOT, blocks, command_lines, words

PAGE = ROOT / "docs" / "extending.md"
RUN = """
import json, sys
from tests.docs.shell import call
print(json.dumps([call(line) for line in json.load(sys.stdin)]))
"""
ENTRY_POINT = re.compile(r'\[project\.entry-points\.("tertulia\.\w+")\]\n(\w+ = "my_package\.(\w+):(\w+)")')


def call(*arguments: object, folder: Path, site: Path | None = None, stdin: str = "") -> str:
    path = os.pathsep.join(map(str, filter(None, (site, ROOT, *sys.path))))
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
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


def run_all(lines: list[str], folder: Path, site: Path) -> list[str]:
    """What the commands print, all in one process that sees what is installed in the site."""
    ended = json.loads(call("-c", RUN, folder=folder, site=site, stdin=json.dumps(lines)))
    assert [end for end in ended if end[0] != 0] == []
    return [printed for _, printed, _ in ended]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_plugin_of_the_page_is_built_installed_and_used(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    folder, site = tmp_path / "plugin", tmp_path / "site"
    for block in blocks(PAGE):
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, encoding="utf-8")
    call("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", folder=folder)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    pip = ("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile")
    call(*pip, "--target", site, wheel, folder=folder)
    lines = sorted(command_lines(PAGE), key=lambda line: not line.pasted)
    commands = [shlex.join(["tertulia", *words(line)]) for line in lines if line.pasted or "run/words" in line.text]
    printing = ("tertulia train", "tertulia judge", "tertulia corpus stats")
    commands = [f"{command} --json" if command.startswith(printing) else command for command in commands]
    trained, ranked, judged, _, stats, chat, served = run_all(commands, folder, site)
    assert json.loads(trained)["turns"] == 4345
    figures: list[list[dict[str, Any]]] = [json.loads(printed)["figures"] for printed in (ranked, judged)]
    assert [figure["n"] for figure in figures[0] if figure["metric"] == "hits@1"] == [60, 60]
    assert [figure["metric"] for figure in figures[1]] == ["shouting"]
    assert set(json.loads((folder / "sample-lines.jsonl").read_text().splitlines()[0])) == {"name", "lines"}
    assert json.loads(stats)["dialogues"] == 32
    assert "bot: " in chat
    assert "Serving " in served


@pytest.mark.slow
def test_what_the_page_registers_by_its_entry_points_is_used(tmp_path: Path, tiny_models: Any) -> None:
    """The single bot, metric and rule of the page, in modules with the names that its entry points have."""
    package, info = tmp_path / "my_package", tmp_path / "my_package-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n")
    code = [block.text for block in blocks(PAGE) if block.language == "python" and not block.title]
    groups = []
    for group, row, module, attribute in ENTRY_POINT.findall(PAGE.read_text(encoding="utf-8")):
        own = [text for text in code if re.search(rf"^(class )?{attribute}\b", text, re.MULTILINE)]
        if own:
            with (package / f"{module}.py").open("a", encoding="utf-8") as file:
                file.write(own[0])
            groups.append(f"[{group}]\n{row}\n".replace('"', ""))
    (info / "entry_points.txt").write_text("".join(groups))
    sentences = {line.text for line in command_lines(PAGE) if re.search("parrot|shouting", line.text)}
    parrot, filtered, judged = sorted(line for line in sentences if "--replies 20" not in line)
    judged = judged.replace("RUN --replies 100", f"hf:{tiny_models.make('wide', window=4096)} --replies 2 --limit 2")
    filtered = filtered.replace("CORPUS", "sample")
    parrot, filtered, judged = run_all([parrot, filtered, judged], tmp_path, tmp_path)
    assert "BEES" in parrot
    assert "shouts" in filtered or (tmp_path / "FOLDER").is_dir()
    assert "shouting" in judged
