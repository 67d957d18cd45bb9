"""Configs in words: each field with its true default, its choices and its help, for lists and the reference."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tertulia.core.config import Config
from tertulia.core.dialogue import Json


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """One field of a config."""

    key: str
    """Its name; of a nested config with that one's name before it, as in `model.d_model`."""
    required: bool
    default: Json
    """As JSON has it; None if it is required, or if nothing is the default."""
    choices: tuple[str, ...]
    help: str

    @property
    def shown_default(self) -> str:
        """The default for people: empty if there is none."""
        return "" if self.required else shown(self.default)

    def as_json(self) -> dict[str, Json]:
        """As `--json` prints it."""
        default = {} if self.required else {"default": self.default}
        choices = {"choices": list(self.choices)} if self.choices else {}
        return {"name": self.key, "required": self.required, **default, **choices, "help": self.help}


def describe(config: type[Config], prefix: str = "") -> Iterator[FieldDescription]:
    """The fields of a config, those of the configs in it with dotted names."""
    for name, info in config.model_fields.items():
        default = default_of(info)
        if isinstance(default, Config):
            yield from describe(type(default), f"{prefix}{name}.")
            continue
        text = " ".join((info.description or "").split())
        yield FieldDescription(f"{prefix}{name}", info.is_required(), as_json(default), choices_of(info), text)


def default_of(info: FieldInfo) -> Any:
    """A field's default, made if it is made anew each time; None if the field is required."""
    return None if info.is_required() else info.get_default(call_default_factory=True, validated_data={})


def shown(value: Json) -> str:
    """A value for people; empty if it is nothing.

    >>> shown(["hits@1", "mrr"]), shown(True), shown(0.1), shown({}), shown(None)
    ('hits@1, mrr', 'yes', '0.1', '', '')
    """
    if value is None or value == "" or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}={shown(item)}" for key, item in value.items())
    return ", ".join(map(shown, value)) if isinstance(value, list) else str(value)


def choices_of(info: FieldInfo) -> tuple[str, ...]:
    """The values that a field may have, or each item of it, if they are few and known."""
    waiting, choices = [info.annotation], list[str]()
    while waiting:
        annotation = waiting.pop(0)
        if get_origin(annotation) is Literal:
            choices += map(str, get_args(annotation))
        elif get_origin(annotation) is Annotated:
            waiting.append(get_args(annotation)[0])
        elif get_origin(annotation) in (Union, UnionType, tuple, list, frozenset):
            waiting += (member for member in get_args(annotation) if member not in (NoneType, Ellipsis))
    return tuple(dict.fromkeys(choices))


def as_json(value: Any) -> Json:
    """A default as JSON has it: paths as text, tuples as lists, configs as tables."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Enum):
        return as_json(value.value)
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(as_json, value))
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
