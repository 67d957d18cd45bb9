"""Prepared statements give what SQLAlchemy would give, on both databases."""

import os
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import bindparam, insert, select, update

from tertulia.store import Database
from tertulia.store.engine import to_json
from tertulia.store.ids import DIGITS, new_id
from tertulia.store.prepared import Prepared
from tertulia.store.schema import conversations

COLUMNS = [conversations.c[name] for name in ("id", "persona", "next_position", "created")]
ADD = Prepared(insert(conversations), *(column.key for column in conversations.c))
FIND = Prepared(select(*COLUMNS).where(conversations.c.bot == "tfidf", conversations.c.owner == bindparam("who")))
RENAME = Prepared(
    update(conversations).where(conversations.c.id == bindparam("which")).returning(conversations.c.title), "title"
)
NOW = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)


def row(id_: str, persona: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "owner": "ada",
        "title": "",
        "bot": "tfidf",
        "persona": persona,
        "evidence": None,
        "next_position": 3,
        "turn_count": 0,
        "revision": 0,
        "created": NOW,
        "updated": NOW,
    }


def test_values_are_converted_in_both_directions(database: Database) -> None:
    persona = {"sentences": ["é", "\U0001f600"], "large": 2**70}

    def work(connection: Any) -> Any:
        ADD.run(connection, row("a", persona))
        ADD.run(connection, row("b", None), row("c", {}))
        rows = FIND.rows(connection, {"who": "ada"})
        expected = connection.execute(FIND.statement, {"who": "ada"}).all()
        return sorted(map(tuple, rows), key=str), sorted(map(tuple, expected), key=str)

    rows, expected = database.write(work)
    assert rows == expected
    assert sorted(each[0] for each in rows) == ["a", "b", "c"]
    assert ("a", persona, 3, NOW) in rows
    assert ("b", None, 3, NOW) in rows


def test_updates_return_rows_and_none_for_no_match(database: Database) -> None:
    def work(connection: Any) -> Any:
        ADD.run(connection, row("a", None))
        return [list(map(tuple, RENAME.rows(connection, {"which": id_, "title": "new"}))) for id_ in ("a", "z")]

    assert database.write(work) == [[("new",)], []]


@pytest.mark.parametrize("value", [{"a": [1.5, None, "é"]}, 2**80, [float("nan")]])
def test_json_of_whatever_has_a_json(value: Any) -> None:
    assert isinstance(to_json(value), str)


def test_ids_differ_also_in_a_forked_process() -> None:
    new_id()  # the rest of its block is there for both processes
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, " ".join(new_id() for _ in range(50)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        theirs = pipe.read().split()
    ours = [new_id() for _ in range(50)]
    assert {len(each) for each in ours + theirs} == {DIGITS}
    assert len({*ours, *theirs}) == 100
