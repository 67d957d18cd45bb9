"""Tables of things by name: bots, readers, metrics. A row is a string, "module:attribute", imported when first used.

That keeps `tertulia --help` fast and lets plugins add rows through entry points by the same door as the built-ins.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tertulia.core.errors import MissingExtra, UnknownName


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a table."""

    name: str
    target: str
    """`module:attribute`."""
    summary: str
    """One line for people."""


class Registry:
    """A table of one kind of thing. Plugins join through the entry-point group `tertulia.<plural>`."""

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._rows: dict[str, Row] = {}
        self._plugins_loaded = False

    def add(self, name: str, target: str, summary: str) -> None:
        """Add a row; a name that is taken is an error, never silently replaced."""
        module, _, attribute = target.partition(":")
        if not module or not attribute:
            raise ValueError(f"{self.kind} {name!r}: target must be 'module:attribute', not {target!r}")
        if name in self._rows:
            raise ValueError(f"there are two {self.kind}s called {name!r}: {self._rows[name].target} and {target}")
        self._rows[name] = Row(name, target, summary)

    def rows(self) -> list[Row]:
        """All rows, by name."""
        self._load_plugins()
        return [self._rows[name] for name in sorted(self._rows)]

    def __iter__(self) -> Iterator[str]:
        return (row.name for row in self.rows())

    def __contains__(self, name: object) -> bool:
        self._load_plugins()
        return name in self._rows

    def get(self, name: str) -> Any:
        """The thing itself, imported now."""
        self._load_plugins()
        if name not in self._rows:
            raise UnknownName(self.kind, name, self._rows)
        module, _, attribute = self._rows[name].target.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == module.partition(".")[0]:
                raise
            raise MissingExtra(
                f"The {self.kind} {name!r} needs the package {error.name!r}, which", "pip install 'tertulia[models]'"
            ) from error

    def _load_plugins(self) -> None:
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        for point in entry_points(group=self.group):
            self.add(point.name, point.value, f"from the package {point.dist.name if point.dist else 'unknown'}")
