"""The ranking game: each true reply among others drawn from the same set, seeded.

The traps of this game, closed: the true reply stands at a random place, no distractor has its text or comes from its
dialogue. Training validates with the same tasks that `judge rank` judges with.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tertulia.core.dialogue import Dialogue, Exchange, Persona, exchanges
from tertulia.core.errors import DataError
from tertulia.core.text import squash

Whose = Literal["none", "own", "their", "both"]
"""Whose persona a bot is shown: of the one it speaks for, of the one it answers, or of both."""


@dataclass(frozen=True, slots=True)
class RankTask:
    """One true reply among its distractors."""

    exchange: Exchange
    candidates: tuple[str, ...]
    truth: int
    """The place of the true reply among the candidates."""
    dialogue: str
    """The dialogue it comes from."""


def rank_tasks(
    dialogues: Sequence[Dialogue], *, candidates: int = 20, speaker: str | None = None, seed: int = 0
) -> list[RankTask]:
    """Every reply (or those of one speaker) with distractors from other dialogues of the same set."""
    rng = random.Random(seed)
    found = [(d.id, e) for d in dialogues for e in exchanges(d, speaker=speaker)]
    pool = [(name, e.response.text) for name, e in found]
    if len({(squash(text).lower()) for _, text in pool}) < candidates * 2:
        raise DataError(
            f"{len(pool)} replies are too few to rank among {candidates}.",
            hint="Take more dialogues, or fewer candidates with --candidates.",
        )
    tasks = []
    for name, exchange in found:
        others = _distractors(rng, pool, name, exchange.response.text, candidates - 1)
        truth = rng.randrange(candidates)
        texts = (*others[:truth], exchange.response.text, *others[truth:])
        tasks.append(RankTask(exchange, texts, truth, name))
    return tasks


def shown(exchange: Exchange, whose: Whose, *, revised: bool = False) -> Exchange:
    """The exchange with only those personas a bot may see, in their own words or the revised ones."""
    own = exchange.persona if whose in ("own", "both") else None
    their = exchange.partner if whose in ("their", "both") else None
    return replace(exchange, persona=_worded(own, revised), partner=_worded(their, revised))


def _worded(persona: Persona | None, revised: bool) -> Persona | None:
    if persona is None or not revised:
        return persona
    return replace(persona, sentences=persona.revised, revised=()) if persona.revised else None


def _distractors(
    rng: random.Random, pool: Sequence[tuple[str, str]], dialogue: str, text: str, count: int
) -> list[str]:
    """Different texts from other dialogues; dialogues with few others around fall short of that only with an error."""
    taken = {squash(text).lower()}
    found: list[str] = []
    for _ in range(1000 * count):
        of, other = pool[rng.randrange(len(pool))]
        key = squash(other).lower()
        if of != dialogue and key not in taken:
            taken.add(key)
            found.append(other)
            if len(found) == count:
                return found
    raise DataError(f"Found only {len(found)} replies from other dialogues to set beside one of {dialogue}.")
