import csv
import io
import random
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import DataError
from tertulia.core.text import words
from tertulia.corpus.testsets import (
    TestSetConfig,
    context_length,
    item_to_json,
    make_test_set,
    training_triples,
    write_ubuntu_csv,
)


def test_version_1_draws_short_contexts_more_often():
    """n = 10 C / eta + 2 with eta uniform in [C/2, 10 C]: P(context of at most c) follows from the formula."""
    config, rng = TestSetConfig(), random.Random(0)
    lengths = Counter(context_length(1000, rng, config) for _ in range(20000))
    assert min(lengths) == 2
    assert max(lengths) <= 21
    # A context of exactly 2 turns: floor(200 / eta) == 1, that is eta > 100, of [10, 200].
    assert lengths[2] / 20000 == pytest.approx(100 / 190, abs=0.012)


def test_contexts_leave_at_least_one_turn_as_the_reply():
    rng = random.Random(0)
    for version in (1, 2):
        config = TestSetConfig(version=version)
        for turns in (2, 3, 4, 30):
            drawn = {context_length(turns, rng, config) for _ in range(500)}
            assert min(drawn) >= 1
            assert max(drawn) <= turns - 1


def test_version_2_draws_lengths_uniformly():
    rng = random.Random(0)
    drawn = Counter(context_length(11, rng, TestSetConfig(version=2)) for _ in range(9000))
    assert set(drawn) == set(range(2, 11))
    assert stats.chisquare(list(drawn.values())).pvalue > 0.001
    assert {context_length(300, rng, TestSetConfig(version=2)) for _ in range(3000)} == set(range(2, 19))


def test_items_keep_the_personas_of_both_speakers():
    for item in make_test_set(sample.dialogues("valid"), TestSetConfig(distractors=3)):
        dialogue = next(d for d in sample.dialogues("valid") if d.id == item.exchange.id.partition("#")[0])
        own = item.exchange.response.speaker
        other = next(speaker for speaker in dialogue.speakers if speaker != own)
        record = item_to_json(item)
        assert record["persona"]["sentences"] == list(dialogue.personas[own].sentences)
        assert record["partner"]["sentences"] == list(dialogue.personas[other].sentences)


@pytest.mark.parametrize("hard", [False, True])
def test_every_item_has_one_true_reply_at_a_random_position(hard):
    items = make_test_set(sample.dialogues(), TestSetConfig(hard=hard))
    assert len(items) == len(sample.dialogues())
    for item in items:
        assert item.candidates[item.truth] == item.exchange.response.text
        assert len(set(item.candidates)) == 10
    positions = Counter(item.truth for item in items)
    assert stats.chisquare([positions[i] for i in range(10)]).pvalue > 0.001


def test_hard_distractors_are_more_similar():
    def mean_similarity(hard: bool) -> float:
        items = make_test_set(sample.dialogues(), TestSetConfig(hard=hard))
        scores = []
        for item in items:
            true = set(words(item.candidates[item.truth]))
            others = [set(words(c)) for i, c in enumerate(item.candidates) if i != item.truth]
            scores += [len(true & o) / len(true | o) for o in others if true | o]
        return float(np.mean(scores))

    assert mean_similarity(True) > 1.5 * mean_similarity(False)


def test_the_test_set_depends_on_the_seed():
    first, again, other = (
        [item_to_json(i) for i in make_test_set(sample.dialogues(), TestSetConfig(seed=s))] for s in (1, 1, 2)
    )
    assert first == again != other


def test_the_csv_has_the_layout_of_the_ubuntu_corpus():
    items = make_test_set(sample.dialogues("valid"), TestSetConfig(distractors=3))
    out = io.StringIO()
    write_ubuntu_csv(items, out)
    rows = list(csv.reader(io.StringIO(out.getvalue())))
    assert rows[0] == ["Context", "Ground Truth Utterance", "Distractor_0", "Distractor_1", "Distractor_2"]
    assert len(rows) == len(items) + 1
    assert all(row[0].endswith("__eou__ __eot__") and row[1].endswith(" __eou__") for row in rows[1:])
    assert all(row[0].count("__eot__") == len(i.exchange.context) for row, i in zip(rows[1:], items, strict=True))


def test_training_triples_alternate_true_and_false_replies():
    dialogue = Dialogue("d", tuple(Turn("ab"[i % 2], f"text {i}") for i in range(5)))
    triples = [(e.context, e.response, int(str(e.label))) for e in training_triples([dialogue])]
    assert [(len(c), flag) for c, _, flag in triples] == [(2, 1), (2, 0), (3, 1), (3, 0), (4, 1), (4, 0)]
    assert all((reply.text == dialogue.turns[len(c)].text) == bool(flag) for c, reply, flag in triples)
    assert all(reply.speaker == dialogue.turns[len(c)].speaker for c, reply, _ in triples)


def test_too_few_replies_are_an_error():
    with pytest.raises(DataError, match="too few"):
        make_test_set(sample.dialogues()[:5], TestSetConfig())
    with pytest.raises(DataError, match="are the same"):
        list(training_triples([Dialogue("d", (Turn("a", "x"),) * 4)]))
