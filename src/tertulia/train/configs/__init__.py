"""Ready-made recipes that come with the package, by name: `tertulia train sample-finetune` needs no file.

The first comment of a file says what it is for. (`configs` at the top of the repository is a link to this folder.)
"""

import re
import tomllib
from functools import cache
from importlib.resources import files
from itertools import takewhile
from typing import NamedTuple


class ShippedConfig(NamedTuple):
    """A file that comes with the package."""

    recipe: str
    """The recipe that it configures."""
    summary: str
    """The first sentence of its comment."""
    text: str
    """All of it, as TOML."""


@cache
def shipped() -> dict[str, ShippedConfig]:
    """The ready-made recipes by the names of their files; files for other commands are left out."""
    configs = {}
    for file in sorted(files(__name__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            text = file.read_text(encoding="utf-8")
            if recipe := tomllib.loads(text).get("recipe"):
                configs[file.name.removesuffix(".toml")] = ShippedConfig(recipe, _summary(text), text)
    return configs


def _summary(text: str) -> str:
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines()))
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", comment, maxsplit=1)[0].strip()
