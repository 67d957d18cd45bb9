import math
from collections.abc import Sequence
from itertools import combinations

import pytest
from scipy import stats

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import BotError, DataError, UnknownName, UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.core.text import squash
from tertulia.judge.config import PersonaSetting, RankConfig
from tertulia.judge.rank import judge_rank, rank_candidates, settings_of
from tertulia.judge.ranking_tasks import rank_tasks
from tertulia.metrics.intervals import wilson_interval
from tertulia.metrics.registry import metric_named
from tertulia.metrics.significance import compare, estimates
from tertulia.talk.bot import Bot

DIALOGUES = sample.dialogues("valid")
CONFIG = RankConfig(candidates=10)


class Scorer:
    """Ranks with a function of (ask, candidate)."""

    spec = "scorer"
    summary = "Scores by a function."

    def __init__(self, score) -> None:  # type: ignore[no-untyped-def]
        self.one, self.asked = score, []

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply("x", Provenance(self.spec)) for _ in asks]

    def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        self.asked += asks
        return [[self.one(ask, text) for text in texts] for ask, texts in zip(asks, candidates, strict=True)]


def figures(bot: Bot, tasks, config: RankConfig, **options) -> dict[str, Estimate]:  # type: ignore[no-untyped-def]
    """The figure of each metric."""
    scores = judge_rank(bot, tasks, config, **options)
    metrics = {score.metric: metric_named(score.metric) for score in scores}
    return {s.metric: e for s, e in zip(scores, estimates(scores, metrics, seed=config.seed), strict=True)}


def oracle(talks: list[Dialogue]) -> Scorer:
    next_of = {tuple(t.text for t in d.turns[:i]): d.turns[i].text for d in talks for i in range(1, len(d.turns))}
    return Scorer(lambda ask, text: float(next_of[tuple(t.text for t in ask.dialogue.turns)] == text))


def test_every_reply_is_a_task_with_the_index_of_the_truth() -> None:
    tasks = rank_tasks(DIALOGUES, CONFIG)
    assert len(tasks) == sum(len(d.turns) - 1 for d in DIALOGUES)
    for task in tasks:
        assert len(task.candidates) == 10
        assert task.candidates[task.truth] == task.exchange.response.text
        assert task.exchange.id.startswith(task.dialogue + "#")


def test_the_position_of_the_truth_is_uniform() -> None:
    positions = [
        task.truth for seed in range(3) for task in rank_tasks(DIALOGUES, RankConfig(candidates=10, seed=seed))
    ]
    assert stats.chisquare([positions.count(k) for k in range(10)]).pvalue > 0.001


def test_distractors_are_distinct_and_from_other_dialogues() -> None:
    own = {d.id: {squash(t.text).lower() for t in d.turns[1:]} for d in DIALOGUES}
    everywhere = {squash(t.text).lower() for d in DIALOGUES for t in d.turns[1:]}
    for task in rank_tasks(DIALOGUES, CONFIG):
        others = [squash(c).lower() for i, c in enumerate(task.candidates) if i != task.truth]
        assert len({*others, squash(task.candidates[task.truth]).lower()}) == 10
        assert set(others) <= everywhere
        elsewhere = {text for name, texts in own.items() if name != task.dialogue for text in texts}
        assert set(others) <= elsewhere


def test_texts_that_differ_only_in_case_and_spaces_are_the_same_reply() -> None:
    talks = [
        Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", text)))
        for i, text in enumerate(["Oh  yes", "oh yes", "OH YES\n", *(f"reply number {i}" for i in range(12))])
    ]
    for seed in range(20):
        for task in rank_tasks(talks, RankConfig(candidates=6, seed=seed)):
            assert len({squash(c).lower() for c in task.candidates}) == 6


def test_a_perfect_scorer_has_perfect_figures() -> None:
    tasks = rank_tasks(DIALOGUES, CONFIG)
    result = figures(oracle(DIALOGUES), tasks, CONFIG)
    assert {name: (e.value, e.high) for name, e in result.items()} == dict.fromkeys(CONFIG.metrics, (1.0, 1.0))
    expected_low = wilson_interval(1.0, len(DIALOGUES))[0]  # perfect so far is not perfect for sure
    assert [e.low for e in result.values()] == [pytest.approx(expected_low)] * len(CONFIG.metrics)
    assert set(rank_candidates(oracle(DIALOGUES), tasks, PersonaSetting("own")).tolist()) == {1}
    assert result["hits@1"].n == len(tasks)


def test_a_constant_scorer_performs_at_chance() -> None:
    tasks = [t for seed in range(4) for t in rank_tasks(DIALOGUES, RankConfig(candidates=10, seed=seed))]
    result = figures(Scorer(lambda ask, text: 0.0), tasks, CONFIG)
    slack = 4 * math.sqrt(0.1 * 0.9 / len(tasks))
    assert abs(result["hits@1"].value - 0.1) < slack
    assert abs(result["hits@5"].value - 0.5) < 4 * math.sqrt(0.25 / len(tasks))


def test_a_scorer_with_a_favourite_position_performs_at_chance() -> None:
    tasks = [t for seed in range(4) for t in rank_tasks(DIALOGUES, RankConfig(candidates=10, seed=seed))]

    class LastIsBest(Scorer):
        def score(self, asks: Sequence[Ask], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
            return [[float(i) for i, _ in enumerate(texts)] for texts in candidates]

    value = figures(LastIsBest(None), tasks, CONFIG)["hits@1"].value
    assert abs(value - 0.1) < 4 * math.sqrt(0.1 * 0.9 / len(tasks))


def test_the_same_seed_gives_the_same_tasks_and_figures() -> None:
    again = RankConfig(candidates=10, seed=5)
    assert rank_tasks(DIALOGUES, again) == rank_tasks(DIALOGUES, again)
    assert rank_tasks(DIALOGUES, again) != rank_tasks(DIALOGUES, RankConfig(candidates=10, seed=6))
    tasks = rank_tasks(DIALOGUES, again)
    constant = Scorer(lambda ask, text: 0.0)
    assert judge_rank(constant, tasks, again) == judge_rank(constant, tasks, again)


def test_the_batch_size_changes_only_the_progress() -> None:
    tasks = rank_tasks(DIALOGUES, CONFIG)[:30]
    done: list[int] = []
    by_seven = judge_rank(Scorer(lambda ask, text: len(text)), tasks, CONFIG, batch=7, progress=done.append)
    assert by_seven == judge_rank(Scorer(lambda ask, text: len(text)), tasks, CONFIG)
    assert done == [7, 7, 7, 7, 2]


def test_only_one_speaker() -> None:
    tasks = rank_tasks(DIALOGUES, RankConfig(candidates=10, speaker="b"))
    said_by_b = {t.text for d in DIALOGUES for t in d.turns if t.speaker == "b"}
    assert {t.exchange.response.speaker for t in tasks} == {"b"}
    assert all(set(t.candidates) <= said_by_b for t in tasks)


@pytest.mark.parametrize("persona", ["own", "none"])
def test_the_bot_is_shown_the_persona_of_the_setting(persona: str) -> None:
    config = RankConfig(candidates=10, persona=persona)  # type: ignore[arg-type]
    tasks = rank_tasks(DIALOGUES, config)[:20]
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
    with pytest.raises(DataError, match=r"19 replies are too few to rank among 10 candidates\.\n.*--candidates"):
        rank_tasks(small(19), CONFIG)
    assert len(rank_tasks(small(20), CONFIG)) == 20
    with pytest.raises(DataError, match="0 replies"):
        rank_tasks([], CONFIG)


def test_one_long_dialogue_has_no_distractors_of_its_own() -> None:
    one = Dialogue("long", tuple(Turn("ab"[i % 2], f"turn {i}") for i in range(60)))
    with pytest.raises(DataError, match="Only 3 replies from other dialogues are available as distractors for long"):
        rank_tasks([one, *small(3)], CONFIG)


def test_a_bot_that_cannot_rank_is_an_error() -> None:
    class Talker:
        spec = "talker"
        summary = "Cannot rank."

        def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
            return [Reply("x", Provenance(self.spec)) for _ in asks]

    with pytest.raises(BotError, match="'talker' cannot rank"):
        judge_rank(Talker(), rank_tasks(DIALOGUES, CONFIG), CONFIG)


def test_metrics_that_do_not_fit_are_errors_before_the_work() -> None:
    scorer = Scorer(lambda ask, text: 0.0)
    with pytest.raises(UnknownName, match="hits@1"):
        judge_rank(scorer, rank_tasks(DIALOGUES, CONFIG), RankConfig(candidates=10, metrics=("hit@3",)))
    with pytest.raises(UsageError, match="1in11 needs 11 candidates, but there are only 10"):
        judge_rank(scorer, rank_tasks(DIALOGUES, CONFIG), RankConfig(candidates=10, metrics=("1in11",)))
    with pytest.raises(UsageError, match="'f1' is a metric of replies"):
        judge_rank(scorer, rank_tasks(DIALOGUES, CONFIG), RankConfig(candidates=10, metrics=("f1",)))
    assert scorer.asked == []


def test_scores_name_the_replies_and_their_dialogues() -> None:
    tasks = rank_tasks(DIALOGUES, CONFIG)
    scores = judge_rank(oracle(DIALOGUES), tasks, CONFIG, subject="me")
    assert [score.key for score in scores] == [("me", "own, original", metric) for metric in CONFIG.metrics]
    for score in scores:
        assert score.units == tuple(task.exchange.id for task in tasks)
        assert score.clusters == tuple(task.dialogue for task in tasks)


def longest() -> Scorer:
    """Prefers long replies: sometimes right, hardly ever tied."""
    return Scorer(lambda ask, text: len(text) + len(text.split()) / 100)


def test_every_metric_against_a_naive_count() -> None:
    names = ("hits@1", "hits@3", "recall@2", "hits@7", "mrr", "1in2", "recall@2in5")
    config = RankConfig(candidates=10, metrics=names)
    tasks = rank_tasks(DIALOGUES, config)
    result = figures(longest(), tasks, config)
    ranks = rank_candidates(longest(), tasks, PersonaSetting("own"))
    expected = dict.fromkeys(names, 0.0)
    for task, rank in zip(tasks, ranks.tolist(), strict=True):
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
        assert result[name].value == pytest.approx(expected[name] / len(tasks)), name
        assert result[name].low < result[name].value < result[name].high


def test_a_figure_does_not_depend_on_the_other_metrics() -> None:
    """All figures come from the same draws of dialogues: alone or together, they are the same."""
    tasks = rank_tasks(DIALOGUES, CONFIG)
    alone = figures(longest(), tasks, RankConfig(candidates=10, metrics=("mrr",)))["mrr"]
    both = figures(longest(), tasks, CONFIG)["mrr"]
    assert (alone.value, alone.low, alone.high) == pytest.approx((both.value, both.low, both.high))


def test_the_difference_between_a_bot_and_itself_is_zero() -> None:
    tasks = rank_tasks(DIALOGUES, CONFIG)
    one, again = (judge_rank(Scorer(lambda ask, text: 0.0), tasks, CONFIG) for _ in range(2))
    for first, second in zip(one, again, strict=True):
        comparison = compare(first, second, metric_named(first.metric))
        assert comparison is not None
        figure = comparison.estimate
        assert (figure.value, figure.n) == (0, len(tasks))
        assert -0.12 < figure.low < 0 < figure.high < 0.12  # alike in these dialogues, which need not be so in others


def test_the_difference_is_that_of_the_means() -> None:
    tasks = rank_tasks(DIALOGUES, CONFIG)
    best, other = (judge_rank(bot, tasks, CONFIG)[0] for bot in (oracle(DIALOGUES), longest()))
    expected = figures(longest(), tasks, CONFIG)["hits@1"]
    ahead = compare(best, other, metric_named("hits@1"))
    behind = compare(other, best, metric_named("hits@1"))
    assert ahead is not None
    assert behind is not None
    assert ahead.estimate.value == pytest.approx(1 - expected.value)
    assert (ahead.estimate.low, ahead.estimate.high) == pytest.approx((1 - expected.high, 1 - expected.low))
    assert behind.estimate.value == pytest.approx(-ahead.estimate.value)


def with_personas(own: Persona | None, their: Persona | None) -> list[Dialogue]:
    personas = {name: p for name, p in (("b", own), ("a", their)) if p}
    return [Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", f"reply {i}")), personas) for i in range(30)]


def test_settings_show_the_personas_they_name() -> None:
    own, their = Persona(("I sail.",), ("Boats are mine.",)), Persona(("I cook.",), ("Pots are mine.",))
    tasks = rank_tasks(with_personas(own, their), CONFIG)
    seen = {}
    for scope in ("none", "own", "their", "both"):
        for wording in ("original", "revised"):
            scorer = Scorer(lambda ask, text: 0.0)
            judge_rank(scorer, tasks, CONFIG, setting=PersonaSetting(scope, wording))
            personas = scorer.asked[0].dialogue.personas
            seen[scope, wording] = {name: p.sentences for name, p in personas.items()}
    original, revised = {"b": ("I sail.",), "a": ("I cook.",)}, {"b": ("Boats are mine.",), "a": ("Pots are mine.",)}
    for wording, all_of in (("original", original), ("revised", revised)):
        assert seen["none", wording] == {}
        assert seen["own", wording] == {"b": all_of["b"]}
        assert seen["their", wording] == {"a": all_of["a"]}
        assert seen["both", wording] == all_of


def test_a_setting_is_judged_on_the_replies_that_have_its_personas() -> None:
    half = with_personas(Persona(("I sail.",)), None) + [
        Dialogue(f"e{i}", (Turn("a", "hi"), Turn("b", f"answer {i}"))) for i in range(20)
    ]
    tasks = rank_tasks(half, CONFIG)
    counts = {}
    for setting in (
        PersonaSetting(),
        PersonaSetting("own"),
        PersonaSetting("own", "revised"),
        PersonaSetting("their"),
        PersonaSetting("both"),
    ):
        scorer = Scorer(lambda ask, text: 0.0)
        figure = figures(scorer, tasks, CONFIG, setting=setting)["hits@1"]
        counts[str(setting)] = figure.n
        assert len(scorer.asked) == figure.n
        assert math.isnan(figure.value) == (figure.n == 0)
    assert counts == {"none": 50, "own, original": 30, "own, revised": 0, "their, original": 0, "both, original": 0}


def test_settings_of_a_config() -> None:
    with_personas, without = rank_tasks(DIALOGUES, CONFIG), rank_tasks(small(30), CONFIG)
    assert settings_of(RankConfig(), with_personas) == [PersonaSetting("own", "original")]
    assert settings_of(RankConfig(), without) == [PersonaSetting("none")]
    assert settings_of(RankConfig(persona="own"), without) == [PersonaSetting("own")]  # type: ignore[arg-type]
    grid = RankConfig(persona=("none", "own", "both"), wording=("original", "revised"))
    assert [str(s) for s in settings_of(grid, without)] == [
        "none",
        "own, original",
        "own, revised",
        "both, original",
        "both, revised",
    ]
    assert settings_of(RankConfig(wording=("revised",)), with_personas) == [PersonaSetting("own", "revised")]
