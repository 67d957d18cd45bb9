"""Streamed text is saved as it goes, at a bounded rate, and shown when it is saved."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tertulia.store import ConversationStore, Database, StoredTurn
from tertulia.web import progress
from tertulia.web.pending import PendingReply
from tertulia.web.progress import SAVE_SECONDS, ProgressSaver

OWNER = "ada"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}", busy_seconds=5) as database:
        yield database


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


class Saves:
    """A saver with one pending reply; counts its saves."""

    def __init__(self, database: Database, threads: ThreadPoolExecutor) -> None:
        self.store = ConversationStore(database)
        self.count = 0
        save = self.store.save_progress

        def counted(texts: dict[str, str]) -> dict[str, StoredTurn | None]:
            self.count += 1
            return save(texts)

        self.store.save_progress = counted  # type: ignore[method-assign,assignment]
        self.ended: list[PendingReply] = []
        self.saver = ProgressSaver(self.store, threads, lambda pending, _: self.ended.append(pending))
        conversation = self.store.create(OWNER, "count").id
        self.pending = PendingReply(self.store.say(conversation, OWNER, "hello", key="k").bot, OWNER)

    def saved(self) -> str:
        return self.store.progress([self.pending.turn.id])[self.pending.turn.id].text


def test_what_is_shown_has_been_saved(database: Database, threads: ThreadPoolExecutor) -> None:
    saves = Saves(database, threads)

    async def stream() -> float:
        began = time.monotonic()
        for number in range(60):
            saves.saver.add(saves.pending, f"{number} ")
            shown = "".join(saves.pending.pieces)
            assert saves.saved().startswith(shown)
            await asyncio.sleep(0.005)
        while len(saves.pending.pieces) < 60:
            await saves.pending.changed()
        return time.monotonic() - began

    seconds = asyncio.run(stream())
    assert saves.saved() == "".join(f"{number} " for number in range(60))
    assert 2 <= saves.count <= 2 + seconds / SAVE_SECONDS[0]


def test_all_replies_share_one_save(database: Database, threads: ThreadPoolExecutor) -> None:
    saves = Saves(database, threads)
    conversation = saves.store.create(OWNER, "count").id
    others = [PendingReply(saves.store.say(conversation, OWNER, "m", key=str(n)).bot, OWNER) for n in range(20)]

    async def stream() -> None:
        for pending in others:
            saves.saver.add(pending, "hi")
        for pending in others:
            while not pending.pieces:
                await pending.changed()

    asyncio.run(stream())
    assert saves.count == 1


def test_a_locked_database_delays_text_but_does_not_withhold_it(
    database: Database, threads: ThreadPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SHOW_AFTER_SECONDS", 0.1)
    saves = Saves(database, threads)
    other = sqlite3.connect(tmp_path / "chat.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def stream() -> None:
        saves.saver.add(saves.pending, "hi")
        assert saves.pending.pieces == []
        await saves.pending.changed()
        assert saves.pending.pieces == ["hi"]
        other.execute("COMMIT")
        while saves.saved() != "hi":
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(stream(), 20))
    other.close()


def test_a_reply_that_somebody_else_ended_is_reported(database: Database, threads: ThreadPoolExecutor) -> None:
    saves = Saves(database, threads)

    async def stream() -> None:
        saves.store.finish(saves.pending.turn.id, text="enough", status="stopped")
        saves.saver.add(saves.pending, "hi")
        while not saves.ended:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(stream(), 20))
    assert saves.ended == [saves.pending]
    assert saves.saved() == "enough"
