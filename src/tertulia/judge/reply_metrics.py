"""Judging replies one by one: bots reply in held-out contexts, or replies are given, and any reply metric is computed.

Works for every bot, since it sees texts alone. All bots reply in the same contexts, so that they can be compared
paired; given replies of several bots to the same context are paired by that context.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tertulia.artefacts.files import open_text
from tertulia.core.codec import Problems, read_lines
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError, MissingFile, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.corpus.identity import describe_artefacts
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import RepliesConfig
from tertulia.judge.replies import GeneratedReply, draw_contexts, generate_replies, reply_items, score_replies
from tertulia.judge.resources import RESOURCES, load_resources
from tertulia.judge.runs import (
    JudgedRun,
    Subject,
    describe_config,
    describe_data,
    describe_subject,
    unique_ids,
)
from tertulia.metrics.metric import Metric, ReplyExample
from tertulia.metrics.registry import metrics_named
from tertulia.talk.spec import make_bot

WITH_REFERENCE = ("f1",)
"""Computed by default where there are references."""
WITHOUT_REFERENCE = (
    "relatedness",
    "specificity by idf",
    "genericness",
    "words per reply",
    "distinct-1",
    "distinct-2",
    "distinct replies",
)
"""Computed by default: fast, and all they need is packaged."""
_FIELDS = frozenset(("context", "reply", "reference", "persona", "bot", "dialogue", "id"))


class ReplySet(NamedTuple):
    """The replies of one subject in one setting."""

    subject: Subject
    setting: str
    replies: Sequence[GeneratedReply]


def run_replies(config: RepliesConfig, progress: Progress | None = None, problems: Problems | None = None) -> JudgedRun:
    """Generate or read replies, and measure them. With `problems`, damaged lines are counted there."""
    progress = progress or Silent()
    if bool(config.bots) == bool(config.given):
        raise UsageError(
            "Name either bots or a file of given replies.", hint="tertulia judge replies BOT ..., or --given FILE"
        )
    metrics_named(config.metrics, unit="reply", verb="judge replies")  # an unknown name is an error before the work
    progress.step("Reading")
    given = read_given(config.given, problems) if config.given else []
    dialogues = (
        [] if config.given else list(load_dialogues(config.data, split=config.selected_split, problems=problems))
    )
    has_references = not config.given or any(one.example.reference for own in given for one in own.replies)
    metrics = _metrics(config, has_references=has_references)
    progress.step("Loading what the metrics need")
    resources = load_resources(metrics, config.resource)
    sets = given or generate_sets(config, dialogues, progress)
    scores: list[Score] = []
    for own in sets:
        of = f" {own.subject.name}" if len(sets) > 1 else ""
        progress.step(f"Measuring{of}", total=len(own.replies) * len(metrics))
        scores += score_replies(
            metrics,
            own.replies,
            subject=own.subject.name,
            setting=own.setting,
            resources=resources,
            progress=progress.advance,
        )
    return JudgedRun(
        verb="replies",
        config=describe_config(config),
        subjects=tuple(dict.fromkeys(own.subject for own in sets)),
        settings=tuple(dict.fromkeys(own.setting for own in sets)),
        scores=tuple(scores),
        metrics={metric.name: metric.info for metric in metrics},
        items=tuple(
            item for own in sets for item in reply_items(own.replies, subject=own.subject.name, setting=own.setting)
        ),
        notes=tuple(_notes(config, sets, metrics)),
        details={"replies": {f"{own.subject.name}, {own.setting}": len(own.replies) for own in sets}},
    )


def generate_sets(config: RepliesConfig, dialogues: Sequence[Dialogue], progress: Progress) -> list[ReplySet]:
    """Each bot's replies in each persona setting, in the same contexts."""
    contexts = draw_contexts(dialogues, config.replies, speaker=config.speaker, seed=config.seed)
    if not contexts:
        raise DataError(f"There are no replies in {config.source}.", hint="Check --data, --split and --speaker.")
    settings = config.settings(has_personas=any(context.exchange.persona for context in contexts))
    sets: list[ReplySet] = []
    names: list[str] = []
    for spec in config.bots:
        progress.step(f"Loading {spec}")
        bot = make_bot(spec, reference=True)
        names.append(spec if bot.spec in names else bot.spec)  # bots that differ only in an option keep the option
        subject = describe_subject(names[-1], spec, bot)
        for setting in settings:
            progress.step(f"Replying with {spec}, persona: {setting}", total=len(contexts))
            replies = generate_replies(bot, contexts, setting, seed=config.seed, progress=progress.advance)
            sets.append(ReplySet(subject, str(setting), replies))
    return sets


def read_given(path: Path, problems: Problems | None = None) -> list[ReplySet]:
    """The replies of a file, by bot; those of a file that names no bots belong to a subject with the file's name."""
    try:
        with open_text(path) as lines:
            records = list(read_lines(lines, _decode_given, source=str(path), problems=problems))
    except FileNotFoundError:
        raise MissingFile(f"File not found: {path}", hint="Give a file of JSON lines with --given.") from None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.", hint="Give a file of JSON lines.") from None
    if not records:
        raise DataError(f"There are no replies in {path}.", hint="Each line needs `context` and `reply`.")
    contexts: dict[tuple[str, ...], str] = {}
    by_bot: dict[str, list[GeneratedReply]] = {}
    for record in records:
        context = contexts.setdefault(record.example.context, f"context {len(contexts) + 1}")
        own = by_bot.setdefault(record.bot or path.stem, [])
        own.append(GeneratedReply(record.id or context, record.dialogue or context, record.example))
    return [ReplySet(Subject(bot, kind="given"), "", _with_unique_units(own)) for bot, own in by_bot.items()]


def describe_replies_data(config: RepliesConfig) -> dict[str, Json]:
    """Path, split and digest of what was judged: the data of the contexts, or the file of given replies."""
    if config.given is None:
        return describe_data(config.data, config.selected_split)
    return describe_artefacts(given=config.given)


class _Given(NamedTuple):
    example: ReplyExample
    bot: str
    dialogue: str
    id: str


def _decode_given(record: Json) -> _Given:
    if not isinstance(record, dict):
        raise TypeError(f"a reply must be an object, not {type(record).__name__}")
    if unknown := sorted(set(record) - _FIELDS):
        raise ValueError(f"a reply has no field {unknown[0]!r} (known: {', '.join(sorted(_FIELDS))})")
    example = ReplyExample(
        _text(record["reply"], "reply"),
        _text(record.get("reference") or "", "reference"),
        _texts(record["context"], "context"),
        _texts(record.get("persona") or [], "persona"),
    )
    bot, dialogue, name = (str(record.get(field) or "") for field in ("bot", "dialogue", "id"))
    return _Given(example, bot, dialogue, name)


def _text(value: Json, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name!r} must be text, not {type(value).__name__}")
    return value


def _texts(value: Json, name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{name!r} must be a list of texts, not {type(value).__name__}")
    return tuple(_text(item, name) for item in value)


def _with_unique_units(replies: Sequence[GeneratedReply]) -> list[GeneratedReply]:
    units = unique_ids(reply.unit for reply in replies)
    return [reply._replace(unit=unit) for reply, unit in zip(replies, units, strict=True)]


def _metrics(config: RepliesConfig, *, has_references: bool) -> list[Metric]:
    """The metrics to compute, if all that they need can be loaded."""
    default = (*(WITH_REFERENCE if has_references else ()), *WITHOUT_REFERENCE)
    metrics = metrics_named(config.metrics or default, unit="reply", verb="judge replies")
    for metric in metrics:
        if missing := [name for name in metric.needs if name not in RESOURCES]:
            raise UsageError(
                f"{metric.name!r} needs {', '.join(missing)}, which judge replies does not have.",
                hint="Choose another --metric; `tertulia metrics` lists them.",
            )
    return metrics


def _notes(config: RepliesConfig, sets: Sequence[ReplySet], metrics: Sequence[Metric]) -> Iterator[str]:
    most = max(len(own.replies) for own in sets)
    source = f"given in {config.given}" if config.given else f"in contexts drawn from {config.source}"
    yield f"{most} replies {source}; 95 % intervals by bootstrap over dialogues; seed {config.seed}."
    for own in sets:
        if not own.replies:
            yield f"persona {own.setting}: the data has no such personas, n = 0."
    needed = dict.fromkeys(name for metric in metrics for name in metric.needs)
    if needed:
        listed = (f"{name} {config.resource[name]}" if name in config.resource else name for name in needed)
        yield f"Resources: {', '.join(listed)}{'' if config.resource else ' (all by default)'}."
