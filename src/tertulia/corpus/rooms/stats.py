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


def room_stats(dialogues: Iterable[Dialogue]) -> RoomStats:
    """Count in one pass; the minutes are those that the extraction left under `meta`."""
    by_turns: Counter[int] = Counter()
    spoken, minutes = 0, []
    for dialogue in dialogues:
        by_turns[len(dialogue.turns)] += 1
        spoken += sum(len(words(turn.text)) for turn in dialogue.turns)
        minutes.append(float(dialogue.meta.get("minutes", math.nan)))
    count, utterances = by_turns.total(), sum(turns * n for turns, n in by_turns.items())
    return RoomStats(
        dialogues=count,
        utterances=utterances,
        words=spoken,
        min_turns=min(by_turns, default=0),
        mean_turns=utterances / count if count else math.nan,
        words_per_utterance=spoken / utterances if utterances else math.nan,
        median_minutes=median(minutes) if minutes else math.nan,
        by_turns=dict(sorted(by_turns.items())),
    )
