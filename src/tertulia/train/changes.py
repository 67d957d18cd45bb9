"""Settings given as text, such as `--set model.d_model=128`: the config says what type each one has."""

import tomllib
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tertulia.core.config import Config
from tertulia.core.describe import default_of
from tertulia.core.errors import UsageError


def with_changes(config: type[Config], values: Mapping[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    """The values with changes by dotted keys. Keys that the config does not have stay in: validation names them."""
    changed = _copy(values)
    for key, text in changes.items():
        *tables, name = key.split(".")
        _table(changed, key)[name] = _typed(_config_type(config, tables), name, text)
    return changed


def with_values(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values with changes by dotted keys, which have their types already.

    >>> with_values({"model": {"heads": 2}}, {"model.layers": 4, "seed": 1})
    {'model': {'heads': 2, 'layers': 4}, 'seed': 1}
    """
    changed = _copy(values)
    for key, value in changes.items():
        _table(changed, key)[key.rpartition(".")[2]] = value
    return changed


def _table(values: dict[str, Any], key: str) -> dict[str, Any]:
    """The table that a dotted key is in, made if need be."""
    for part in key.split(".")[:-1]:
        values = values.setdefault(part, {})
        if not isinstance(values, dict):
            raise UsageError(f"{key}: {part!r} has no settings of its own.")
    return values


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _config_type(config: type[Config], tables: list[str]) -> type[Config] | None:
    """The config that a dotted key leads to; None if it leads nowhere, or to one that depends on other settings."""
    for name in tables:
        default = default_of(config.model_fields[name]) if name in config.model_fields else None
        if not isinstance(default, Config):
            return None
        config = type(default)
    return config


def _typed(holder: type[Config] | None, name: str, text: str) -> Any:
    """The text as the field's type wants it: a TOML value (numbers, lists, true) if the field takes that, or the text.

    What the field takes neither way is left as it is, for the error that validation gives.
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    if holder is None or name not in holder.model_fields:
        return value
    field = TypeAdapter(holder.model_fields[name].annotation)
    for candidate in (value, text):
        try:
            field.validate_python(candidate)
        except ValidationError:
            continue
        return candidate
    return value
