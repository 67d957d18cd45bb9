"""Configs: TOML files read into strict pydantic models, resolved once, and saved beside what they produced.

A config class sits next to the thing it configures; the docstring under a field is its help text. An unknown key is an
error that names the close match.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from tertulia.core.errors import ConfigError, close_names


class Config(BaseModel):
    """Base of all configs: frozen, no unknown keys, defaults checked too."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True)


C = TypeVar("C", bound=Config)


def resolve(
    cls: type[C], file: Path | None = None, overrides: Mapping[str, Any] | None = None, *, where: str = ""
) -> C:
    """A config from its defaults, then a TOML file, then options; options that are None were not given."""
    values: dict[str, Any] = load_toml(file) if file else {}
    values |= {key: value for key, value in (overrides or {}).items() if value is not None}
    return validate(cls, values, where=where or (str(file) if file else "the options"))


def validate(cls: type[C], values: Mapping[str, Any], *, where: str) -> C:
    """The values as a config, or one ConfigError that says everything that is wrong with them."""
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"In {where}: " + "; ".join(_explain(cls, dict(e)) for e in error.errors())) from None


def load_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dict, with errors that name the file and the place."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"There is no config file {path}.") from None
    except OSError as error:
        raise ConfigError(f"The config file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def save(config: Config, path: Path) -> None:
    """Write the resolved config; reading it again gives the same one. TOML has no null, so what is None is left out."""
    path.write_text(tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)), encoding="utf-8")


def _explain(cls: type[Config], error: dict[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        near = close_names(key, cls.model_fields)
        return f"unknown option {key!r}" + (
            f" (did you mean {near[0]!r}?)" if near else f" (known: {', '.join(cls.model_fields)})"
        )
    if error["type"] == "missing":
        return f"{key!r} is needed"
    if error["type"] == "missing":
        return f"{key!r} must be given"
    return f"{key}: {error['msg'][0].lower()}{error['msg'][1:]}, not {error['input']!r}"
