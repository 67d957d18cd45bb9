"""A study of replayed conversations: people compare what was said with what another bot would have said, blinded.

Single replies make a `pairwise-static` study, continuations a `pairwise-chat` study. The texts are in an item file
beside the study's TOML, so that nothing has to be generated when it opens.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tertulia.artefacts.files import atomic_write
from tertulia.core.codec import dump_line
from tertulia.core.dialogue import Json, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.judge.replay import ORIGINAL, REPLAY, ReplayPair


class WrittenStudy(NamedTuple):
    """What was written."""

    items: Path
    pairs: int
    """Pairs to compare."""
    left_out: int
    """Pairs whose continuations are the same, or empty: there is nothing to choose."""


def write_study(pairs: Sequence[ReplayPair], path: Path) -> WrittenStudy:
    """Write a study's TOML and its items, ready for `tertulia study check` and `tertulia study open`."""
    if path.suffix != ".toml":
        raise UsageError(f"{path} must end in .toml.", hint="A study is a TOML file.")
    worth = [pair for pair in pairs if _differ(pair)]
    if not worth:
        raise DataError("Both continuations are the same everywhere.", hint="Replay with a bot that differs.")
    chat = any(len(pair.replay) > 1 for pair in worth)
    items = path.with_name(f"{path.stem}-items.jsonl")
    lines = [item for pair in worth for item in (_conversations(pair) if chat else _responses(pair))]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(items) as file:
        file.write_text("".join(f"{dump_line(line).rstrip()}\n" for line in lines), encoding="utf-8")
    with atomic_write(path) as file:
        file.write_text(_toml("pairwise-chat" if chat else "pairwise-static", items.name), encoding="utf-8")
    return WrittenStudy(items, len(worth), len(pairs) - len(worth))


def _differ(pair: ReplayPair) -> bool:
    texts = [[turn.text.strip() for turn in turns] for _, turns in pair.sides()]
    return texts[0] != texts[1] and all(text for side in texts for text in side[:1])


def _responses(pair: ReplayPair) -> Iterator[dict[str, Json]]:
    """One context with both replies."""
    texts = {side: turns[0].text for side, turns in pair.sides()}
    yield {"id": pair.point.unit, "turns": _turns(pair.point.history), "responses": texts}


def _conversations(pair: ReplayPair) -> Iterator[dict[str, Json]]:
    """Two complete conversations that belong together."""
    for side, turns in pair.sides():
        yield {
            "id": f"{pair.point.unit}/{side}",
            "turns": _turns(pair.point.history + turns),
            "bot": side,
            "speaker": pair.point.speaker,
            "pair": pair.point.unit,
        }


def _turns(turns: Sequence[Turn]) -> list[Json]:
    return [{"speaker": turn.speaker, "text": turn.text} for turn in turns]


def _toml(preset: str, items: str) -> str:
    bots = "\n".join(f"[[bots]]\nname = {json.dumps(name)}\n" for name in (ORIGINAL, REPLAY))
    return (
        "# What was said, and what another bot would have said: participants do not learn which is which.\n"
        f"preset = {json.dumps(preset)}\n"
        'languages = ["en"]  # of the page; the items are in the language of their conversations\n'
        f"items = {json.dumps(items)}\n\n{bots}"
    )
