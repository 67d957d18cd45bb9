"""What a set of dialogues is like, in a few counts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean

from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.text import words


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Counts over a corpus. Means of nothing are nan."""

    dialogues: int
    turns: int
    words: int
    different_words: int
    turns_per_dialogue: float
    words_per_turn: float
    shortest: int
    longest: int
    speakers: int
    personas: int
    duplicate_turns: int
    """Turns of four words or more that stood somewhere before, word for word."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`; nan becomes null."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


def corpus_stats(dialogues: Iterable[Dialogue]) -> CorpusStats:
    """Count in one pass."""
    lengths: list[int] = []
    turn_words: list[int] = []
    vocabulary: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    speakers: set[str] = set()
    personas: set[tuple[str, ...]] = set()
    for dialogue in dialogues:
        lengths.append(len(dialogue.turns))
        speakers.update(dialogue.speakers)
        personas.update(p.sentences for p in dialogue.personas.values())
        for turn in dialogue.turns:
            found = words(turn.text)
            turn_words.append(len(found))
            vocabulary.update(found)
            if len(found) >= 4:
                texts[" ".join(found)] += 1
    return CorpusStats(
        dialogues=len(lengths),
        turns=sum(lengths),
        words=sum(turn_words),
        different_words=len(vocabulary),
        turns_per_dialogue=fmean(lengths) if lengths else float("nan"),
        words_per_turn=fmean(turn_words) if turn_words else float("nan"),
        shortest=min(lengths, default=0),
        longest=max(lengths, default=0),
        speakers=len(speakers),
        personas=len(personas),
        duplicate_turns=sum(count - 1 for count in texts.values()),
    )
