"""Two bots talk: many conversations side by side, one batch of asks per turn.

The seed of a turn follows from the id of its conversation and its position alone. So a reply does not depend on which
conversations are played together, on the number of processes, or on interruptions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from tertulia.artefacts.files import fingerprint
from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.core.reply import Ask
from tertulia.talk.bot import Bot
from tertulia.talk.selfplay.config import SelfplayConfig

_SEEDS = 1 << 53
"""JSON readers of every language keep integers of this size exactly."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One speaker: a name and the bot behind it."""

    name: str
    bot: Bot


@dataclass(frozen=True, slots=True)
class Scene:
    """What a conversation starts from."""

    id: str
    """Of the conversation; the seeds of its turns follow from it."""
    opener: str = ""
    """The first turn; if empty, the bot on the first seat opens."""
    personas: tuple[Persona, ...] = ()
    """Of the two seats, or none."""
    meta: Mapping[str, Json] = field(default_factory=dict)


def converse(
    seats: tuple[Seat, Seat],
    scenes: Sequence[Scene],
    *,
    turns: int,
    progress: Callable[[int], None] = lambda turns: None,
) -> list[Dialogue]:
    """The conversation of each scene; each turn carries the provenance of its reply.

    `progress` is called with the number of new turns.
    """
    dialogues = [_open(seats, scene) for scene in scenes]
    for position in range(turns):
        waiting = [i for i, dialogue in enumerate(dialogues) if len(dialogue.turns) == position]
        if not waiting:
            continue  # an opener was given
        seat = seats[position % 2]
        asks = [
            Ask(_without_other_persona(dialogues[i], seat.name), seat.name, turn_seed(dialogues[i].id, position))
            for i in waiting
        ]
        for i, reply in zip(waiting, seat.bot.reply(asks), strict=True):
            meta: dict[str, Json] = {"provenance": asdict(reply.provenance), "score": reply.score}
            meta |= {"evidence": [asdict(passage) for passage in reply.evidence]} if reply.evidence else {}
            dialogues[i] = dialogues[i].with_turns(Turn(seat.name, reply.text, meta=meta))
        progress(len(waiting))
    return dialogues


def selfplay(
    seats: tuple[Seat, Seat],
    config: SelfplayConfig,
    *,
    personas: Sequence[tuple[Persona, Persona]] = (),
    progress: Callable[[int], None] = lambda turns: None,
) -> list[Dialogue]:
    """The conversations of two bots that are loaded already, all side by side; nothing is saved."""
    scenes = [
        Scene(
            f"selfplay-{config.seed}-{i}",
            config.opener,
            personas[i % len(personas)] if personas else (),
            {"bots": [seat.bot.spec for seat in seats]},
        )
        for i in range(config.conversations)
    ]
    return converse(seats, scenes, turns=config.turns, progress=progress)


def turn_seed(conversation: str, position: int) -> int:
    """The seed of one turn.

    >>> turn_seed("selfplay-0-1", 3) == turn_seed("selfplay-0-1", 4), turn_seed("selfplay-0-1", 3) < 2**53
    (False, True)
    """
    return int(fingerprint([conversation, str(position)]), 16) % _SEEDS


def _without_other_persona(dialogue: Dialogue, name: str) -> Dialogue:
    """The conversation as this speaker sees it: with its own persona only, and without what the record says of it."""
    return replace(
        dialogue, personas={who: persona for who, persona in dialogue.personas.items() if who == name}, meta={}
    )


def _open(seats: tuple[Seat, Seat], scene: Scene) -> Dialogue:
    personas = {seat.name: persona for seat, persona in zip(seats, scene.personas, strict=False)}
    turns = (Turn(seats[0].name, scene.opener),) if scene.opener else ()
    return Dialogue(scene.id, turns, personas, meta=scene.meta)
