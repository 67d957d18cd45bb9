import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tertulia import __version__
from tertulia.cli.main import COMMANDS

Tertulia = Callable[..., Any]


def test_help_names_every_command(tertulia: Tertulia) -> None:
    told = tertulia("--help")
    assert told.code == 0
    assert [name for name in COMMANDS if name not in told.out] == []
    assert tertulia("-h").out == told.out


def test_without_a_command_there_is_help(tertulia: Tertulia) -> None:
    assert "Usage: tertulia" in (tertulia().out + tertulia().err)


def test_version(tertulia: Tertulia) -> None:
    assert tertulia("--version").out.strip() == __version__


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(tertulia: Tertulia, command: str) -> None:
    told = tertulia(command, "--help")
    assert told.code == 0
    assert f"Usage: tertulia {command}" in told.out
    assert "--" in told.out


def test_help_imports_nothing_heavy() -> None:
    heavy = ("torch", "sklearn", "pandas", "polars", "pyarrow", "altair", "fastapi", "transformers", "numpy")
    code = (
        "import sys\nfrom tertulia.cli.main import run\n"
        "try:\n    run(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


WRONG_WORDS = {
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


@pytest.mark.parametrize("words", WRONG_WORDS)
def test_wrong_words_exit_with_2_and_name_the_near_ones(tertulia: Tertulia, words: str) -> None:
    result = tertulia(*words.split())
    assert result.code == 2
    assert WRONG_WORDS[words] in result.told
    assert result.out == ""


@pytest.mark.parametrize("words", ["corpsu", "corpus show --limti 3", "selfplay tfdif"])
def test_so_does_the_process(process: Tertulia, words: str) -> None:
    result = process(*words.split())
    assert result.code == 2
    assert WRONG_WORDS[words] in result.told
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


def test_an_error_says_what_to_do_next(tertulia: Tertulia) -> None:
    result = tertulia("corpus", "show", "no/such/corpus")
    assert result.code == 1
    assert result.err.startswith("Error: There is no no/such/corpus.\n")
    assert "sample" in result.err.splitlines()[1]


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`tertulia ... | head`: the pipe closes while there is more to say."""
    command = [sys.executable, "-m", "tertulia", "corpus", "show", "sample", "--part", "dialogues", "-n", "360"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        told = child.stderr.read()
    assert "Traceback" not in told
    assert "Error" not in told
