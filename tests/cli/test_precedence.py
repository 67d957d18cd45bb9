"""Where an option comes from: the command line, the environment, --config, the user's file, or the default."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia.cli.user_config import user_file

Tertulia = Callable[..., Any]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "user.toml"
    file.write_text("")
    monkeypatch.setenv("TERTULIA_CONFIG", str(file))
    return file


def shown(tertulia: Tertulia, *more: object) -> int:
    """How many dialogues `corpus show` shows, which is its option --limit; 3 by default."""
    result = tertulia("corpus", "show", "sample", "--part", "dialogues", "--json", *more)
    assert result.code == 0, result.err
    return len(json.loads(result.out))


def test_every_source_wins_over_those_below_it(
    tertulia: Tertulia, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = shown(tertulia)
    assert default not in (5, 6, 7, 8)
    user.write_text("[corpus.show]\nlimit = 5\n")
    assert shown(tertulia) == 5
    file = tmp_path / "show.toml"
    file.write_text("limit = 6\n")
    assert shown(tertulia, "--config", file) == 6
    monkeypatch.setenv("TERTULIA_CORPUS_SHOW_LIMIT", "7")
    assert shown(tertulia, "--config", file) == 7
    assert shown(tertulia, "--config", file, "--limit", 8) == 8


def test_an_error_names_the_source_of_the_value(
    tertulia: Tertulia, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.write_text("[corpus.show]\nlimit = 0\n")
    assert f"In {user}, [corpus.show]: limit: must be at least 1" in tertulia("corpus", "show").stderr
    user.write_text("[corpus.show]\nlimti = 1\n")
    assert "unknown option 'limti' (did you mean 'limit'?)" in tertulia("corpus", "show").stderr
    user.write_text("[corpus.shwo]\nlimit = 1\n")
    assert "Did you mean 'corpus.show'?" in tertulia("corpus", "show").stderr
    user.write_text("")
    monkeypatch.setenv("TERTULIA_CORPUS_SHOW_LIMIT", "many")
    result = tertulia("corpus", "show")
    problem = "Error: TERTULIA_CORPUS_SHOW_LIMIT: must be an integer, got 'many'"
    assert (result.code, result.err) == (2, f"{problem}\nSee: tertulia corpus show --help\n")


def test_variables_of_lists_switches_and_arguments(tertulia: Tertulia, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERTULIA_JUDGE_RANK_METRIC", "hits@1, mrr")
    monkeypatch.setenv("TERTULIA_JUDGE_RANK_BOTS", "generic")
    monkeypatch.setenv("TERTULIA_JUDGE_RANK_HARD", "yes")
    monkeypatch.setenv("TERTULIA_JUDGE_RANK_LIMIT", "20")
    result = tertulia("judge", "rank", "--json")
    assert result.code == 0, result.err
    config = json.loads(result.out)["run"]["config"]
    assert (config["metrics"], config["bots"], config["hard"], config["limit"]) == (
        ["hits@1", "mrr"],
        ["generic"],
        True,
        20,
    )


def test_a_variable_that_is_almost_one_is_worth_a_warning(
    tertulia: Tertulia, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TERTULIA_CORPUS_SHOW_LIMTI", "1")
    tertulia("corpus", "show", "no/such")
    assert "TERTULIA_CORPUS_SHOW_LIMTI sets no option" in caplog.text
    assert "TERTULIA_CORPUS_SHOW_LIMIT does" in caplog.text


def test_the_users_file_is_in_the_platforms_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERTULIA_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert user_file() is None
    (tmp_path / "tertulia").mkdir()
    (tmp_path / "tertulia" / "config.toml").write_text('log_level = "info"\n')
    assert user_file() == tmp_path / "tertulia" / "config.toml"
    monkeypatch.setenv("TERTULIA_CONFIG", "")
    assert user_file() is None


def test_the_users_file_can_set_options_before_the_command(tertulia: Tertulia, user: Path) -> None:
    user.write_text('log_level = "loud"\n')
    result = tertulia("corpus", "show", "no/such")
    assert result.code == 2
    assert f"In {user}: log_level: must be 'debug', 'info', 'warning' or 'error'" in result.stderr
    assert "--log-level" in tertulia("--log-level", "loud", "corpus", "show").stderr
