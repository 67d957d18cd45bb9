"""Configs: TOML files read into strict pydantic models, resolved once, and saved beside what they produced.

A config class sits next to the thing it configures; the docstring under a field is its help text, on the command line
too. An unknown key is an error that names the closest match, or the new name of a key that was renamed. Errors
assume no knowledge of pydantic: they name the key (or the command-line option), what it must be, and what it is.
"""

import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from tertulia.core.errors import ConfigError, close_names
from tertulia.core.toml_lines import Location, key_lines, line_of


class InvalidKey(ValueError):  # noqa: N818 - a ValueError that says where
    """What a validator raises to name the key that is wrong, instead of the config as a whole.

    With several keys, any of which may be changed to repair it, an error with line numbers names the first one that
    the file has.
    """

    def __init__(self, reason: str, *keys: Location) -> None:
        super().__init__(reason)
        self.keys = keys


class Config(BaseModel):
    """Base of all configs: frozen, no unknown keys, defaults checked too."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True)

    renamed: ClassVar[Mapping[str, str]] = {}
    """Keys that had another name in an earlier version, old to new: using one is an error that names the new key."""


@dataclass(frozen=True, slots=True)
class Cli:
    """How a field appears on the command line where its name does not say it: `Annotated[..., Cli("--metric")]`."""

    names: str = ""
    """Names of the option, separated by spaces: "--conversations -n", or "--hard/--random" for a switch."""
    argument: bool = False
    """Whether it is a positional argument."""
    hidden: bool = False
    """Whether it can be set in a config file only."""
    show_default: bool = True
    """Whether the help shows the default; not where giving the option means more than its value."""


C = TypeVar("C", bound=Config)


class ConfigSource(NamedTuple):
    """Values that are below those of a file, and where they come from, for errors."""

    values: Mapping[str, Any]
    where: str


def resolve(
    cls: type[C],
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    where: str = "",
    labels: Mapping[str, str] | None = None,
    below: ConfigSource | None = None,
) -> C:
    """A config from its defaults, then `below`, then a TOML file, then options; options that are None were not given.

    `labels` are the names of the fields on the command line ("--seed", "BOTS"). With them, an error names the option if
    the value was an option, and the file and the key if it was in the file.
    """
    values: dict[str, Any] = load_toml(file) if file else {}
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    lowest = dict(below.values) if below else {}
    try:
        return cls.model_validate(lowest | values | given)
    except ValidationError as error:
        source = where or (str(file) if file else "the options")
        in_lowest = lowest.keys() - values.keys() - given.keys()
        if below and {str(problem["loc"][0]) for problem in error.errors() if problem["loc"]} & in_lowest:
            source, values = below.where, lowest
        raise _config_error(cls, error, source, labels, in_file=values.keys() - given.keys()) from None


def validate(cls: type[C], values: Mapping[str, Any], *, where: str, lines: Mapping[Location, int] | None = None) -> C:
    """The values as a config, or one ConfigError that lists everything that is wrong with them.

    With `lines` (of `parse_toml`), every problem names its line, and the problems are in the order of the lines.
    """
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        raise _config_error(cls, error, where, lines=lines) from None


def parse_toml(text: str, *, where: str) -> tuple[dict[str, Any], dict[Location, int]]:
    """The values of a TOML document and the lines of its keys; a syntax error names the line."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not valid TOML: {error}") from None
    return values, key_lines(text)


def load_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dict, with errors that name the file and the line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"File not found: {path}", hint="Give the path of a TOML file.") from None
    except OSError as error:
        raise ConfigError(
            f"Cannot read the config file {path}: {error.strerror}.", hint="Give the path of a TOML file."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def to_toml(config: Config) -> str:
    """The resolved config as TOML; reading it again gives the same one. TOML has no null, so None is left out."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _config_error(
    cls: type[Config],
    error: ValidationError,
    source: str,
    labels: Mapping[str, str] | None = None,
    *,
    in_file: Set[str] = frozenset(),
    lines: Mapping[Location, int] | None = None,
) -> ConfigError:
    """One error for all problems: first those of command-line options, then the others, after "In SOURCE:"."""
    of_options: list[str] = []
    of_source: list[tuple[int, str]] = []
    for loc, problems in _by_key(cls, error, lines or {}):
        key = _key(cls, loc)
        field = str(loc[0]) if key else ""
        if labels is not None and not key:  # a validator of the complete config
            of_options.append(_explain(cls, key, problems))
        elif labels is not None and field in labels and field not in in_file:
            of_options.append(_explain(cls, labels[field], problems, is_label=True))
        elif lines is None:
            of_source.append((0, _explain(cls, key, problems)))
        else:
            line = line_of(lines, loc) or 1
            of_source.append((line, f"line {line}: {_explain(cls, key, problems)}"))
    of_source.sort(key=lambda numbered: numbered[0])
    in_source = [f"In {source}: {'; '.join(text for _, text in of_source)}"] if of_source else []
    return ConfigError("; ".join((*of_options, *in_source)))


def _by_key(
    cls: type[Config], error: ValidationError, lines: Mapping[Location, int]
) -> list[tuple[Location, list[dict[str, Any]]]]:
    """The problems with the location of each, those of one key together."""
    located = [(_location(problem, lines), dict(problem)) for problem in _relevant(error)]
    groups = (list(group) for _, group in groupby(located, key=lambda one: _key(cls, one[0])))
    return [(group[0][0], [problem for _, problem in group]) for group in groups]


def _location(problem: Mapping[str, Any], lines: Mapping[Location, int]) -> Location:
    loc: Location = tuple(problem["loc"])
    reason = problem.get("ctx", {}).get("error")
    if not isinstance(reason, InvalidKey):
        return loc
    candidates = [loc + key for key in reason.keys]
    return next((key for key in candidates if key in lines), candidates[0])


def _relevant(error: ValidationError) -> list[Any]:
    """The problems, without the lists that are too short only because their items are wrong."""
    problems = error.errors()
    return [
        problem
        for problem in problems
        if problem["type"] != "too_short"
        or not any(other["loc"][:-1] == problem["loc"] for other in problems if other is not problem)
    ]


def _explain(cls: type[Config], key: str, problems: Sequence[Mapping[str, Any]], *, is_label: bool = False) -> str:
    """What is wrong with one key. Several problems are those of the members of a union: any of them would do."""
    first = problems[0]
    if first["type"] == "missing":
        if is_label:
            return f"{key} is required" if key.startswith("-") else f"Missing argument {key}"
        return f"{key!r} is required"
    if first["type"] == "extra_forbidden":
        return _explain_unknown(cls, key, first["loc"])
    if first["type"] in ("value_error", "assertion_error"):  # raised by our own validators, in plain words
        reason = str(first["ctx"]["error"])
        return f"{key}: {reason}" if key else reason
    if first["type"] in ("too_short", "too_long"):
        return f"{key}: {_count_limit(first)}"
    if first["type"] == "string_too_short" and first["ctx"]["min_length"] == 1:
        return f"{key}: must not be empty"
    wanted = " or ".join(dict.fromkeys(_requirement(problem) for problem in problems))
    return f"{key}: must be {wanted}, got {_shown(first['input'])}"


def _explain_unknown(cls: type[Config], key: str, loc: tuple[Any, ...]) -> str:
    holder = _config_at(cls, loc[:-1])
    if holder is None:
        return f"unknown option {key!r}"
    name = str(loc[-1])
    configs = (base for base in holder.__mro__ if issubclass(base, Config))
    if new := next((base.renamed[name] for base in configs if name in base.renamed), None):
        return f"{key!r} is now called {new!r}"
    near = close_names(name, holder.model_fields)
    return f"unknown option {key!r}" + (
        f" (did you mean {near[0]!r}?)" if near else f" (known: {', '.join(holder.model_fields)})"
    )


_REQUIREMENTS = {
    "int": "an integer",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text",
    "path": "a path",
    "tuple": "a list",
    "list": "a list",
    "set": "a list",
    "frozen": "a list",
    "dict": "a table",
    "mapping": "a table",
    "model": "a table",
    "none": "left out",
}
"""What a value must be, by the first word of the type of pydantic's error ("int_parsing", "int_type", ...)."""
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
    "multiple_of": ("a multiple of", "multiple_of"),
}


def _requirement(problem: Mapping[str, Any]) -> str:
    """What the value must be, to follow "must be"."""
    kind, limits = problem["type"], problem.get("ctx", {})
    if kind in _BOUNDS:
        words, limit = _BOUNDS[kind]
        return f"{words} {limits[limit]:g}" if isinstance(limits[limit], float) else f"{words} {limits[limit]}"
    if kind in ("literal_error", "enum"):
        return str(limits["expected"])
    if kind == "string_too_short":
        return f"text of at least {limits['min_length']} characters"
    if kind == "string_too_long":
        return f"text of at most {limits['max_length']} characters"
    if kind == "string_pattern_mismatch":
        return f"text that matches {limits['pattern']}"
    message = str(problem["msg"])
    return _REQUIREMENTS.get(kind.partition("_")[0]) or f"valid ({message[0].lower()}{message[1:]})"


def _count_limit(problem: Mapping[str, Any]) -> str:
    limits = problem["ctx"]
    limit, words = (
        (limits["min_length"], "at least") if problem["type"] == "too_short" else (limits["max_length"], "at most")
    )
    return f"{words} {limit} value{'' if limit == 1 else 's'}, got {limits['actual_length']}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _key(cls: type[Config], loc: tuple[Any, ...]) -> str:
    """The key as a config file has it, such as "model.size" or "trays[0]"; pydantic's names of union members go."""
    key = ""
    holder: type[Config] | None = cls
    for part in loc:
        if isinstance(part, int):
            key += f"[{part}]"
        elif holder is None:
            break
        else:
            key += f".{part}" if key else part
            holder = _nested_config(holder, part)
    return key


def _config_at(cls: type[Config], loc: tuple[Any, ...]) -> type[Config] | None:
    """The config at a location, or None if there is none."""
    holder: type[Config] | None = cls
    for part in loc:
        if not isinstance(part, int):
            holder = _nested_config(holder, part) if holder else None
    return holder


def _nested_config(cls: type[Config], name: str) -> type[Config] | None:
    """The config that a field holds, itself or as an optional or a list of them; None if there is none or several."""
    waiting = [cls.model_fields[name].annotation] if name in cls.model_fields else []
    configs = []
    while waiting:
        annotation = waiting.pop()
        waiting += get_args(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Config):
            configs.append(annotation)
    return configs[0] if len(configs) == 1 else None
