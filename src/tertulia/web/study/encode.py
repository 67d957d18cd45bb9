"""What participants get, as plain values. Nothing here knows more of a bot than the side it is shown on."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tertulia.core.dialogue import Json
from tertulia.store.study_records import AssignmentRecord, LabelRecord, StudyUnitRecord
from tertulia.study.blinding import attention_view, task_view, training_view
from tertulia.study.config import StudyConfig
from tertulia.study.localised import direction
from tertulia.study.texts import interface_texts, text
from tertulia.study.units import Unit
from tertulia.web.study.chats import Chat, has_people

_IMPLIED = "implied"
"""Keys of labels that the server added start with this; they are not the participant's to undo."""
_MESSAGES = {
    "done": "done.text",
    "nothing_left": "done.nothing_left",
    "screened_out": "done.screened_out",
    "partner_left": "chat.partner_left",
    "timed_out": "waiting.timed_out",
    "withdrawn": "withdraw.done",
    "closed": "done.closed",
}
"""What a participant reads at the end, by how it ended."""


def head_out(config: StudyConfig, step: str, lang: str, done: int) -> dict[str, Json]:
    """What every state has."""
    return {
        "step": step,
        "language": lang,
        "direction": direction(lang),
        "languages": list(config.languages),
        "title": config.title.get(lang),
        "texts": dict(interface_texts(lang)),
        "progress": {"done": done, "of": config.units_per_participant},
    }


def consent_out(config: StudyConfig, lang: str) -> dict[str, Json]:
    """The consent text."""
    return {"consent": {"version": config.consent.version, "text": config.consent.text.get(lang)}}


def tutorial_out(config: StudyConfig, lang: str) -> dict[str, Json]:
    """The tutorial's pages."""
    pages = [page.get(lang) for page in config.tutorial]
    return {"tutorial": pages, "instructions": config.instructions.get(lang)}


def training_out(config: StudyConfig, lang: str, index: int, failures: int) -> dict[str, Json]:
    """The training question at hand."""
    view = training_view(config, lang)[index]
    question = view.pop("question")
    left = config.training_attempts - failures
    training = {"index": index, "of": len(config.training), "attempts_left": left, "view": view, "question": question}
    return {"training": training, "instructions": config.instructions.get(lang)}


def attention_out(config: StudyConfig, lang: str, index: int) -> dict[str, Json]:
    """The attention check at hand, in place of a task."""
    return {"task": None, "attention": {"question": attention_view(config, index, lang)}}


def waiting_out(config: StudyConfig, waited: float) -> dict[str, Json]:
    """The waiting room."""
    return {"waiting": {"seconds": int(waited), "of": config.wait_seconds}}


def end_out(step: str, lang: str, code: str | None) -> dict[str, Json]:
    """How it ended."""
    return {"code": code, "message": text(_MESSAGES[step], lang)}


def task_out(
    config: StudyConfig,
    assignment: AssignmentRecord,
    unit: StudyUnitRecord,
    labels: Sequence[LabelRecord],
    chat: Chat | None,
    lang: str,
    now: datetime,
    can_finish: bool,
) -> dict[str, Json]:
    """The task at hand. Its id is the assignment's: the unit's could be compared between participants."""
    shown = Unit(unit.id, unit.bots, unit.payload)
    view = task_view(config, shown, assignment.side_order, lang, ended=chat is not None and chat.ended)
    view |= {"assignment": assignment.id, "expires_seconds": seconds_left(assignment, now)}
    view |= labels_out(labels)
    if chat is not None:
        view["chat"] = chat_out(config, chat, labels, can_finish=can_finish)
    return {"task": view}


def seconds_left(assignment: AssignmentRecord, now: datetime) -> int:
    """Until the lease ends, in full seconds: digits would change the size of a response."""
    return max(0, int((assignment.expires - now).total_seconds()))


def labels_out(labels: Sequence[LabelRecord]) -> dict[str, Json]:
    """The labels that count, and the key of those that can be undone."""
    current = [label for label in labels if label.current]
    own = [label.key for label in current if not label.key.startswith(_IMPLIED)]
    return {
        "labels": [{"target": label.target, "question": label.question, "value": label.value} for label in current],
        "can_undo": bool(own),
        "undo_key": own[-1] if own else None,
    }


def chat_out(config: StudyConfig, chat: Chat, labels: Sequence[LabelRecord], *, can_finish: bool) -> dict[str, Json]:
    """A chat."""
    values: dict[str, dict[str, Json]] = {}
    for label in labels:
        if label.current:
            values.setdefault(label.target, {})[label.question] = label.value
    return {
        "turns": [
            {
                "id": shown.turn.id,
                "side": shown.side,
                "mine": shown.mine,
                "text": "" if shown.pending else shown.turn.text,
                "pending": shown.pending,
                "labels": values.get(f"turn:{shown.turn.id}", {}),
            }
            for shown in chat.turns
        ],
        "min_turns": chat.min_turns,
        "max_turns": chat.max_turns,
        "turns_done": chat.count,
        "can_say": not (chat.ended or chat.is_pending or chat.awaits_partner),
        "can_finish": can_finish,
        "ended": chat.ended,
        "failed": chat.last_failed,
        "live": has_people(config),
        "word_limit": config.max_words,
    }


def feedback_out(correct: bool, explanation: str, lang: str) -> dict[str, Json]:
    """What a participant is told about an answer to a training question or an attention check."""
    return {"feedback": {"correct": correct, "text": explanation or text("training.correct", lang)}}


def saved_out(labels: Sequence[LabelRecord], warnings: Sequence[Mapping[str, Json]] = ()) -> dict[str, Json]:
    """Labels that are on disk."""
    return {"saved": True, **labels_out(labels), "warnings": [dict(warning) for warning in warnings]}
