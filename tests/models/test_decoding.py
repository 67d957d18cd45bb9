"""Decoding on a chain whose every probability is known: each token depends on the one before and on the talk."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tertulia.core.config import validate
from tertulia.core.errors import ConfigError
from tertulia.models.decoding import PRESETS, DecodingConfig, Written, decode, steps
from tertulia.models.generator import Generator, Nll, Scored, Talk
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, PERSONA, UNKNOWN, WordTokenizer

A, B, C, D = range(6, 10)
LAST = -1e9


class ChainState:
    def __init__(self, talk: torch.Tensor, said: torch.Tensor, place: int) -> None:
        self.talk, self.said = talk, said  # (rows,): the talk's number, the last token
        self.place = place

    def fan(self, count: int, /) -> "ChainState":
        return ChainState(self.talk.repeat_interleave(count), self.said.repeat_interleave(count), self.place)

    def keep(self, rows: torch.Tensor, /) -> "ChainState":
        return ChainState(self.talk[rows], self.said[rows], self.place)


class Chain(nn.Module):
    """Logits by talk (its number of turns, modulo 3), place in the turn, and last token."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.tokenizer = WordTokenizer(["a", "b", "c", "d"])
        self.table = torch.randn(3, 16, 10, 10, generator=torch.Generator().manual_seed(seed)) * 1.5
        self.rows: list[int] = []
        self.read = 0

    def start(self, talks: Sequence[Talk], /) -> ChainState:
        self.read += len(talks)
        numbers = torch.tensor([len(t.turns) % 3 for t in talks])
        return ChainState(numbers, torch.zeros(len(talks), dtype=torch.long), 0)

    def step(self, state: ChainState, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, ChainState]:
        said = state.said if tokens is None else tokens
        self.rows.append(len(said))
        assert not self.training
        logits = self.table[state.talk, state.place, said]
        return logits, ChainState(state.talk, said, state.place + 1)

    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        raise NotImplementedError

    def save(self, folder: Path, /) -> Sequence[str]:
        raise NotImplementedError

    def logprob(self, talk: Talk, tokens: Sequence[int]) -> float:
        """By hand, in double precision."""
        table = self.table[len(talk.turns) % 3].double().log_softmax(-1)
        return sum(float(table[place, a, b]) for place, (a, b) in enumerate(itertools.pairwise([0, *tokens])))


class Dreamer(Chain):
    """Imagines something before a turn, as models with latent variables do: here, a shift of the first logits."""

    draws = True
    noise: Callable[[torch.Tensor], torch.Tensor] | None = None

    def step(self, state: ChainState, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, ChainState]:
        logits, after = super().step(state, tokens)
        if tokens is not None:
            return logits, after
        assert self.noise is not None
        return logits + 3 * self.noise(logits), after


def talk(turns: int) -> Talk:
    return Talk(("hi",) * turns, tuple(i % 2 == 1 for i in range(turns)))


TALKS = [talk(n) for n in (1, 2, 3, 4, 5)]
SEEDS = [11, 12, 13, 14, 15]


@pytest.fixture
def chain() -> Chain:
    return Chain().eval()


def test_the_chain_is_a_generator(chain: Chain) -> None:
    assert isinstance(chain, Generator)


def test_presets_are_the_papers() -> None:
    base, full = PRESETS["meena-base"], PRESETS["meena-full"]
    assert (base.method, base.samples, base.temperature, base.top_k) == ("sample-and-rank", 20, 0.88, 0)
    assert (full.method, full.samples, full.temperature, full.top_k) == ("sample-and-rank", 20, 1.0, 40)
    assert (base.top_p, full.top_p, base.score, full.score) == (1.0, 1.0, "mean", "mean")


def test_a_turn_must_have_room_to_end() -> None:
    with pytest.raises(ConfigError, match="max_tokens: value error, must not be less than min_tokens"):
        validate(DecodingConfig, {"min_tokens": 6, "max_tokens": 5}, where="the test")


def test_samples_are_as_frequent_as_they_are_probable(chain: Chain) -> None:
    config = DecodingConfig(method="sample", max_tokens=3, temperature=0.88, min_tokens=1)
    seen: Counter[tuple[int, ...]] = Counter()
    n = 6000
    for found in decode(chain, [TALKS[0]] * n, config, range(n)):
        seen[found[0].tokens] += 1
    expected: dict[tuple[int, ...], float] = {}
    for turn in turns_up_to(3):
        p, said = 1.0, 0
        for place, token in enumerate(turn):
            p *= drawing(chain.table[1, place, said], config.forbidden(place))[token]
            said = token
        expected[tuple(t for t in turn if t != END)] = expected.get(tuple(t for t in turn if t != END), 0) + p
    assert math.isclose(sum(expected.values()), 1, rel_tol=1e-6)
    often = [t for t in expected if expected[t] * n >= 8]
    rare = n - sum(seen[t] for t in often), n * (1 - sum(expected[t] for t in often))
    counted = [*(seen[t] for t in often), rare[0]]
    assert stats.chisquare(counted, [*(expected[t] * n for t in often), rare[1]]).pvalue > 0.01


def drawing(logits: torch.Tensor, forbidden: Sequence[int]) -> np.ndarray:
    weights = (logits.double() / 0.88).exp().numpy()
    weights[list(forbidden)] = 0
    return np.asarray(weights / weights.sum())


def turns_up_to(longest: int) -> list[tuple[int, ...]]:
    """Every turn that may be written: not empty, with its end or cut."""
    words = (A, B, C, D)
    whole = [(*t, END) for n in range(1, longest) for t in itertools.product(words, repeat=n)]
    return [*whole, *itertools.product(words, repeat=longest)]


def test_the_score_is_the_models_own_log_probability(chain: Chain) -> None:
    for score in ("mean", "sum"):
        config = PRESETS["meena-base"].model_copy(update={"max_tokens": 6, "score": score, "top_k": 3})
        for where, found in zip(TALKS, decode(chain, TALKS, config, SEEDS), strict=True):
            assert found == sorted(found, key=lambda w: -w.score)
            assert sum(w.drawn for w in found) == 20
            for one in found:
                expected = chain.logprob(where, (*one.tokens, END) if one.finished else one.tokens)
                assert one.count == len(one.tokens) + one.finished
                assert one.logprob == pytest.approx(expected, abs=1e-5)
                assert one.score == pytest.approx(expected / (one.count if score == "mean" else 1), abs=1e-5)
                assert one.finished or len(one.tokens) == 6
                assert one.text == chain.tokenizer.decode(one.tokens)


def test_no_text_comes_twice_and_repeats_are_counted(chain: Chain) -> None:
    found = decode(chain, TALKS, DecodingConfig(samples=60, max_tokens=2), SEEDS)
    assert all(len({w.text for w in part}) == len(part) for part in found)
    assert max(w.drawn for part in found for w in part) > 1


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", "sample-and-rank"])
def test_a_reply_does_not_depend_on_the_batch(chain: Chain, method: str) -> None:
    config = validate(DecodingConfig, {"method": method, "max_tokens": 8, "samples": 7}, where="the test")
    together = decode(chain, TALKS, config, SEEDS)
    alone = [decode(chain, [t], config, [s])[0] for t, s in zip(TALKS, SEEDS, strict=True)]
    assert together == alone
    backwards = decode(chain, TALKS[::-1], config, SEEDS[::-1])
    assert together == backwards[::-1]


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", "sample-and-rank"])
def test_what_a_model_imagines_comes_from_the_seed_too(method: str) -> None:
    dreamer = Dreamer().eval()
    config = validate(DecodingConfig, {"method": method, "max_tokens": 8, "samples": 7}, where="the test")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    together = decode(dreamer, TALKS, config, SEEDS)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert together == [decode(dreamer, [t], config, [s])[0] for t, s in zip(TALKS, SEEDS, strict=True)]
    assert together != decode(dreamer, TALKS, config, SEEDS[::-1])
    assert dreamer.noise is None


def test_seeds_make_the_difference(chain: Chain) -> None:
    config = DecodingConfig(method="sample", max_tokens=12)
    found = decode(chain, [TALKS[0]] * 30, config, range(30))
    assert len({part[0].tokens for part in found}) > 10
    assert found == decode(chain, [TALKS[0]] * 30, config, range(30))
    other = decode(chain, [TALKS[0]] * 30, config.model_copy(update={"seed": 1}), range(30))
    assert found != other
    with pytest.raises(ValueError, match="as many seeds"):
        decode(chain, TALKS, config, [1])


def test_samples_that_end_leave_and_nothing_changes(chain: Chain) -> None:
    config = DecodingConfig(samples=50, max_tokens=12)
    leaving = decode(chain, TALKS, config, SEEDS)
    with_leaving = sum(chain.rows)
    chain.rows.clear()
    staying = decode(chain, TALKS, config, SEEDS, leave=2.0)
    assert leaving == staying
    assert set(chain.rows) == {250}
    assert with_leaving < 0.75 * sum(chain.rows)


def test_talks_are_read_once_however_many_samples(chain: Chain) -> None:
    decode(chain, TALKS, DecodingConfig(samples=200, max_tokens=2), SEEDS)
    assert chain.read == len(TALKS)
    assert max(chain.rows) == 400  # two talks at once: never more rows than are good for the cache


def test_marks_are_never_written_and_a_turn_is_not_empty(chain: Chain) -> None:
    chain.table[:, :, :, [PAD, OWN, OTHER, PERSONA, UNKNOWN]] += 5
    chain.table[:, 0, 0, END] += 9
    found = decode(chain, TALKS, DecodingConfig(samples=50, max_tokens=6), SEEDS)
    assert {t for part in found for w in part for t in w.tokens} == {A, B, C, D}
    assert all(w.text for part in found for w in part)
    longer = decode(chain, TALKS, DecodingConfig(samples=50, max_tokens=6, min_tokens=4), SEEDS)
    assert min(len(w.tokens) for part in longer for w in part) == 4
    shorter = decode(chain, TALKS, DecodingConfig(samples=50, max_tokens=6, min_tokens=0), SEEDS)
    assert any(w.text == "" and w.count == 1 for part in shorter for w in part)
    unknown = decode(chain, TALKS, DecodingConfig(samples=50, max_tokens=6, unknown=True), SEEDS)
    assert any(UNKNOWN in w.tokens for part in unknown for w in part)


def test_greedy_takes_the_most_probable_token_each_time(chain: Chain) -> None:
    config = DecodingConfig(method="greedy", max_tokens=7)
    for where, found in zip(TALKS, decode(chain, TALKS, config, SEEDS), strict=True):
        said, expected = 0, []
        for place in range(7):
            row = chain.table[len(where.turns) % 3, place, said].clone()
            row[list(config.forbidden(place))] = -math.inf
            said = int(row.argmax())
            if said == END:
                break
            expected.append(said)
        assert [w.tokens for w in found] == [tuple(expected)]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 1.5])
def test_beam_search_with_beams_enough_is_exhaustive(chain: Chain, penalty: float) -> None:
    config = DecodingConfig(method="beam", beams=300, max_tokens=4, length_penalty=penalty)
    for where, found in zip(TALKS, decode(chain, TALKS, config, SEEDS), strict=True):
        scores = {t: chain.logprob(where, t) / len(t) ** penalty for t in turns_up_to(4)}
        best = sorted(scores, key=lambda t: -scores[t])[:50]
        assert [(*w.tokens, END) if w.finished else w.tokens for w in found[:50]] == best
        assert [w.score for w in found[:50]] == pytest.approx([scores[t] for t in best], abs=1e-5)


def test_beam_search_with_few_beams_is_what_plain_code_finds(chain: Chain) -> None:
    """Step by step in lists; whole turns are kept apart, beginnings compete for the beams."""
    for beams in (1, 2, 5):
        config = DecodingConfig(method="beam", beams=beams, max_tokens=6, length_penalty=0.7)
        for where, found in zip(TALKS, decode(chain, TALKS, config, SEEDS), strict=True):
            begun: list[tuple[int, ...]] = [()]
            whole: list[tuple[int, ...]] = []
            for place in range(6):
                allowed = [t for t in range(10) if t not in config.forbidden(place)]
                more = sorted(((*b, t) for b in begun for t in allowed), key=lambda t: -chain.logprob(where, t))
                whole += [t for t in more[: 2 * beams] if t[-1] == END]
                begun = [t for t in more if t[-1] != END][:beams]
            scores = {t: chain.logprob(where, t) / len(t) ** 0.7 for t in (*whole, *begun)}
            expected = sorted(scores, key=lambda t: -scores[t])[:beams]
            assert [(*w.tokens, END) if w.finished else w.tokens for w in found] == expected


def test_more_beams_than_tokens_are_no_trouble(chain: Chain) -> None:
    found = decode(chain, TALKS[:1], DecodingConfig(method="beam", beams=50, max_tokens=1, min_tokens=0), [0])
    assert {w.tokens for w in found[0]} == {(), (A,), (B,), (C,), (D,)}


@pytest.mark.parametrize("method", ["sample", "beam"])
def test_nothing_more_is_written_for_whom_nobody_waits(chain: Chain, method: str) -> None:
    chain.table[:, :, :, END] = LAST
    config = validate(DecodingConfig, {"method": method, "max_tokens": 9}, where="the test")
    found = decode(chain, TALKS, config, SEEDS, alive=lambda i: i != 2 and len(chain.rows) < 4)
    assert found == [[], [], [], [], []]
    assert len(chain.rows) == 4
    chain.rows.clear()
    found = decode(chain, TALKS, config, SEEDS, alive=lambda i: i != 2)
    assert [bool(part) for part in found] == [True, True, False, True, True]
    assert chain.rows[1] == chain.rows[0] * (4 if method == "beam" else 1) * 4 // 5


def test_steps_tell_the_same_as_the_whole(chain: Chain) -> None:
    config = DecodingConfig(method="sample", max_tokens=9)
    heard: list[list[int]] = [[] for _ in TALKS]
    for step in steps(chain, TALKS, config, SEEDS):
        for row, token in zip(step.rows, step.tokens, strict=True):
            heard[row].append(int(token))
    whole: list[Written] = [part[0] for part in decode(chain, TALKS, config, SEEDS)]
    assert [tuple(t for t in tokens if t != END) for tokens in heard] == [w.tokens for w in whole]
    assert not list(steps(chain, [], config, []))
    assert decode(chain, [], config, []) == []


def test_a_model_in_training_rests_while_it_writes(chain: Chain) -> None:
    chain.train()
    for method in ("sample", "beam"):
        decode(chain, TALKS, validate(DecodingConfig, {"method": method, "max_tokens": 9}, where="the test"), SEEDS)
        assert chain.training
