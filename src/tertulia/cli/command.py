"""Commands made from configs: every field of a pydantic config is an option, written once.

The docstring under a field is the option's help text, its default is shown, and the precedence is the same everywhere:
an option given on the command line wins over an environment variable (TERTULIA_COMMAND_OPTION), which wins over the
TOML file of `--config`, which wins over the user's own file (`user_config`), which wins over the field's default.

    @command(RankConfig)
    def rank(settings: RankConfig, *, as_json: bool) -> None:
        \"""Rank the next reply among distractors.\"""

A command that may need one of several configs takes `Given` instead, and resolves the one it needs.

| field | on the command line |
|---|---|
| `int`, `float`, `str`, `Path`, and these or None | `--max-length 20` |
| `bool` | `--strict/--no-strict` |
| `Literal["a", "b"]` | `--mode a`, the choices shown in the help |
| `tuple[X, ...]`, `list[X]` | `--metric a --metric b` |
| `tuple[float, float, float]` | `--shares 0.8 0.1 0.1` |
| `dict[str, str]` | `--field text=body --field id=name` |
| nested configs and everything else | only in the TOML file |
"""

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from tertulia.artefacts.outputs import check_outputs
from tertulia.cli.completion import completer
from tertulia.cli.ending import interruptible, prepare_outputs
from tertulia.cli.user_config import command_values, unknown_variables, user_file, variable
from tertulia.core.config import Cli, Config, ConfigSource, resolve
from tertulia.core.describe import choices_of, default_of
from tertulia.core.errors import ConfigError, UsageError

log = logging.getLogger(__name__)
C = TypeVar("C", bound=Config)
_LISTS = (tuple, list, set, frozenset)
_SCALARS = (int, float, str, Path, bool)
_RESERVED = ("config", "json")
"""Parameters that every command has; a field of that name gets an underscore behind it."""

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Read options from this TOML file; options given here override it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything and say what would be done; write nothing.")]


@dataclass(frozen=True, slots=True)
class Given:
    """What the user gave on the command line, before it is clear which config it is for."""

    options: Mapping[str, Any]
    """Values by field name, only those that were given."""
    file: Path | None
    labels: Mapping[str, str] = field(default_factory=dict)
    """How fields are called on the command line, or in the environment if they come from there, for error messages."""
    user: Mapping[str, Any] = field(default_factory=dict)
    """The user's own defaults for the command."""
    table: str = ""
    """The name of their table: [judge.rank]."""
    dry_run: bool = False
    """Whether nothing will be written: outputs are checked, and not announced."""
    foreign: frozenset[str] = frozenset()
    """Fields that only some of the command's configs have: the user's defaults for another one do not matter."""

    def resolve(self, config: type[C], purpose: str = "") -> C:
        """The config: options over file over defaults. An option that the config does not have is an error, and so is
        an output that cannot be written.

        `purpose` completes that error: "--window does not apply to {purpose}."
        """
        if foreign := [self.labels.get(name, name) for name in self.options if name not in config.model_fields]:
            verb = "does" if len(foreign) == 1 else "do"
            raise UsageError(
                f"{', '.join(foreign)} {verb} not apply {f'to {purpose}' if purpose else 'here'}.",
                hint=f"Options that apply: {', '.join(_labels(config.model_fields).values())}.",
            )
        user = {name: v for name, v in self.user.items() if name in config.model_fields or name not in self.foreign}
        below = ConfigSource(user, f"{user_file()}, {self.table}") if user else None
        try:
            settings = resolve(config, self.file, self.options, labels=self.labels, below=below)
        except ConfigError as error:
            raise (error if error.hint or not self.table else ConfigError(error.message, hint=self._see())) from None
        if self.dry_run:
            check_outputs(settings, self.labels)
        else:
            prepare_outputs(settings, labels=self.labels)
        return settings

    def _see(self) -> str:
        return f"See: tertulia {self.table.strip('[]').replace('.', ' ')} --help"


def command(
    *configs: type[Config], file: bool = True, labels: Mapping[type[Config], str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function of a config (and, if it has the parameters, `as_json` and `dry_run`) into a command with an
    option per field.

    With several configs the function gets a `Given`. With `file` there is a `--config` option. The help of an option
    that only one config has begins with the config's label, if it has one.
    """

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        wanted = inspect.signature(function).parameters
        wants_json, wants_dry_run = "as_json" in wanted, "dry_run" in wanted
        fields = _merge_fields(configs)
        of_one = {name: label for config, label in (labels or {}).items() for name in _only_in(config, configs)}
        parameters = [_keyword("typer_context", typer.Context, inspect.Parameter.empty)]
        parameters += [_parameter(name, same_name, of_one.get(name, "")) for name, same_name in fields.items()]
        if file:
            parameters.append(_keyword("config", ConfigFile, None))
        if wants_dry_run:
            parameters.append(_keyword("dry_run", DryRun, False))
        if wants_json:
            parameters.append(_keyword("json", AsJson, False))
        flags = _labels({name: same_name[0] for name, same_name in fields.items()})

        def run(*, typer_context: typer.Context | None = None, **values: Any) -> None:
            extra = {"as_json": values.pop("json")} if wants_json else {}
            extra |= {"dry_run": values.pop("dry_run")} if wants_dry_run else {}
            file_path = values.pop("config", None)
            options = {name: values[_parameter_name(name)] for name in fields}
            options = {name: value for name, value in options.items() if value not in (None, [])}
            path = typer_context.command_path.split()[1:] if typer_context else []  # none if called from Python
            from_environment = _environment(path, fields, flags, options)
            labels = flags | {name: variable(path, flags[name]) for name in from_environment}
            options |= from_environment
            for name in options:
                kind = _kind(fields[name][0].annotation)
                if kind is dict:
                    options[name] = _parse_pairs(labels[name], options[name])
                elif kind in (int, float):
                    options[name] = _number(options[name])
            user = command_values(path) if path else {}
            given = Given(
                options,
                file_path,
                labels,
                user,
                f"[{'.'.join(path)}]" if path else "",
                dry_run=extra.get("dry_run", False),
                foreign=frozenset(fields),
            )
            with interruptible():
                function(given.resolve(configs[0]) if len(configs) == 1 else given, **extra)

        run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.configs = configs  # type: ignore[attr-defined]
        return run

    return wrap


def _environment(
    path: Sequence[str], fields: Mapping[str, Sequence[FieldInfo]], flags: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a command that the environment sets and the command line does not, as the command line has them.

    Lists are separated by commas. A variable that is almost one is worth a warning: it would be ignored in silence.
    """
    if not path:
        return {}
    for name, near in unknown_variables(path, list(flags.values())).items():
        log.warning("%s sets no option of `tertulia %s`%s", name, " ".join(path), f"; {near} does" if near else "")
    values: dict[str, Any] = {}
    for name, infos in fields.items():
        text = os.environ.get(variable(path, flags[name]))
        if text is None or name in given:
            continue
        kind = _kind(infos[0].annotation)
        if kind is dict or get_origin(kind) in (list, tuple):
            values[name] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            values[name] = text
    return values


def help_of(info: FieldInfo, *, show_default: bool = True) -> str:
    """A field's docstring, with its default."""
    text = " ".join((info.description or "").split())
    default = default_of(info)
    if not show_default or default is None or default is False or default in ("", (), {}):
        return text
    if isinstance(default, tuple | list):
        fixed = get_origin(_kind(info.annotation)) is tuple  # given as several words
        shown = (" " if fixed else ", ").join(map(str, default))
    else:
        shown = "yes" if default is True else str(default)
    return f"{text} Default: {shown}{'' if shown.endswith(('.', '!', '?')) else '.'}"


def _merge_fields(configs: Sequence[type[Config]]) -> dict[str, list[FieldInfo]]:
    """The fields that can be options, by name; fields of the same name in several configs share an option."""
    fields: dict[str, list[FieldInfo]] = {}
    for config in configs:
        for name, info in config.model_fields.items():
            if not _cli(info).hidden and _kind(info.annotation) is not None:
                fields.setdefault(name, []).append(info)
    return fields


def _only_in(config: type[Config], configs: Sequence[type[Config]]) -> list[str]:
    """The fields that none of the other configs has."""
    return [name for name in config.model_fields if sum(name in other.model_fields for other in configs) == 1]


def _parameter(name: str, infos: Sequence[FieldInfo], label: str = "") -> inspect.Parameter:
    """The typer parameter of a field; a default is shown if it is the same wherever the field occurs."""
    info, cli = infos[0], _cli(infos[0])
    kind = _kind(info.annotation)
    show_default = cli.show_default and all(other.default == info.default for other in infos)
    label = "" if f"--{name}" in label else label
    help_text = f"{label} {help_of(info, show_default=show_default)}".strip()
    parsed = _parsed(kind)
    complete = completer(name, [choice for one in infos for choice in choices_of(one)]) if kind is not bool else None
    if cli.argument:
        metavar = name.upper() if info.is_required() else f"[{name.upper()}]"
        metavar += "..." if get_origin(kind) is list else ""
        argument = typer.Argument(help=help_text, show_default=False, metavar=metavar, autocompletion=complete)
        return _keyword(_parameter_name(name), Annotated[parsed | None, argument])
    names = cli.names.split() or [_default_name(name, kind)]
    option = typer.Option(*names, help=help_text, show_default=False, metavar=_metavar(infos), autocompletion=complete)
    return _keyword(_parameter_name(name), Annotated[parsed | None, option])


def _keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parameter_name(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name


def _default_name(name: str, kind: Any) -> str:
    flag = name.replace("_", "-")
    return f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"


def _labels(fields: Mapping[str, FieldInfo]) -> dict[str, str]:
    """What fields are called on the command line: "--seed" or "BOTS"; those that have no option are left out."""
    labels = {}
    for name, info in fields.items():
        cli, kind = _cli(info), _kind(info.annotation)
        if cli.hidden or kind is None:
            continue
        names = [part for option in cli.names.split() or [_default_name(name, kind)] for part in option.split("/")]
        labels[name] = name.upper() if cli.argument else next(part for part in names if part.startswith("--"))
    return labels


def _cli(info: FieldInfo) -> Cli:
    return next((item for item in info.metadata if isinstance(item, Cli)), Cli())


def _parse_pairs(label: str, pairs: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UsageError(f"{label}: must be KEY=VALUE, got {pair!r}")
        values[key] = value
    return values


def _number(text: str) -> int | float | str:
    """The number that the text is, or the text itself, which the config then rejects."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _members(annotation: Any) -> Iterator[Any]:
    """The members of a union except None, or the type itself; `Annotated` is removed."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    elif annotation is not NoneType:
        yield annotation


def _items(annotation: Any) -> list[Any]:
    """The types of a list's items."""
    return [member for item in get_args(annotation) if item is not Ellipsis for member in _members(item)]


def _kind(annotation: Any) -> Any:
    """How an option is parsed: a scalar type, a list or tuple of them, or dict; None if only a file can hold it."""
    members = list(_members(annotation))
    if [get_origin(member) for member in members] == [dict]:
        return dict if _items(members[0]) == [str, str] else None
    if len(members) == 1 and get_origin(members[0]) is tuple and set(get_args(members[0])) <= set(_SCALARS):
        return members[0]  # of fixed length: its values are given together
    lists = [member for member in members if get_origin(member) in _LISTS or member in _LISTS]
    if lists:
        items = list(dict.fromkeys(item for member in lists for item in _items(member)))
        if any(not (item in _SCALARS or get_origin(item) is Literal) for item in items):
            return None
        return _list_of(items[0] if len(members) == len(items) == 1 and items[0] in _SCALARS else str)
    if len(members) == 1 and members[0] in _SCALARS:
        return members[0]
    if all(get_origin(member) is Literal and all(type(v) is int for v in get_args(member)) for member in members):
        return int
    if all(get_origin(member) is Literal or member in _SCALARS for member in members):
        return str
    return None


def _list_of(item: Any) -> GenericAlias:
    return GenericAlias(list, (item,))


def _parsed(kind: Any) -> Any:
    """What typer parses: text, texts or a switch. The config converts the text, so that its errors are shown."""
    if kind is bool:
        return bool
    if get_origin(kind) is tuple:
        return GenericAlias(tuple, (str,) * len(get_args(kind)))
    return _list_of(str) if kind is dict or get_origin(kind) is list else str


def _metavar(infos: Sequence[FieldInfo]) -> str | None:
    """What the help shows as the value: the choices of literals, or types; None for a switch."""
    kinds = [_kind(info.annotation) for info in infos]
    if dict in kinds:
        return "<key=value>"
    if bool in kinds:
        return None
    if get_origin(kinds[0]) is tuple:
        return " ".join(f"<{item.__name__.lower()}>" for item in get_args(kinds[0]))
    names: dict[str, None] = {}
    for item in (item for info in infos for member in _members(info.annotation) for item in _items_or_self(member)):
        values = map(str, get_args(item)) if get_origin(item) is Literal else [f"<{item.__name__.lower()}>"]
        names |= dict.fromkeys(values)
    return f"[{'|'.join(names)}]" if len(names) > 1 or not next(iter(names)).startswith("<") else next(iter(names))


def _items_or_self(annotation: Any) -> list[Any]:
    return _items(annotation) if get_origin(annotation) in _LISTS else [annotation]
