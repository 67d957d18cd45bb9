"""Registries of things by name: bots, readers, metrics. A row is a string, "module:attribute", imported on first use.

That keeps `tertulia --help` fast, and plugins add rows through entry points in the same way as the built-in ones. A
plugin whose row is malformed or whose name is taken is skipped with a warning: it must not break everything else.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tertulia.core.errors import MissingExtra, UnknownName

log = logging.getLogger(__name__)

_EXTRAS = dict.fromkeys(
    ("accelerate", "gguf", "peft", "safetensors", "tokenizers", "torch", "transformers"), "models"
) | {
    "lightgbm": "chatlogs",
    "psycopg": "postgres",
    "py3langid": "tags",
    "ray": "ray",
}
"""Which optional part of Tertulia installs a package."""


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a registry."""

    name: str
    target: str
    """`module:attribute`."""
    summary: str
    """One line of help."""


class Registry:
    """A table of one kind of thing. Plugins join through the entry-point group `tertulia.<plural>`.

    `derived` yields further rows, read from another table at each use.
    """

    def __init__(self, kind: str, group: str = "", *, derived: Callable[[], Iterable[Row]] = tuple) -> None:
        self.kind = kind
        self.group = group
        self._derived = derived
        self._rows: dict[str, Row] = {}
        self._plugins_loaded = False

    def add(self, name: str, target: str, summary: str) -> None:
        """Add a row. A name that is taken raises ValueError; rows are never replaced."""
        module, _, attribute = target.partition(":")
        if not module or not attribute:
            raise ValueError(f"{self.kind} {name!r}: target must be 'module:attribute', not {target!r}")
        if name in self._rows:
            raise ValueError(f"there are two {self.kind}s called {name!r}: {self._rows[name].target} and {target}")
        self._rows[name] = Row(name, target, summary)

    def rows(self) -> list[Row]:
        """All rows, by name."""
        table = self._table()
        return [table[name] for name in sorted(table)]

    def __iter__(self) -> Iterator[str]:
        return (row.name for row in self.rows())

    def __contains__(self, name: object) -> bool:
        return name in self._table()

    def get(self, name: str) -> Any:
        """The thing itself, imported now."""
        table = self._table()
        if name not in table:
            raise UnknownName(self.kind, name, table)
        module, _, attribute = table[name].target.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == module.partition(".")[0]:
                raise
            package = error.name.partition(".")[0]
            extra = _EXTRAS.get(package)
            raise MissingExtra(
                f"The {self.kind} {name!r} needs the package {package!r}, which",
                f"pip install 'tertulia[{extra}]'" if extra else f"pip install {package}",
            ) from error

    def _table(self) -> dict[str, Row]:
        self._load_plugins()
        table = dict(self._rows)
        for row in self._derived():
            if row.name in table:
                raise ValueError(
                    f"there are two {self.kind}s called {row.name!r}: {table[row.name].target} and {row.target}"
                )
            table[row.name] = row
        return table

    def _load_plugins(self) -> None:
        if self._plugins_loaded or not self.group:
            return
        self._plugins_loaded = True
        for point in entry_points(group=self.group):
            package = point.dist.name if point.dist else "an unknown package"
            try:
                self.add(point.name, point.value, f"from the package {package}")
            except ValueError as error:
                log.warning("Skipped the %s %r of the plugin %s: %s", self.kind, point.name, package, error)
