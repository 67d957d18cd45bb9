"""Self-play: bots talk to each other, many conversations in parallel, one batch per turn."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.reply import Ask
from tertulia.talk.bot import Bot


class SelfplayConfig(Config):
    """Options of `tertulia selfplay`."""

    bots: Annotated[tuple[str, ...], Cli(argument=True)] = Field(min_length=1, max_length=2)
    """One bot, which talks to itself, or two: name[:path or model][?option=value&...]."""
    out: Path = Path("selfplay.jsonl")
    """File to write the conversations to (JSON lines)."""
    conversations: Annotated[int, Cli("--conversations -n")] = Field(10, ge=1)
    """Number of conversations."""
    turns: int = Field(10, ge=2, le=200)
    """Number of turns in each conversation."""
    opener: str = "Hi!"
    """The first turn; if empty, the first bot opens the conversation."""
    personas: Literal["sample", "none"] = "none"
    """Personas of the speakers: from the bundled corpus, or none."""
    seed: int = 0
    """Random seed: the same seed gives the same conversations."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One speaker: a name and the bot behind it."""

    name: str
    bot: Bot


def selfplay(
    seats: tuple[Seat, Seat],
    config: SelfplayConfig,
    *,
    personas: Sequence[tuple[Persona, Persona]] = (),
    progress: Callable[[int], None] = lambda turns: None,
) -> list[Dialogue]:
    """Conversations between two bots; each turn carries the provenance of its reply.

    `progress` is called with the number of new turns. Every turn of every conversation has a seed of its own.
    """
    dialogues = [_open(seats, config, i, personas) for i in range(config.conversations)]
    for position in range(len(dialogues[0].turns), config.turns):
        seat = seats[position % 2]
        start = config.seed + position
        seeds = range(start, start + len(dialogues) * config.turns, config.turns)
        asks = [Ask(_without_other_persona(d, seat.name), seat.name, s) for d, s in zip(dialogues, seeds, strict=True)]
        replies = seat.bot.reply(asks)
        turns = [Turn(seat.name, r.text, meta={"provenance": asdict(r.provenance), "score": r.score}) for r in replies]
        dialogues = [dialogue.with_turns(turn) for dialogue, turn in zip(dialogues, turns, strict=True)]
        progress(len(dialogues))
    return dialogues


def _without_other_persona(dialogue: Dialogue, name: str) -> Dialogue:
    """The conversation as this speaker sees it: with its own persona only."""
    return replace(dialogue, personas={who: persona for who, persona in dialogue.personas.items() if who == name})


def _open(
    seats: tuple[Seat, Seat], config: SelfplayConfig, i: int, personas: Sequence[tuple[Persona, Persona]]
) -> Dialogue:
    pair = personas[i % len(personas)] if personas else ()
    by_speaker = {seat.name: persona for seat, persona in zip(seats, pair, strict=False)}
    turns = (Turn(seats[0].name, config.opener),) if config.opener else ()
    return Dialogue(f"selfplay-{config.seed}-{i}", turns, by_speaker, meta={"bots": [seat.bot.spec for seat in seats]})
