"""Bots talking to each other: many conversations side by side, one batch per turn."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.reply import Ask
from tertulia.talk.bot import Bot


class SelfplayConfig(Config):
    """Who talks, how often, how long."""

    bots: tuple[str, ...] = Field(min_length=1, max_length=2)
    """One specification (the bot talks to itself) or two."""
    out: Path = Path("selfplay.jsonl")
    """File for the conversations."""
    conversations: int = Field(10, ge=1)
    """How many conversations."""
    turns: int = Field(10, ge=2, le=200)
    """Turns in each."""
    opener: str = "Hi!"
    """What the first speaker says; empty lets its bot open."""
    personas: Literal["sample", "none"] = "none"
    """`sample` gives both speakers personas of the bundled corpus, `none` gives none."""
    seed: int = 0
    """The same seed gives the same conversations."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One side of the table."""

    name: str
    bot: Bot


def selfplay(
    seats: tuple[Seat, Seat],
    config: SelfplayConfig,
    *,
    personas: Sequence[tuple[Persona, Persona]] = (),
    progress: Callable[[int], None] = lambda turns: None,
) -> list[Dialogue]:
    """Conversations between two bots; each turn carries the provenance of its reply. `progress` hears of turns made."""
    talks = [_opened(seats, config, i, personas) for i in range(config.conversations)]
    for place in range(len(talks[0].turns), config.turns):
        seat = seats[place % 2]
        seeds = range(config.seed + place, config.seed + place + len(talks) * config.turns, config.turns)
        asks = [Ask(_seen(talk, seat.name), seat.name, seed) for talk, seed in zip(talks, seeds, strict=True)]
        replies = seat.bot.reply(asks)
        said = [Turn(seat.name, r.text, meta={"provenance": asdict(r.provenance), "score": r.score}) for r in replies]
        talks = [talk.said(turn) for talk, turn in zip(talks, said, strict=True)]
        progress(len(talks))
    return talks


def _seen(talk: Dialogue, name: str) -> Dialogue:
    """The conversation as this speaker knows it: nobody has read the other's persona."""
    return replace(talk, personas={who: persona for who, persona in talk.personas.items() if who == name})


def _opened(
    seats: tuple[Seat, Seat], config: SelfplayConfig, i: int, personas: Sequence[tuple[Persona, Persona]]
) -> Dialogue:
    pair = personas[i % len(personas)] if personas else ()
    who = {seat.name: persona for seat, persona in zip(seats, pair, strict=False)}
    turns = (Turn(seats[0].name, config.opener),) if config.opener else ()
    return Dialogue(f"selfplay-{config.seed}-{i}", turns, who, meta={"bots": [seat.bot.spec for seat in seats]})
