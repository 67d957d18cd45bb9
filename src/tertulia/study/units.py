"""Units: what one assignment asks about. Made once, when a study opens, from its items and bots.

An item file has one JSON object per line: a dialogue as everywhere in Tertulia (`id`, `turns`, ...), plus

- `responses`: {bot: text}, replies to the dialogue;
- `bot` and `speaker`: the dialogue is a complete conversation of this bot, which speaks as `speaker` in it;
- `pair`: conversations of different bots with the same `pair` are compared with each other, not in random pairs;
- `evidence`: a text, or a list of passages as dialogues have them;
- `persona`: a list of sentences, or a persona with `sentences`.

An item that is only a persona needs no turns. Personas that a dialogue has by speaker are not shown to anybody.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tertulia.core.codec import dialogue_from_json, persona_from_json, read_lines
from tertulia.core.dialogue import Dialogue, Evidence, Json, Turn
from tertulia.core.errors import DataError
from tertulia.core.text import plural
from tertulia.study.config import HUMAN, StudyConfig


@dataclass(frozen=True, slots=True)
class StudyItem:
    """One line of an item file."""

    id: str
    turns: tuple[Turn, ...] = ()
    responses: Mapping[str, str] = field(default_factory=dict)
    bot: str = ""
    """The bot whose conversation this is."""
    speaker: str = ""
    """The speaker who is that bot."""
    pair: str = ""
    """What it has in common with the conversation that it is compared with."""
    evidence: str = ""
    persona: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """What one assignment asks about."""

    id: str
    """Says nothing about the bots."""
    bots: tuple[str, ...]
    """Names of the bots that are judged, in the order of the payload's lists."""
    payload: Mapping[str, Json]
    """`context`, `responses`, `conversations`, `evidence`, `persona`, `decoy_persona`, `personas`, `min_turns`,
    `source` (ids of the items): those that apply."""


def read_items(lines: Iterable[str | bytes], *, source: str = "<items>") -> list[StudyItem]:
    """The items of a file; a damaged line or an id that occurs twice is an error."""
    items = list(read_lines(lines, item_from_json, source=source))
    if not items:
        raise DataError(f"{source} has no items.", hint="Give a file of JSON lines, one item per line.")
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise DataError(f"{source}: two items have the id {item.id!r}.", hint="Give every item an id of its own.")
        seen.add(item.id)
    return items


def item_from_json(value: Json) -> StudyItem:
    """An item from JSON.

    >>> item_from_json({"id": "p1", "persona": ["I sail.", "I am 40."]}).persona
    ('I sail.', 'I am 40.')
    """
    if not isinstance(value, dict):
        raise TypeError(f"an item must be an object, not {type(value).__name__}")
    rest = dict(value)
    responses, bot, speaker = rest.pop("responses", {}), rest.pop("bot", ""), rest.pop("speaker", "")
    persona, evidence, pair = rest.pop("persona", None), rest.pop("evidence", []), rest.pop("pair", "")
    if not isinstance(responses, dict) or not all(isinstance(text, str) for text in responses.values()):
        raise TypeError("'responses' must be an object of texts by bot")
    if not all(isinstance(text, str) for text in (bot, speaker, pair)):
        raise TypeError("'bot', 'speaker' and 'pair' must be text")
    if isinstance(evidence, str):
        evidence = [{"text": evidence}]
    dialogue = dialogue_from_json({"turns": [], **rest, "evidence": evidence})
    persona = [] if persona is None else persona
    described = persona_from_json({"sentences": persona} if isinstance(persona, list) else persona)
    if not dialogue.turns and not described.sentences:
        raise ValueError("an item needs 'turns' or a 'persona'")
    return StudyItem(
        id=dialogue.id,
        turns=dialogue.turns,
        responses=responses,
        bot=bot,
        speaker=_judged_speaker(dialogue, bot, speaker) if bot else "",
        pair=pair,
        evidence=_evidence_text(dialogue.evidence),
        persona=described.sentences,
    )


def _judged_speaker(dialogue: Dialogue, bot: str, speaker: str) -> str:
    if speaker:
        if speaker not in dialogue.speakers:
            raise ValueError(f"nobody speaks as {speaker!r}")
        return speaker
    if bot in dialogue.speakers:
        return bot
    raise ValueError(f"say with 'speaker' who is the bot {bot!r} (speakers: {', '.join(dialogue.speakers)})")


def _evidence_text(evidence: Sequence[Evidence]) -> str:
    return "\n\n".join(passage.text for passage in evidence)


def make_units(
    config: StudyConfig,
    items: Sequence[StudyItem],
    responses: Mapping[str, Mapping[str, str]],
    rng: random.Random,
) -> list[Unit]:
    """The units of a study. `responses` are texts by item id and bot, in addition to those of the items."""
    if config.protocol == "chat":
        return list(_chat_units(config, items, rng))
    if not items:
        raise DataError("The study has no items.", hint="Name a file of JSON lines with 'items' in the study's TOML.")
    if config.protocol == "write":
        return list(_write_units(config, items))
    if any(item.bot for item in items):
        return list(_conversation_units(config, items, rng))
    return list(_response_units(config, items, responses))


def missing_responses(
    config: StudyConfig, items: Sequence[StudyItem], responses: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str]]:
    """Item and bot of every response that has to be generated before the units can be made."""
    if config.protocol != "judge" or any(item.bot for item in items):
        return []
    return [
        (item.id, bot)
        for item in items
        for bot in bot_names(config, items)
        if not {**item.responses, **responses.get(item.id, {})}.get(bot, "").strip()
    ]


def bot_names(config: StudyConfig, items: Sequence[StudyItem]) -> tuple[str, ...]:
    """The bots of a study: those of its config, or all that the items name."""
    if config.bots:
        return tuple(bot.name for bot in config.bots)
    return tuple(dict.fromkeys(name for item in items for name in (*item.responses, *([item.bot] if item.bot else []))))


def ratings_wanted(config: StudyConfig, unit: Unit) -> int:
    """How many participants a unit needs: two for each conversation between people."""
    bots = [config.bot(name) for name in unit.bots]
    paired = config.protocol == "chat" and any(bot is not None and bot.spec == HUMAN for bot in bots)
    return config.ratings_per_unit * (2 if paired else 1)


def _line_up(config: StudyConfig, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The bots of one unit each: one by one, or every pair."""
    if config.sides == 1:
        return [(name,) for name in names]
    if len(names) < 2:
        raise DataError("A comparison needs at least two bots.", hint="Add [[bots]] or responses of another bot.")
    return list(combinations(names, 2))


def _response_units(
    config: StudyConfig, items: Sequence[StudyItem], responses: Mapping[str, Mapping[str, str]]
) -> Iterator[Unit]:
    missing = missing_responses(config, items, responses)
    line_up = _line_up(config, bot_names(config, items))
    if missing or not line_up:
        where = "; ".join(f"item {item!r}, bot {bot!r}" for item, bot in missing[:3])
        raise DataError(
            f"Missing: {plural(len(missing), 'response')} ({where})." if missing else "The items have no responses.",
            hint="Add them to the items as \"responses\": {bot: text}, or give the bots a 'spec'.",
        )
    for item in items:
        texts = {**item.responses, **responses.get(item.id, {})}
        if config.questions_of("sentence") and not item.evidence:
            raise DataError(f"The item {item.id!r} has no evidence.", hint='Add "evidence": "the document\'s text".')
        for bots in line_up:
            payload = {
                "context": _turns_to_json(item.turns),
                "responses": [texts[bot] for bot in bots],
                **({"evidence": item.evidence} if item.evidence else {}),
                **({"persona": list(item.persona)} if item.persona else {}),
                "source": item.id,
            }
            yield _unit(config, bots, payload)


def _conversation_units(config: StudyConfig, items: Sequence[StudyItem], rng: random.Random) -> Iterator[Unit]:
    """Complete conversations, one by one or in random pairs of different bots; each is used once per opponent."""
    by_bot: dict[str, list[StudyItem]] = {name: [] for name in bot_names(config, items)}
    for item in items:
        if item.bot not in by_bot:
            raise DataError(
                f"The item {item.id!r} is a conversation of {item.bot!r}, which is not among the bots.",
                hint="Add the bot to [[bots]], or remove [[bots]] to use all bots of the items.",
            )
        by_bot[item.bot].append(item)
    if empty := [name for name, conversations in by_bot.items() if not conversations]:
        raise DataError(f"There are no conversations of {empty[0]!r}.", hint='Add items with "bot" and "speaker".')
    for bots in _line_up(config, list(by_bot)):
        for chosen in _matches([by_bot[bot] for bot in bots], rng):
            conversations = [{"turns": _turns_to_json(item.turns), "judged": item.speaker} for item in chosen]
            source = [item.id for item in chosen]
            yield _unit(config, bots, {"conversations": conversations, "source": source})


def _matches(sides: Sequence[Sequence[StudyItem]], rng: random.Random) -> list[tuple[StudyItem, ...]]:
    """Conversations to show together: those of the same `pair`, and the others at random."""
    if len(sides) == 1:
        return [(item,) for item in rng.sample(sides[0], len(sides[0]))]
    named = [{item.pair: item for item in side if item.pair} for side in sides]
    paired = [tuple(side[pair] for side in named) for pair in named[0] if all(pair in side for side in named)]
    others = [[item for item in side if not item.pair] for side in sides]
    shuffled = [rng.sample(side, len(side)) for side in others]
    return [*paired, *zip(*shuffled, strict=False)]


def _chat_units(config: StudyConfig, items: Sequence[StudyItem], rng: random.Random) -> Iterator[Unit]:
    if config.persona != "none":
        _require_personas(items)
        if len(items) < 2:
            raise DataError("Chats with personas need at least two items.", hint="Add items with a 'persona'.")
    for bots in _line_up(config, [bot.name for bot in config.bots]):
        for n in range(config.conversations_per_bot):
            for payload in _chat_payloads(config, items, rng):
                if config.min_turns_up_to is not None:  # even: as many turns for either side
                    payload["min_turns"] = rng.randrange(config.min_turns, config.min_turns_up_to + 1, 2)
                yield _unit(config, bots, payload, n)


def _chat_payloads(config: StudyConfig, items: Sequence[StudyItem], rng: random.Random) -> Iterator[dict[str, Json]]:
    if not items:
        yield {}
    elif config.persona == "participant":  # two personas per conversation, in random pairs
        shuffled = rng.sample(items, len(items))
        for first, second in zip(shuffled[::2], shuffled[1::2], strict=False):
            yield {"personas": [list(first.persona), list(second.persona)], "source": [first.id, second.id]}
    else:
        for item in items:
            payload: dict[str, Json] = {"source": item.id}
            if item.turns:
                payload["context"] = _turns_to_json(item.turns)
            if config.persona == "bot":
                payload["persona"] = list(item.persona)
            if config.asks_persona:
                payload["decoy_persona"] = list(_decoy(item, items, rng))
            yield payload


def _decoy(item: StudyItem, items: Sequence[StudyItem], rng: random.Random) -> tuple[str, ...]:
    others = [other.persona for other in items if other.persona != item.persona]
    if not others:
        raise DataError("All items have the same persona.", hint="Persona detection needs at least two personas.")
    return rng.choice(others)


def _write_units(config: StudyConfig, items: Sequence[StudyItem]) -> Iterator[Unit]:
    _require_personas(items)
    for item in items:
        yield _unit(config, (), {"persona": list(item.persona), "source": item.id})


def _require_personas(items: Sequence[StudyItem]) -> None:
    for item in items:
        if not item.persona:
            raise DataError(f"The item {item.id!r} has no persona.", hint='Add "persona": ["a sentence", ...].')


def _turns_to_json(turns: Sequence[Turn]) -> list[Json]:
    return [{"speaker": turn.speaker, "text": turn.text} for turn in turns]


def _unit(config: StudyConfig, bots: tuple[str, ...], payload: Mapping[str, Json], n: int = 0) -> Unit:
    key = json.dumps([config.seed, bots, payload.get("source"), n], ensure_ascii=False)
    return Unit(hashlib.sha256(key.encode()).hexdigest()[:20], bots, payload)
