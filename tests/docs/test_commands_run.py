"""All commands of README and docs run and end with exit code 0: here, by the tutorials, or by a test that is named."""

import re
from collections.abc import Iterator

import pytest
from tests.conftest import TinyModels
from tests.docs.markdown import ROOT, CommandLine, blocks
from tests.docs.rehearsal import (
    ALONE,
    ELSEWHERE,
    SHORTER,
    STANDS_FOR,
    as_run,
    changed,
    changes_of,
    is_command,
    rehearse,
    run_by_tutorials,
    text_of,
    to_run,
)
from tests.docs.shell import call
from tests.docs.stage import NAME, NEEDS, PROPS, Stage
from tests.docs.test_commands import LINES

pytest.importorskip("peft")
GROUPS = {
    "start": ("README.md", "docs/getting-started.md", "docs/command-line.md", "docs/tutorials/"),
    "judge": ("docs/reports.md", "docs/meta-evaluation.md", "docs/llm-judge.md", "docs/reply-scores.md"),
    "papers": ("docs/reproduce.md", "docs/benchmarks.md", "docs/parlai.md"),
    "studies": ("docs/studies.md", "docs/preferences.md", "docs/grounding.md"),
    "others": ("",),
}
"""Pages, by how their names begin; a page belongs to the first group that has it."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, tiny_models: TinyModels) -> Iterator[Stage]:
    def must(line: str) -> None:
        ended = call(line)
        assert ended.code == 0, f"{line}\n{ended.errors}"

    stage = Stage(tmp_path_factory.mktemp("stage"), tiny_models, must)
    yield stage
    stage.close()


def group_of(page: str) -> str:
    return next(group for group, starts in GROUPS.items() if page.startswith(starts))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", GROUPS)
def test_the_commands_of_the_pages_run(group: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pages = {page: lines for page, lines in to_run().items() if lines and group_of(page) == group}
    failures = [failure for page, lines in pages.items() for failure in rehearse(page, lines, stage)]
    assert not failures, "\n\n".join(map(str, failures))


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block.text for block in blocks(ROOT / "README.md") if block.language == "python")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_every_command_is_run_somewhere() -> None:
    walked = run_by_tutorials()
    run = {as_run(line) for lines in to_run().values() for line in lines}
    left = {text_of(line) for line in LINES if is_command(line) and as_run(line) not in run} - walked
    assert [command for command in left if not any(re.search(pattern, command) for pattern in ELSEWHERE)] == []
    assert len(run) > 150
    assert len(walked) > 15


def test_no_row_of_the_tables_is_out_of_use() -> None:
    """Each row is about a command that is still there, and a test that runs one instead of us is there, too."""
    commands = {text_of(line) for line in LINES if is_command(line)}
    for pattern, (_, test) in ELSEWHERE.items():
        assert any(re.search(pattern, command) for command in commands), pattern
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test
    used = {pattern for command in commands for pattern in changes_of(command)}
    assert [pattern for pattern in STANDS_FOR | SHORTER if pattern not in used] == []
    assert {command.removeprefix("tertulia ") for command in commands} >= ALONE
    named = {name.rstrip("/") for command in commands for name in NAME.findall(changed(command))}
    assert {name for names in PROPS for name in names.split()} - named - set().union(*NEEDS.values()) == set()


def test_a_command_that_fails_is_reported_with_what_it_printed(stage: Stage) -> None:
    wrong = [CommandLine("README.md:1", f"tertulia {command}", pasted=True) for command in ("bots xyz", "chat xyz")]
    first, second = rehearse("docs/index.md", wrong, stage)
    assert "There is no bot called 'xyz'" in first.printed
    assert second.command == "tertulia chat xyz"
