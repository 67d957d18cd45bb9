import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tertulia import __version__
from tertulia.cli.main import COMMANDS

Tertulia = Callable[..., Any]


def test_help_names_every_command(tertulia: Tertulia) -> None:
    result = tertulia("--help")
    assert result.code == 0
    assert "A lab for open-domain dialogue" in result.out
    assert [name for name in COMMANDS if name not in result.out] == []
    assert tertulia("-h").out == result.out


def test_without_a_command_help_is_shown(tertulia: Tertulia) -> None:
    assert "Usage: tertulia" in (tertulia().out + tertulia().err)


def test_version(tertulia: Tertulia) -> None:
    assert tertulia("--version").out.strip() == f"tertulia {__version__}"
    assert tertulia("-V").out == tertulia("--version").out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(tertulia: Tertulia, command: str) -> None:
    result = tertulia(command, "--help")
    assert result.code == 0
    assert f"Usage: tertulia {command}" in result.out
    assert "--" in result.out


@pytest.mark.parametrize("command", ["", *COMMANDS, "corpus mine", "judge rank", "judge perplexity"])
def test_help_fits_80_columns_and_shows_no_python_types(
    tertulia: Tertulia, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = tertulia(*command.split(), "--help").out
    assert max(map(len, text.splitlines())) <= 80
    assert [odd for odd in ("list[", "tuple[", "<bool>", "...]...", "[[") if odd in text] == []


def test_help_imports_nothing_heavy() -> None:
    heavy = ("torch", "sklearn", "pandas", "polars", "pyarrow", "altair", "fastapi", "transformers", "numpy")
    code = (
        "import sys\nfrom tertulia.cli.main import run\n"
        "try:\n    run(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


TYPOS = {
    "corpsu": "Did you mean 'corpus'",
    "corpus shwo": "Did you mean 'show'",
    "corpus show --limti 3": "--limit",
    "corpus show --part treads": "threads",
    "judge rank genric --json": "Did you mean 'generic'",
    "judge rank generic --metric hit@1": "Did you mean 'hits@1'",
    "judge rank generic --split vaild": "Did you mean 'valid'",
    "selfplay tfdif": "Did you mean 'tfidf'",
    "selfplay generic --opner Hello": "--opener",
}


@pytest.mark.parametrize("words", TYPOS)
def test_typos_exit_with_2_and_suggest_the_right_name(tertulia: Tertulia, words: str) -> None:
    result = tertulia(*words.split())
    assert result.code == 2
    assert TYPOS[words] in result.stderr
    assert result.out == ""


@pytest.mark.parametrize("words", ["corpsu", "corpus show --limti 3", "selfplay tfdif"])
def test_typos_exit_with_2_as_a_process(process: Tertulia, words: str) -> None:
    result = process(*words.split())
    assert result.code == 2
    assert TYPOS[words] in result.stderr
    assert result.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("corpus", "show", "--limit", "many"),
        ("corpus", "show", "--limit", "0"),
        ("corpus", "convert", "sample"),
        ("selfplay",),
        ("selfplay", "generic", "generic", "generic"),
        ("selfplay", "generic?to_question=x"),
        ("selfplay", "generic", "--personas", "martian"),
        ("judge", "rank", "--candidates", "1"),
        ("corpus", "show", "--config", "no-such-file.toml"),
        ("corpus", "show", "--config", "."),
        ("demo", "--port", "99999", "--no-serve"),
    ],
    ids=" ".join,
)
def test_wrong_values_exit_with_2(
    tertulia: Tertulia, arguments: tuple[str, ...], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tertulia(*arguments)
    assert result.code == 2
    assert result.err
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_error_has_a_hint(tertulia: Tertulia) -> None:
    result = tertulia("corpus", "show", "no/such/corpus")
    assert result.code == 2
    assert result.err.startswith("Error: File not found: no/such/corpus\n")
    assert "sample" in result.err.splitlines()[1]


def test_a_path_that_cannot_be_written_is_an_error(tertulia: Tertulia, tmp_path: Any) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = tertulia("demo", "--no-serve", "--out", file)
    assert result.code == 2
    assert result.err == f"Error: {file} is a file, not a folder.\nName another folder with --out.\n"


def test_a_closed_pipe_is_not_an_error() -> None:
    """`tertulia ... | head`: the pipe closes while there is more output."""
    command = [sys.executable, "-m", "tertulia", "corpus", "show", "sample", "--part", "dialogues", "-n", "360"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        stderr = child.stderr.read()
    assert "Traceback" not in stderr
    assert "Error" not in stderr
