"""What a language model judges: replies in their contexts, complete conversations, and pairs of either.

Units come from dialogues (self-play, chats), from the item files of studies, and from judged runs whose items hold
replies, such as those of `judge perplexity --replies` and of studies. A unit knows two keys by which people's labels
find it: the id it has in a study, and a digest of its texts, which is the same wherever the same texts come from.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

from tertulia.artefacts.files import fingerprint, open_text
from tertulia.artefacts.manifest import MANIFEST, read_about
from tertulia.core.codec import Problems, read_lines
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError
from tertulia.core.text import squash
from tertulia.corpus.load import load_dialogues
from tertulia.judge.runs import JudgedItem, JudgedRun, load_run
from tertulia.talk.selfplay.run import KIND as SELFPLAY

UnitKind = Literal["reply", "conversation"]


class JudgedLine(NamedTuple):
    """A turn as the judge reads it."""

    speaker: str
    text: str


class Shown(NamedTuple):
    """What is judged of one bot: a reply, or a conversation."""

    subject: str
    reply: str | None = None
    turns: tuple[JudgedLine, ...] = ()
    """The conversation, if there is no reply."""
    speaker: str = ""
    """Who the bot is."""
    checkpoint: str = ""
    """The digest of what the bot computed with, if the data has it."""

    @property
    def words(self) -> float:
        """Length of the reply, or mean length of the bot's turns."""
        texts = [self.reply] if self.reply is not None else [t.text for t in self.turns if t.speaker == self.speaker]
        return sum(len(text.split()) for text in texts) / max(len(texts), 1)


@dataclass(frozen=True)
class JudgeUnit:
    """What one question is about."""

    id: str
    cluster: str
    """The conversation it belongs to: units of one are not independent."""
    shown: tuple[Shown, ...]
    """One, or two to choose from."""
    context: tuple[JudgedLine, ...] = ()
    """The turns before the reply."""
    study_item: str = ""
    """Id of what people judged, if the unit comes from a study."""

    @property
    def subject(self) -> str:
        """The bot that is judged, or the first of two."""
        return self.shown[0].subject

    @cached_property
    def text_key(self) -> str:
        """A digest of the bots and all texts; the order of a pair does not matter."""
        context = fingerprint(squash(turn.text) for turn in self.context)
        parts = [
            fingerprint([one.subject, *([squash(one.reply)] if one.reply is not None else _texts(one.turns))])
            for one in self.shown
        ]
        return fingerprint([context, *sorted(parts)])


def _texts(turns: Iterable[JudgedLine]) -> list[str]:
    return [squash(turn.text) for turn in turns]


def read_units(
    data: Sequence[str], kind: UnitKind, *, speaker: str | None = None, problems: Problems | None = None
) -> list[JudgeUnit]:
    """All units of files and folders. A study of pairs has pairs; everything else has single replies or conversations.

    Of dialogues, the turns of bots are judged: those with a bot's provenance if there are any, or else those of
    `speaker`, or of everybody.
    """
    units: list[JudgeUnit] = []
    for source in data:
        path = Path(source)
        if (path / MANIFEST).is_file() and read_about(path).get("kind") != SELFPLAY:
            own = units_of_run(load_run(path), kind)
        elif path.is_file() and _has_items(path):
            with open_text(path) as lines:
                items = list(read_lines(lines, _of_item, source=source, problems=problems))
            own = [unit for item in items for unit in item if _kind(unit) == kind]
        else:
            dialogues = load_dialogues(source, problems=problems)
            own = [unit for dialogue in dialogues for unit in units_of_dialogue(dialogue, kind, speaker=speaker)]
        units += own
    if not units:
        plural = {"reply": "replies", "conversation": "conversations"}[kind]
        raise DataError(
            f"There are no {plural} of bots in {', '.join(data)}.",
            hint="Give dialogues (with --speaker), a study's items with responses, or a judged run that holds replies.",
        )
    return list({(unit.id, *(one.subject for one in unit.shown)): unit for unit in units}.values())


def _kind(unit: JudgeUnit) -> UnitKind:
    return "conversation" if unit.shown[0].reply is None else "reply"


def units_of_dialogue(dialogue: Dialogue, kind: UnitKind, *, speaker: str | None = None) -> Iterator[JudgeUnit]:
    """The turns of bots as units, or the conversation as seen of each bot."""
    lines = tuple(JudgedLine(turn.speaker, turn.text) for turn in dialogue.turns)
    bots = [_bot_of(turn.meta) for turn in dialogue.turns]
    if not any(bots):
        bots = [line.speaker for line in lines]
    judged = [bot if speaker is None or line.speaker == speaker else "" for bot, line in zip(bots, lines, strict=True)]
    if kind == "reply":
        for i, (bot, line) in enumerate(zip(judged, lines, strict=True)):
            if bot and line.text.strip() and (i or speaker):
                shown = (Shown(bot, line.text, (), line.speaker, _checkpoint_of(dialogue.turns[i].meta)),)
                yield JudgeUnit(f"{dialogue.id}#{i}", dialogue.id, shown, lines[:i])
        return
    for bot, name in dict.fromkeys((bot, line.speaker) for bot, line in zip(judged, lines, strict=True) if bot):
        own = next((_checkpoint_of(turn.meta) for turn in dialogue.turns if _bot_of(turn.meta) == bot), "")
        yield JudgeUnit(f"{dialogue.id}/{name}", dialogue.id, (Shown(bot, None, lines, name, own),))


def _bot_of(meta: Mapping[str, Json]) -> str:
    provenance = meta.get("provenance")
    return str(provenance.get("bot", "")) if isinstance(provenance, Mapping) else ""


def _checkpoint_of(meta: Mapping[str, Json]) -> str:
    provenance = meta.get("provenance")
    return str(provenance.get("checkpoint") or "") if isinstance(provenance, Mapping) else ""


def _has_items(path: Path) -> bool:
    """Whether a file has items of a study: JSON lines with responses, or with a bot."""
    if not path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        return False
    with open_text(path) as lines:
        first = next((line for line in lines if line.strip()), "")
    try:
        value = orjson.loads(first.encode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and bool(value.get("responses") or value.get("bot"))


def _of_item(item: Json) -> list[JudgeUnit]:
    """The units of an item of a study: its responses, or the conversation of its bot."""
    name, lines = str(item["id"]), tuple(JudgedLine(str(t["speaker"]), str(t["text"])) for t in item.get("turns", ()))
    responses = {str(bot): str(text) for bot, text in dict(item.get("responses") or {}).items()}
    units = [JudgeUnit(name, name, (Shown(bot, text),), lines) for bot, text in responses.items() if text.strip()]
    if item.get("bot"):
        speaker = str(item.get("speaker") or item["bot"])
        units.append(JudgeUnit(name, name, (Shown(str(item["bot"]), None, lines, speaker),)))
    return units


def units_of_run(run: JudgedRun, kind: UnitKind) -> list[JudgeUnit]:
    """The replies or conversations that a judged run holds, each once, however many people rated it."""
    where = {
        (unit, score.subject): (cluster, score.subject)
        for score in run.scores
        for unit, cluster in zip(score.units, score.clusters, strict=True)
    }
    by_unit: dict[str, tuple[str, str]] = {unit: value for (unit, _), value in where.items()}
    digests = {subject.name: subject.fingerprint for subject in run.subjects}
    units: dict[tuple[str, str], JudgeUnit] = {}
    for item in run.items:
        cluster, subject = where.get((item.unit, item.subject)) or by_unit.get(item.unit) or (item.unit, item.subject)
        unit = unit_of_item(item, cluster, item.subject or subject)
        if unit is not None and _kind(unit) == kind:
            shown = tuple(one._replace(checkpoint=digests.get(one.subject, "")) for one in unit.shown)
            units.setdefault((unit.id, unit.subject), replace(unit, shown=shown))
    return list(units.values())


def _judged_speaker(conversation: Mapping[str, Json]) -> str:
    """Who is judged: studies name the speaker, judged runs flag the turns; "" if it is not one speaker."""
    judged = conversation.get("judged", "")
    if isinstance(judged, str):
        return judged
    flagged = {str(turn["speaker"]) for turn, own in zip(conversation["turns"], judged, strict=True) if own}
    return flagged.pop() if len(flagged) == 1 else ""


def unit_of_item(item: JudgedItem, cluster: str, subject: str) -> JudgeUnit | None:
    """The unit that an item of a judged run describes; None if it has no texts to judge."""
    content = item.content
    rated = f"{content['unit']}/{content['target']}" if "target" in content else ""
    speakers = content.get("speakers") or ()
    texts = content.get("context") or ()
    names = [speakers[i] if i < len(speakers) else f"{(len(texts) - i) % 2}" for i in range(len(texts))]
    context = tuple(JudgedLine(str(name), str(text)) for name, text in zip(names, texts, strict=True))
    bots = [str(bot) for bot in content.get("bots", ())] or [subject]
    shown: tuple[Shown, ...] = ()
    conversations = content.get("conversations") or ([content] if content.get("turns") else [])
    if conversations:
        turns = [tuple(JudgedLine(str(t["speaker"]), str(t["text"])) for t in c["turns"]) for c in conversations]
        shown = tuple(
            Shown(bot, None, lines, _judged_speaker(c))
            for bot, lines, c in zip(bots, turns, conversations, strict=True)
        )
        context = ()
    elif responses := content.get("responses"):
        shown = tuple(Shown(bot, str(text)) for bot, text in zip(bots, responses, strict=True))
    elif content.get("reply") and ("context" in content or not str(content.get("target", "")).startswith("turn")):
        # A turn of a chat without what was said before it: nothing to judge it by.
        shown = (Shown(subject, str(content["reply"])),)
    return JudgeUnit(rated or item.unit, cluster, shown, context, rated) if shown else None


def make_pairs(units: Sequence[JudgeUnit], *, seed: int = 0) -> list[JudgeUnit]:
    """Pairs to choose from: replies of two bots to the same context, or random pairs of conversations of two bots."""
    if any(len(unit.shown) == 2 for unit in units):
        return [unit for unit in units if len(unit.shown) == 2]
    if _kind(units[0]) == "conversation":
        return _conversation_pairs(units, seed)
    by_context: dict[tuple[str, ...], dict[str, JudgeUnit]] = {}
    for unit in units:
        by_context.setdefault(tuple(_texts(unit.context)), {}).setdefault(unit.subject, unit)
    pairs = []
    for same in by_context.values():
        for one, other in combinations(same.values(), 2):
            name = f"{one.id}|{one.subject}|{other.subject}"
            pairs.append(JudgeUnit(name, one.cluster, (one.shown[0], other.shown[0]), one.context))
    if not pairs:
        raise DataError(
            "No two bots reply to the same context, so there are no pairs to choose from.",
            hint="Give runs of several bots on the same contexts, or compare conversations with --about conversation.",
        )
    return pairs


def _conversation_pairs(units: Sequence[JudgeUnit], seed: int) -> list[JudgeUnit]:
    by_bot: dict[str, list[JudgeUnit]] = {}
    for unit in units:
        by_bot.setdefault(unit.subject, []).append(unit)
    if len(by_bot) < 2:
        raise DataError("All conversations are of one bot.", hint="Give conversations of at least two bots.")
    rng, pairs = random.Random(seed), []
    for one, other in combinations(by_bot, 2):
        for a, b in zip(*(rng.sample(by_bot[bot], len(by_bot[bot])) for bot in (one, other)), strict=False):
            pairs.append(JudgeUnit(f"{a.id}|{b.id}", a.cluster, (a.shown[0], b.shown[0])))
    return pairs
