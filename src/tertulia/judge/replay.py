"""Counterfactual replay: what would another bot have said here? Stored conversations, replayed with a bot swapped in.

The history up to a turn stays as it was; from that turn on another bot speaks. It gets the same history, the same
persona and the seed of the original turn, where its provenance is known, so nothing differs but the bot. People cannot
be asked again what they would have answered. So either only the next reply is compared (`each`: at every turn of the
bot), or the conversation goes on with a simulated partner, another bot.

Both continuations become a judged run of two subjects with the same units, `original` and `replay`, so that reply
metrics are compared paired; `replay_study` gives them to people, blinded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from tertulia.artefacts.outputs import Force, Output
from tertulia.core.codec import Problems
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.reply import Ask, Reply
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import RUN_FOLDER, Strings
from tertulia.judge.conversations import bots_of
from tertulia.judge.resources import load_resources
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, describe_config, describe_subject
from tertulia.metrics.metric import ConversationExample, Metric, ReplyExample
from tertulia.metrics.registry import metric_named
from tertulia.talk.bot import Bot
from tertulia.talk.spec import make_bot

ORIGINAL, REPLAY = "original", "replay"
"""The two subjects."""
BATCH = 32
"""Replies that a bot is asked for at once."""
CANDIDATES = 5
"""Of the candidates that a bot considered, so many are recorded."""
SEEDS_PER_DIALOGUE = 1000
REPLY_METRICS = ("words per reply", "distinct-2", "distinct replies", "seq-rep-3", "context-rep-3")
CONVERSATION_METRICS = ("loop", "self-repetition", "parroting", "question score")
"""Computed by default, the latter where conversations go on; none of them needs a model."""


class ReplayConfig(Config):
    """Which conversations, from which turn on, with which bot."""

    conversations: Annotated[Strings, Cli(argument=True)] = Field(min_length=1)
    """Files or folders of conversations: self-play, exported chats, or any corpus."""
    bot: str
    """The bot to swap in: name[:path or model][?option=value&...]."""
    each: bool = False
    """Ask it for the next reply at every turn of the original bot."""
    from_turn: int | None = Field(default=None, ge=2)
    """Swap it in from this turn on (the first turn of a conversation is 1): its reply takes the place of the first turn
    of the original bot from there on."""
    turns: int | None = Field(default=None, ge=1)
    """With --from-turn and --partner: how many turns to go on; by default as many as the original has."""
    partner: str | None = None
    """With --from-turn: the bot that speaks for the other side from then on. Without it, one reply is compared."""
    speaker: str | None = None
    """Who is replaced. By default the bot that the conversation names (the second one, if both are), else the second
    speaker."""
    split: str = ""
    """The split of a folder to use; empty for all."""
    limit: int | None = Field(default=None, ge=1)
    """Replay at most this many conversations, the first ones."""
    metrics: Annotated[Strings, Cli("--metric")] = ()
    """Metrics of replies or of conversations, one per option. By default lengths, diversity and repetition."""
    resource: dict[str, str] = Field(default_factory=dict)
    """What metrics need, if not the default: word_vectors=FILE, sentences=hf:NAME."""
    seed: int = 0
    """Random seed, for turns whose own seed is not recorded."""
    out: Annotated[Path, RUN_FOLDER]
    """Folder for the judged run, its report, and both continuations of every conversation (dialogues.jsonl)."""
    study: Annotated[Path | None, Output("file", endings=(".toml",), companion="{stem}-items.jsonl")] = None
    """Also write a study in which people compare both continuations blind: this TOML file, and its items beside it."""
    force: Force = False


class ReplayPoint(NamedTuple):
    """A turn at which another bot takes over."""

    dialogue: Dialogue
    position: int
    """Of the turn that is replaced, from 0."""
    number: int
    """Of the dialogue, for seeds."""

    @property
    def unit(self) -> str:
        """Id of the exchange, as in rankings."""
        return f"{self.dialogue.id}#{self.position}"

    @property
    def speaker(self) -> str:
        """Who is replaced."""
        return self.dialogue.turns[self.position].speaker

    @property
    def history(self) -> tuple[Turn, ...]:
        """What both continuations share."""
        return self.dialogue.turns[: self.position]

    def seed(self, position: int, default: int) -> int:
        """The seed of the original turn at a position, or one that no other turn has."""
        if position < len(self.dialogue.turns):
            source = self.dialogue.turns[position].meta.get("provenance") or {}
            if isinstance(source, Mapping) and isinstance(source.get("seed"), int):
                return int(source["seed"])
        return default + self.number * SEEDS_PER_DIALOGUE + position


class ReplayPair(NamedTuple):
    """Both continuations of one history."""

    point: ReplayPoint
    original: tuple[Turn, ...]
    replay: tuple[Turn, ...]

    def sides(self) -> tuple[tuple[str, tuple[Turn, ...]], tuple[str, tuple[Turn, ...]]]:
        """By subject."""
        return ((ORIGINAL, self.original), (REPLAY, self.replay))


class Replayed(NamedTuple):
    """The outcome: a judged run, and the pairs behind it."""

    run: JudgedRun
    pairs: list[ReplayPair]


def run_replay(config: ReplayConfig, progress: Progress | None = None, problems: Problems | None = None) -> Replayed:
    """Replay stored conversations with another bot, and measure both continuations."""
    progress = progress or Silent()
    _check(config)
    metrics = [metric_named(name) for name in dict.fromkeys(config.metrics or _default_metrics(config))]
    if odd := next((m for m in metrics if m.unit not in ("reply", "conversation")), None):
        raise UsageError(f"{odd.name!r} is a metric of {odd.unit}.", hint="Give metrics of replies or conversations.")
    progress.step("Reading conversations")
    dialogues = list(_read(config, problems))
    points = [point for i, dialogue in enumerate(dialogues) for point in replay_points(dialogue, config, i)]
    if not points:
        raise DataError(
            f"No turn of {', '.join(config.conversations)} can be replayed.",
            hint="Choose an earlier --from-turn, or name the --speaker who is replaced.",
        )
    progress.step(f"Loading {config.bot}")
    bot = make_bot(config.bot, reference=True)
    partner = make_bot(config.partner, reference=True) if config.partner else None
    pairs = replay(points, bot, partner, config, progress)
    progress.step("Measuring")
    resources = load_resources(metrics, config.resource)
    scores = [score for metric in metrics for score in _scores(metric, pairs, resources)]
    run = JudgedRun(
        verb="replay",
        config=describe_config(config),
        subjects=(_original(dialogues), replace(describe_subject(REPLAY, config.bot, bot), name=REPLAY)),
        settings=("",),
        scores=tuple(sorted(scores, key=lambda score: score.subject != ORIGINAL)),
        metrics={metric.name: metric.info for metric in metrics},
        items=tuple(_items(pairs)),
        notes=tuple(_notes(config, dialogues, points, pairs)),
        details={"bot": bot.spec, "partner": partner.spec if partner else None, "points": len(points)},
    )
    return Replayed(run, pairs)


def _check(config: ReplayConfig) -> None:
    if config.each == (config.from_turn is not None):
        raise UsageError(
            "Say where the other bot takes over.", hint="Give either --each (every turn) or --from-turn N."
        )
    if config.each and (config.partner or config.turns):
        raise UsageError("--each compares single replies.", hint="Use --from-turn N with --partner and --turns.")
    if (config.turns or 1) > 1 and not config.partner:
        raise UsageError(
            "Nobody can say what the other side would have answered.", hint="Simulate it with --partner BOT."
        )


def _default_metrics(config: ReplayConfig) -> tuple[str, ...]:
    return (*REPLY_METRICS, *(CONVERSATION_METRICS if config.partner else ()))


def _read(config: ReplayConfig, problems: Problems | None) -> Iterator[Dialogue]:
    """The dialogues of all files; ids that occur twice are made different."""
    seen: dict[str, int] = {}
    for file in config.conversations:
        for dialogue in load_dialogues(file, split=config.split or None, problems=problems):
            if config.limit is not None and sum(seen.values()) >= config.limit:
                return
            seen[dialogue.id] = seen.get(dialogue.id, 0) + 1
            times = seen[dialogue.id]
            yield dialogue if times == 1 else replace(dialogue, id=f"{dialogue.id} ({times})")


def replay_points(dialogue: Dialogue, config: ReplayConfig, number: int = 0) -> list[ReplayPoint]:
    """The turns of a dialogue at which another bot may take over; a turn without history is none.

    >>> chat = Dialogue("d", tuple(Turn("user" if i % 2 == 0 else "bot", str(i)) for i in range(6)))
    >>> config = ReplayConfig(conversations=("x",), bot="generic", each=True, out="y")
    >>> [point.unit for point in replay_points(chat, config)]
    ['d#1', 'd#3', 'd#5']
    >>> [p.unit for p in replay_points(chat, config.model_copy(update={"each": False, "from_turn": 3}))]
    ['d#3']
    """
    speaker = config.speaker or replaced_speaker(dialogue)
    indices = [i for i, turn in enumerate(dialogue.turns) if i > 0 and turn.speaker == speaker]
    if config.from_turn is not None:
        indices = [i for i in indices if i >= config.from_turn - 1][:1]
    return [ReplayPoint(dialogue, i, number) for i in indices]


def replaced_speaker(dialogue: Dialogue) -> str:
    """The bot of a conversation: the last one that it names, else the second speaker."""
    bots = bots_of(dialogue)
    named = [speaker for speaker in dialogue.speakers if speaker in bots]
    return (named or list(dialogue.speakers[:2]) or [""])[-1]


def replay(
    points: Sequence[ReplayPoint],
    bot: Bot,
    partner: Bot | None,
    config: ReplayConfig,
    progress: Progress | None = None,
) -> list[ReplayPair]:
    """Continue every history with the bot, and with the partner in turn if there is one."""
    progress = progress or Silent()
    lengths = [_length(point, config) for point in points]
    added: list[tuple[Turn, ...]] = [() for _ in points]
    progress.step("Replaying", total=sum(lengths))
    for step in range(max(lengths)):
        speaking = bot if step % 2 == 0 or partner is None else partner
        active = [i for i, length in enumerate(lengths) if step < length]
        for start in range(0, len(active), BATCH):
            part = active[start : start + BATCH]
            asks = [_ask(points[i], added[i], config.seed, ours=step % 2 == 0) for i in part]
            for i, ask, reply in zip(part, asks, speaking.reply(asks), strict=True):
                added[i] = (*added[i], _turn(ask.speaker, reply))
            progress.advance(len(part))
    return [
        ReplayPair(point, point.dialogue.turns[point.position : point.position + length], turns)
        for point, length, turns in zip(points, lengths, added, strict=True)
    ]


def _length(point: ReplayPoint, config: ReplayConfig) -> int:
    """How many turns the continuation has."""
    if config.partner is None:
        return 1
    return config.turns or len(point.dialogue.turns) - point.position


def _ask(point: ReplayPoint, added: tuple[Turn, ...], seed: int, *, ours: bool) -> Ask:
    """What the bot, or its partner, is asked: the history, and its own persona only."""
    others = [turn.speaker for turn in point.history if turn.speaker != point.speaker]
    speaker = point.speaker if ours or not others else others[-1]
    own = {name: persona for name, persona in point.dialogue.personas.items() if name == speaker}
    dialogue = replace(point.dialogue, turns=point.history + added, personas=own)
    return Ask(dialogue, speaker, seed=point.seed(point.position + len(added), seed))


def _turn(speaker: str, reply: Reply) -> Turn:
    candidates = [asdict(candidate) for candidate in reply.candidates[:CANDIDATES]]
    meta: dict[str, Json] = {"provenance": asdict(reply.provenance), "score": reply.score, "candidates": candidates}
    meta |= {"note": reply.note} if reply.note else {}
    meta |= {"redraws": reply.redraws} if reply.redraws else {}
    return Turn(speaker, reply.text, meta=meta)


def replayed_dialogues(pairs: Iterable[ReplayPair]) -> Iterator[Dialogue]:
    """Both continuations as complete dialogues, one after the other, with what they are in `meta`."""
    for pair in pairs:
        point = pair.point
        for side, turns in pair.sides():
            about = {"dialogue": point.dialogue.id, "from_turn": point.position + 1, "speaker": point.speaker}
            meta = {**point.dialogue.meta, "replay": about | {"side": side}}
            yield replace(point.dialogue, id=f"{point.unit}/{side}", turns=point.history + turns, meta=meta)


def _original(dialogues: Sequence[Dialogue]) -> Subject:
    specs = dict.fromkeys(bots_of(d).get(replaced_speaker(d), "") for d in dialogues)
    sources = (turn.meta.get("provenance") for d in dialogues for turn in d.turns)
    checkpoints = dict.fromkeys(str(s["checkpoint"]) for s in sources if isinstance(s, Mapping) and s.get("checkpoint"))
    spec = ", ".join(filter(None, specs))
    return Subject(ORIGINAL, spec, "conversation", ", ".join(checkpoints) if len(specs) == 1 else "")


def _scores(metric: Metric, pairs: Sequence[ReplayPair], resources: Mapping[str, object]) -> Iterator[Score]:
    """Of a metric, one score for either side, on the same units."""
    for k, subject in enumerate((ORIGINAL, REPLAY)):
        yield metric.score(
            [(_reply_example if metric.unit == "reply" else _conversation_example)(pair, k) for pair in pairs],
            subject=subject,
            setting="",
            units=[pair.point.unit for pair in pairs],
            clusters=[pair.point.dialogue.id for pair in pairs],
            resources=resources,
        )


def _reply_example(pair: ReplayPair, side: int) -> ReplyExample:
    """The first reply. The original is the reference of the replay, which makes overlap with it a metric."""
    persona = pair.point.dialogue.persona_of(pair.point.speaker)
    context = tuple(turn.text for turn in pair.point.history)
    reference = pair.original[0].text if side else ""
    return ReplyExample(pair.sides()[side][1][0].text, reference, context, persona.sentences if persona else ())


def _conversation_example(pair: ReplayPair, side: int) -> ConversationExample:
    """The continuation, with the turn that it answers."""
    turns = (pair.point.history[-1], *pair.sides()[side][1])
    persona = pair.point.dialogue.persona_of(pair.point.speaker)
    judged = tuple(i > 0 and turn.speaker == pair.point.speaker for i, turn in enumerate(turns))
    return ConversationExample(tuple(t.text for t in turns), judged, persona.sentences if persona else ())


def _items(pairs: Iterable[ReplayPair]) -> Iterator[JudgedItem]:
    for pair in pairs:
        history = [_spoken(turn) for turn in pair.point.history]
        for subject, turns in pair.sides():
            content: dict[str, Json] = {"dialogue": pair.point.dialogue.id, "from turn": pair.point.position + 1}
            if len(turns) == 1:
                content |= {"context": history, "reply": turns[0].text}
                content |= {
                    name: turns[0].meta[name] for name in ("provenance", "candidates") if turns[0].meta.get(name)
                }
            else:
                own = [turn.speaker == pair.point.speaker for turn in turns]
                content |= {"turns": history + [_spoken(t) for t in turns], "judged": [False] * len(history) + own}
            yield JudgedItem(pair.point.unit, content, subject)


def _spoken(turn: Turn) -> dict[str, Json]:
    source = turn.meta.get("provenance")
    return {"speaker": turn.speaker, "text": turn.text} | ({"provenance": source} if source else {})


def _notes(
    config: ReplayConfig, dialogues: Sequence[Dialogue], points: Sequence[ReplayPoint], pairs: Sequence[ReplayPair]
) -> Iterator[str]:
    same = sum(pair.original[0].text == pair.replay[0].text for pair in pairs)
    went_on = f", going on with {config.partner} for the other side" if config.partner else ", one reply each"
    yield (
        f"{plural(len(points), 'turn')} of {plural(len(dialogues), 'conversation')}, replayed with"
        f" {config.bot}{went_on}. In {same} of them it says what the original said."
    )
    known = sum(
        isinstance(p.dialogue.turns[p.position].meta.get("provenance"), Mapping)
        and p.dialogue.turns[p.position].meta["provenance"].get("seed") is not None
        for p in points
    )
    turns = plural(len(points), "turn")
    yield f"The seed of the original turn is known for {known} of {turns}; the others have new ones."
    if without := len(dialogues) - len({point.dialogue.id for point in points}):
        yield f"Without such a turn: {plural(without, 'conversation')}."
