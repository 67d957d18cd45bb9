from pathlib import Path
from typing import ClassVar, Literal, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError, model_validator

from tertulia.core.config import Config, load_toml, resolve, to_toml, validate
from tertulia.core.errors import ConfigError


class Timer(Config):
    """A nested config."""

    renamed: ClassVar = {"length": "minutes"}
    minutes: int = 30


class Oven(Config):
    """A config with fields of every kind."""

    degrees: int = Field(180, ge=0, le=300)
    """How hot."""
    name: str = "the oven"
    door: Literal["open", "shut"] = "shut"
    trays: tuple[str, ...] = ()
    book: Path | None = None
    share: float = 0.5
    grill: bool = False
    racks: tuple[int, ...] = Field((1,), min_length=1, max_length=2)
    batch: int | Literal["auto"] = "auto"
    label: str = Field("x", min_length=1, max_length=5)
    timer: Timer = Timer()
    timers: tuple[Timer, ...] = ()


def error_of(values: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(Oven, values, where="the kitchen")
    return caught.value.message


def test_docstrings_become_descriptions() -> None:
    assert Oven.model_fields["degrees"].description == "How hot."


def test_configs_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Oven().degrees = 3  # type: ignore[misc]


def test_unknown_keys_suggest_a_similar_one_or_list_all() -> None:
    assert error_of({"degree": 10}) == "In the kitchen: unknown option 'degree' (did you mean 'degrees'?)"
    assert "(known: degrees, name, door, trays, book, share, grill," in error_of({"zzzzzz": 1})
    assert error_of({"timer": {"minute": 1}}).endswith("unknown option 'timer.minute' (did you mean 'minutes'?)")
    assert error_of({"timers": [{"minute": 1}]}).endswith("unknown option 'timers[0].minute' (did you mean 'minutes'?)")


def test_renamed_keys_name_the_new_key() -> None:
    assert error_of({"timer": {"length": 1}}) == "In the kitchen: 'timer.length' is now called 'minutes'"


def test_all_problems_are_listed_at_once() -> None:
    assert error_of({"degrees": 999, "door": "ajar", "nmae": "x"}) == (
        "In the kitchen: degrees: must be at most 300, got 999; door: must be 'open' or 'shut', got 'ajar'; "
        "unknown option 'nmae' (did you mean 'name'?)"
    )


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("degrees", "hot", "degrees: must be an integer, got 'hot'"),
        ("degrees", 1.5, "degrees: must be an integer, got 1.5"),
        ("degrees", -1, "degrees: must be at least 0, got -1"),
        ("share", "half", "share: must be a number, got 'half'"),
        ("grill", "maybe", "grill: must be true or false, got 'maybe'"),
        ("name", 3, "name: must be text, got 3"),
        ("book", 3, "book: must be a path, got 3"),
        ("trays", "abc", "trays: must be a list, got 'abc'"),
        ("trays", ["a", 1], "trays[1]: must be text, got 1"),
        ("racks", [], "racks: at least 1 value, got 0"),
        ("racks", [1, 2, 3], "racks: at most 2 values, got 3"),
        ("batch", "many", "batch: must be an integer or 'auto', got 'many'"),
        ("label", "", "label: must not be empty"),
        ("label", "too long", "label: must be text of at most 5 characters, got 'too long'"),
        ("timer", 3, "timer: must be a table, got 3"),
        ("timer", {"minutes": "x"}, "timer.minutes: must be an integer, got 'x'"),
        ("timers", [{"minutes": "x"}], "timers[0].minutes: must be an integer, got 'x'"),
    ],
)
def test_wrong_values_are_explained_in_plain_words(key: str, value: object, problem: str) -> None:
    assert error_of({key: value}) == f"In the kitchen: {problem}"


def test_the_text_of_a_validator_is_the_explanation() -> None:
    class Pair(Config):
        """Two fields that depend on each other."""

        low: int = 0
        high: int = 1

        @model_validator(mode="after")
        def check(self) -> Self:
            if self.low > self.high:
                raise ValueError("low must not exceed high")
            return self

    with pytest.raises(ConfigError, match=r"^In here: low must not exceed high$"):
        validate(Pair, {"low": 3}, where="here")
    with pytest.raises(ConfigError, match=r"^low must not exceed high$"):
        resolve(Pair, overrides={"low": 3}, labels={"low": "--low", "high": "--high"})


def test_errors_name_the_option_or_the_file_where_the_value_is_from(tmp_path: Path) -> None:
    file = tmp_path / "oven.toml"
    file.write_text("degrees = 999\nshare = 'x'\n")
    labels = {"degrees": "--degrees", "share": "--share-of-heat", "door": "--door", "racks": "RACKS"}
    with pytest.raises(ConfigError) as caught:
        resolve(Oven, file, {"share": "half", "door": "ajar", "racks": ["1", "2", "3"]}, labels=labels)
    assert caught.value.message == (
        "--door: must be 'open' or 'shut', got 'ajar'; --share-of-heat: must be a number, got 'half'; "
        f"RACKS: at most 2 values, got 3; In {file}: degrees: must be at most 300, got 999"
    )


def test_required_keys_are_named_without_showing_other_values() -> None:
    class Needy(Config):
        """Needs something."""

        out: Path
        other: str = ""

    with pytest.raises(ConfigError, match=r"^In the options: 'out' is required$"):
        resolve(Needy, overrides={"other": "secret"})
    with pytest.raises(ConfigError, match=r"^--out is required$"):
        resolve(Needy, overrides={"other": "secret"}, labels={"out": "--out", "other": "--other"})
    with pytest.raises(ConfigError, match=r"^Missing argument OUT$"):
        resolve(Needy, overrides={"other": "secret"}, labels={"out": "OUT", "other": "--other"})


def test_defaults_are_checked_too() -> None:
    class Broken(Config):
        """Its default does not fit."""

        degrees: int = Field(500, le=300)

    with pytest.raises(ConfigError):
        resolve(Broken)


def test_options_override_the_file_and_the_file_overrides_defaults(tmp_path: Path) -> None:
    file = tmp_path / "oven.toml"
    file.write_text('degrees = 200\nname = "old"\n')
    assert resolve(Oven, file, {"name": "new", "degrees": None}) == Oven(degrees=200, name="new")
    assert resolve(Oven) == Oven()


def test_false_zero_and_empty_text_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "oven.toml"
    file.write_text('degrees = 200\nname = "old"\n')
    assert resolve(Oven, file, {"degrees": 0, "name": ""}) == Oven(degrees=0, name="")


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "oven.toml"
    file.write_text("degrees = 999\n")
    with pytest.raises(ConfigError, match=r"oven\.toml: degrees"):
        resolve(Oven, file)


@pytest.mark.parametrize("content", [b"degrees = ", b"degrees", b"a = 1\na = 2\n", b"\xff\xfe"])
def test_files_that_are_not_toml_are_errors(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "oven.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"oven\.toml is not valid TOML: "):
        load_toml(file)


def test_missing_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="File not found: "):
        load_toml(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="Cannot read the config file"):
        load_toml(tmp_path)


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Oven,
        degrees=st.integers(0, 300),
        name=st.text(),
        door=st.sampled_from(["open", "shut"]),
        trays=st.lists(st.text()).map(tuple),
        book=st.none() | st.just(Path("a/b.txt")),
        share=st.floats(allow_nan=False),
    )
)
def test_a_saved_config_reads_the_same(tmp_path_factory: pytest.TempPathFactory, oven: Oven) -> None:
    file = tmp_path_factory.getbasetemp() / "oven.toml"
    file.write_text(to_toml(oven), encoding="utf-8")
    assert resolve(Oven, file) == oven
    assert {*load_toml(file), "book"} == set(Oven.model_fields), "defaults are written too: they may change"
