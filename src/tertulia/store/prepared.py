"""Statements that run on SQLite's own driver, without SQLAlchemy in between.

For a statement on one row, SQLAlchemy takes several times as long as SQLite itself. The few statements that every
message needs are therefore compiled once, and then passed to the driver with their values. They are still written only
once, in SQLAlchemy's language: PostgreSQL runs them as they are, because there the round trip takes the time.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Delete, Dialect, Insert, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler

from tertulia.store.engine import driver

Values = Mapping[str, Any]
Statement = Select[Any] | Insert | Update | Delete
_Convert = Callable[[Any], Any]


class Prepared:
    """A statement for which SQLite needs no more than a text and a tuple of values. Thread-safe."""

    def __init__(self, statement: Statement, *keys: str) -> None:
        """`keys` are the columns that an INSERT or UPDATE sets to parameters of the same name."""
        self.statement = statement
        self._keys = keys
        self._compiled: _Compiled | None = None

    def rows(self, connection: Connection, values: Values) -> Sequence[Sequence[Any]]:
        """Execute it; all rows that it selects or returns, with their values as the columns' Python types."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self.statement, dict(values)).all()
        compiled = self._compile(connection.dialect)
        rows = driver(connection).execute(compiled.text, compiled.row(values)).fetchall()
        return [_converted(row, compiled.results) for row in rows] if compiled.results else rows

    def run(self, connection: Connection, *values: Values) -> None:
        """Execute it, once for each set of values."""
        if connection.dialect.name != "sqlite":
            rows = [dict(each) for each in values]
            connection.execute(self.statement, rows if len(rows) > 1 else rows[0])
            return
        compiled = self._compile(connection.dialect)
        if len(values) == 1:
            driver(connection).execute(compiled.text, compiled.row(values[0]))
        else:
            driver(connection).executemany(compiled.text, [compiled.row(each) for each in values])

    def _compile(self, dialect: Dialect) -> "_Compiled":
        if self._compiled is None:  # two threads may both do it, with the same result
            self._compiled = _compile(self.statement, self._keys, dialect)
        return self._compiled


class _Compiled(NamedTuple):
    text: str
    constants: dict[str, Any]
    pick: Callable[[Values], tuple[Any, ...]]
    """The values in the order of the text's parameters."""
    parameters: tuple[tuple[int, _Convert], ...]
    """Which parameters need a conversion."""
    results: tuple[tuple[int, _Convert], ...]
    """Which columns need one."""

    def row(self, values: Values) -> Sequence[Any]:
        """The values as the driver takes them."""
        picked = self.pick({**self.constants, **values} if self.constants else values)
        return _converted(picked, self.parameters) if self.parameters else picked


def _compile(statement: Statement, keys: Sequence[str], dialect: Dialect) -> _Compiled:
    compiled = statement.compile(dialect=dialect, column_keys=list(keys) or None)
    assert isinstance(compiled, SQLCompiler)
    names = list(compiled.positiontup or ())
    binds = [compiled.binds[name] for name in names]
    getter: Any = itemgetter(*names)
    return _Compiled(
        text=str(compiled),
        constants={name: bind.value for name, bind in zip(names, binds, strict=True) if not bind.required},
        pick=getter if len(names) > 1 else lambda values: (values[names[0]],),
        parameters=_conversions([bind.type.dialect_impl(dialect).bind_processor(dialect) for bind in binds]),
        results=_conversions(
            [each["type"].dialect_impl(dialect).result_processor(dialect, None) for each in _columns(statement)]
        ),
    )


def _converted(row: tuple[Any, ...], conversions: tuple[tuple[int, _Convert], ...]) -> Sequence[Any]:
    """A row with the values converted that need it; None never does."""
    values = list(row)
    for index, convert in conversions:
        if values[index] is not None:
            values[index] = convert(values[index])
    return values


def _columns(statement: Statement) -> Sequence[Any]:
    """What a statement selects or returns."""
    return statement.column_descriptions if isinstance(statement, Select) else statement.returning_column_descriptions


def _conversions(converters: Sequence[_Convert | None]) -> tuple[tuple[int, _Convert], ...]:
    return tuple((index, convert) for index, convert in enumerate(converters) if convert is not None)
