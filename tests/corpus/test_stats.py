import json
import math

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.corpus.stats import corpus_stats

ANA, BEN = Persona(("I sail.",)), Persona(("I bake.",))


def test_counts_agree_with_a_manual_count() -> None:
    dialogues = [
        Dialogue("1", (Turn("a", "I do like tea."), Turn("b", "ok")), {"a": ANA, "b": BEN}),
        Dialogue("2", (Turn("a", "OK!"), Turn("c", "i do LIKE tea"), Turn("a", "i do like tea, too")), {"a": ANA}),
    ]
    stats = corpus_stats(iter(dialogues))
    assert (stats.dialogues, stats.turns, stats.words, stats.different_words) == (2, 5, 15, 6)
    assert (stats.turns_per_dialogue, stats.words_per_turn) == (2.5, 3.0)
    assert (stats.shortest, stats.longest) == (2, 3)
    assert (stats.speakers, stats.personas) == (3, 2)
    assert stats.duplicate_turns == 1  # "ok" is too short to count


def test_an_empty_corpus_has_nan_means_and_json_nulls() -> None:
    stats = corpus_stats([])
    assert math.isnan(stats.turns_per_dialogue)
    assert math.isnan(stats.words_per_turn)
    assert (stats.dialogues, stats.shortest, stats.longest) == (0, 0, 0)
    assert json.loads(json.dumps(stats.as_json(), allow_nan=False))["words_per_turn"] is None


def test_dialogues_without_turns_are_counted() -> None:
    stats = corpus_stats([Dialogue("1", ())])
    assert (stats.dialogues, stats.turns, stats.turns_per_dialogue, stats.longest) == (1, 0, 0.0, 0)
