"""Registry rows and commands are strings that import-linter cannot see: here every one of them is resolved."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import get_args

import click
import pytest
import typer
from torch import nn

import tertulia
from tertulia.cli.main import COMMANDS, build
from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import MissingExtra
from tertulia.core.registry import Registry, Row
from tertulia.core.reply import Ask
from tertulia.corpus.table import READERS
from tertulia.metrics.table import METRICS
from tertulia.models.decoding import PRESETS, Method
from tertulia.models.generator import Generator
from tertulia.models.writers import WRITERS
from tertulia.talk.filters.table import ALL, FILTERS, make_filters
from tertulia.talk.table import BOTS

TABLES = {"bots": BOTS, "readers": READERS, "metrics": METRICS, "filters": FILTERS, "writers": WRITERS}
ROWS = [(table, row) for table in TABLES.values() for row in table.rows()]


def thing(table: Registry, name: str) -> object:
    try:
        return table.get(name)
    except MissingExtra as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(("table", "row"), ROWS, ids=lambda value: value.name if isinstance(value, Row) else "")
def test_every_row_resolves_and_tells_what_it_is(table: Registry, row: Row) -> None:
    assert thing(table, row.name) is not None
    assert row.summary
    assert "\n" not in row.summary


@pytest.mark.parametrize("name", list(BOTS))
def test_every_bot_can_be_made_from_a_specification(name: str) -> None:
    factory = thing(BOTS, name)
    assert issubclass(factory.Options, Config)  # type: ignore[attr-defined]
    assert isinstance(factory.target_help, str)  # type: ignore[attr-defined]
    assert callable(factory.build)  # type: ignore[attr-defined]
    assert len(inspect.signature(factory.build).parameters) == 2  # type: ignore[attr-defined]
    assert factory.summary  # type: ignore[attr-defined]
    undescribed = [n for n, f in factory.Options.model_fields.items() if not f.description]  # type: ignore[attr-defined]
    assert undescribed == []


@pytest.mark.parametrize("name", list(READERS))
def test_every_reader_knows_its_name(name: str) -> None:
    reader = thing(READERS, name)
    assert reader.name == name  # type: ignore[attr-defined]
    assert callable(reader.decode)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(thing(METRICS, name))


@pytest.mark.parametrize("name", list(FILTERS))
def test_every_filter_is_a_config_that_can_be_made_by_its_name_and_called(name: str) -> None:
    kind = thing(FILTERS, name)
    assert issubclass(kind, Config)  # type: ignore[arg-type]
    assert inspect.getdoc(kind)
    assert kind.weight > 0  # type: ignore[attr-defined]
    (made,) = make_filters(name)
    assert type(made) is kind
    assert made(Ask(Dialogue("d", (Turn("a", "Hello, how are you?"),)), "b"), "I am fine, and you?") is None


def test_bots_have_every_built_in_filter_unless_told_otherwise() -> None:
    built_in = {row.name for row in FILTERS.rows() if row.target.startswith("tertulia.")}
    assert set(ALL.split(",")) == built_in


@pytest.mark.parametrize("name", list(WRITERS))
def test_every_model_that_writes_is_a_generator_and_a_bot(name: str) -> None:
    kind = thing(WRITERS, name)
    assert issubclass(kind, nn.Module)  # type: ignore[arg-type]
    wanted = [method for method in vars(Generator) if not method.startswith("_") and callable(vars(Generator)[method])]
    assert len(wanted) == 4
    for method in (*wanted, "load", "untrained"):
        assert callable(getattr(kind, method))
    assert issubclass(kind.config_type, Config)  # type: ignore[attr-defined]
    assert name in BOTS


WRITING = (Path(__file__).parents[2] / "docs" / "writing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [
        *FILTERS,
        *WRITERS,
        *PRESETS,
        *get_args(Method),
        *(f"{name}:{field}" for name in ALL.split(",") for field in FILTERS.get(name).model_fields),
    ],
)
def test_the_page_on_writing_names_every_model_method_preset_and_filter(name: str) -> None:
    assert f"`{name}`" in WRITING or f"`{name}=" in WRITING


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_resolves(name: str) -> None:
    module, _, attribute = COMMANDS[name].target.partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, typer.Typer) or callable(found)
    assert COMMANDS[name].help.endswith(".")


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, sub in inner.items():
        yield from commands(sub, (*path, name))


LEAVES = dict(commands(typer.main.get_command(build(list(COMMANDS)))))
NOT_CONFIG = {"config", "json", "help", "recipe"}
"""Where options are read from, how figures are printed, and the TOML file that is itself the config."""


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_has_a_field_in_the_config_of_its_command(name: str) -> None:
    command = LEAVES[name]
    function = inspect.unwrap(command.callback)  # type: ignore[arg-type]
    params = [p for p in command.params if p.name not in NOT_CONFIG]
    if not params:
        return
    source = inspect.getsource(function)
    resolved = re.findall(r"resolve\(\s*(\w+)", source) or sorted(set(re.findall(r"option\((\w+),", source)))
    assert resolved, f"{name} resolves no config"
    configs = [function.__globals__[found] for found in resolved]
    assert all(issubclass(config, Config) for config in configs)
    described = {f.description for config in configs for f in config.model_fields.values() if f.description}
    for param in params:
        told = getattr(param, "help", "") or ""
        assert any(told.startswith(text) for text in described), f"{name}: {param.name} has no field in {resolved}"


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_that_prints_figures_prints_json(name: str) -> None:
    talks = {"chat", "serve"}
    names = {option for param in LEAVES[name].params for option in param.opts}
    assert name in talks or "--json" in names
    assert LEAVES[name].help


def config_classes() -> list[type[Config]]:
    for module in walk_packages(tertulia.__path__, "tertulia."):
        if not module.name.endswith("__main__") and ".migrations." not in module.name:
            try:
                import_module(module.name)
            except ModuleNotFoundError as missing:
                if (missing.name or "").startswith("tertulia"):  # else an extra that is not installed
                    raise
    waiting, found = [Config], []
    while waiting:
        waiting += (new := waiting.pop().__subclasses__())
        found += [cls for cls in new if cls.__module__.startswith("tertulia.")]
    return found


def test_what_is_saved_of_a_config_reads_the_same() -> None:
    """TOML has no null: a field that may be None must be None when it is not given."""
    wrong = []
    for cls in config_classes():
        for name, field in cls.model_fields.items():
            may_be_none = type(None) in getattr(field.annotation, "__args__", ())
            if may_be_none and not field.is_required() and field.get_default(call_default_factory=True) is not None:
                wrong.append(f"{cls.__name__}.{name}")
    assert wrong == []


def test_every_field_of_every_config_is_described() -> None:
    assert [
        f"{cls.__name__}.{name}"
        for cls in config_classes()
        for name, field in cls.model_fields.items()
        if not field.description
    ] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(tertulia.__path__[0]) / "py.typed").is_file()
