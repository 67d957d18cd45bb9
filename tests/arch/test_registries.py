"""Registry rows and commands are strings that import-linter cannot see: here every one of them is resolved.

Each test lists all offenders, so that one run shows everything that is wrong.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, get_args

import click
import typer
from torch import nn

import tertulia
from tertulia.cli.commands import COMMANDS, leaves
from tertulia.cli.main import build
from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import MissingExtra
from tertulia.core.registry import Registry
from tertulia.core.reply import Ask
from tertulia.core.safety import CLASSIFIERS
from tertulia.corpus.custom_rules import RULES
from tertulia.corpus.registry import READERS
from tertulia.corpus.taggers import TAGGERS
from tertulia.metrics.registry import METRICS
from tertulia.models.classifiers.grounding import GROUNDING
from tertulia.models.decoding import PRESETS, Method
from tertulia.models.generator import Generator
from tertulia.models.rankers.base import PairScorer, Ranker, TrainablePairModel
from tertulia.models.registry import ARCHITECTURES, GENERATORS, RANKERS, RERANKERS
from tertulia.talk.filters.base import ALL, FILTERS, make_filters
from tertulia.talk.registry import BOTS
from tertulia.talk.retrieval import ENCODERS
from tertulia.train.recipe import Recipe, RecipeConfig
from tertulia.train.registry import RECIPES

TABLES: dict[str, Registry] = {
    "bots": BOTS,
    "readers": READERS,
    "metrics": METRICS,
    "filters": FILTERS,
    "sentence encoders": ENCODERS,
    "generators": GENERATORS,
    "rankers": RANKERS,
    "rerankers": RERANKERS,
    "recipes": RECIPES,
    "grounding classifiers": GROUNDING,
    "safety classifiers": CLASSIFIERS,
    "taggers": TAGGERS,
    "rules": RULES,
}


def things(table: Registry) -> dict[str, Any]:
    """What the rows of a table stand for; rows that need an extra that is not installed are left out."""
    resolved = {}
    for name in table:
        try:
            resolved[name] = table.get(name)
        except MissingExtra:
            continue
    return resolved


def test_every_row_resolves_and_has_a_summary_of_one_line() -> None:
    unresolved, unclear = [], []
    for title, table in TABLES.items():
        for row in table.rows():
            try:
                table.get(row.name)
            except MissingExtra:
                pass
            except Exception as error:
                unresolved.append(f"{title}: {row.name} -> {row.target} ({error!r})")
            if not row.summary or "\n" in row.summary:
                unclear.append(f"{title}: {row.name}")
    assert (unresolved, unclear) == ([], [])


def test_every_bot_can_be_made_from_a_specification() -> None:
    wrong = []
    for name, factory in things(BOTS).items():
        takes_two = len(inspect.signature(factory.build).parameters) == 2
        described = all(field.description for field in factory.Options.model_fields.values())
        fits = issubclass(factory.Options, Config) and isinstance(factory.target_help, str) and factory.summary
        if not (takes_two and described and fits):
            wrong.append(name)
    assert wrong == []


def test_every_reader_has_the_name_of_its_row() -> None:
    assert [
        name for name, reader in things(READERS).items() if reader.name != name or not callable(reader.decode)
    ] == []


def test_every_metric_is_documented() -> None:
    assert [name for name, metric in things(METRICS).items() if not inspect.getdoc(metric)] == []


def test_every_filter_is_a_config_that_keeps_a_harmless_reply() -> None:
    ask, wrong = Ask(Dialogue("d", (Turn("a", "Hello, how are you?"),)), "b"), []
    for name, kind in things(FILTERS).items():
        (made,) = make_filters(name)
        documented = issubclass(kind, Config) and inspect.getdoc(kind) and kind.weight > 0
        if not documented or type(made) is not kind or made(ask, "I am fine, and you?") is not None:
            wrong.append(name)
    assert wrong == []


def test_bots_have_every_built_in_filter_by_default_that_needs_no_classifier() -> None:
    built_in = {row.name for row in FILTERS.rows() if row.target.startswith("tertulia.")}
    assert set(ALL.split(",")) == built_in - {"grounded", "consistent"}


def members(*protocols: type) -> list[str]:
    return [
        name for protocol in protocols for name, value in vars(protocol).items() if name[0] != "_" and callable(value)
    ]


def test_every_architecture_has_the_methods_of_its_kind_a_bot_and_a_recipe() -> None:
    needed = {
        "generator": members(Generator),
        "ranker": members(Ranker, TrainablePairModel),
        "reranker": members(PairScorer, TrainablePairModel),
    }
    assert len(needed["generator"]) == 4
    models = things(GENERATORS) | things(RANKERS) | things(RERANKERS)
    wrong = []
    for row in ARCHITECTURES:
        model = models[row.name]
        missing = [
            name for name in (*needed[row.kind], "load", "save", "untrained") if not callable(vars_of(model, name))
        ]
        configured = issubclass(model, nn.Module) and issubclass(model.config_type, Config)
        if missing or not configured or row.name not in BOTS or row.name not in RECIPES:
            wrong.append((row.name, missing))
    assert wrong == []


def vars_of(cls: type, name: str) -> object:
    return next((getattr(cls, name) for base in cls.__mro__ if name in vars(base)), None)


def test_every_recipe_is_one_and_its_config_names_it() -> None:
    wrong = []
    for name, recipe in things(RECIPES).items():
        fits = isinstance(recipe, Recipe) and issubclass(recipe.config, RecipeConfig) and callable(recipe.train)
        if not fits or recipe.name != name or recipe.config().recipe != name:
            wrong.append(name)
    assert wrong == []


GENERATION = (Path(__file__).parents[2] / "docs" / "generation.md").read_text(encoding="utf-8")


def test_the_page_on_generation_names_every_model_method_preset_and_filter() -> None:
    parameters = (f"{name}:{field}" for name in ALL.split(",") for field in FILTERS.get(name).model_fields)
    names = (*FILTERS, *GENERATORS, *PRESETS, *get_args(Method), *parameters)
    assert [name for name in names if f"`{name}`" not in GENERATION and f"`{name}=" not in GENERATION] == []


def test_every_command_resolves() -> None:
    wrong = []
    for path, command in leaves():
        module, _, attribute = command.target.partition(":")
        resolved = getattr(import_module(f"tertulia.cli.{module}"), attribute)
        if not callable(resolved) or not command.help.endswith("."):
            wrong.append(path)
    assert wrong == []


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, sub in inner.items():
        yield from commands(sub, (*path, name))


LEAVES = dict(commands(typer.main.get_command(build(list(COMMANDS)))))
WITHOUT_CONFIG = {"corpus list"}
"""It takes no options."""


def test_commands_are_made_from_configs_whose_fields_are_documented() -> None:
    handmade, undocumented = [], []
    for name, command in LEAVES.items():
        configs = vars(inspect.unwrap(command.callback)).get("configs")  # type: ignore[arg-type]
        if configs is None:
            handmade.append(name)
            continue
        fields = [(config, key, field) for config in configs for key, field in config.model_fields.items()]
        undocumented += [f"{config.__name__}.{key}" for config, key, field in fields if not field.description]
    assert (sorted(handmade), undocumented) == (sorted(WITHOUT_CONFIG), [])


def test_every_command_that_prints_figures_prints_json() -> None:
    interactive = {"chat", "serve"}
    options = {name: {option for param in command.params for option in param.opts} for name, command in LEAVES.items()}
    assert [name for name in LEAVES if name not in interactive and "--json" not in options[name]] == []
    assert [name for name, command in LEAVES.items() if not command.help] == []


def config_classes() -> list[type[Config]]:
    for module in walk_packages(tertulia.__path__, "tertulia."):
        if not module.name.endswith("__main__") and ".migrations." not in module.name:
            try:
                import_module(module.name)
            except ModuleNotFoundError as missing:
                if (missing.name or "").startswith("tertulia"):  # else an extra that is not installed
                    raise
    waiting, classes = [Config], []
    while waiting:
        waiting += (new := waiting.pop().__subclasses__())
        classes += [cls for cls in new if cls.__module__.startswith("tertulia.")]
    return classes


def test_a_saved_config_reads_the_same() -> None:
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


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(tertulia.__path__[0]) / "py.typed").is_file()
