"""Metrics of whole conversations: self-play files, exported chats and any corpus of dialogues -> a judged run.

Who is judged: a bot that the conversation names (by the provenance of its turns, or in its `meta`), a speaker that the
user names, or else everybody. In self-play of a bot with itself both sides are judged together; where two bots talk to
each other, each is judged in turn, the other being its user. Consecutive turns of one speaker count as one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from tertulia.core.codec import Problems
from tertulia.core.config import Cli
from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.corpus.identity import describe_paths
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import JudgeConfig, Strings
from tertulia.judge.resources import load_resources
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, describe_config, unique_ids
from tertulia.metrics.conversation import CONVERSATION_METRICS
from tertulia.metrics.metric import ConversationExample, Metric
from tertulia.metrics.registry import metrics_named

By = Literal["bot", "speaker", "file"]
BOT_SPEAKERS = frozenset(("assistant", "bot", "gpt", "chatgpt", "system"))
"""Speakers that are bots by their names, in formats that do not say which bot it was."""
CHUNK = 2000
"""Texts that are encoded between two reports of progress."""
REPETITION = ("loop", "self-repetition", "parroting", "shared run of 3 turns", "shared run of 5 turns")
COPIED = ("copied run of 2 turns", "copied run of 3 turns")
MORE_METRICS = ("turns", "words per turn", *REPETITION)
"""Computed by default beside the paper's eleven; with training data also `COPIED`."""


class JudgedConversation(NamedTuple):
    """A conversation as one subject is judged in it."""

    unit: str
    """Id of the conversation, unique within the subject."""
    subject: str
    cluster: str
    """Id of the dialogue: two bots that talked to each other share it."""
    example: ConversationExample
    dialogue: Dialogue


class ConversationsConfig(JudgeConfig):
    """Which conversations, who is judged in them, and by which metrics."""

    files: Annotated[Strings, Cli(argument=True)] = Field(min_length=1)
    """Files or folders of conversations: self-play, exported chats, or any corpus; `sample` for the bundled one."""
    data: Annotated[str, Cli(hidden=True)] = ""
    """Not used: FILES are the data."""
    split: str = ""
    """The split of a folder to use; empty for all."""
    metrics: Annotated[Strings, Cli("--metric")] = ()
    """Metrics of conversations, one per option. By default the eleven of Ghandeharioun et al. (2019), lengths and
    repetition; with --training also what is copied from the training data."""
    resource: dict[str, str] = Field(default_factory=dict)
    """What metrics need, if not the default: emotions=hf:NAME, sentences=hf:NAME, word_vectors=FILE."""
    training: str | None = None
    """The training data of the bot (a file or folder of dialogues): which conversations recite it?"""
    by: By | None = None
    """What a row of the results is. By default a bot where conversations name one, else a file."""
    speaker: str | None = None
    """Judge the turns of this speaker only."""
    limit: int | None = Field(default=None, ge=1)
    """Judge at most this many conversations of each file, the first ones."""


def run_conversations(
    config: ConversationsConfig, progress: Progress | None = None, problems: Problems | None = None
) -> JudgedRun:
    """Read conversations, decide who is judged, and measure."""
    progress = progress or Silent()
    metrics = conversation_metrics(config)
    progress.step("Reading conversations")
    dialogues = _read(config, problems)
    conversations = judged_conversations(dialogues, by=config.by, speaker=config.speaker)
    if not conversations:
        raise DataError(f"There are no conversations in {', '.join(config.files)}.", hint="Give other FILES.")
    progress.step("Loading what the metrics need")
    specs = config.resource | ({"training_turns": config.training} if config.training else {})
    resources = load_resources(metrics, specs)
    prepare_resources(resources, conversations, progress)
    progress.step("Measuring", total=len(metrics))
    scores: list[Score] = []
    for metric in metrics:
        progress.note(metric.name)
        scores += score_conversations(conversations, [metric], resources)
        progress.advance()
    subjects = dict.fromkeys(one.subject for one in conversations)
    order = {subject: i for i, subject in enumerate(subjects)}
    return JudgedRun(
        verb="conversations",
        config=describe_config(config),
        subjects=tuple(_describe(subject, conversations) for subject in subjects),
        settings=("",),
        scores=tuple(sorted(scores, key=lambda score: order[score.subject])),
        metrics={metric.name: metric.info for metric in metrics},
        items=tuple(conversation_items(conversations)),
        notes=(_note(conversations),),
        details={"conversations": {s: sum(one.subject == s for one in conversations) for s in subjects}},
    )


def conversation_metrics(config: ConversationsConfig) -> list[Metric]:
    """The metrics that the config asks for, checked before the work."""
    default = (*CONVERSATION_METRICS, *MORE_METRICS, *(COPIED if config.training else ()))
    return metrics_named(config.metrics or default, unit="conversation", verb="judge conversations")


def score_conversations(
    conversations: Sequence[JudgedConversation],
    metrics: Sequence[Metric],
    resources: Mapping[str, Any],
    *,
    setting: str = "",
) -> list[Score]:
    """One score per subject and metric; units are the conversations.

    With many subjects, call `prepare_resources` first, so that a file of word vectors is read once.
    """
    subjects: dict[str, list[JudgedConversation]] = {}
    for one in conversations:
        subjects.setdefault(one.subject, []).append(one)
    return [
        metric.score(
            [one.example for one in own],
            subject=subject,
            setting=setting,
            units=[one.unit for one in own],
            clusters=[one.cluster for one in own],
            resources=resources,
        )
        for subject, own in subjects.items()
        for metric in metrics
    ]


def judged_conversations(
    dialogues: Iterable[tuple[str, Dialogue]], *, by: By | None = None, speaker: str | None = None
) -> list[JudgedConversation]:
    """Dialogues, each with the name of its source, as their subjects are judged in them."""
    listed = [(source, _current(dialogue)) for source, dialogue in dialogues]
    if speaker is not None and not any(speaker in dialogue.speakers for _, dialogue in listed):
        speakers = sorted({name for _, dialogue in listed for name in dialogue.speakers})
        shown = ", ".join(map(repr, speakers[:10])) + (", ..." if len(speakers) > 10 else "")
        raise UsageError(f"No turn is by the speaker {speaker!r}.", hint=f"Speakers: {shown or 'none'}.")
    by = by or ("bot" if any(bots_of(dialogue) for _, dialogue in listed) else "file")
    judged: list[JudgedConversation] = []
    for source, dialogue in listed:
        for subject, speakers_judged in _subjects(source, dialogue, by, speaker).items():
            example = conversation_example(dialogue, speakers_judged)
            judged.append(JudgedConversation(dialogue.id, subject, dialogue.id, example, dialogue))
    return _with_unique_units(judged)


def bots_of(dialogue: Dialogue) -> dict[str, str]:
    """The bots behind the speakers of a dialogue: by the provenance of turns, by `meta`, or by the speaker's name.

    >>> turns = (Turn("A", "Hi!"), Turn("B", "hello"))
    >>> bots_of(Dialogue("d", turns, meta={"bots": ["tfidf", "generic"]}))
    {'A': 'tfidf', 'B': 'generic'}
    """
    bots = {turn.speaker: bot for turn in dialogue.turns if (bot := _bot_of_turn(turn))}
    listed = dialogue.meta.get("bots")
    if isinstance(listed, Mapping):
        bots = {str(name): str(bot) for name, bot in listed.items() if bot} | bots
    elif isinstance(listed, list | tuple):
        bots = _seats(dialogue, [str(bot) for bot in listed]) | bots
    if bots:
        return bots
    if isinstance(named := dialogue.meta.get("bot"), str) and "bot" in dialogue.speakers:
        return {"bot": named}
    return {name: name for name in dialogue.speakers if name.lower() in BOT_SPEAKERS}


def names_of(dialogue: Dialogue) -> dict[str, str]:
    """What the bots behind the speakers are called: the names that self-play gave them, else their specifications.

    >>> turns = (Turn("ann", "Hi!"), Turn("ann (2)", "hello"))
    >>> names_of(Dialogue("d", turns, meta={"bots": ["hf:a", "hf:a"], "names": ["ann", "ann"]}))
    {'ann': 'ann', 'ann (2)': 'ann'}
    """
    bots, listed = bots_of(dialogue), dialogue.meta.get("names")
    names = _seats(dialogue, [str(name) for name in listed]) if isinstance(listed, list | tuple) else {}
    return {speaker: names.get(speaker) or bot for speaker, bot in bots.items()}


def conversation_example(dialogue: Dialogue, speakers: Iterable[str]) -> ConversationExample:
    """The turns of a dialogue, those of one speaker in a row joined, with who is judged.

    Where the turns of a speaker have a provenance, only they are the bot's: the opening turn of self-play may be given.
    """
    wanted = set(speakers)
    own = _judged_turns(dialogue.turns, wanted)
    texts, judged, names = [], [], []
    for name, run in groupby(zip(dialogue.turns, own, strict=True), key=lambda pair: pair[0].speaker):
        turns = list(run)
        names.append(name)
        texts.append("\n".join(turn.text for turn, _ in turns))
        judged.append(any(is_judged for _, is_judged in turns))
    personas = (dialogue.persona_of(name) for name in dialogue.speakers if name in wanted)
    persona = next((persona.sentences for persona in personas if persona), ())
    known = tuple((name, persona.sentences) for name, persona in dialogue.personas.items())
    return ConversationExample(tuple(texts), tuple(judged), persona, tuple(names), known)


def conversation_items(conversations: Iterable[JudgedConversation]) -> Iterator[JudgedItem]:
    """The turns behind each unit."""
    for one in conversations:
        turns = [_turn_content(turn) for turn in one.dialogue.turns]
        personas = {name: list(persona.sentences) for name, persona in one.dialogue.personas.items()}
        own = {speaker for speaker, name in names_of(one.dialogue).items() if name == one.subject}
        judged = _judged_turns(one.dialogue.turns, own) if own else []
        more: dict[str, Json] = {"personas": dict(personas)} if personas else {}
        more |= {"judged": list(judged)} if judged else {}
        yield JudgedItem(one.unit, {"turns": turns, "dialogue": one.dialogue.id, **more}, one.subject)


def _judged_turns(turns: Sequence[Turn], speakers: Collection[str]) -> list[bool]:
    """Which turns are judged: where a speaker's turns have a provenance, one without it was given to the bot."""
    with_provenance = {turn.speaker for turn in turns if _bot_of_turn(turn)}
    return [
        turn.speaker in speakers and (turn.speaker not in with_provenance or bool(_bot_of_turn(turn))) for turn in turns
    ]


def _turn_content(turn: Turn) -> dict[str, Json]:
    """Speaker and text, and where a bot's turn is from."""
    source = turn.meta.get("provenance")
    return {"speaker": turn.speaker, "text": turn.text} | ({"provenance": source} if source else {})


def prepare_resources(
    resources: Mapping[str, Any], conversations: Sequence[JudgedConversation], progress: Progress
) -> None:
    """Encode every text once, with progress: encoding sentences is nearly all of the work."""
    texts = list(dict.fromkeys(text for one in conversations for text in one.example.turns))
    if "word_vectors" in resources:
        resources["word_vectors"].prepare(texts)
    if "sentences" in resources:
        progress.step("Encoding turns", total=len(texts))
        for start in range(0, len(texts), CHUNK):
            part = texts[start : start + CHUNK]
            resources["sentences"](part)
            progress.advance(len(part))


def describe_files(config: ConversationsConfig) -> dict[str, Json]:
    """Path and digest of the data, of several files together."""
    return describe_paths(config.files, config.split or None)


def _read(config: ConversationsConfig, problems: Problems | None) -> Iterator[tuple[str, Dialogue]]:
    names = file_names(config.files)
    for name, file in zip(names, config.files, strict=True):
        for i, dialogue in enumerate(load_dialogues(file, split=config.split or None, problems=problems)):
            if config.limit is not None and i >= config.limit:
                break
            yield name, dialogue


def file_names(files: Sequence[str]) -> list[str]:
    """Names of files without their endings, if these differ.

    >>> file_names(["a/meena.jsonl", "human.txt.gz"]), file_names(["a/x.jsonl", "b/x.jsonl"])
    (['meena', 'human'], ['a/x.jsonl', 'b/x.jsonl'])
    """
    names = [Path(file).name.split(".")[0] or file for file in files]
    return names if len(set(names)) == len(names) else list(files)


def _current(dialogue: Dialogue) -> Dialogue:
    """A dialogue without turns that were replaced or undone, as exports of a server have them."""
    turns = tuple(turn for turn in dialogue.turns if turn.meta.get("current") is not False)
    return dialogue if len(turns) == len(dialogue.turns) else replace(dialogue, turns=turns)


def _subjects(source: str, dialogue: Dialogue, by: By, speaker: str | None) -> dict[str, list[str]]:
    """The speakers that are judged, by subject."""
    bots = names_of(dialogue)
    judged = [speaker] if speaker is not None else list(bots) or list(dialogue.speakers)
    judged = [name for name in judged if name in dialogue.speakers]
    subjects: dict[str, list[str]] = {}
    for name in judged:
        subject = {"file": source, "speaker": name, "bot": bots.get(name, name)}[by]
        subjects.setdefault(subject, []).append(name)
    return subjects


def _bot_of_turn(turn: Turn) -> str:
    provenance = turn.meta.get("provenance")
    bot = provenance.get("bot") if isinstance(provenance, Mapping) else turn.meta.get("bot")
    return bot if isinstance(bot, str) else ""


def _seats(dialogue: Dialogue, bots: Sequence[str]) -> dict[str, str]:
    """The bots of self-play by speaker: the first bot has the first turn."""
    return dict(zip(dialogue.speakers, (list(bots) * 2)[:2] if len(bots) == 1 else bots, strict=False))


def _with_unique_units(judged: Sequence[JudgedConversation]) -> list[JudgedConversation]:
    """Files of self-play may use the same ids: within a subject, each conversation gets its own."""
    units: dict[str, Iterator[str]] = {}
    for subject in dict.fromkeys(one.subject for one in judged):
        units[subject] = iter(unique_ids(one.unit for one in judged if one.subject == subject))
    return [one._replace(unit=unit, cluster=unit) for one in judged for unit in (next(units[one.subject]),)]


def _describe(subject: str, conversations: Sequence[JudgedConversation]) -> Subject:
    """A subject with the specification of its bot and the fingerprint of its checkpoint, if the turns have them."""
    for one in conversations:
        if one.subject != subject:
            continue
        names = names_of(one.dialogue)
        for turn in one.dialogue.turns:
            provenance = turn.meta.get("provenance")
            if isinstance(provenance, Mapping) and names.get(turn.speaker) == subject:
                return Subject(subject, _bot_of_turn(turn), "bot", str(provenance.get("checkpoint") or ""))
    return Subject(subject)


def _note(conversations: Sequence[JudgedConversation]) -> str:
    everybody = sum(all(one.example.judged[1:]) for one in conversations)
    return (
        f"{plural(len(conversations), 'conversation')}; in {everybody} of them every speaker is judged (self-play, or"
        " no bot named), and each is the other's user; 95 % intervals by bootstrap over conversations."
    )
