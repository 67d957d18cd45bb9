import json
import math
from pathlib import Path

import numpy as np
import pytest

from tertulia.core.dialogue import Dialogue, Persona, Turn, exchanges
from tertulia.core.text import words
from tertulia.corpus.scale import DistinctValues
from tertulia.corpus.stats import StatsConfig, corpus_stats, exchange_stats, stats_of
from tertulia.corpus.write import save_dialogues, save_exchanges

from .conftest import make_dialogues

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


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("workers", [None, 1])
def test_statistics_of_parts_are_those_of_the_corpus(tmp_path: Path, workers: int | None) -> None:
    dialogues = make_dialogues(200)
    save_dialogues(dialogues, tmp_path / "d.jsonl")
    with (tmp_path / "d.jsonl").open("a") as file:
        file.write("damaged\n")
    stats, problems = stats_of(StatsConfig(target=str(tmp_path / "d.jsonl"), workers=workers))
    assert (stats, problems.count) == (corpus_stats(dialogues), 1)
    texts = [tuple(words(t.text)) for d in dialogues for t in d.turns]
    long = [t for t in texts if len(t) >= 4]
    assert stats.different_words == len({w for t in texts for w in t})
    assert stats.duplicate_turns == len(long) - len(set(long)) > 0
    replies = [e for d in dialogues for e in exchanges(d)]
    save_exchanges(replies, tmp_path / "e.jsonl")
    assert (
        stats_of(StatsConfig(target=str(tmp_path / "e.jsonl"), workers=workers)).stats.as_json()
        == exchange_stats(replies).as_json()
    )


def test_distinct_values_are_counted_on_disk_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DistinctValues, "LIMIT", 1000)
    values = np.random.default_rng(0).integers(0, 1 << 63, 5000, dtype=np.uint64) * np.uint64(2)
    distinct = DistinctValues()
    for i in range(0, 5000, 100):
        distinct.add(values[i : i + 300])
    assert distinct.count() == len(set(values.tolist()))
    assert np.array_equal(np.concatenate(list(distinct.ranges())), np.unique(values))
    distinct.close()
