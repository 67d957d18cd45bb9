import math
from collections.abc import Sequence

import pytest
from scipy import stats

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import BotError, DataError, UnknownName
from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.core.text import squash
from tertulia.judge.rank import RankConfig, judge_rank, rank_tasks

TALKS = sample.dialogues("valid")
CONFIG = RankConfig(candidates=10)


class Scorer:
    """Ranks with a function of (ask, candidate)."""

    spec = "scorer"
    summary = "Scores as told."

    def __init__(self, score) -> None:  # type: ignore[no-untyped-def]
        self.one, self.asked = score, []

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply("x", Provenance(self.spec)) for _ in asks]

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        self.asked += asks
        return [[self.one(ask, text) for text in texts] for ask, texts in zip(asks, candidates, strict=True)]


def truth_teller(talks: list[Dialogue]) -> Scorer:
    next_of = {tuple(t.text for t in d.turns[:i]): d.turns[i].text for d in talks for i in range(1, len(d.turns))}
    return Scorer(lambda ask, text: float(next_of[tuple(t.text for t in ask.dialogue.turns)] == text))


def test_every_reply_is_a_task_with_its_truth_in_place() -> None:
    tasks = rank_tasks(TALKS, CONFIG)
    assert len(tasks) == sum(len(d.turns) - 1 for d in TALKS)
    for task in tasks:
        assert len(task.candidates) == 10
        assert task.candidates[task.truth] == task.exchange.response.text
        assert task.exchange.id.startswith(task.dialogue + "#")


def test_the_truth_stands_anywhere() -> None:
    places = [task.truth for seed in range(3) for task in rank_tasks(TALKS, RankConfig(candidates=10, seed=seed))]
    assert stats.chisquare([places.count(k) for k in range(10)]).pvalue > 0.001


def test_no_distractor_is_the_truth_or_from_its_dialogue_or_there_twice() -> None:
    own = {d.id: {squash(t.text).lower() for t in d.turns[1:]} for d in TALKS}
    everywhere = {squash(t.text).lower() for d in TALKS for t in d.turns[1:]}
    for task in rank_tasks(TALKS, CONFIG):
        others = [squash(c).lower() for i, c in enumerate(task.candidates) if i != task.truth]
        assert len({*others, squash(task.candidates[task.truth]).lower()}) == 10
        assert set(others) <= everywhere
        elsewhere = {text for name, texts in own.items() if name != task.dialogue for text in texts}
        assert set(others) <= elsewhere


def test_texts_that_differ_only_in_case_and_blanks_are_the_same_reply() -> None:
    talks = [
        Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", text)))
        for i, text in enumerate(["Oh  yes", "oh yes", "OH YES\n", *(f"reply number {i}" for i in range(12))])
    ]
    for seed in range(20):
        for task in rank_tasks(talks, RankConfig(candidates=6, seed=seed)):
            assert len({squash(c).lower() for c in task.candidates}) == 6


def test_a_perfect_scorer_gets_everything() -> None:
    tasks = rank_tasks(TALKS, CONFIG)
    result = judge_rank(truth_teller(TALKS), tasks, CONFIG)
    assert {name: (e.value, e.low, e.high) for name, e in result.figures.items()} == dict.fromkeys(
        CONFIG.metrics, (1.0, 1.0, 1.0)
    )
    assert set(result.ranks) == {1}
    assert result.figures["hits@1"].n == len(tasks)


def test_a_scorer_that_says_the_same_of_all_gets_what_chance_gets() -> None:
    tasks = [t for seed in range(4) for t in rank_tasks(TALKS, RankConfig(candidates=10, seed=seed))]
    result = judge_rank(Scorer(lambda ask, text: 0.0), tasks, CONFIG)
    slack = 4 * math.sqrt(0.1 * 0.9 / len(tasks))
    assert abs(result.figures["hits@1"].value - 0.1) < slack
    assert abs(result.figures["hits@5"].value - 0.5) < 4 * math.sqrt(0.25 / len(tasks))


def test_a_scorer_that_likes_a_place_gets_what_chance_gets() -> None:
    tasks = [t for seed in range(4) for t in rank_tasks(TALKS, RankConfig(candidates=10, seed=seed))]

    class LastIsBest(Scorer):
        def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
            return [[float(i) for i, _ in enumerate(texts)] for texts in candidates]

    found = judge_rank(LastIsBest(None), tasks, CONFIG).figures["hits@1"].value
    assert abs(found - 0.1) < 4 * math.sqrt(0.1 * 0.9 / len(tasks))


def test_the_same_seed_gives_the_same_tasks_and_figures() -> None:
    again = RankConfig(candidates=10, seed=5)
    assert rank_tasks(TALKS, again) == rank_tasks(TALKS, again)
    assert rank_tasks(TALKS, again) != rank_tasks(TALKS, RankConfig(candidates=10, seed=6))
    tasks = rank_tasks(TALKS, again)
    constant = Scorer(lambda ask, text: 0.0)
    assert judge_rank(constant, tasks, again) == judge_rank(constant, tasks, again)


def test_the_size_of_the_batch_changes_nothing_but_the_progress() -> None:
    tasks = rank_tasks(TALKS, CONFIG)[:30]
    done: list[int] = []
    by_seven = judge_rank(Scorer(lambda ask, text: len(text)), tasks, CONFIG, batch=7, progress=done.append)
    assert by_seven == judge_rank(Scorer(lambda ask, text: len(text)), tasks, CONFIG)
    assert done == [7, 7, 7, 7, 2]


def test_only_one_speaker() -> None:
    tasks = rank_tasks(TALKS, RankConfig(candidates=10, speaker="b"))
    said_by_b = {t.text for d in TALKS for t in d.turns if t.speaker == "b"}
    assert {t.exchange.response.speaker for t in tasks} == {"b"}
    assert all(set(t.candidates) <= said_by_b for t in tasks)


@pytest.mark.parametrize("persona", ["own", "none"])
def test_the_bot_knows_the_persona_it_is_told_of(persona: str) -> None:
    config = RankConfig(candidates=10, persona=persona)  # type: ignore[arg-type]
    tasks = rank_tasks(TALKS, config)[:20]
    scorer = Scorer(lambda ask, text: 0.0)
    judge_rank(scorer, tasks, config)
    for ask, task in zip(scorer.asked, tasks, strict=True):
        assert ask.speaker == task.exchange.response.speaker
        assert ask.dialogue.turns == task.exchange.context
        assert ask.dialogue.persona_of(ask.speaker) == (task.exchange.persona if persona == "own" else None)
        assert isinstance(task.exchange.persona, Persona)


def small(count: int) -> list[Dialogue]:
    return [Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", f"reply {i}"))) for i in range(count)]


def test_too_few_replies_is_a_clear_error() -> None:
    with pytest.raises(DataError, match=r"19 replies are too few to rank among 10\.\n.*--candidates"):
        rank_tasks(small(19), CONFIG)
    assert len(rank_tasks(small(20), CONFIG)) == 20
    with pytest.raises(DataError, match="0 replies"):
        rank_tasks([], CONFIG)


def test_many_replies_of_one_dialogue_are_too_few_too() -> None:
    one = Dialogue("long", tuple(Turn("ab"[i % 2], f"turn {i}") for i in range(60)))
    with pytest.raises(DataError, match="Found only 3 replies from other dialogues to set beside one of long"):
        rank_tasks([one, *small(3)], CONFIG)


def test_bots_that_cannot_rank_say_so() -> None:
    class Talker:
        spec = "talker"
        summary = "Only talks."

        def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
            return [Reply("x", Provenance(self.spec)) for _ in asks]

    with pytest.raises(BotError, match="'talker' cannot rank"):
        judge_rank(Talker(), rank_tasks(TALKS, CONFIG), CONFIG)


def test_unknown_metrics_are_known_before_the_work() -> None:
    scorer = Scorer(lambda ask, text: 0.0)
    with pytest.raises(UnknownName, match="hits@1"):
        judge_rank(scorer, rank_tasks(TALKS, CONFIG), RankConfig(candidates=10, metrics=("hits@3",)))
    assert scorer.asked == []


def test_as_json() -> None:
    result = judge_rank(truth_teller(TALKS), rank_tasks(TALKS, CONFIG), CONFIG)
    assert result.as_json()["bot"] == "scorer"
    assert result.as_json()["mrr"]["value"] == 1.0
