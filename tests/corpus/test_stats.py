import json
import math

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.corpus.stats import corpus_stats

ANA, BEN = Persona(("I sail.",)), Persona(("I bake.",))


def test_counts_by_hand() -> None:
    talks = [
        Dialogue("1", (Turn("a", "I do like tea."), Turn("b", "ok")), {"a": ANA, "b": BEN}),
        Dialogue("2", (Turn("a", "OK!"), Turn("c", "i do LIKE tea"), Turn("a", "i do like tea, too")), {"a": ANA}),
    ]
    found = corpus_stats(iter(talks))
    assert (found.dialogues, found.turns, found.words, found.different_words) == (2, 5, 15, 6)
    assert (found.turns_per_dialogue, found.words_per_turn) == (2.5, 3.0)
    assert (found.shortest, found.longest) == (2, 3)
    assert (found.speakers, found.personas) == (3, 2)
    assert found.duplicate_turns == 1  # "ok" is too short to count


def test_nothing_counts_as_nan_and_null() -> None:
    found = corpus_stats([])
    assert math.isnan(found.turns_per_dialogue)
    assert math.isnan(found.words_per_turn)
    assert (found.dialogues, found.shortest, found.longest) == (0, 0, 0)
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["words_per_turn"] is None


def test_dialogues_without_turns() -> None:
    found = corpus_stats([Dialogue("1", ())])
    assert (found.dialogues, found.turns, found.turns_per_dialogue, found.longest) == (1, 0, 0.0, 0)
