from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from tertulia.core.config import Config, load_toml, resolve, save, validate
from tertulia.core.errors import ConfigError


class Oven(Config):
    """A thing to configure."""

    degrees: int = Field(180, ge=0, le=300)
    """How hot."""
    name: str = "the oven"
    door: Literal["open", "shut"] = "shut"
    trays: tuple[str, ...] = ()
    book: Path | None = None
    share: float = 0.5


def wrong(values: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(Oven, values, where="the kitchen")
    return caught.value.message


def test_docstrings_become_descriptions() -> None:
    assert Oven.model_fields["degrees"].description == "How hot."


def test_configs_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Oven().degrees = 3  # type: ignore[misc]


def test_unknown_keys_name_the_near_one_or_all() -> None:
    assert wrong({"degree": 10}) == "In the kitchen: unknown option 'degree' (did you mean 'degrees'?)"
    assert "(known: degrees, name, door, trays, book, share)" in wrong({"zzzzzz": 1})


def test_everything_wrong_is_told_at_once() -> None:
    told = wrong({"degrees": 999, "door": "ajar", "nmae": "x"})
    assert "degrees: input should be less than or equal to 300, not 999" in told
    assert "door: " in told
    assert "not 'ajar'" in told
    assert "did you mean 'name'?" in told


@pytest.mark.parametrize("values", [{"degrees": "hot"}, {"degrees": 1.5}, {"trays": "abc"}, {"name": 3}])
def test_wrong_types(values: dict[str, object]) -> None:
    assert f"In the kitchen: {next(iter(values))}" in wrong(values)


def test_what_is_needed_is_named_without_showing_everything_else() -> None:
    class Needy(Config):
        """Needs something."""

        out: Path
        other: str = ""

    with pytest.raises(ConfigError, match=r"^In the options: 'out' is needed$"):
        resolve(Needy, overrides={"other": "secret"})


def test_defaults_are_checked_too() -> None:
    class Broken(Config):
        """Its default does not fit."""

        degrees: int = Field(500, le=300)

    with pytest.raises(ConfigError):
        resolve(Broken)


def test_options_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "oven.toml"
    file.write_text('degrees = 200\nname = "old"\n')
    assert resolve(Oven, file, {"name": "new", "degrees": None}) == Oven(degrees=200, name="new")
    assert resolve(Oven) == Oven()


def test_false_and_zero_and_empty_count_as_given(tmp_path: Path) -> None:
    file = tmp_path / "oven.toml"
    file.write_text('degrees = 200\nname = "old"\n')
    assert resolve(Oven, file, {"degrees": 0, "name": ""}) == Oven(degrees=0, name="")


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "oven.toml"
    file.write_text("degrees = 999\n")
    with pytest.raises(ConfigError, match=r"oven\.toml: degrees"):
        resolve(Oven, file)


@pytest.mark.parametrize("content", [b"degrees = ", b"degrees", b"a = 1\na = 2\n", b"\xff\xfe"])
def test_files_that_are_not_toml(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "oven.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"oven\.toml is not valid TOML: "):
        load_toml(file)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no config file"):
        load_toml(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
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
def test_what_was_saved_reads_the_same(tmp_path_factory: pytest.TempPathFactory, oven: Oven) -> None:
    file = tmp_path_factory.getbasetemp() / "oven.toml"
    save(oven, file)
    assert resolve(Oven, file) == oven
    assert {*load_toml(file), "book"} == set(Oven.model_fields), "defaults are written too: they may change"
