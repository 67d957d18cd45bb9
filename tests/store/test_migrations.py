"""A database of an earlier version keeps its data when it is opened by this one."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from tertulia.store import ConversationStore, Database, StudyStore
from tertulia.store.database import MIGRATIONS, revisions
from tertulia.store.engine import connect, make_engine, parse_url, transaction

OWNER = "ada"
NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
Rows = Callable[[str, str], list[tuple[Any, ...]]]


def upgrade(url: str, revision: str, statements: list[tuple[str, list[dict[str, Any]]]]) -> None:
    """Create a database of an earlier version, with these rows in it."""
    engine = make_engine(parse_url(url), busy_seconds=5)
    connect(engine, busy_seconds=5)
    with transaction(engine, write=True) as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(MIGRATIONS))
        command.upgrade(config, revision)
        for statement, values in statements:
            connection.execute(text(statement), values)
        assert revisions(connection) == {revision}
    engine.dispose()


def test_a_database_of_the_first_version_is_migrated_with_its_data(url: str, rows: Rows) -> None:
    moment = NOW.isoformat(sep=" ", timespec="microseconds") if url.startswith("sqlite") else NOW
    conversations = [
        {
            "id": id_,
            "owner": OWNER,
            "title": "Tea",
            "bot": "tfidf",
            "next": next_position,
            "created": moment,
            "updated": moment,
        }
        for id_, next_position in (("c1", 4), ("c2", 0))
    ]
    turns = [
        {"id": f"t{n}", "position": position, "attempt": attempt, "speaker": speaker, "text": words, "status": status}
        | {"current": current, "key": key, "created": moment}
        for n, (position, attempt, speaker, words, status, current, key) in enumerate(
            [
                (0, 1, "user", "hello", "done", True, "k1"),
                (1, 1, "bot", "what?", "done", False, None),
                (1, 2, "bot", "hi", "done", True, "r1"),
                (2, 1, "user", "more", "done", True, "k2"),
                (3, 1, "bot", "", "pending", True, None),
            ]
        )
    ]
    upgrade(
        url,
        "0001",
        [
            (
                "INSERT INTO conversations (id, owner, title, bot, places, created, updated)"
                " VALUES (:id, :owner, :title, :bot, :next, :created, :updated)",
                conversations,
            ),
            (
                "INSERT INTO turns (id, conversation, position, attempt, speaker, text, created, status, current, key)"
                " VALUES (:id, 'c1', :position, :attempt, :speaker, :text, :created, :status, :current, :key)",
                turns,
            ),
        ],
    )
    with Database.open(url) as database:
        store = ConversationStore(database)
        assert {(line.id, line.turns) for line in store.summaries(OWNER)} == {("c1", 4), ("c2", 0)}
        conversation = store.get("c1", OWNER)
        assert (conversation.title, conversation.created) == ("Tea", NOW)
        assert [(turn.text, turn.status) for turn in conversation.turns] == [
            ("hello", "done"),
            ("hi", "done"),
            ("more", "done"),
            ("", "stopped"),  # no server generates it any more
        ]
        assert len(store.get("c1", OWNER, history=True).turns) == 5
        assert not store.say("c1", OWNER, "hello", key="k1").is_new
        exchange = store.say("c1", OWNER, "again", key="k3")
        assert [turn.text for turn in exchange.context] == ["hello", "hi", "more", ""]
        assert store.undo("c1", OWNER).turns == conversation.turns
        assert {(line.id, line.turns) for line in store.summaries(OWNER)} == {("c1", 4), ("c2", 0)}
    assert rows(url, "SELECT version_num FROM tertulia_version") == [("0005",)]


def test_a_database_of_the_second_version_is_migrated_with_its_data(url: str, rows: Rows) -> None:
    moment = NOW.isoformat(sep=" ", timespec="microseconds") if url.startswith("sqlite") else NOW
    turns = [
        {"id": id_, "position": position, "speaker": speaker, "text": words, "status": status, "created": moment}
        for id_, position, speaker, words, status in (
            ("t0", 0, "user", "hello", "done"),
            ("t1", 1, "bot", "hi", "done"),
            ("t2", 2, "user", "more", "done"),
            ("t3", 3, "bot", "so far", "pending"),
        )
    ]
    upgrade(
        url,
        "0002",
        [
            (
                "INSERT INTO conversations (id, owner, title, bot, places, turn_count, revision, created, updated)"
                " VALUES ('c1', 'ada', 'Tea', 'tfidf', 4, 4, 3, :now, :now)",
                [{"now": moment}],
            ),
            (
                "INSERT INTO turns"
                " (id, conversation, position, attempt, speaker, text, created, status, current, server)"
                " VALUES (:id, 'c1', :position, 1, :speaker, :text, :created, :status, (1 = 1), 'server')",
                turns,
            ),
            ("INSERT INTO servers (id, beats, process) VALUES ('server', 7, '')", [{}]),
        ],
    )
    with Database.open(url) as database:
        store, studies = ConversationStore(database), StudyStore(database)
        conversation = store.get("c1", OWNER)
        assert [(turn.text, turn.status) for turn in conversation.turns] == [
            ("hello", "done"),
            ("hi", "done"),
            ("more", "done"),
            ("so far", "pending"),  # its server may still be alive
        ]
        study = studies.create("pilot", {}, "digest").id
        studies.add_units(study, [("u", ["tfidf"], {}, 1)])
        studies.set_state(study, "open", OWNER)
        participant = studies.enroll(study, "link", "p")[0].id
        assignment = studies.lease_unit(study, participant, lambda units: units[0].id, 60)
        assert assignment is not None
        studies.attach_conversation(assignment.id, "c1")
        studies.add_labels(assignment.id, participant, [("turn:t1", "sensible", True)], key="1")
        studies.submit(assignment.id, participant)
        assert [row.turn_text for row in studies.rows(study)] == ["hi"]
    assert rows(url, "SELECT beats FROM servers") == [(7,)]
    assert rows(url, "SELECT version_num FROM tertulia_version") == [("0005",)]
