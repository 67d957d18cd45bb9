"""Statistics of extracted dialogues: those by which Lowe et al. (2015, table 2) describe the Ubuntu Dialogue Corpus."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median

from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.text import words


@dataclass(frozen=True, slots=True)
class ChatlogStats:
    """Counts over dialogues. An utterance here is a turn: consecutive lines of a user. Means of nothing are nan."""

    dialogues: int
    utterances: int
    words: int
    min_turns: int
    mean_turns: float
    words_per_utterance: float
    median_minutes: float
    by_turns: Mapping[int, int] = field(default_factory=dict)
    """Number of dialogues by number of turns: the points of the log-log plot."""

    def as_json(self) -> dict[str, Json]:
        """For records; nan becomes null, and `by_turns` a list of pairs."""
        flat = {name: None if value != value else value for name, value in asdict(self).items()}
        return flat | {"by_turns": [[turns, n] for turns, n in sorted(self.by_turns.items())]}

    def log_log(self) -> list[tuple[float, float]]:
        """The points of the plot: log10 of the number of turns, log10 of the number of dialogues that have it."""
        return [(math.log10(turns), math.log10(n)) for turns, n in sorted(self.by_turns.items())]


class StatsCounter:
    """Counts dialogues one by one, so that they need not be in memory together."""

    def __init__(self) -> None:
        self._by_turns: Counter[int] = Counter()
        self._minutes: list[float] = []
        self._words = 0

    def add(self, dialogue: Dialogue) -> None:
        """Count one dialogue; its duration is `meta["minutes"]`."""
        self._by_turns[len(dialogue.turns)] += 1
        self._words += sum(len(words(turn.text)) for turn in dialogue.turns)
        self._minutes.append(float(dialogue.meta.get("minutes", math.nan)))

    def stats(self) -> ChatlogStats:
        """The statistics so far."""
        count = self._by_turns.total()
        utterances = sum(turns * n for turns, n in self._by_turns.items())
        return ChatlogStats(
            dialogues=count,
            utterances=utterances,
            words=self._words,
            min_turns=min(self._by_turns, default=0),
            mean_turns=utterances / count if count else math.nan,
            words_per_utterance=self._words / utterances if utterances else math.nan,
            median_minutes=median(self._minutes) if self._minutes else math.nan,
            by_turns=dict(sorted(self._by_turns.items())),
        )


def chatlog_stats(dialogues: Iterable[Dialogue]) -> ChatlogStats:
    """Statistics of all dialogues at once."""
    counter = StatsCounter()
    for dialogue in dialogues:
        counter.add(dialogue)
    return counter.stats()
