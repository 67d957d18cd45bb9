import pytest

from tertulia.core.errors import (
    BotError,
    ConfigError,
    DamagedLine,
    DataError,
    MissingExtra,
    PortTaken,
    TertuliaError,
    UnknownName,
    UsageError,
    close_names,
)


def test_an_error_has_a_message_and_a_hint() -> None:
    assert str(TertuliaError("It broke.", hint="Mend it.")) == "It broke.\nMend it."
    assert str(TertuliaError("It broke.")) == "It broke."


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (UnknownName("bot", "x", []), 2),
        (ConfigError("x"), 2),
        (DataError("x"), 1),
        (DamagedLine("f", 1, "x"), 1),
        (BotError("x"), 1),
        (MissingExtra("x", "y"), 2),
        (PortTaken("localhost", 80), 1),
    ],
)
def test_usage_errors_exit_with_2_and_others_with_1(error: TertuliaError, code: int) -> None:
    assert error.exit_code == code


def test_unknown_names_suggest_similar_names_or_list_all() -> None:
    near = UnknownName("bot", "tfdif", ["hf", "tfidf"])
    assert near.message == "There is no bot called 'tfdif'."
    assert near.hint == "Did you mean 'tfidf'?"
    assert UnknownName("bot", "zzzz", ["b", "a"]).hint == "Known: a, b."
    assert UnknownName("bot", "zzzz", []).hint == ""


def test_close_names_ignore_case_and_come_closest_first() -> None:
    assert close_names("GENERIC", ["generic", "human"]) == ["generic"]
    assert close_names("hits@3", ["mrr", "hits@1", "hits@10"])[0] == "hits@1"
    assert (
        close_names("hits@3", ["hits@1", "hits@2", "hits@5", "hits@8"], n=2)
        == close_names("hits@3", ["hits@1", "hits@2", "hits@5", "hits@8"])[:2]
    )
    assert close_names("x", []) == []


def test_only_close_names_are_suggested() -> None:
    bots = ["generic", "hf", "human", "openai", "smollm2", "tfidf", "transformer"]
    assert close_names("smolm2", bots) == ["smollm2"]
    assert close_names("humann", bots) == ["human"]
    assert close_names("nope", bots) == []
    assert close_names("gpt", bots) == []


def test_a_taken_port_suggests_another() -> None:
    assert "--port 8001" in PortTaken("127.0.0.1", 8000).hint
