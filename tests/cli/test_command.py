"""Commands made from configs: options of every kind, help, precedence, errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import pytest
from pydantic import Field
from typer.testing import CliRunner

from tertulia.cli.command import Given, command
from tertulia.cli.help import App
from tertulia.core.config import Cli, Config
from tertulia.core.errors import TertuliaError


class Topping(Config):
    """A nested config."""

    name: str = "cheese"
    """What it is."""


class Pizza(Config):
    """A config with a field of every kind."""

    renamed: ClassVar = {"radius": "size"}
    names: Annotated[tuple[str, ...], Cli(argument=True)] = Field(min_length=1, max_length=2)
    """Who eats."""
    size: int = Field(30, ge=10)
    """Diameter."""
    price: float | None = None
    """Price, if any."""
    dough: Literal["thin", "thick"] = "thin"
    """Kind of dough."""
    slices: int | Literal["auto"] = "auto"
    """How many slices."""
    cheese: bool = True
    """Whether there is cheese."""
    hot: Annotated[bool, Cli("--hot/--cold")] = False
    """How it is served."""
    extras: Annotated[tuple[str, ...], Cli("--extra -x")] = ("basil",)
    """What else is on it."""
    minutes: tuple[int, ...] = ()
    """Alarm times."""
    out: Path = Path("box")
    """Where it goes."""
    labels: Annotated[dict[str, str], Cli("--label")] = Field(default_factory=dict)
    """What is written on the box."""
    config: str = "plain"
    """A name that every command has already."""
    topping: Topping = Topping()
    """Only in a file."""
    secret: Annotated[str, Cli(hidden=True)] = ""
    """Only in a file, too."""


class Soup(Config):
    """Another config, which shares two fields."""

    names: Annotated[tuple[str, ...], Cli(argument=True)] = ()
    """Who eats."""
    size: int = 2
    """Litres."""
    salt: bool = False
    """Whether it is salty."""


class Outcome(NamedTuple):
    code: int
    output: str
    error: TertuliaError | None
    settings: Any


Call = Callable[..., Outcome]


def caller(make: Callable[[list[Any]], Callable[..., None]]) -> Call:
    """Run a command as typer would; user errors are part of the outcome."""

    def call(*arguments: object) -> Outcome:
        got: list[Any] = []
        app = App(add_completion=False)
        app.command()(make(got))
        result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "80"})
        error = result.exception if isinstance(result.exception, TertuliaError) else None
        return Outcome(result.exit_code, result.output, error, got[0] if got else None)

    return call


@pytest.fixture
def pizza() -> Call:
    def make(got: list[Any]) -> Callable[..., None]:
        @command(Pizza)
        def bake(settings: Pizza, *, as_json: bool) -> None:
            """Bake a pizza."""
            got.append((settings, as_json))

        return bake

    return caller(make)


@pytest.fixture
def menu() -> Call:
    def make(got: list[Any]) -> Callable[..., None]:
        @command(Pizza, Soup)
        def cook(given: Given) -> None:
            """Cook something."""
            got.append(given.resolve(Soup, "soups"))

        return cook

    return caller(make)


def test_defaults_are_those_of_the_config(pizza: Call) -> None:
    assert pizza("ana").settings == (Pizza(names=("ana",)), False)


def test_options_of_every_kind(pizza: Call) -> None:
    arguments = "ana bob --size 40 --price 9.5 --dough thick --slices 8 --no-cheese --hot --extra ham -x nuts".split()
    arguments += "--minutes 5 --minutes 10 --out oven/box --label to=ana --label from=a=b --json".split()
    settings, as_json = pizza(*arguments).settings
    assert as_json
    assert settings == Pizza(
        names=("ana", "bob"),
        size=40,
        price=9.5,
        dough="thick",
        slices=8,
        cheese=False,
        hot=True,
        extras=("ham", "nuts"),
        minutes=(5, 10),
        out=Path("oven/box"),
        labels={"to": "ana", "from": "a=b"},
    )
    assert pizza("ana", "--cold", "--cheese").settings[0] == Pizza(names=("ana",))


def test_options_override_the_file_and_the_file_overrides_defaults(pizza: Call, tmp_path: Path) -> None:
    file = tmp_path / "pizza.toml"
    file.write_text(
        'names = ["eve"]\nsize = 50\ndough = "thick"\ncheese = false\nsecret = "s"\n[topping]\nname = "egg"\n'
    )
    settings, _ = pizza("--config", file, "--size", 20, "--cheese").settings
    assert settings == Pizza(names=("eve",), size=20, dough="thick", secret="s", topping=Topping(name="egg"))


def test_help_shows_choices_defaults_and_both_names_of_a_switch(pizza: Call) -> None:
    text = " ".join(pizza("--help").output.split())
    for expected in (
        "[OPTIONS] NAMES...",
        "Arguments: NAMES... Who eats. Options: ",
        "--size <int> Diameter. Default: 30.",
        "--price <float> Price, if any. ",
        "--dough [thin|thick] Kind of dough. Default: thin.",
        "--slices [<int>|auto] How many slices. Default: auto.",
        "--cheese / --no-cheese",
        "Whether there is cheese. Default: yes.",
        "--hot / --cold",
        "-x, --extra <str> What else is on it. Default: basil.",
        "--minutes <int> Alarm times. ",
        "--label <key=value> What is written on the box. ",
        "--json",
        "Read options from this TOML file",
    ):
        assert expected in text, text
    assert "--topping" not in text
    assert "--secret" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument NAMES"),
        (["a", "b", "c"], "NAMES: at most 2 values, got 3"),
        (["a", "--size", "3"], "--size: must be at least 10, got 3"),
        (["a", "--size", "big"], "--size: must be an integer, got 'big'"),
        (["a", "--price", "free"], "--price: must be a number, got 'free'"),
        (["a", "--minutes", "ten"], "--minutes: must be an integer, got 'ten'"),
        (["a", "--dough", "wet"], "--dough: must be 'thin' or 'thick', got 'wet'"),
        (["a", "--slices", "few"], "--slices: must be an integer or 'auto', got 'few'"),
        (["a", "--label", "to"], "--label: must be KEY=VALUE, got 'to'"),
        (
            ["a", "--dough", "wet", "--size", "1"],
            "--size: must be at least 10, got 1; --dough: must be 'thin' or 'thick', got 'wet'",
        ),
    ],
)
def test_errors_name_the_option(pizza: Call, arguments: list[str], message: str) -> None:
    error = pizza(*arguments).error
    assert error is not None
    assert error.message == message
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("size = 3", "size: must be at least 10, got 3"),
        ("sise = 30", "unknown option 'sise' (did you mean 'size'?)"),
        ("radius = 30", "'radius' is now called 'size'"),
        ("[topping]\nnme = 3", "unknown option 'topping.nme' (did you mean 'name'?)"),
    ],
)
def test_errors_in_a_file_name_the_file(pizza: Call, tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "pizza.toml"
    file.write_text(content)
    error = pizza("ana", "--config", file).error
    assert error is not None
    assert error.message == f"In {file}: {message}"


def test_unknown_options_are_usage_errors(pizza: Call) -> None:
    assert pizza("ana", "--sise", "3").code == 2


def test_a_command_of_several_configs_resolves_the_one_it_needs(menu: Call) -> None:
    assert menu("ana", "--salt").settings == Soup(names=("ana",), salt=True)
    assert menu("--size", "3").settings == Soup(size=3)
    text = " ".join(menu("--help").output.split())
    assert "--size <int> Diameter. --price" in text  # its defaults differ
    error = menu("ana", "--dough", "thin", "--extra", "ham").error
    assert error is not None
    assert error.message == "--dough, --extra do not apply to soups."
    assert error.hint == "Options that apply: NAMES, --size, --salt."
