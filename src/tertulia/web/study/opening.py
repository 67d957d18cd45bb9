"""Opening a study: its TOML and items become a stored study with its units.

In studies of fixed items, bots that have a specification answer the contexts now, once and for all; what made each
response is kept with the unit, where no participant can see it.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tertulia.core.dialogue import Dialogue, Evidence, Json, Persona
from tertulia.core.errors import BotError
from tertulia.core.reply import Ask, Reply
from tertulia.core.text import clean
from tertulia.store import StudyStore
from tertulia.store.study_records import StudyRecord
from tertulia.study.config import StudyConfig, with_codes
from tertulia.study.presets import study_from_toml
from tertulia.study.units import StudyItem, Unit, make_units, missing_responses, ratings_wanted
from tertulia.talk.bot import Bot
from tertulia.talk.spec import make_bot
from tertulia.web.asks import BOT, USER, reply_record

PROVENANCE = "provenance"
"""Key of a unit's payload: by side, the bot's record of its response, or null. `task_view` does not show it."""
BATCH = 16

OnProgress = Callable[[int, int], None]
"""Called with the number of responses that are generated, and of all."""
Responses = Mapping[str, Mapping[str, str]]


def open_study(
    store: StudyStore,
    config_text: str,
    file: str,
    items: Sequence[StudyItem],
    responses: Responses,
    rng: random.Random,
    *,
    name: str | None = None,
    by: str = "operator",
    load_bot: Callable[[str], Bot] = make_bot,
    on_progress: OnProgress = lambda done, total: None,
) -> StudyRecord:
    """Store a study with its units and open it; its name is the file's unless one is given.

    `responses` are texts by item and bot, used as they are; the bots generate those that are missing.
    """
    config = with_codes(study_from_toml(config_text, file))
    generated = generate_responses(config, items, responses, load_bot=load_bot, on_progress=on_progress)
    texts = {
        item.id: {
            **responses.get(item.id, {}),
            **{bot: reply.text for bot, reply in generated.get(item.id, {}).items()},
        }
        for item in items
    }
    units = [_with_provenance(unit, generated) for unit in make_units(config, items, texts, rng)]
    digest = hashlib.sha256(config_text.encode()).hexdigest()
    record = store.create(name or Path(file).stem, config.model_dump(mode="json"), digest, by=by)
    store.add_units(record.id, [(unit.id, unit.bots, unit.payload, ratings_wanted(config, unit)) for unit in units])
    return store.set_state(record.id, "open", by)


def generate_responses(
    config: StudyConfig,
    items: Sequence[StudyItem],
    responses: Responses,
    *,
    load_bot: Callable[[str], Bot] = make_bot,
    on_progress: OnProgress = lambda done, total: None,
) -> dict[str, dict[str, Reply]]:
    """By item and bot, the responses of those bots that have a specification, where none is given."""
    specs = {bot.name: bot.spec for bot in config.bots if bot.spec}
    missing = [(item, bot) for item, bot in missing_responses(config, items, responses) if bot in specs]
    by_id = {item.id: item for item in items}
    replies: dict[str, dict[str, Reply]] = {}
    done = 0
    for name, spec in specs.items():
        wanted = [by_id[item] for item, bot in missing if bot == name]
        bot = load_bot(spec) if wanted else None
        for start in range(0, len(wanted), BATCH):
            assert bot is not None
            batch = wanted[start : start + BATCH]
            answers = bot.reply([_ask(config, item, name) for item in batch])
            if len(answers) != len(batch):
                raise BotError(f"The bot {name!r} returned {len(answers)} replies to {len(batch)} asks.")
            for item, reply in zip(batch, answers, strict=True):
                replies.setdefault(item.id, {})[name] = replace(reply, text=clean(reply.text))
            done += len(batch)
            on_progress(done, len(missing))
    return replies


def _ask(config: StudyConfig, item: StudyItem, bot: str) -> Ask:
    """What a bot has to answer; the seed depends on the study, the item and the bot only."""
    last = item.turns[-1].speaker if item.turns else None
    turns = tuple(replace(turn, speaker=USER if turn.speaker == last else BOT) for turn in item.turns)
    persona = {BOT: Persona(item.persona)} if item.persona else {}
    seed = hashlib.sha256(f"{config.seed}:{len(bot)}:{bot}:{item.id}".encode()).digest()
    evidence = (Evidence(item.evidence),) if item.evidence else ()
    dialogue = Dialogue(item.id, turns, personas=persona, evidence=evidence)
    return Ask(dialogue, speaker=BOT, seed=int.from_bytes(seed[:4]))


def _with_provenance(unit: Unit, generated: Mapping[str, Mapping[str, Reply]]) -> Unit:
    source = unit.payload.get("source")
    made = generated.get(source, {}) if isinstance(source, str) else {}
    if not any(bot in made for bot in unit.bots):
        return unit
    records: list[Json] = [reply_record(made[bot]) if bot in made else None for bot in unit.bots]
    return replace(unit, payload={**unit.payload, PROVENANCE: records})
