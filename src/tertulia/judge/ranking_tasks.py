"""Loading the replies that bots rank: from dialogues, from single exchanges, or from a test set with its candidates.

A test set is a file of `corpus testset` (.jsonl: context, candidates, truth) or a table of contexts with the true reply
and distractors (.csv, as in the Ubuntu corpus). Its candidates are used as they are, so that everybody who reads it
ranks the same; only the position of the true reply is drawn where the file does not give one. Dialogues may have
candidates too, as in ParlAI's Persona-Chat: they are used where the config asks for published candidates.
"""

import json
import random
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tertulia.artefacts.files import open_text
from tertulia.core.codec import Problems, persona_from_json, turn_from_json
from tertulia.core.dialogue import Dialogue, Exchange, Json, Persona, Turn, exchanges
from tertulia.core.errors import DataError
from tertulia.corpus import candidates
from tertulia.corpus.candidates import CandidateReply, RankTask, reply_tasks
from tertulia.corpus.load import holds, load_dialogues, load_exchanges, read_file
from tertulia.corpus.readers.base import JSON_LINES, text_of, texts_of
from tertulia.judge.config import RankSettings

NOT_THE_REPLY = "0"
"""The label of an exchange whose response is a distractor."""


class LoadedTasks(NamedTuple):
    """Tasks, and where their candidates come from."""

    tasks: list[RankTask]
    published: bool = False
    """Whether the candidates are those of the data; else they were drawn."""


def load_tasks(config: RankSettings, problems: Problems | None = None) -> LoadedTasks:
    """The tasks in `config.data`, at most `config.limit` of them, drawn at random."""
    tasks, published = _all_tasks(config, problems)
    if not tasks:
        raise DataError(
            f"No replies to rank in {config.data}.",
            hint="Omit --published if the data has no candidates, and --speaker if it has no such speaker.",
        )
    if config.limit is not None and config.limit < len(tasks):
        chosen = random.Random(config.seed).sample(range(len(tasks)), config.limit)
        tasks = [tasks[i] for i in sorted(chosen)]
    return LoadedTasks(tasks, published)


def rank_tasks(dialogues: Sequence[Dialogue], config: RankSettings) -> list[RankTask]:
    """Every reply with distractors from other dialogues of the same set."""
    return candidates.rank_tasks(
        dialogues, candidates=config.candidates, speaker=config.speaker, seed=config.seed, hard=config.hard
    )


def _all_tasks(config: RankSettings, problems: Problems | None) -> LoadedTasks:
    data, split = Path(config.data), config.selected_split
    if is_test_set(data):
        tasks = list(read_file(data, decode_item, problems))
        return LoadedTasks([t for t in tasks if config.speaker in (None, t.exchange.response.speaker)], published=True)
    if holds(config.data, split=split) == "exchanges":
        single = load_exchanges(config.data, split=split, problems=problems)
        return _exchange_tasks([e for e in single if config.speaker in (None, e.response.speaker)], config)
    dialogues = list(load_dialogues(config.data, split=split, problems=problems))
    if config.published:
        replies = (e for d in dialogues for e in exchanges(d, speaker=config.speaker))
        return LoadedTasks(published_tasks(replies, seed=config.seed), published=True)
    return LoadedTasks(rank_tasks(dialogues, config))


def is_test_set(file: Path) -> bool:
    """Whether a file is a test set in JSON lines, judged by its first readable line."""
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
    """One line of a test set. Without a `speaker`, the reply is by the speaker before the last one.

    >>> context = [{"speaker": "ann", "text": "hi"}, {"speaker": "bob", "text": "yes?"}]
    >>> decode_item({"id": "d#2", "context": context, "candidates": ["no", "oh"], "truth": 1}).exchange.response
    Turn(speaker='ann', text='oh', source=(), meta={})
    """
    context = tuple(turn_from_json(turn) for turn in record["context"])
    texts = texts_of(record["candidates"], "candidates")
    truth = record["truth"]
    if not isinstance(truth, int) or not 0 <= truth < len(texts):
        raise ValueError(f"`truth` must be an index from 0 to {len(texts) - 1}, not {truth!r}")
    name = text_of(record["id"], "id")
    speaker = text_of(record.get("speaker") or _replying_speaker(context), "speaker")
    exchange = Exchange(
        id=name,
        context=context,
        response=Turn(speaker, texts[truth]),
        persona=_persona(record.get("persona")),
        partner=_persona(record.get("partner")),
    )
    return RankTask(exchange, texts, truth, _dialogue_of(exchange))


def _replying_speaker(context: tuple[Turn, ...]) -> str:
    last = context[-1].speaker if context else ""
    return next((turn.speaker for turn in reversed(context) if turn.speaker != last), "bot")


def _persona(value: Json) -> Persona | None:
    return persona_from_json(value) if value else None


def _exchange_tasks(replies: list[Exchange], config: RankSettings) -> LoadedTasks:
    """Single exchanges: with the candidates they have or, if they have none, with distractors from the same set."""
    if config.published or all(_candidates_of(e) for e in replies):
        return LoadedTasks(published_tasks(replies, seed=config.seed), published=True)
    true = [CandidateReply(_dialogue_of(e), e) for e in replies if e.label != NOT_THE_REPLY]
    return LoadedTasks(reply_tasks(true, candidates=config.candidates, seed=config.seed, hard=config.hard))


def published_tasks(replies: Iterable[Exchange], *, seed: int = 0) -> list[RankTask]:
    """The replies that have candidates; the true one gets a random position, as published files have a fixed one."""
    rng = random.Random(seed)
    tasks = []
    for exchange in replies:
        others = _candidates_of(exchange)
        if not others:
            continue
        text = exchange.response.text
        if text not in others:
            raise DataError(f"The reply {exchange.id} is not among its candidates.")
        others.remove(text)
        truth = rng.randrange(len(others) + 1)
        tasks.append(RankTask(exchange, (*others[:truth], text, *others[truth:]), truth, _dialogue_of(exchange)))
    return tasks


def _candidates_of(exchange: Exchange) -> list[str]:
    texts = exchange.response.meta.get("candidates")
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []


def _dialogue_of(exchange: Exchange) -> str:
    return exchange.id.rpartition("#")[0] or exchange.id
