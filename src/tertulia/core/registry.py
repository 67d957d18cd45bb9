"""Registries of things by name: bots, readers, metrics. A row is a string, "module:attribute", imported on first use.

That keeps `tertulia --help` fast, and plugins add rows through entry points in the same way as the built-in ones. A
plugin must not break everything else: one whose row is malformed, whose name is taken or whose code cannot be imported
is named in a warning and skipped, and using it is an error that names it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tertulia.core.errors import MissingExtra, TertuliaError, UnknownName
from tertulia.core.text import visible

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
    package: str = ""
    """The package of a plugin; empty for our own rows."""


class BrokenPlugin(TertuliaError):  # noqa: N818
    """A plugin that cannot be imported, or that is not what its entry point says."""

    def __init__(self, kind: str, row: Row, why: str) -> None:
        super().__init__(
            f"The {kind} {row.name!r} of the plugin {row.package} cannot be used: {why}.",
            hint=f"Update or uninstall the package {row.package}.",
        )


class Registry:
    """A table of one kind of thing. Plugins join through the entry-point group `tertulia.<plural>`.

    `derived` yields further rows, read from another table at each use. `requires` are attributes that every thing has:
    a plugin without one is broken.
    """

    def __init__(
        self,
        kind: str,
        group: str = "",
        *,
        derived: Callable[[], Iterable[Row]] = tuple,
        requires: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.group = group
        self._derived = derived
        self._requires = requires
        self._rows: dict[str, Row] = {}
        self._plugins_loaded = False
        self._reported: set[str] = set()

    def add(self, name: str, target: str, summary: str, *, package: str = "") -> None:
        """Add a row. A name that is taken raises ValueError; rows are never replaced."""
        module, _, attribute = target.partition(":")
        if not module or not attribute:
            raise ValueError(f"{self.kind} {name!r}: target must be 'module:attribute', not {target!r}")
        if name in self._rows:
            raise ValueError(f"there are two {self.kind}s called {name!r}: {self._rows[name].target} and {target}")
        self._rows[name] = Row(name, target, summary, package)

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
        return self._import(table[name])

    def usable(self) -> Iterator[tuple[Row, Any]]:
        """All rows by name with their things, imported now; broken plugins are left out, with a warning."""
        for row in self.rows():
            try:
                thing = self._import(row)
            except (BrokenPlugin, MissingExtra) as error:
                if not row.package:
                    raise
                self._skip(row.name, row.package, error.message)
            else:
                yield row, thing

    def _import(self, row: Row) -> Any:
        thing = self._import_plugin(row) if row.package else self._import_row(row)
        if row.package and (missing := next((name for name in self._requires if not hasattr(thing, name)), None)):
            raise BrokenPlugin(self.kind, row, f"{row.target} is no {self.kind}: it has no {missing!r}")
        return thing

    def _import_plugin(self, row: Row) -> Any:
        try:
            return self._import_row(row)
        except TertuliaError:
            raise
        except Exception as error:  # whatever code of others raises when it is imported
            raise BrokenPlugin(self.kind, row, f"{type(error).__name__}: {error}".rstrip(": ")) from error

    def _import_row(self, row: Row) -> Any:
        name = row.name
        module, _, attribute = row.target.partition(":")
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
            if before := table.get(row.name):
                clash = f"there are two {self.kind}s called {row.name!r}: {before.target} and {row.target}"
                if not before.package:
                    raise ValueError(clash)
                self._skip(row.name, before.package, clash)
            table[row.name] = row
        return table

    def _load_plugins(self) -> None:
        if self._plugins_loaded or not self.group:
            return
        self._plugins_loaded = True
        for point in entry_points(group=self.group):
            package = point.dist.name if point.dist else "an unknown package"
            try:
                self.add(point.name, point.value, f"from the package {package}", package=package)
            except ValueError as error:
                self._skip(point.name, package, str(error))

    def _skip(self, name: str, package: str, why: str) -> None:
        """Warn about a plugin, once."""
        if name not in self._reported:
            self._reported.add(name)
            log.warning("Skipped the %s %r of the plugin %s: %s", self.kind, name, package, visible(why))
