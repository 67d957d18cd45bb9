"""What the extracted dialogues are like: the figures that the Ubuntu Dialogue Corpus is described by."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median

from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.text import words


@dataclass(frozen=True, slots=True)
class RoomStats:
    """Counts over dialogues. An utterance is a turn: what a user said in one go. Means of nothing are nan."""

    dialogues: int
    utterances: int
    words: int
    min_turns: int
    mean_turns: float
    words_per_utterance: float
    median_minutes: float
    by_turns: Mapping[int, int] = field(default_factory=dict)
    """How many dialogues have so many turns: the points of the log-log plot."""

    def as_json(self) -> dict[str, Json]:
        """For records; nan becomes null, and the plot a list of pairs."""
        flat = {name: None if value != value else value for name, value in asdict(self).items()}
        return flat | {"by_turns": [[turns, n] for turns, n in sorted(self.by_turns.items())]}

    def log_log(self) -> list[tuple[float, float]]:
        """The plot's points: log10 of the turns, log10 of the number of dialogues that have them."""
        return [(math.log10(turns), math.log10(n)) for turns, n in sorted(self.by_turns.items())]


class Tally:
    """Counts dialogues as they pass by, so that nobody has to hold them all."""

    def __init__(self) -> None:
        self._by_turns: Counter[int] = Counter()
        self._minutes: list[float] = []
        self._words = 0

    def add(self, dialogue: Dialogue) -> None:
        """Count one; its minutes are those that the extraction left under `meta`."""
        self._by_turns[len(dialogue.turns)] += 1
        self._words += sum(len(words(turn.text)) for turn in dialogue.turns)
        self._minutes.append(float(dialogue.meta.get("minutes", math.nan)))

    def stats(self) -> RoomStats:
        """What has been counted so far."""
        count = self._by_turns.total()
        utterances = sum(turns * n for turns, n in self._by_turns.items())
        return RoomStats(
            dialogues=count,
            utterances=utterances,
            words=self._words,
            min_turns=min(self._by_turns, default=0),
            mean_turns=utterances / count if count else math.nan,
            words_per_utterance=self._words / utterances if utterances else math.nan,
            median_minutes=median(self._minutes) if self._minutes else math.nan,
            by_turns=dict(sorted(self._by_turns.items())),
        )


def room_stats(dialogues: Iterable[Dialogue]) -> RoomStats:
    """Count all at once."""
    tally = Tally()
    for dialogue in dialogues:
        tally.add(dialogue)
    return tally.stats()
