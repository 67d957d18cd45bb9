"""Labels: what participants answered. `StudyStore` is built on it.

Nothing is overwritten. A later label of the same target and question supersedes the earlier one, and an undone one
gives way to its predecessor; `current` marks the one that counts, and all the others stay.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, bindparam, insert, select, update

from tertulia.core.dialogue import Json
from tertulia.store.records import NotFound
from tertulia.store.schema import assignment_conversations, assignments, labels, study_units, turns
from tertulia.store.study_base import StudyBase, assignment_row, check_live, conversations_of, study_row
from tertulia.store.study_records import HeldTurn, KeyReused, LabelRecord, LabelRow, NewLabel
from tertulia.store.validation import check_names, json_value

ASSIGNMENTS_PER_PAGE = 100
TURN_PREFIX = "turn:"
"""A target with this prefix is a turn of a conversation that was held for the assignment."""

_A, _L, _U = assignments.c, labels.c, study_units.c
_NAMES = [field.name for field in fields(LabelRecord)]
_COLUMNS = [_L[name] for name in _NAMES]
_ADD = insert(labels)
_OF_ASSIGNMENT = select(*_COLUMNS).where(_L.assignment == bindparam("id")).order_by(_L.number)
_LONG: Select[Any] = (
    select(*_COLUMNS, *(_A[name] for name in ("study", "unit", "participant", "state", "side_order")), _U.bots)
    .join(assignments, _A.id == _L.assignment)
    .join(study_units, (_U.study == _A.study) & (_U.id == _A.unit))
    .where(_L.assignment.in_(bindparam("assignments", expanding=True)))
    .order_by(_L.assignment, _L.number)
)
_SET_FLAGS = (
    update(labels)
    .where(_L.assignment == bindparam("within"), _L.number == bindparam("at"))
    .values(current=bindparam("is_current"), undone=bindparam("is_undone"))
)


class StudyLabels(StudyBase):
    """Adding, undoing and reading labels."""

    def add_labels(
        self,
        assignment: str,
        participant: str,
        new: Iterable[tuple[str, str, Json]],
        key: str,
        seconds: float | None = None,
    ) -> tuple[LabelRecord, ...]:
        """Add (target, question, value) labels to a participant's live assignment; returns them once on disk.

        The key identifies the request: the same labels with the same key again add nothing and return what is stored.
        """
        return tuple(
            label for label in self.save_labels(assignment, participant, new, key, seconds) if label.key == key
        )

    def save_labels(
        self,
        assignment: str,
        participant: str,
        new: Iterable[tuple[str, str, Json]],
        key: str,
        seconds: float | None = None,
    ) -> tuple[LabelRecord, ...]:
        """Like `add_labels`, but returns all labels that the assignment has now."""
        check_names(key=key)
        batch = [NewLabel(target, question, json_value(value, "label")) for target, question, value in new]
        for label in batch:
            check_names(target=label.target, question=label.question)
        elapsed = json_value(seconds, "seconds")

        def add(connection: Connection) -> tuple[LabelRecord, ...]:
            row = assignment_row(connection, assignment, participant, lock=True)
            stored = _labels_of(connection, assignment)
            if earlier := [NewLabel(label.target, label.question, label.value) for label in stored if label.key == key]:
                if earlier != batch:
                    raise KeyReused
                return tuple(stored)
            now = self._now()
            check_live(connection, row, now)
            _check_turns(connection, assignment, batch)
            added = [
                LabelRecord(assignment, number, key, *label, elapsed, now, current=True, undone=False)
                for number, label in enumerate(batch, len(stored))
            ]
            if added:
                connection.execute(_ADD, [{name: getattr(label, name) for name in _NAMES} for label in added])
            return _refresh(connection, [*stored, *added], {(label.target, label.question) for label in batch})

        return self._database.write(add)

    def undo_labels(self, assignment: str, participant: str, key: str) -> tuple[LabelRecord, ...]:
        """Undo the labels of one request: the labels that they superseded count again. Returns the current labels."""
        check_names(key=key)

        def undo(connection: Connection) -> tuple[LabelRecord, ...]:
            row = assignment_row(connection, assignment, participant, lock=True)
            stored = _labels_of(connection, assignment)
            batch = [label for label in stored if label.key == key]
            if not batch:
                raise NotFound("label")
            if not all(label.undone for label in batch):
                check_live(connection, row, self._now())
                of_key = update(labels).where(_L.assignment == assignment, _L.key == key)
                connection.execute(of_key.values(undone=True))
                stored = [replace(label, undone=True) if label.key == key else label for label in stored]
            refreshed = _refresh(connection, stored, {(label.target, label.question) for label in batch})
            return tuple(label for label in refreshed if label.current)

        return self._database.write(undo)

    def labels_of(self, assignment: str, *, history: bool = False) -> tuple[LabelRecord, ...]:
        """The current labels of an assignment in the order of arrival; with `history`, all of them."""

        def read(connection: Connection) -> tuple[LabelRecord, ...]:
            stored = _labels_of(connection, assignment)
            if not stored:
                assignment_row(connection, assignment)  # refuses one that does not exist
            return tuple(label for label in stored if history or label.current)

        return self._database.read(read)

    def rows(self, study: str, *, history: bool = False, unfinished: bool = False) -> Iterator[LabelRow]:
        """The labels of a study in long format, read page by page. Pseudonyms, and never identities.

        Current labels of submitted assignments; with `history`, also superseded and undone ones; with `unfinished`,
        also those of assignments that are live, expired or released.
        """
        ids = select(_A.id).where(_A.study == study).order_by(_A.id)
        ids = ids if unfinished else ids.where(_A.state == "submitted")

        def read_ids(connection: Connection) -> Sequence[str]:
            study_row(connection, study)
            return connection.scalars(ids).all()

        all_ids = self._database.read(read_ids)
        for start in range(0, len(all_ids), ASSIGNMENTS_PER_PAGE):
            page = all_ids[start : start + ASSIGNMENTS_PER_PAGE]
            yield from self._database.read(partial(_label_rows, ids=page, history=history))

    def chats(self, study: str) -> dict[str, tuple[HeldTurn, ...]]:
        """The current turns of the conversations that were held for submitted assignments, by conversation."""
        link = assignment_conversations.c
        held = (
            select(*(turns.c[name] for name in ("conversation", *HeldTurn._fields)))
            .join(assignment_conversations, link.conversation == turns.c.conversation)
            .join(assignments, _A.id == link.assignment)
            .where(_A.study == study, _A.state == "submitted", turns.c.current, turns.c.status == "done")
            .order_by(turns.c.conversation, turns.c.position)
            .distinct()
        )

        def read(connection: Connection) -> dict[str, tuple[HeldTurn, ...]]:
            rows = connection.execute(held.add_columns(turns.c.position)).all()
            return {
                conversation: tuple(HeldTurn(row.id, row.speaker, row.text) for row in own)
                for conversation, own in groupby(rows, key=lambda row: row.conversation)
            }

        return self._database.read(read)


def _labels_of(connection: Connection, assignment: str) -> list[LabelRecord]:
    return [LabelRecord(*row) for row in connection.execute(_OF_ASSIGNMENT, {"id": assignment})]


def current_labels(connection: Connection, assignment: str) -> tuple[LabelRecord, ...]:
    """The labels of an assignment that count, in the order of arrival."""
    return tuple(label for label in _labels_of(connection, assignment) if label.current)


def _refresh(
    connection: Connection, stored: Sequence[LabelRecord], changed: set[tuple[str, str]]
) -> tuple[LabelRecord, ...]:
    """Mark the latest label that was not undone as current, for each changed target and question."""
    latest = {(label.target, label.question): label.number for label in stored if not label.undone}
    refreshed = [
        replace(label, current=latest.get(pair) == label.number)
        if (pair := (label.target, label.question)) in changed
        else label
        for label in stored
    ]
    values = [
        {"within": label.assignment, "at": label.number, "is_current": label.current, "is_undone": label.undone}
        for label, before in zip(refreshed, stored, strict=True)
        if label.current != before.current
    ]
    if values:
        connection.execute(_SET_FLAGS, values)
    return tuple(refreshed)


def _check_turns(connection: Connection, assignment: str, batch: Sequence[NewLabel]) -> None:
    """Refuse labels of turns that are not in a conversation of this assignment."""
    ids = {label.target.removeprefix(TURN_PREFIX) for label in batch if label.target.startswith(TURN_PREFIX)}
    if not ids:
        return
    link = assignment_conversations.c
    own = select(turns.c.id).join(assignment_conversations, link.conversation == turns.c.conversation)
    own = own.where(link.assignment == assignment, turns.c.id.in_(ids))
    if len(connection.scalars(own).all()) < len(ids):
        raise NotFound("turn")


class _Turn(NamedTuple):
    id: str
    conversation: str
    text: str
    bot: str | None
    reply: dict[str, Json] | None


def _label_rows(connection: Connection, ids: Sequence[str], *, history: bool) -> list[LabelRow]:
    """The labels of some assignments, with the turns and conversations that they refer to."""
    page = connection.execute(_LONG if history else _LONG.where(_L.current), {"assignments": list(ids)}).all()
    conversations = conversations_of(connection, {row.assignment for row in page})
    turn_ids = [row.target.removeprefix(TURN_PREFIX) for row in page if row.target.startswith(TURN_PREFIX)]
    labelled = select(*(turns.c[name] for name in _Turn._fields)).where(turns.c.id.in_(turn_ids))
    by_target = {f"{TURN_PREFIX}{row.id}": _Turn(*row) for row in connection.execute(labelled)}
    return [_label_row(row, conversations.get(row.assignment, ()), by_target.get(row.target)) for row in page]


def _label_row(row: Row[Any], conversations: tuple[str, ...], turn: _Turn | None) -> LabelRow:
    only = conversations[0] if len(conversations) == 1 else None
    return LabelRow(
        study=row.study,
        unit=row.unit,
        bots=tuple(row.bots),
        side_order=tuple(row.side_order),
        participant=row.participant,
        assignment=row.assignment,
        state=row.state,
        number=row.number,
        target=row.target,
        question=row.question,
        value=row.value,
        created=row.created,
        seconds=row.seconds,
        current=row.current,
        conversation=turn.conversation if turn else only,
        conversations=conversations,
        turn_text=turn.text if turn else None,
        turn_bot=turn.bot if turn else None,
        reply=turn.reply if turn else None,
    )
