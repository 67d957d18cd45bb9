"""News between servers, by PostgreSQL's LISTEN and NOTIFY; on SQLite, within one process.

`TurnListener` hears the ids of turns whose text was saved, and nothing else: whoever cares reads the text. `Notices`
carries small JSON messages about a topic: a turn was added, somebody is typing. Both are hints that save time.
Listeners also look at the database now and then, so a lost connection loses nothing.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from threading import Event, Lock, Thread
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.store.database import Database

log = logging.getLogger(__name__)

CHANNEL = "tertulia_turns"
NOTICE_CHANNEL = "tertulia_notices"
IDS_PER_NOTIFICATION = 200
MAX_NOTICE_BYTES = 7_900
"""PostgreSQL limits a notification to 8,000 bytes."""
RETRY_SECONDS = 2.0
_WAIT_SECONDS = 0.5
_NOTIFY = select(func.pg_notify(bindparam("channel"), bindparam("payload")))

OnNotice = Callable[[str, dict[str, Any]], None]
"""Called with the topic and the message."""


def notify(connection: Connection, turn_ids: Sequence[str]) -> None:
    """Tell other servers about turns, once the transaction is committed. On SQLite there is nobody to tell."""
    if connection.dialect.name == "postgresql":
        for start in range(0, len(turn_ids), IDS_PER_NOTIFICATION):
            payload = " ".join(turn_ids[start : start + IDS_PER_NOTIFICATION])
            connection.execute(_NOTIFY, {"channel": CHANNEL, "payload": payload})


class Listener:
    """Calls a function with the payload of each notification, on a thread of its own, until it is closed."""

    def __init__(self, database: Database, channel: str, on_payload: Callable[[str], None]) -> None:
        self._database = database
        self._channel = channel
        self._on_payload = on_payload
        self._closing = Event()
        self._thread = Thread(target=self._run, name=f"listener-{channel}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, which takes a moment."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set() and not self._database.is_closed:
            try:
                self._listen()
            except Exception as error:  # psycopg is optional, so its errors cannot be named here; all are worth a retry
                log.warning("Not listening to other servers: %s", error)
                self._closing.wait(RETRY_SECONDS)

    def _listen(self) -> None:
        pooled = self._database.engine.raw_connection()
        driver: Any = pooled.driver_connection
        pooled.detach()  # to be closed, rather than returned to the pool with its LISTEN
        with closing(driver):
            driver.rollback()
            driver.autocommit = True
            driver.execute(f"LISTEN {self._channel}")
            while not self._closing.is_set():
                with closing(driver.notifies(timeout=_WAIT_SECONDS)) as notifications:
                    for notification in notifications:
                        self._on_payload(notification.payload)


class TurnListener(Listener):
    """Calls `on_turns` with the ids of turns that were saved."""

    def __init__(self, database: Database, on_turns: Callable[[set[str]], None]) -> None:
        super().__init__(database, CHANNEL, lambda payload: on_turns(set(payload.split())))


class Notices:
    """Small messages about topics to everyone who has subscribed: in all servers on PostgreSQL, in this one on SQLite.

    A subscriber also gets the messages of its own server. Subscribers are called on a foreign thread and must be quick.
    A message is not kept anywhere: who was not listening has missed it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: tuple[OnNotice, ...] = ()
        self._lock = Lock()
        self._listener = None if database.is_sqlite else Listener(database, NOTICE_CHANNEL, self._receive)

    def notify(self, topic: str, message: Mapping[str, Json]) -> None:
        """Send a message; never put personal data or secrets into it."""
        payload = json.dumps([topic, message])  # ASCII, so a character is a byte
        if len(payload) > MAX_NOTICE_BYTES:
            raise UsageError(f"A notice of {len(payload)} bytes is too long.", hint="Send ids rather than texts.")
        if self._listener is None:
            self._receive(payload)
        else:
            self._database.write(lambda c: c.execute(_NOTIFY, {"channel": NOTICE_CHANNEL, "payload": payload}).all())

    def subscribe(self, on_notice: OnNotice) -> Callable[[], None]:
        """Call a function with every message from now on; returns a function that ends the subscription."""
        with self._lock:
            self._subscribers = (*self._subscribers, on_notice)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(one for one in self._subscribers if one is not on_notice)

        return unsubscribe

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()

    def _receive(self, payload: str) -> None:
        topic, message = json.loads(payload)
        for on_notice in self._subscribers:
            try:
                on_notice(topic, message)
            except Exception:  # a subscriber's bug must not silence the others
                log.exception("A subscriber failed on a notice about %s", topic)
