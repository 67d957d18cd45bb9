"""What `judge grounding` reads: labelled responses, replies in conversations with evidence, or people's labels.

A file says by its content which of the three it is. What cannot be judged, such as a reply without evidence, is counted
and said; a label that nobody knows is an error that names its file and line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from tertulia import sample
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Exchange, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.core.grounding import GroundingInput, GroundingLabel, attributable, parse_label
from tertulia.core.text import plural
from tertulia.corpus.load import SAMPLE, Located, load_located, recognise
from tertulia.corpus.readers.base import content_id
from tertulia.judge.conversations import By, JudgedConversation, file_names, judged_conversations
from tertulia.judge.grounding.config import GroundingConfig
from tertulia.judge.grounding.export import PersonLabel, is_export, read_export
from tertulia.judge.runs import unique_ids

BEGIN_V1 = "begin-v1"
CONTEXT = 6
"""Turns before a reply that are kept to read."""
_KINDS = "labelled responses, conversations or the export of a study"


class LabelledResponse(NamedTuple):
    """A response whose relation to its evidence is known."""

    unit: str
    cluster: str
    """Its passage: responses to the same evidence are not independent."""
    input: GroundingInput
    written: str
    """The label as the file has it."""
    supported: bool
    label: GroundingLabel | None
    """None if the label only says whether it is supported."""


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Responses with labels."""

    responses: tuple[LabelledResponse, ...]
    readers: frozenset[str] = frozenset()
    """The formats they were read from."""
    notes: tuple[str, ...] = ()
    people: tuple[PersonLabel, ...] = ()
    """The judgements that the labels are the majority of, if they come from a study."""

    @property
    def five(self) -> bool:
        """Whether every response has one of the five labels."""
        return all(one.label is not None for one in self.responses)


class GroundedReply(NamedTuple):
    """A reply in a conversation that has evidence."""

    unit: str
    subject: str
    cluster: str
    input: GroundingInput
    turns: tuple[Turn, ...]
    """The reply, and the last turns before it."""


@dataclass(frozen=True, slots=True)
class GroundedReplies:
    """Replies without labels."""

    replies: tuple[GroundedReply, ...]
    conversations: int = 0
    """With evidence."""
    without_evidence: dict[str, int] = field(default_factory=dict)
    """Conversations that nothing can be said about, by subject."""
    bare: dict[str, int] = field(default_factory=dict)
    """Replies without evidence in conversations where others have some, by subject."""


def read_inputs(config: GroundingConfig, problems: Problems | None = None) -> LabelledSet | GroundedReplies:
    """Everything that the config names, as one set of one kind."""
    exports = [is_export(Path(file)) for file in config.files]
    if all(exports):
        return people_set([label for file in config.files for label in read_export(Path(file))])
    if any(exports):
        raise UsageError("The files are of different kinds.", hint=f"Give {_KINDS}, not several of them.")
    return _split(config, problems)


def read_labelled(file: str, split: str | None = None, problems: Problems | None = None) -> LabelledSet:
    """The labelled responses of a file or folder; an error if it has none."""
    config = GroundingConfig(files=(file,), split=split or "")
    given = read_inputs(config, problems)
    if not isinstance(given, LabelledSet):
        raise DataError(f"{file} has no labelled responses.", hint="Give BEGIN, or JSON lines of labelled exchanges.")
    return given


def _split(config: GroundingConfig, problems: Problems | None) -> LabelledSet | GroundedReplies:
    """Labelled responses or replies, whichever the files have."""
    labelled: list[LabelledResponse] = []
    unlabelled: list[tuple[str, Exchange]] = []
    dialogues: list[tuple[str, Dialogue]] = []
    readers: set[str] = set()
    bare = 0
    for name, file in zip(file_names(config.files), config.files, strict=True):
        for item, path, line in islice(_located(file, config.split or None, problems), config.limit):
            if isinstance(item, Dialogue):
                dialogues.append((name, item))
            elif item.label is None:
                unlabelled.append((name, item))
            elif not item.evidence:
                bare += 1
            else:
                labelled.append(_labelled(item, path, line))
        readers |= _readers(file)
    if labelled and dialogues:
        raise UsageError("Some files have labelled responses, others conversations.", hint=f"Give {_KINDS}.")
    if labelled:
        units = unique_ids(one.unit for one in labelled)
        responses = tuple(one._replace(unit=unit) for one, unit in zip(labelled, units, strict=True))
        left_out = {"without a label": len(unlabelled), "without evidence": bare}
        notes = tuple(f"Left out: {plural(n, 'response')} {why}." for why, n in left_out.items() if n)
        return LabelledSet(responses, frozenset(readers), notes)
    if bare and not (dialogues or unlabelled):
        raise DataError(
            f"None of the {bare} labelled responses in {', '.join(config.files)} has evidence.",
            hint="Each needs `evidence`, the passages that its label refers to.",
        )
    return reply_set(dialogues, unlabelled, by=config.by, speaker=config.speaker)


def _located(file: str, split: str | None, problems: Problems | None) -> Iterator[Located]:
    if file == SAMPLE:
        return (Located(exchange, Path(file), 0) for exchange in sample.grounded())
    return load_located(file, split=split, problems=problems)


def _readers(file: str) -> set[str]:
    return {recognise(Path(file)).name} if Path(file).is_file() and not file.endswith(".parquet") else {file}


def grounding_input(exchange: Exchange) -> GroundingInput:
    """What a classifier reads of an exchange."""
    previous = exchange.context[-1].text if exchange.context else ""
    return GroundingInput(" ".join(e.text for e in exchange.evidence), previous, exchange.response.text)


def _labelled(exchange: Exchange, file: Path, line: int) -> LabelledResponse:
    given, label = grounding_input(exchange), str(exchange.label)
    try:
        supported = attributable(label)
    except DataError as error:
        where = f"{file}, line {line}" if line else str(file)
        raise DataError(f"{where}: unknown grounding label {label!r}.", hint=error.hint) from None
    return LabelledResponse(exchange.id, content_id(given.evidence), given, label, supported, parse_label(label))


def reply_set(
    dialogues: Iterable[tuple[str, Dialogue]],
    exchanges: Sequence[tuple[str, Exchange]] = (),
    *,
    by: By | None = None,
    speaker: str | None = None,
) -> GroundedReplies:
    """The replies of whoever is judged in conversations with evidence, and given single replies with evidence."""
    replies: list[GroundedReply] = []
    without: dict[str, int] = {}
    count = 0
    bare: dict[str, int] = {}
    for one in judged_conversations(dialogues, by=by, speaker=speaker):
        own = list(_replies(one))
        grounded = [reply for reply in own if reply.input.evidence]
        if not own:  # who only opens a conversation replies to nothing
            continue
        if not grounded:
            without[one.subject] = without.get(one.subject, 0) + 1
        elif len(grounded) < len(own):
            bare[one.subject] = bare.get(one.subject, 0) + len(own) - len(grounded)
        count += bool(grounded)
        replies += grounded
    for source, exchange in exchanges:
        subject = str(exchange.response.meta.get("model") or source)
        if not exchange.evidence:
            without[subject] = without.get(subject, 0) + 1
            continue
        count += 1
        given = grounding_input(exchange)
        turns = (*exchange.context[-CONTEXT:], exchange.response)
        replies.append(GroundedReply(exchange.id, subject, exchange.id, given, turns))
    units = {
        subject: iter(unique_ids(r.unit for r in replies if r.subject == subject)) for subject in _subjects(replies)
    }
    return GroundedReplies(tuple(one._replace(unit=next(units[one.subject])) for one in replies), count, without, bare)


def _replies(one: JudgedConversation) -> Iterator[GroundedReply]:
    """What the judged speaker replies; consecutive turns of one speaker are one reply, what opens it is none."""
    groups = [list(run) for _, run in groupby(one.dialogue.turns, key=lambda turn: turn.speaker)]
    for i, (text, judged) in enumerate(zip(one.example.turns, one.example.judged, strict=True)):
        if judged and i and text.strip():
            before = [turn for group in groups[:i] for turn in group]
            given = GroundingInput(evidence_of(one.dialogue, groups[i]), one.example.turns[i - 1], text)
            turns = (*before[-CONTEXT:], Turn(groups[i][0].speaker, text))
            yield GroundedReply(f"{one.unit}#{i}", one.subject, one.cluster, given, turns)


def _subjects(replies: Sequence[GroundedReply]) -> list[str]:
    return list(dict.fromkeys(one.subject for one in replies))


def evidence_of(dialogue: Dialogue, turns: Sequence[Turn]) -> str:
    """What a turn may rest on: passages of the dialogue, and those that were retrieved for the turn (`evidence`).

    If the turn's `meta` names some of the dialogue's passages by id (`passages`, as in Wizard of Wikipedia), only those
    count.

    >>> from tertulia.core.dialogue import Evidence
    >>> chat = Dialogue("d", (), evidence=(Evidence("Tea is hot.", id="p0"), Evidence("Ice is cold.", id="p1")))
    >>> evidence_of(chat, [Turn("bot", "Cold!", meta={"passages": ["p1"]})]), evidence_of(chat, [Turn("bot", "Hm.")])
    ('Ice is cold.', 'Tea is hot. Ice is cold.')
    """
    named = {str(name) for turn in turns for name in turn.meta.get("passages") or ()}
    chosen = [passage for passage in dialogue.evidence if passage.id and passage.id in named]
    retrieved = [passage for turn in turns for passage in turn.meta.get("evidence") or ()]
    texts = [passage.get("text", "") if isinstance(passage, Mapping) else str(passage) for passage in retrieved]
    return " ".join(dict.fromkeys([*(passage.text for passage in chosen or dialogue.evidence), *texts]))


def people_set(labels: Sequence[PersonLabel]) -> LabelledSet:
    """People's labels, and the label of most of them for each response; without a majority it has none."""
    by_unit: dict[str, list[PersonLabel]] = {}
    for one in labels:
        by_unit.setdefault(one.unit, []).append(one)
    responses = []
    for unit, own in by_unit.items():
        counts = {label: sum(one.label == label for one in own) for label in dict.fromkeys(one.label for one in own)}
        most = [label for label, count in counts.items() if count == max(counts.values())]
        if len(most) == 1:
            given = own[0].input
            supported = most[0] == "entailment"
            responses.append(LabelledResponse(unit, content_id(given.evidence), given, most[0], supported, most[0]))
    tied = len(by_unit) - len(responses)
    raters = len({one.rater for one in labels})
    extent = (
        f"{plural(len(labels), 'label')} by {plural(raters, 'person', 'people')} of {plural(len(by_unit), 'response')}"
    )
    notes = [f"{extent}; the label of most is the true one."]
    notes += [f"No majority, and so no true label: {plural(tied, 'response')}." for _ in range(tied > 0)]
    return LabelledSet(tuple(responses), notes=tuple(notes), people=tuple(labels))
