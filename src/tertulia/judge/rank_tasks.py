"""The replies that bots are judged on: from dialogues, from single replies, or from a test set, candidates and all.

A test set is a file of `corpus testset` (.jsonl: context, candidates, truth) or a table of contexts with the true reply
and others (.csv, as the Ubuntu corpus has them). Its candidates stand as they are, so that all who read it judge the
very same; only the place of the truth is drawn anew where the file tells none. Dialogues may bring candidates along
too, as ParlAI's Persona-Chat does: they count where the config asks for what was published.
"""

import json
import random
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tertulia.core.codec import Problems, persona_from_json, turn_from_json
from tertulia.core.dialogue import Exchange, Json, Persona, Turn, exchanges
from tertulia.core.errors import DataError
from tertulia.corpus.candidates import RankTask, Reply, reply_tasks
from tertulia.corpus.load import holds, load_dialogues, load_exchanges, open_text, read_file
from tertulia.corpus.readers.base import JSON_LINES, text_of, texts_of
from tertulia.judge.rank import RankSettings, rank_tasks

FALSE = "0"
"""The label of a reply that was not the true one."""


class Loaded(NamedTuple):
    """Tasks, and what is to be said of them."""

    tasks: list[RankTask]
    brought: bool = False
    """Whether the data brought the candidates along; else they were drawn."""


def load_tasks(config: RankSettings, problems: Problems | None = None) -> Loaded:
    """What `config.data` holds, as tasks; of these as many as `config.limit` says, drawn by the seed."""
    tasks, brought = _all_tasks(config, problems)
    if not tasks:
        raise DataError(
            f"There are no replies to rank in {config.data}.",
            hint="Leave --published out where replies bring no candidates, and --speaker where nobody is called so.",
        )
    if config.limit is not None and config.limit < len(tasks):
        chosen = random.Random(config.seed).sample(range(len(tasks)), config.limit)
        tasks = [tasks[place] for place in sorted(chosen)]
    return Loaded(tasks, brought)


def _all_tasks(config: RankSettings, problems: Problems | None) -> Loaded:
    data, split = Path(config.data), config.split or None
    if is_test_set(data):
        tasks = list(read_file(data, decode_item, problems))
        return Loaded([t for t in tasks if config.speaker in (None, t.exchange.response.speaker)], brought=True)
    if holds(config.data, split=split) == "exchanges":
        single = load_exchanges(config.data, split=split, problems=problems)
        return _exchange_tasks([e for e in single if config.speaker in (None, e.response.speaker)], config)
    dialogues = list(load_dialogues(config.data, split=split, problems=problems))
    if config.published:
        found = (e for d in dialogues for e in exchanges(d, speaker=config.speaker))
        return Loaded(published_tasks(found, seed=config.seed), brought=True)
    return Loaded(rank_tasks(dialogues, config))


def is_test_set(file: Path) -> bool:
    """Whether a file is a test set in JSON lines, by the first of its lines that can be read."""
    if not (file.name.endswith(JSON_LINES) and file.is_file()):
        return False
    with open_text(file) as lines:
        first = next((record for record in map(_object, islice(lines, 100)) if record), {})
    return {"context", "candidates", "truth"} <= set(first)


def _object(line: str) -> dict[str, Json]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def decode_item(record: Json) -> RankTask:
    """One line of a test set. Where it does not tell who replies, it is the last but one who spoke.

    >>> said = [{"speaker": "ann", "text": "hi"}, {"speaker": "bob", "text": "yes?"}]
    >>> decode_item({"id": "d#2", "context": said, "candidates": ["no", "oh"], "truth": 1}).exchange.response
    Turn(speaker='ann', text='oh', source=(), meta={})
    """
    context = tuple(turn_from_json(turn) for turn in record["context"])
    candidates = texts_of(record["candidates"], "candidates")
    truth = record["truth"]
    if not isinstance(truth, int) or not 0 <= truth < len(candidates):
        raise ValueError(f"the truth stands at a place from 0 to {len(candidates) - 1}, not {truth!r}")
    name = text_of(record["id"], "id")
    speaker = text_of(record.get("speaker") or _answers(context), "speaker")
    exchange = Exchange(
        id=name,
        context=context,
        response=Turn(speaker, candidates[truth]),
        persona=_persona(record.get("persona")),
        partner=_persona(record.get("partner")),
    )
    return RankTask(exchange, candidates, truth, _dialogue_of(exchange))


def _answers(context: tuple[Turn, ...]) -> str:
    last = context[-1].speaker if context else ""
    return next((turn.speaker for turn in reversed(context) if turn.speaker != last), "bot")


def _persona(value: Json) -> Persona | None:
    return persona_from_json(value) if value else None


def _exchange_tasks(found: list[Exchange], config: RankSettings) -> Loaded:
    """Single replies: with the candidates they bring, or, where they bring none, with others of the same set."""
    if config.published or all(_brought(e) for e in found):
        return Loaded(published_tasks(found, seed=config.seed), brought=True)
    true = [Reply(_dialogue_of(e), e) for e in found if e.label != FALSE]
    return Loaded(reply_tasks(true, candidates=config.candidates, seed=config.seed, hard=config.hard))


def published_tasks(found: Iterable[Exchange], *, seed: int = 0) -> list[RankTask]:
    """The replies that bring candidates along, the truth at a place drawn anew: in published files it is always one."""
    rng = random.Random(seed)
    tasks = []
    for exchange in found:
        others = _brought(exchange)
        if not others:
            continue
        text = exchange.response.text
        if text not in others:
            raise DataError(f"The reply {exchange.id} does not stand among its candidates.")
        others.remove(text)
        truth = rng.randrange(len(others) + 1)
        tasks.append(RankTask(exchange, (*others[:truth], text, *others[truth:]), truth, _dialogue_of(exchange)))
    return tasks


def _brought(exchange: Exchange) -> list[str]:
    found = exchange.response.meta.get("candidates")
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _dialogue_of(exchange: Exchange) -> str:
    return exchange.id.rpartition("#")[0] or exchange.id
