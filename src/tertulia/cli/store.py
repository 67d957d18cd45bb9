"""`tertulia store ...`: what the operator of a server does with its database."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson

from tertulia.artefacts.outputs import Force, Output, write_output
from tertulia.cli.command import command
from tertulia.cli.database import open_database
from tertulia.cli.output import Bars, out, print_json
from tertulia.core.codec import dialogue_to_json
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import StoreError
from tertulia.core.text import plural
from tertulia.store import Conversation, ConversationStore, StoredTurn
from tertulia.store.backup import backup, check, restore
from tertulia.store.study_base import is_study_owner


class StoreExportConfig(Config):
    """What to export, and where to."""

    db: str = "sqlite:///tertulia.db"
    """Database of the server, as for `tertulia serve`."""
    out: Annotated[Path, Cli("--out -o"), Output("file")]
    """File to write, one dialogue as JSON per line."""
    force: Force = False
    studies: bool = False
    """Whether to include conversations of studies, which otherwise leave only by `tertulia study export`."""


@command(StoreExportConfig)
def export(settings: StoreExportConfig, *, as_json: bool) -> None:
    """Export all conversations with everything that is known about each reply, also replaced and undone ones.

    Unlike visitors' exports, it contains the bots' specifications, settings, candidates and errors: keep it private.
    What participants of studies said is left out, because they agreed to another use: see `tertulia study export`.
    """
    count, studies_left_out = 0, False
    with (
        open_database(settings.db) as database,
        write_output(settings.out) as path,
        path.open("wb") as file,
        Bars() as bars,
    ):
        bars.step("Exporting conversations")
        conversations = ConversationStore(database)
        for owner in conversations.owners():
            if is_study_owner(owner) and not settings.studies:
                studies_left_out = True
                continue
            for conversation in conversations.export(owner, history=True):
                file.write(orjson.dumps(dialogue_to_json(_dialogue(conversation)), option=orjson.OPT_APPEND_NEWLINE))
                count += 1
                bars.advance()
    if as_json:
        print_json({"out": str(settings.out), "conversations": count, "studies_left_out": studies_left_out})
    else:
        out.print(f"Wrote {plural(count, 'conversation')} to {settings.out}", markup=False)
        if studies_left_out:
            out.print("Left out the conversations of studies: use tertulia study export, or --studies.", markup=False)


class StoreBackupConfig(Config):
    """What to back up, and where to."""

    db: str = "sqlite:///tertulia.db"
    """Database of the server, as for `tertulia serve`."""
    out: Annotated[Path, Cli("--out -o"), Output("file")]
    """File to write, which must not exist yet."""


@command(StoreBackupConfig)
def back_up(settings: StoreBackupConfig, *, as_json: bool) -> None:
    """Back up a database to a single file (SQLite, also for PostgreSQL). Servers may go on running.

    It contains everything: conversations, ratings, participants' identities, hashes of passwords. Keep it private.
    """
    report = backup(settings.db, settings.out)
    if as_json:
        print_json({"out": report.path, "rows": report.rows, "problems": list(report.problems)})
    else:
        out.print(f"Wrote {sum(report.rows.values())} rows to {report.path}", markup=False)
    _report_problems(report.problems, settings.db)


class StoreRestoreConfig(Config):
    """What to restore, and where to."""

    file: Annotated[Path, Cli(argument=True)]
    """Backup, as written by `tertulia store backup`."""
    db: str = "sqlite:///tertulia.db"
    """Database to restore into, which must be new or empty."""


@command(StoreRestoreConfig)
def restore_into(settings: StoreRestoreConfig, *, as_json: bool) -> None:
    """Restore a backup into a new database, of this version and either kind. Nothing is overwritten."""
    report = restore(settings.file, settings.db)
    if as_json:
        print_json({"db": report.path, "rows": report.rows})
    else:
        out.print(f"Restored {sum(report.rows.values())} rows into {report.path}", markup=False)


class StoreCheckConfig(Config):
    """What to check."""

    db: str = "sqlite:///tertulia.db"
    """Database of the server, or a backup as sqlite:///FILE."""


@command(StoreCheckConfig)
def check_database(settings: StoreCheckConfig, *, as_json: bool) -> None:
    """Check a database: its file, its references, and what must always hold. Changes nothing."""
    report = check(settings.db)
    if as_json:
        print_json(
            {"db": report.url, "schema": report.revision, "rows": report.rows, "problems": list(report.problems)}
        )
    else:
        for table, count in report.rows.items():
            out.print(f"{count:>10}  {table}", markup=False)
        if report.is_sound:
            out.print(f"No problems in {report.url} (schema {report.revision or 'none'})", markup=False)
    _report_problems(report.problems, report.url)


def _report_problems(problems: Sequence[str], url: str) -> None:
    if problems:
        raise StoreError(f"{url} has problems:\n" + "\n".join(problems), hint="Restore a backup from before.")


def _dialogue(conversation: Conversation) -> Dialogue:
    return Dialogue(
        id=conversation.id,
        turns=tuple(Turn(turn.speaker, turn.text, meta=_meta(turn)) for turn in conversation.turns),
        personas={"bot": conversation.persona} if conversation.persona else {},
        evidence=conversation.evidence,
        meta={
            "title": conversation.title,
            "bot": conversation.bot,
            "owner": conversation.owner,
            "created": conversation.created.isoformat(),
            "updated": conversation.updated.isoformat(),
        },
    )


def _meta(turn: StoredTurn) -> dict[str, Any]:
    meta: dict[str, Any] = {"id": turn.id, "created": turn.created.isoformat(), "current": turn.current}
    if turn.speaker == "bot":
        meta |= {"bot": turn.bot, "status": turn.status, "attempt": turn.attempt, "replaces": turn.replaces}
        meta |= {"error": turn.error, **(turn.reply or {})}
    return meta
