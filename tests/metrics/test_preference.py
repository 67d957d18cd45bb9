import itertools
import math
import re

import numpy as np
import pytest
from scipy import optimize

from tertulia.core.errors import DataError
from tertulia.metrics.preference import PRIOR_SD, PairwiseVote, Winner, bradley_terry, head_to_head

STRENGTHS = {"ann": 1.0, "bea": 0.4, "cas": -0.3, "dot": -1.1}
OUTCOMES: tuple[Winner, ...] = ("first", "second", "tie")


def simulate(
    rng: np.random.Generator, n: int, *, nu: float = 0.5, strengths: dict[str, float] = STRENGTHS
) -> list[PairwiseVote]:
    """Independent votes by Davidson's model."""
    votes = []
    for k in range(n):
        i, j = rng.choice(list(strengths), 2, replace=False).tolist()
        a, b = math.exp(strengths[i]), math.exp(strengths[j])
        odds = np.array([a, b, nu * math.sqrt(a * b)])
        votes.append(PairwiseVote(i, j, OUTCOMES[rng.choice(3, p=odds / odds.sum())], f"c{k}", f"r{k % 25}"))
    return votes


def test_strengths_and_tie_parameter_are_recovered() -> None:
    fit = bradley_terry(simulate(np.random.default_rng(0), 6000))
    assert list(fit.strengths) == list(STRENGTHS)
    for name, strength in STRENGTHS.items():
        assert fit.strengths[name].value == pytest.approx(strength, abs=0.12)
    assert fit.tie_parameter == pytest.approx(0.5, abs=0.06)
    assert fit.votes == 6000
    assert sum(figure.n for figure in fit.strengths.values()) == 12000
    assert sum(figure.value for figure in fit.strengths.values()) == pytest.approx(0, abs=1e-8)
    assert {name: rank.rank for name, rank in fit.ranks.items()} == {"ann": 1, "bea": 2, "cas": 3, "dot": 4}
    assert all(rank.best == rank.rank == rank.worst for rank in fit.ranks.values())


@pytest.mark.parametrize("nu", [0.0, 0.7])
def test_the_fit_is_that_of_a_general_maximiser(nu: float) -> None:
    votes = simulate(np.random.default_rng(3), 40, nu=nu)
    names = sorted(STRENGTHS)

    def loss(parameters: np.ndarray) -> float:
        theta = dict(zip(names, parameters[:4], strict=True))
        log_nu = parameters[4] if nu else -math.inf
        value = (parameters[: 5 if nu else 4] ** 2).sum() / (2 * PRIOR_SD**2)
        for vote in votes:
            a, b = theta[vote.first], theta[vote.second]
            utility = {"first": a, "second": b, "tie": log_nu + (a + b) / 2}
            value -= utility[vote.winner] - math.log(sum(math.exp(u) for u in utility.values()))
        return float(value)

    best = optimize.minimize(
        loss, np.zeros(5), method="Nelder-Mead", options={"maxiter": 20000, "fatol": 1e-12, "xatol": 1e-8}
    )
    fit = bradley_terry(votes, interval="information")
    assert [fit.strengths[name].value for name in names] == pytest.approx(best.x[:4], abs=1e-4)
    assert fit.tie_parameter == pytest.approx(math.exp(best.x[4]) if nu else 0.0, abs=1e-4)


@pytest.mark.parametrize("interval", ["robust", "bootstrap", "information"])
def test_unbeaten_subjects_and_ties_alone_stay_finite(interval: str) -> None:
    unbeaten = [PairwiseVote("a", "b", "first", str(k), str(k % 9)) for k in range(50)]
    fit = bradley_terry(unbeaten, interval=interval, resamples=100)  # type: ignore[arg-type]
    assert 1 < fit.strengths["a"].value < 10
    assert 0.9 < fit.beats("a", "b").value < 1
    assert all(math.isfinite(end) for figure in fit.strengths.values() for end in (figure.low, figure.high))
    # Votes that do not vary are no reason for certainty.
    assert fit.strengths["a"].high - fit.strengths["a"].low > 1
    assert fit.beats("a", "b").low < 0.97
    ties = bradley_terry([vote._replace(winner="tie") for vote in unbeaten])
    assert ties.strengths["a"].value == pytest.approx(0)
    assert ties.outcome("a", "b").tie > 0.9


def test_subjects_that_no_vote_connects_are_an_error_that_names_them() -> None:
    votes = [PairwiseVote(a, b, "first", "c", "r") for a, b in ("ab", "bc", "de")]
    with pytest.raises(DataError, match=re.escape("Not connected: a, b, c | d, e")):
        bradley_terry(votes)
    with pytest.raises(DataError, match="itself"):
        bradley_terry([PairwiseVote("a", "a", "tie", "c", "r")])


def test_outcomes_are_probabilities_and_symmetric() -> None:
    votes = simulate(np.random.default_rng(1), 500)
    fit = bradley_terry(votes)
    for i, j in itertools.permutations(STRENGTHS, 2):
        outcome, reverse = fit.outcome(i, j), fit.outcome(j, i)
        assert sum(outcome) == pytest.approx(1)
        assert (outcome.win, outcome.tie) == pytest.approx((reverse.loss, reverse.tie))
        beats = fit.beats(i, j)
        assert beats.value == pytest.approx(outcome.win / (outcome.win + outcome.loss))
        assert beats.low < beats.value < beats.high
        assert beats.n == sum({vote.first, vote.second} == {i, j} for vote in votes)


def test_independent_votes_give_the_same_intervals_by_all_methods() -> None:
    votes = [vote._replace(rater=vote.item) for vote in simulate(np.random.default_rng(2), 800)]
    widths = {}
    for interval in ("robust", "bootstrap", "information"):
        fit = bradley_terry(votes, interval=interval, resamples=600)
        widths[interval] = [figure.high - figure.low for figure in fit.strengths.values()]
    assert widths["robust"] == pytest.approx(widths["information"], rel=0.15)
    assert widths["bootstrap"] == pytest.approx(widths["information"], rel=0.2)


def test_intervals_cover_where_raters_repeat_themselves() -> None:
    """Each vote is cast ten times by the same rater: only clustered intervals know that they are worth one."""
    covered: dict[str, list[bool]] = {"robust": [], "information": []}
    ranks, chances = [], []
    for trial in range(100):
        once = simulate(np.random.default_rng(trial), 80)
        votes = [vote._replace(rater=f"r{k}", item=f"{k}.{copy}") for k, vote in enumerate(once) for copy in range(10)]
        for interval, hits in covered.items():
            fit = bradley_terry(votes, interval=interval)  # type: ignore[arg-type]
            hits += [figure.low <= STRENGTHS[name] <= figure.high for name, figure in fit.strengths.items()]
            if interval == "robust":
                beats = fit.beats("ann", "cas")
                chances.append(beats.low <= 1 / (1 + math.exp(STRENGTHS["cas"] - STRENGTHS["ann"])) <= beats.high)
                ranks += [r.best <= 1 + list(STRENGTHS).index(name) <= r.worst for name, r in fit.ranks.items()]
    assert 0.9 < np.mean(covered["robust"]) < 0.99
    assert np.mean(covered["information"]) < 0.7
    assert np.mean(ranks) > 0.93
    assert np.mean(chances) > 0.9


def test_no_votes_give_no_strengths() -> None:
    assert bradley_terry([]).strengths == {}
    empty = head_to_head([], "a", "b")
    assert (empty.items, empty.win.n, math.isnan(empty.win.value)) == (0, 0, True)


def rows(item: str, winners: str) -> list[PairwiseVote]:
    """Votes on a and b: `1` and `2` for the sides, `0` for a tie; odd raters see the sides swapped."""
    votes = []
    for k, w in enumerate(winners):
        vote = PairwiseVote("a", "b", {"1": "first", "2": "second", "0": "tie"}[w], item, f"r{k}")  # type: ignore[arg-type]
        swapped: dict[Winner, Winner] = {"first": "second", "second": "first", "tie": "tie"}
        votes.append(PairwiseVote("b", "a", swapped[vote.winner], item, f"r{k}") if k % 2 else vote)
    return votes


def test_ambiguous_items_are_counted_and_left_out_on_request() -> None:
    votes = [*rows("x", "112"), *rows("y", "12"), *rows("z", "001"), *rows("w", "00"), *rows("v", "222")]
    votes.append(PairwiseVote("a", "other", "first", "x", "r0"))
    by_vote = head_to_head(votes, "a", "b")
    assert (by_vote.items, by_vote.ambiguous, by_vote.win.n) == (5, 1, 13)
    assert [f.value for f in by_vote[:3]] == pytest.approx([4 / 13, 5 / 13, 4 / 13])
    by_item = head_to_head(votes, "a", "b", unit="item")
    assert [f.value for f in by_item[:3]] == pytest.approx([1 / 5, 1 / 5, 3 / 5])
    dropped = head_to_head(votes, "a", "b", unit="item", drop_ambiguous=True)
    assert [f.value for f in dropped[:3]] == pytest.approx([1 / 4, 1 / 4, 2 / 4])
    assert (dropped.ambiguous, dropped.win.n) == (1, 4)
    reverse = head_to_head(votes, "b", "a")
    assert (reverse.win, reverse.loss) == (by_vote.loss, by_vote.win)
    assert reverse.margin.value == pytest.approx(-by_vote.margin.value)


@pytest.mark.parametrize("interval", ["wilson", "bootstrap"])
def test_intervals_do_not_collapse_when_one_side_wins_always(interval: str) -> None:
    votes = [vote for k in range(20) for vote in rows(f"i{k}", "111")]
    result = head_to_head(votes, "a", "b", interval=interval)  # type: ignore[arg-type]
    assert result.win.high == 1.0
    assert 0.75 < result.win.low < 0.95
    assert (result.loss.low, result.tie.low) == (0.0, 0.0)
    assert 0.05 < result.loss.high < 0.25
    assert 0.5 < result.margin.low < 0.95


@pytest.mark.parametrize("interval", ["wilson", "bootstrap"])
def test_shares_are_covered_where_items_differ(interval: str) -> None:
    covered = []
    for trial in range(200):
        rng = np.random.default_rng(trial)
        votes = []
        for k in range(60):
            share = rng.beta(1.5, 1.5)  # some contexts favour one side
            votes += [
                PairwiseVote("a", "b", "first" if rng.random() < share else "second", str(k), f"r{rng.integers(30)}")
                for _ in range(3)
            ]
        figure = head_to_head(votes, "a", "b", interval=interval, resamples=300).win  # type: ignore[arg-type]
        assert figure.level == 0.9
        covered.append(figure.low <= 0.5 <= figure.high)
    assert 0.84 < np.mean(covered) < 0.96
