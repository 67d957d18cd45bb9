import math
from collections.abc import Sequence
from itertools import combinations

import pytest
from scipy import stats

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import BotError, DataError, UnknownName, UsageError
from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.core.text import squash
from tertulia.judge.rank import RankConfig, Setting, difference, judge_rank, rank_tasks, settings_of

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
        judge_rank(scorer, rank_tasks(TALKS, CONFIG), RankConfig(candidates=10, metrics=("hit@3",)))
    with pytest.raises(UsageError, match="1in11 cannot be told of replies among 10"):
        judge_rank(scorer, rank_tasks(TALKS, CONFIG), RankConfig(candidates=10, metrics=("1in11",)))
    assert scorer.asked == []


def test_as_json() -> None:
    result = judge_rank(truth_teller(TALKS), rank_tasks(TALKS, CONFIG), CONFIG)
    assert result.as_json()["bot"] == "scorer"
    assert result.as_json()["mrr"]["value"] == 1.0
    assert (result.as_json()["persona"], result.as_json()["wording"]) == ("own", "original")
    assert list(result.as_json()["by_length"]) == ["1", "2", "3-4", "5-8", "9-16"]


def loudest() -> Scorer:
    """Likes long replies: right now and then, and hardly ever tied."""
    return Scorer(lambda ask, text: len(text) + len(text.split()) / 100)


def test_every_measure_against_a_naive_count() -> None:
    names = ("hits@1", "hits@3", "recall@2", "hits@7", "mrr", "1in2", "recall@2in5")
    config = RankConfig(candidates=10, metrics=names)
    tasks = rank_tasks(TALKS, config)
    result = judge_rank(loudest(), tasks, config)
    expected = dict.fromkeys(names, 0.0)
    for task, rank in zip(tasks, result.ranks, strict=True):
        mine = len(task.candidates[task.truth]) + len(task.candidates[task.truth].split()) / 100
        others = [len(c) + len(c.split()) / 100 for i, c in enumerate(task.candidates) if i != task.truth]
        assert sum(o > mine for o in others) < rank <= 1 + sum(o >= mine for o in others)
        better = [True] * (rank - 1) + [False] * (10 - rank)
        for name in ("hits@1", "hits@3", "recall@2", "hits@7"):
            expected[name] += rank <= int(name.partition("@")[2])
        expected["mrr"] += 1 / rank
        expected["1in2"] += sum(not b for b in better) / 9
        fives = list(combinations(better, 4))
        expected["recall@2in5"] += sum(sum(four) < 2 for four in fives) / len(fives)
    for name in names:
        assert result.figures[name].value == pytest.approx(expected[name] / len(tasks)), name
        assert result.figures[name].low < result.figures[name].value < result.figures[name].high


def test_the_parts_by_length_make_the_whole() -> None:
    result = judge_rank(loudest(), rank_tasks(TALKS, CONFIG), CONFIG)
    parts = [figures["hits@1"] for figures in result.by_length.values()]
    assert sum(part.n for part in parts) == result.figures["hits@1"].n
    mean = sum(part.value * part.n for part in parts) / sum(part.n for part in parts)
    assert mean == pytest.approx(result.figures["hits@1"].value)
    assert result.by_length["1"]["hits@1"].n == len(TALKS)
    assert all(part.low < part.high for part in parts)


def test_a_figure_does_not_depend_on_what_else_is_counted() -> None:
    """All figures come from the same draws of dialogues: alone or together, they are the same."""
    tasks = rank_tasks(TALKS, CONFIG)
    alone = judge_rank(loudest(), tasks, RankConfig(candidates=10, metrics=("mrr",))).figures["mrr"]
    both = judge_rank(loudest(), tasks, CONFIG).figures["mrr"]
    assert (alone.value, alone.low, alone.high) == pytest.approx((both.value, both.low, both.high))


def test_the_difference_between_a_bot_and_itself_is_nothing() -> None:
    tasks = rank_tasks(TALKS, CONFIG)
    one, again = (judge_rank(Scorer(lambda ask, text: 0.0), tasks, CONFIG) for _ in range(2))
    for figure in difference(one, again, tasks, CONFIG).figures.values():
        assert (figure.value, figure.low, figure.high, figure.n) == (0, 0, 0, len(tasks))


def test_the_difference_is_that_of_the_means_and_surer() -> None:
    tasks = rank_tasks(TALKS, CONFIG)
    best, other = judge_rank(truth_teller(TALKS), tasks, CONFIG), judge_rank(loudest(), tasks, CONFIG)
    found = difference(best, other, tasks, CONFIG)
    assert (found.bot, found.than, found.setting) == ("scorer", "scorer", Setting("own"))
    ahead, theirs = found.figures["hits@1"], other.figures["hits@1"]
    assert ahead.value == pytest.approx(1 - theirs.value)
    assert (ahead.low, ahead.high) == pytest.approx((1 - theirs.high, 1 - theirs.low))
    assert difference(other, best, tasks, CONFIG).figures["hits@1"].value == pytest.approx(-ahead.value)


def dressed(own: Persona | None, their: Persona | None) -> list[Dialogue]:
    personas = {name: p for name, p in (("b", own), ("a", their)) if p}
    return [Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", f"reply {i}")), personas) for i in range(30)]


def test_settings_show_what_they_say() -> None:
    own, their = Persona(("I sail.",), ("Boats are mine.",)), Persona(("I cook.",), ("Pots are mine.",))
    tasks = rank_tasks(dressed(own, their), CONFIG)
    seen = {}
    for whose in ("none", "own", "their", "both"):
        for wording in ("original", "revised"):
            scorer = Scorer(lambda ask, text: 0.0)
            judge_rank(scorer, tasks, CONFIG, setting=Setting(whose, wording))
            personas = scorer.asked[0].dialogue.personas
            seen[whose, wording] = {name: p.sentences for name, p in personas.items()}
    original, revised = {"b": ("I sail.",), "a": ("I cook.",)}, {"b": ("Boats are mine.",), "a": ("Pots are mine.",)}
    for wording, all_of in (("original", original), ("revised", revised)):
        assert seen["none", wording] == {}
        assert seen["own", wording] == {"b": all_of["b"]}
        assert seen["their", wording] == {"a": all_of["a"]}
        assert seen["both", wording] == all_of


def test_a_setting_is_judged_on_the_replies_that_have_it() -> None:
    half = dressed(Persona(("I sail.",)), None) + [
        Dialogue(f"e{i}", (Turn("a", "hi"), Turn("b", f"answer {i}"))) for i in range(20)
    ]
    tasks = rank_tasks(half, CONFIG)
    counts = {}
    for setting in (Setting(), Setting("own"), Setting("own", "revised"), Setting("their"), Setting("both")):
        scorer = Scorer(lambda ask, text: 0.0)
        figure = judge_rank(scorer, tasks, CONFIG, setting=setting).figures["hits@1"]
        counts[str(setting)] = figure.n
        assert len(scorer.asked) == figure.n
        assert math.isnan(figure.value) == (figure.n == 0)
    assert counts == {"none": 50, "own, original": 30, "own, revised": 0, "their, original": 0, "both, original": 0}


def test_which_settings_there_are() -> None:
    with_personas, without = rank_tasks(TALKS, CONFIG), rank_tasks(small(30), CONFIG)
    assert settings_of(RankConfig(), with_personas) == [Setting("own", "original")]
    assert settings_of(RankConfig(), without) == [Setting("none")]
    assert settings_of(RankConfig(persona="own"), without) == [Setting("own")]  # type: ignore[arg-type]
    grid = RankConfig(persona=("none", "own", "both"), wording=("original", "revised"))
    assert [str(s) for s in settings_of(grid, without)] == [
        "none",
        "own, original",
        "own, revised",
        "both, original",
        "both, revised",
    ]
    assert settings_of(RankConfig(wording=("revised",)), with_personas) == [Setting("own", "revised")]
