"""Which servers are alive. A pending reply belongs to a server; when the server is gone, the reply is abandoned.

Every server increases its number of heartbeats in the database every few seconds. The others watch the numbers: a
server whose number has not changed for `LEASE_SECONDS` on *their own* monotonic clock has lost its lease. No time of
day is ever compared, so neither clocks that jump nor clocks that differ between machines end the replies of a server
that is alive. Servers on the same machine need not wait: the operating system knows whether the process exists.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple
from uuid import uuid4

from sqlalchemy import BindParameter, Connection, bindparam, delete, insert, select, update

from tertulia.core.errors import StoreError
from tertulia.store.database import Database
from tertulia.store.schema import ABANDONED, IS_PENDING, servers, turns

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
LEASE_SECONDS = 15.0

# Conditions that are always true, but let SQLite search an index instead of scanning the table.
_LEASES = select(servers.c.id, servers.c.beats, servers.c.process).where(servers.c.id >= "")
_PENDING_SERVERS = select(turns.c.server).where(IS_PENDING, turns.c.server >= "").distinct()
_DEAD: BindParameter[list[str]] = bindparam("dead", expanding=True)
# Locked turns are skipped: waiting for several of them could deadlock with an undo, and the next sweep comes soon.
_ABANDON = (
    update(turns)
    .where(
        turns.c.id.in_(
            select(turns.c.id).where(IS_PENDING, turns.c.server.in_(_DEAD)).with_for_update(skip_locked=True)
        )
    )
    .values(status=ABANDONED)
)
_FORGET = delete(servers).where(servers.c.id.in_(_DEAD))
_RENEW = update(servers).where(servers.c.id == bindparam("server")).values({servers.c.beats: servers.c.beats + 1})


class _Observation(NamedTuple):
    beats: int
    """-1 for a server without a lease."""
    age: float
    """For how many seconds it has had this value."""


class Leases:
    """This server's lease, and its view of those of the others. Thread-safe."""

    def __init__(
        self,
        database: Database,
        *,
        lease_seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        process: str | None = None,
    ) -> None:
        self.server = uuid4().hex
        self._database = database
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._process = process_name() if process is None else process
        self._seen: dict[str, _Observation] = {}
        self._swept = clock()
        self._lock = Lock()

    def renew(self) -> None:
        """Show the others that this server is alive."""

        def beat(connection: Connection) -> None:
            if not connection.execute(_RENEW, {"server": self.server}).rowcount:
                connection.execute(insert(servers), {"id": self.server, "beats": 0, "process": self._process})

        self._database.write(beat)

    def release(self) -> None:
        """Give the lease up, when this server has no pending replies any more."""
        self._database.write(lambda c: c.execute(_FORGET, {"dead": [self.server]}).rowcount)

    def abandon_expired(self) -> int:
        """Mark the pending replies of dead servers as abandoned; returns how many."""

        def read(connection: Connection) -> dict[str, tuple[int, str]]:
            without_lease = dict.fromkeys(connection.scalars(_PENDING_SERVERS), (-1, ""))
            return without_lease | {row.id: (row.beats, row.process) for row in connection.execute(_LEASES)}

        def abandon(connection: Connection) -> int:
            count = connection.execute(_ABANDON, {"dead": dead}).rowcount
            connection.execute(_FORGET, {"dead": dead})
            return count

        with self._lock:
            dead = self._observe(self._database.read(read))
        return self._database.write(abandon) if dead else 0

    def _observe(self, leases: dict[str, tuple[int, str]]) -> list[str]:
        """Note the heartbeats of all other servers; returns those that are dead."""
        now = self._clock()
        # A server that was suspended itself has not observed anything in the meantime: that time counts only in part.
        elapsed = min(now - self._swept, self._lease_seconds / 2)
        before, self._seen, self._swept = self._seen, {}, now
        dead = []
        for server, (beats, process) in leases.items():
            if server == self.server:
                continue
            last = before.get(server)
            age = last.age + elapsed if last is not None and last.beats == beats else 0.0
            if age >= self._lease_seconds or has_ended(process):
                dead.append(server)
            else:
                self._seen[server] = _Observation(beats, age)
        return dead


class Heartbeat:
    """Renews a server's lease and ends abandoned replies, on its own thread, until it or the database is closed."""

    def __init__(self, leases: Leases, database: Database, *, seconds: float = HEARTBEAT_SECONDS) -> None:
        self._leases = leases
        self._database = database
        self._seconds = seconds
        self._closing = Event()
        self._thread = Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and give up the lease."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing.is_set() and not self._database.is_closed:
                self._attempt(self._leases.renew)
                self._attempt(self._leases.abandon_expired)
                self._closing.wait(self._seconds)
        finally:
            self._attempt(self._leases.release)

    def _attempt(self, call: Callable[[], object]) -> None:
        try:
            call()
        except StoreError as error:  # locked or unreachable: there is time for another two attempts
            if not self._database.is_closed:
                log.warning("The heartbeat failed: %s", error)


_BOOT_ID, _NAMESPACE = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


def process_name(pid: int | None = None) -> str:
    """A name of this process (or of another one of this machine) that no other process ever has; empty if unknown.

    The number alone would not do: numbers are reused, also by containers, and after a reboot.
    """
    try:
        machine = f"{_BOOT_ID.read_text().strip()} {_NAMESPACE.stat().st_ino}"
        state, *rest = Path(f"/proc/{pid or os.getpid()}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # not Linux, or no such process
        return ""
    return "" if state in ("Z", "X") else f"{machine} {pid or os.getpid()} {rest[18]}"


def has_ended(process: str) -> bool:
    """Whether a process of this machine no longer exists; False for processes elsewhere, which nobody here can know."""
    own, (*machine, pid, _started) = process_name().split(), process.split() or ["", ""]
    return bool(own) and machine == own[:2] and process_name(int(pid)) != process
