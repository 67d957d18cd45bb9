"""Decoding with a Markov chain, whose every probability can be computed by hand."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tertulia.core.config import validate
from tertulia.core.errors import ConfigError
from tertulia.models.decoding import PRESETS, DecodingConfig, DecodingSession, Generation, decode
from tertulia.models.generator import (
    DialogueView,
    Generator,
    Importance,
    Latent,
    LatentGenerator,
    Nll,
    TargetTurns,
)
from tertulia.models.sampling import Keys, RowNoise
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, PERSONA, UNKNOWN, WordTokenizer

A, B, C, D = range(6, 10)
LAST = -1e9


class ChainState:
    def __init__(self, view: torch.Tensor, last: torch.Tensor, position: int, bias: torch.Tensor | None = None) -> None:
        self.view, self.last = view, last  # (rows,): the view's number, the last token
        self.position = position
        self.bias = bias  # (rows, vocabulary): added to the first logits

    def expand(self, count: int, /) -> "ChainState":
        return ChainState(self.view.repeat_interleave(count), self.last.repeat_interleave(count), self.position)

    def select(self, rows: torch.Tensor, /) -> "ChainState":
        return ChainState(self.view[rows], self.last[rows], self.position)


class Chain(nn.Module):
    """Logits by view (its number of turns, modulo 3), position in the turn, and last token, in float64."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.tokenizer = WordTokenizer(["a", "b", "c", "d"])
        self.table = torch.randn(3, 16, 10, 10, generator=torch.Generator().manual_seed(seed)).double() * 1.5
        self.rows: list[int] = []
        self.encoded = 0

    def start(self, views: Sequence[DialogueView], /) -> ChainState:
        self.encoded += len(views)
        numbers = torch.tensor([len(t.turns) % 3 for t in views])
        return ChainState(numbers, torch.zeros(len(views), dtype=torch.long), 0)

    def step(self, state: ChainState, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, ChainState]:
        last = state.last if tokens is None else tokens
        self.rows.append(len(last))
        assert not self.training
        logits = self.table[state.view, state.position, last]
        if state.bias is not None:
            logits = logits + state.bias
        return logits, ChainState(state.view, last, state.position + 1)

    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        raise NotImplementedError

    def save(self, folder: Path, /) -> Sequence[str]:
        raise NotImplementedError

    def logprob(self, view: DialogueView, tokens: Sequence[int]) -> float:
        """By hand."""
        table = self.table[len(view.turns) % 3].log_softmax(-1)
        return sum(float(table[position, a, b]) for position, (a, b) in enumerate(itertools.pairwise([0, *tokens])))


class LatentChain(Chain):
    """A chain with a latent variable: a random bias of the first logits."""

    def start(self, views: Sequence[DialogueView], /, *, keys: Keys | None = None) -> ChainState:
        state = super().start(views)
        if keys is None:
            return state
        assert len(keys) % len(views) == 0
        state = state.expand(len(keys) // len(views))
        bias = 3 * RowNoise(keys)(torch.empty(len(keys), 10, dtype=torch.double))
        return ChainState(state.view, state.last, state.position, bias)

    def nll(
        self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all", latent: Latent = "sample"
    ) -> Nll:
        raise NotImplementedError

    def importance(
        self, views: Sequence[DialogueView], /, *, samples: int, seed: int, target_turns: TargetTurns = "all"
    ) -> Importance:
        raise NotImplementedError


def view(turns: int) -> DialogueView:
    return DialogueView(("hi",) * turns, tuple(i % 2 == 1 for i in range(turns)))


VIEWS = [view(n) for n in (1, 2, 3, 4, 5)]
SEEDS = [11, 12, 13, 14, 15]


@pytest.fixture
def chain() -> Chain:
    return Chain().eval()


def same(one: Sequence[Sequence[Generation]], other: Sequence[Sequence[Generation]]) -> bool:
    """The same turns, in the same order, their log-probabilities equal up to rounding."""

    def parts(generations: Sequence[Generation]) -> list[tuple[tuple[int, ...], bool, int, float]]:
        return [(g.tokens, g.finished, g.drawn, round(g.logprob, 9)) for g in generations]

    return [parts(part) for part in one] == [parts(part) for part in other]


def test_the_chains_are_generators(chain: Chain) -> None:
    assert isinstance(chain, Generator)
    assert not isinstance(chain, LatentGenerator)
    assert isinstance(LatentChain(), LatentGenerator)


def test_presets_are_those_of_the_paper() -> None:
    base, full = PRESETS["meena-base"], PRESETS["meena-full"]
    assert (base.method, base.samples, base.temperature, base.top_k) == ("sample-and-rank", 20, 0.88, 0)
    assert (full.method, full.samples, full.temperature, full.top_k) == ("sample-and-rank", 20, 1.0, 40)
    assert (base.top_p, full.top_p, base.score, full.score) == (1.0, 1.0, "mean", "mean")


def test_max_tokens_must_not_be_less_than_min_tokens() -> None:
    with pytest.raises(ConfigError, match="max_tokens: must not be less than min_tokens"):
        validate(DecodingConfig, {"min_tokens": 6, "max_tokens": 5}, where="the test")


def test_samples_are_as_frequent_as_they_are_probable(chain: Chain) -> None:
    config = DecodingConfig(method="sample", max_tokens=3, temperature=0.88, min_tokens=1)
    seen: Counter[tuple[int, ...]] = Counter()
    n = 6000
    for generations in decode(chain, [VIEWS[0]] * n, config, range(n)):
        seen[generations[0].tokens] += 1
    expected: dict[tuple[int, ...], float] = {}
    for turn in turns_up_to(3):
        p, last = 1.0, 0
        for position, token in enumerate(turn):
            p *= sampling_distribution(chain.table[1, position, last], config.forbidden(position))[token]
            last = token
        expected[tuple(t for t in turn if t != END)] = expected.get(tuple(t for t in turn if t != END), 0) + p
    assert math.isclose(sum(expected.values()), 1, rel_tol=1e-6)
    often = [t for t in expected if expected[t] * n >= 8]
    rare = n - sum(seen[t] for t in often), n * (1 - sum(expected[t] for t in often))
    observed = [*(seen[t] for t in often), rare[0]]
    assert stats.chisquare(observed, [*(expected[t] * n for t in often), rare[1]]).pvalue > 0.01


def sampling_distribution(logits: torch.Tensor, forbidden: Sequence[int]) -> np.ndarray:
    weights = (logits / 0.88).exp().numpy()
    weights[list(forbidden)] = 0
    return np.asarray(weights / weights.sum())


def turns_up_to(max_length: int) -> list[tuple[int, ...]]:
    """Every turn that may be generated: not empty, with its end or cut."""
    words = (A, B, C, D)
    complete = [(*t, END) for n in range(1, max_length) for t in itertools.product(words, repeat=n)]
    return [*complete, *itertools.product(words, repeat=max_length)]


def test_the_score_is_the_models_own_log_probability(chain: Chain) -> None:
    for score in ("mean", "sum"):
        config = PRESETS["meena-base"].model_copy(update={"max_tokens": 6, "score": score, "top_k": 3})
        for where, generations in zip(VIEWS, decode(chain, VIEWS, config, SEEDS), strict=True):
            assert generations == sorted(generations, key=lambda g: -g.score)
            assert sum(g.drawn for g in generations) == 20
            for one in generations:
                expected = chain.logprob(where, (*one.tokens, END) if one.finished else one.tokens)
                assert one.count == len(one.tokens) + one.finished
                assert one.logprob == pytest.approx(expected, abs=1e-5)
                assert one.score == pytest.approx(expected / (one.count if score == "mean" else 1), abs=1e-5)
                assert one.finished or len(one.tokens) == 6
                assert one.text == chain.tokenizer.decode(one.tokens)


def test_equal_texts_are_listed_once_and_counted(chain: Chain) -> None:
    generations = decode(chain, VIEWS, DecodingConfig(samples=60, max_tokens=2), SEEDS)
    assert all(len({g.text for g in part}) == len(part) for part in generations)
    assert max(g.drawn for part in generations for g in part) > 1


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", "sample-and-rank"])
def test_a_reply_does_not_depend_on_the_batch(chain: Chain, method: str) -> None:
    config = validate(DecodingConfig, {"method": method, "max_tokens": 8, "samples": 7}, where="the test")
    together = decode(chain, VIEWS, config, SEEDS)
    alone = [decode(chain, [t], config, [s])[0] for t, s in zip(VIEWS, SEEDS, strict=True)]
    assert same(together, alone)
    backwards = decode(chain, VIEWS[::-1], config, SEEDS[::-1])
    assert same(together, backwards[::-1])


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", "sample-and-rank"])
def test_latent_variables_come_from_the_seed_too(method: str) -> None:
    latent = LatentChain().eval()
    config = validate(DecodingConfig, {"method": method, "max_tokens": 8, "samples": 7}, where="the test")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    together = decode(latent, VIEWS, config, SEEDS)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert same(together, [decode(latent, [t], config, [s])[0] for t, s in zip(VIEWS, SEEDS, strict=True)])
    assert not same(together, decode(latent, VIEWS, config, SEEDS[::-1]))


def test_other_seeds_give_other_samples(chain: Chain) -> None:
    config = DecodingConfig(method="sample", max_tokens=12)
    generations = decode(chain, [VIEWS[0]] * 30, config, range(30))
    assert len({part[0].tokens for part in generations}) > 10
    assert same(generations, decode(chain, [VIEWS[0]] * 30, config, range(30)))
    other = decode(chain, [VIEWS[0]] * 30, config.model_copy(update={"seed": 1}), range(30))
    assert not same(generations, other)
    with pytest.raises(ValueError, match="as many seeds"):
        decode(chain, VIEWS, config, [1])


@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_removing_samples_that_have_ended_changes_nothing(chain: Chain, penalty: float) -> None:
    config = DecodingConfig(samples=50, max_tokens=12, repetition_penalty=penalty)
    compacted = decode(chain, VIEWS, config, SEEDS)
    rows_compacted = sum(chain.rows)
    chain.rows.clear()
    full = decode(chain, VIEWS, config, SEEDS, compact_share=2.0)
    assert same(compacted, full)
    assert set(chain.rows) == {250}
    assert rows_compacted < 0.75 * sum(chain.rows)


@pytest.mark.parametrize("method", ["sample", "greedy", "sample-and-rank"])
def test_the_repetition_penalty_is_for_tokens_of_the_reply_and_leaves_scores_alone(method: str) -> None:
    chain = Chain(seed=1).eval()
    chain.table[:, :, :, END] = LAST
    values = {"method": method, "max_tokens": 9, "repetition_penalty": 3.0, "temperature": 0.0}
    config = validate(DecodingConfig, values, where="the test")
    penalised = decode(chain, VIEWS, config, SEEDS)
    for where, generations in zip(VIEWS, penalised, strict=True):
        last, expected = 0, []
        for position in range(9):
            row = chain.table[len(where.turns) % 3, position, last].clone()
            for token in set(expected):
                row[token] = row[token] / 3 if row[token] > 0 else row[token] * 3
            row[list(config.forbidden(position))] = -math.inf
            last = int(row.argmax())
            expected.append(last)
        assert [g.tokens for g in generations] == [tuple(expected)]
        assert generations[0].logprob == pytest.approx(chain.logprob(where, expected))
    assert not same(penalised, decode(chain, VIEWS, config.model_copy(update={"repetition_penalty": 1.0}), SEEDS))


def test_a_context_is_encoded_once_for_all_samples(chain: Chain) -> None:
    decode(chain, VIEWS, DecodingConfig(samples=200, max_tokens=2), SEEDS)
    assert chain.encoded == len(VIEWS)
    assert max(chain.rows) == 400  # two views at once: never more than ROWS_AT_ONCE


def test_special_tokens_are_never_generated_and_a_turn_is_not_empty(chain: Chain) -> None:
    chain.table[:, :, :, [PAD, OWN, OTHER, PERSONA, UNKNOWN]] += 5
    chain.table[:, 0, 0, END] += 9
    generations = decode(chain, VIEWS, DecodingConfig(samples=50, max_tokens=6), SEEDS)
    assert {t for part in generations for g in part for t in g.tokens} == {A, B, C, D}
    assert all(g.text for part in generations for g in part)
    longer = decode(chain, VIEWS, DecodingConfig(samples=50, max_tokens=6, min_tokens=4), SEEDS)
    assert min(len(g.tokens) for part in longer for g in part) == 4
    shorter = decode(chain, VIEWS, DecodingConfig(samples=50, max_tokens=6, min_tokens=0), SEEDS)
    assert any(g.text == "" and g.count == 1 for part in shorter for g in part)
    unknown = decode(chain, VIEWS, DecodingConfig(samples=50, max_tokens=6, unknown=True), SEEDS)
    assert any(UNKNOWN in g.tokens for part in unknown for g in part)


def test_greedy_takes_the_most_probable_token_each_time(chain: Chain) -> None:
    config = DecodingConfig(method="greedy", max_tokens=7)
    for where, generations in zip(VIEWS, decode(chain, VIEWS, config, SEEDS), strict=True):
        last, expected = 0, []
        for position in range(7):
            row = chain.table[len(where.turns) % 3, position, last].clone()
            row[list(config.forbidden(position))] = -math.inf
            last = int(row.argmax())
            if last == END:
                break
            expected.append(last)
        assert [g.tokens for g in generations] == [tuple(expected)]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 1.5])
def test_beam_search_with_enough_beams_is_exhaustive(chain: Chain, penalty: float) -> None:
    config = DecodingConfig(method="beam", beams=300, max_tokens=4, length_penalty=penalty)
    for where, generations in zip(VIEWS, decode(chain, VIEWS, config, SEEDS), strict=True):
        scores = {t: chain.logprob(where, t) / len(t) ** penalty for t in turns_up_to(4)}
        best = sorted(scores, key=lambda t: -scores[t])[:50]
        assert [(*g.tokens, END) if g.finished else g.tokens for g in generations[:50]] == best
        assert [g.score for g in generations[:50]] == pytest.approx([scores[t] for t in best], abs=1e-5)


def test_beam_search_with_few_beams_agrees_with_plain_code(chain: Chain) -> None:
    """Step by step in lists; complete turns are set aside, prefixes compete for the beams."""
    for beams in (1, 2, 5):
        config = DecodingConfig(method="beam", beams=beams, max_tokens=6, length_penalty=0.7)
        for where, generations in zip(VIEWS, decode(chain, VIEWS, config, SEEDS), strict=True):
            prefixes: list[tuple[int, ...]] = [()]
            complete: list[tuple[int, ...]] = []
            for position in range(6):
                allowed = [t for t in range(10) if t not in config.forbidden(position)]
                longer = sorted(((*p, t) for p in prefixes for t in allowed), key=lambda t: -chain.logprob(where, t))
                complete += [t for t in longer[: 2 * beams] if t[-1] == END]
                prefixes = [t for t in longer if t[-1] != END][:beams]
            scores = {t: chain.logprob(where, t) / len(t) ** 0.7 for t in (*complete, *prefixes)}
            expected = sorted(scores, key=lambda t: -scores[t])[:beams]
            assert [(*g.tokens, END) if g.finished else g.tokens for g in generations] == expected


def test_there_may_be_more_beams_than_tokens(chain: Chain) -> None:
    generations = decode(chain, VIEWS[:1], DecodingConfig(method="beam", beams=50, max_tokens=1, min_tokens=0), [0])
    assert {g.tokens for g in generations[0]} == {(), (A,), (B,), (C,), (D,)}


@pytest.mark.parametrize("method", ["sample", "beam"])
def test_a_cancelled_view_is_not_decoded_further(chain: Chain, method: str) -> None:
    chain.table[:, :, :, END] = LAST
    config = validate(DecodingConfig, {"method": method, "max_tokens": 9}, where="the test")
    generations = decode(chain, VIEWS, config, SEEDS, alive=lambda i: i != 2 and len(chain.rows) < 4)
    assert generations == [[], [], [], [], []]
    assert len(chain.rows) == 4
    chain.rows.clear()
    generations = decode(chain, VIEWS, config, SEEDS, alive=lambda i: i != 2)
    assert [bool(part) for part in generations] == [True, True, False, True, True]
    assert chain.rows[1] == chain.rows[0] * (4 if method == "beam" else 1) * 4 // 5


def test_steps_give_the_tokens_of_the_complete_turns(chain: Chain) -> None:
    config = DecodingConfig(method="sample", max_tokens=9)
    session = DecodingSession(chain)
    tokens: dict[int, list[int]] = {
        session.add(view, config, seed): [] for view, seed in zip(VIEWS, SEEDS, strict=True)
    }
    generations: dict[int, list[Generation]] = {}
    while len(generations) < len(VIEWS):
        for one in session.step():
            tokens[one.handle] += one.tokens
            if one.generations is not None:
                generations[one.handle] = one.generations
    complete = [part[0] for part in decode(chain, VIEWS, config, SEEDS)]
    assert [tuple(t for t in row if t != END) for row in tokens.values()] == [g.tokens for g in complete]
    assert same([generations[handle] for handle in tokens], decode(chain, VIEWS, config, SEEDS))
    assert session.step() == []
    assert decode(chain, [], config, []) == []


def test_a_model_in_training_is_decoded_in_eval_mode(chain: Chain) -> None:
    chain.train()
    for method in ("sample", "beam"):
        decode(chain, VIEWS, validate(DecodingConfig, {"method": method, "max_tokens": 9}, where="the test"), SEEDS)
        assert chain.training
