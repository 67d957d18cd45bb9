"""What both models made of blocks have: the Transformer and the Evolved one, with an encoder and without."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from tertulia.core.config import validate
from tertulia.core.errors import ConfigError, DataError
from tertulia.models.blocks import BlockGenerator
from tertulia.models.checkpoint import WEIGHTS
from tertulia.models.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.generator import Generator, Talk
from tertulia.models.tokenizer import END, WordTokenizer
from tertulia.models.transformer import Transformer, TransformerConfig
from tertulia.sample import dialogues

Model = BlockGenerator[Any]
WORDS = "a b c d e f g h i j k l".split()
TALKS = [
    Talk(("a b c", "d e", "f g h i"), (False, True, False), ("a d", "k")),
    Talk(("j",), (False,)),
    Talk(("a b c d e f g h i j a b c", "d", "l l"), (False, True, False)),
]
KINDS = ["transformer", "transformer with encoder", "evolved", "evolved with encoder"]


def build(kind: str, tokenizer: WordTokenizer, *, seed: int = 0, d_model: int = 32, **options: Any) -> Model:
    torch.manual_seed(seed)
    encoder = 1 if "encoder" in kind else 0
    if kind.startswith("evolved"):
        config = EvolvedConfig(d_model=d_model, encoder_blocks=encoder, decoder_blocks=2, **options)
        return EvolvedTransformer.untrained(config, tokenizer)
    sizes = TransformerConfig(d_model=d_model, encoder_layers=2 * encoder, decoder_layers=2, **options)
    return Transformer.untrained(sizes, tokenizer)


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Model:
    return build(request.param, WordTokenizer(WORDS)).eval()


@torch.no_grad()
def full_logits(model: Model, talk: Talk) -> torch.Tensor:
    """Of each token of the last turn and of its end, from the pass that `nll` makes: (tokens, vocabulary)"""
    seen: list[torch.Tensor] = []
    hook = model.decoder_norm.register_forward_hook(lambda _module, _inputs, out: seen.append(out))
    model.nll([talk], scored="last")
    hook.remove()
    return functional.linear(seen[0], model.embedding.weight, model.bias)


def spoken(ids: Sequence[int]) -> str:
    return " ".join(WORDS[i - 6] for i in ids)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-4, rtol=0), float((found - expected).abs().max())


class Rows:
    """Rows that write at random; after each step their logits must be those of the full pass."""

    def __init__(self, model: Model, talks: Sequence[Talk]) -> None:
        self.model, self.talks, self.written = model, list(talks), [[] for _ in talks]  # type: list[list[int]]
        self.state = model.start(talks)
        self.generator = torch.Generator().manual_seed(7)

    def check(self, logits: torch.Tensor) -> None:
        for row, (talk, ids) in enumerate(zip(self.talks, self.written, strict=True)):
            assert_close(logits[row], full_logits(self.model, talk.said(spoken(ids)))[-1])

    def first(self) -> None:
        logits, self.state = self.model.step(self.state, None)
        self.check(logits)

    def write(self, times: int = 1) -> None:
        for _ in range(times):
            tokens = torch.randint(6, 6 + len(WORDS), (len(self.talks),), generator=self.generator)
            logits, self.state = self.model.step(self.state, tokens)
            for ids, token in zip(self.written, tokens.tolist(), strict=True):
                ids.append(token)
            self.check(logits)

    def fan(self, count: int) -> None:
        self.state = self.state.fan(count)
        self._take([row for row in range(len(self.talks)) for _ in range(count)])

    def keep(self, *rows: int) -> None:
        self.state = self.state.keep(torch.tensor(rows))
        self._take(rows)

    def _take(self, rows: Sequence[int]) -> None:
        self.talks, self.written = [self.talks[i] for i in rows], [list(self.written[i]) for i in rows]


def test_it_is_a_generator(model: Model) -> None:
    assert isinstance(model, Generator)


def test_steps_give_what_the_full_pass_gives(model: Model) -> None:
    rows = Rows(model, TALKS)
    rows.first()
    rows.write(13)


def test_rows_can_be_fanned_out_dropped_and_repeated(model: Model) -> None:
    rows = Rows(model, TALKS)
    rows.fan(3)
    rows.first()
    rows.write(2)
    rows.keep(0, 1, 2, 4, 5, 8)  # groups of unequal size
    rows.write()
    rows.keep(5, 0, 0, 3, 4, 0)  # in another order, with repeats
    rows.write(2)
    rows.fan(2)
    rows.write()
    rows.keep(2, 5, 3)  # one context is left
    rows.write(2)
    assert rows.state.groups.contexts == 1


def test_fanning_out_copies_nothing_that_was_read(model: Model) -> None:
    state = model.start(TALKS)
    fanned = state.fan(50)
    assert len(fanned.groups.context) == 150
    _, stepped = model.step(fanned.keep(torch.arange(70, 150)), torch.full((80,), 6))
    for before, after in zip(state.caches, stepped.caches, strict=True):
        for pair, same in zip((*before.prefix, *before.memory), (*after.prefix, *after.memory), strict=True):
            assert same.keys.data_ptr() == pair.keys.data_ptr()
            assert same.values.data_ptr() == pair.values.data_ptr()
        owned = 2 if model.encoder else 1  # behind an encoder, the mark of the turn too
        assert all(tail.read().shape[1:3] == (owned, 80) for tail in after.tails)


def test_a_state_can_be_gone_on_from_twice(model: Model) -> None:
    _, state = model.step(model.start(TALKS), torch.tensor([6, 7, 8]))
    one, after = model.step(state, torch.tensor([9, 9, 9]))
    model.step(state, torch.tensor([10, 11, 12]))
    again, _ = model.step(state, torch.tensor([9, 9, 9]))
    assert torch.equal(one, again)
    later, _ = model.step(after, torch.tensor([6, 6, 6]))
    assert_close(later[0], full_logits(model, TALKS[0].said("a d a"))[-1])


def test_later_tokens_do_not_change_earlier_logits(model: Model) -> None:
    one = full_logits(model, TALKS[0].said("a b c d e f g h i j k l"))
    other = full_logits(model, TALKS[0].said("a b c d e f l k j i h g"))
    assert torch.allclose(one[:7], other[:7], atol=1e-6)
    assert (one[7:] - other[7:]).abs().amax(1).min() > 1e-3


def test_earlier_turns_and_the_persona_matter(model: Model) -> None:
    talk = TALKS[0].said("b c")
    others = [{"persona": ("l",)}, {"persona": (), "partner": ("l",)}, {"turns": ("l", *talk.turns[1:])}]
    found = model.nll([talk, *(replace(talk, **other) for other in others)], scored="last")
    assert len({round(total, 4) for total in found.total.tolist()}) == 4


def test_neighbours_in_a_batch_do_not_matter(model: Model) -> None:
    together = model.nll(TALKS)
    alone = [model.nll([talk]) for talk in TALKS]
    assert_close(together.total, torch.cat([one.total for one in alone]))
    assert together.tokens.tolist() == [12, 2, 19]


def test_likelihood_is_the_sum_over_steps(model: Model) -> None:
    for talk in TALKS:
        ids = [*model.tokenizer.encode("c a b b"), END]
        logits, state = model.step(model.start([talk]), None)
        total = 0.0
        for token in ids:
            total -= float(logits.log_softmax(-1)[0, token])
            logits, state = model.step(state, torch.tensor([token]))
        found = model.nll([talk.said("c a b b")], scored="last")
        assert found.tokens.item() == 5
        assert found.total.item() == pytest.approx(total, abs=1e-4)


def test_all_turns_are_the_last_ones_one_after_the_other(model: Model) -> None:
    talk = TALKS[2]
    parts = [replace(talk, turns=talk.turns[:i], own=talk.own[:i]) for i in (1, 2, 3)]
    lasts = model.nll(parts, scored="last").total.tolist()
    assert model.nll([talk]).total.item() == pytest.approx(sum(lasts), abs=1e-4)
    own = model.nll([talk], scored="own")
    assert own.total.item() == pytest.approx(lasts[1], abs=1e-4)
    assert own.tokens.item() == 2


def test_nothing_said_counts_nothing(model: Model) -> None:
    found = model.nll([Talk((), ()), Talk((), (), ("a",))])
    assert found.total.tolist() == [0, 0]
    assert found.tokens.tolist() == [0, 0]
    assert model.nll([]).total.shape == (0,)
    logits, _ = model.step(model.start([Talk((), ())]), None)
    assert_close(logits, full_logits(model, Talk(("",), (True,))))


@pytest.mark.parametrize("kind", KINDS)
def test_of_what_is_too_long_each_turn_still_counts_once(kind: str) -> None:
    model = build(kind, WordTokenizer(WORDS), longest=20, reserve=8).eval()
    talk = Talk(("a b c d", "e f g h") * 6, (False, True) * 6, ("k l",))
    assert model.nll([talk]).tokens.item() == 60
    assert model.nll([talk], scored="own").tokens.item() == 30
    forgotten = replace(talk, turns=("l l", *talk.turns[1:]))
    assert_close(*(model.nll([t], scored="last").total for t in (talk, forgotten)))
    rows = Rows(model, [talk, Talk(("a b c " * 20,), (False,))])
    rows.first()
    rows.write(12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_the_same_model(kind: str, tmp_path: Path) -> None:
    model = build(kind, WordTokenizer(WORDS), heads=2).eval()
    assert model.save(tmp_path) == ["words.txt"]
    loaded = type(model).load(tmp_path)
    assert not loaded.training
    assert loaded.config == model.config
    assert torch.equal(loaded.nll(TALKS).total, model.nll(TALKS).total)
    (tmp_path / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(DataError, match="damaged"):
        type(model).load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_where_learning_starts(kind: str) -> None:
    one, same, other = (build(kind, WordTokenizer(WORDS), seed=seed).eval() for seed in (3, 3, 4))
    assert torch.equal(one.nll(TALKS).total, same.nll(TALKS).total)
    assert not torch.equal(one.nll(TALKS).total, other.nll(TALKS).total)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_model_finds_all_tokens_alike(kind: str) -> None:
    words = [f"w{i}" for i in range(2000)]
    talk = Talk(tuple(" ".join(words[i : i + 40]) for i in range(0, 400, 40)), (False, True) * 5)
    found = build(kind, WordTokenizer(words), d_model=128).eval().nll([talk])
    assert (found.total / found.tokens).item() == pytest.approx(math.log(2006), rel=0.04)


def test_only_its_own_states_are_gone_on_from(model: Model) -> None:
    with pytest.raises(TypeError):
        model.step(object(), None)  # type: ignore[arg-type]
    _, state = model.step(model.start(TALKS), torch.tensor([6, 6, 6]))
    with pytest.raises(ValueError, match="first"):
        model.step(state, None)


def test_sizes_must_fit() -> None:
    with pytest.raises(ConfigError, match="multiple of heads"):
        validate(TransformerConfig, {"d_model": 32, "heads": 5}, where="a test")
    with pytest.raises(ConfigError, match="less than longest"):
        validate(TransformerConfig, {"longest": 64, "reserve": 64}, where="a test")


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_a_few_dialogues_by_heart(kind: str) -> None:
    talks = [
        Talk(tuple(turn.text for turn in dialogue.turns[:3]), (True, False, True), dialogue.personas["a"].sentences[:1])
        for dialogue in dialogues("train")[:8]
    ]
    model = build(kind, WordTokenizer.learn(text for talk in talks for text in talk.turns), d_model=64, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        found = model.nll(talks)
        loss = found.total.sum() / found.tokens.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert math.exp(loss.item()) < 1.5
