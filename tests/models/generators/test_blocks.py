"""What the models made of blocks share: the Transformer and the Evolved Transformer, with an encoder and without."""

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
from tertulia.models.checkpoint import WEIGHTS
from tertulia.models.generator import DialogueView, Generator, LatentGenerator
from tertulia.models.generators.blocks import BlockGenerator
from tertulia.models.generators.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.tokenizer import END, WordTokenizer
from tertulia.sample import dialogues

from ..conftest import assert_close

Model = BlockGenerator[Any]
WORDS = "a b c d e f g h i j k l".split()
VIEWS = [
    DialogueView(("a b c", "d e", "f g h i"), (False, True, False), ("a d", "k")),
    DialogueView(("j",), (False,)),
    DialogueView(("a b c d e f g h i j a b c", "d", "l l"), (False, True, False)),
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
    return build(request.param, WordTokenizer(WORDS)).double().eval()


@torch.no_grad()
def full_logits(model: Model, view: DialogueView) -> torch.Tensor:
    """Logits at each token of the last turn and at its end, from the pass of `nll`: (tokens, vocabulary)"""
    states: list[torch.Tensor] = []
    hook = model.decoder_norm.register_forward_hook(lambda _module, _inputs, out: states.append(out))
    model.nll([view], target_turns="last")
    hook.remove()
    return functional.linear(states[0], model.embedding.weight, model.bias)


def text_of(ids: Sequence[int]) -> str:
    return " ".join(WORDS[i - 6] for i in ids)


class Rows:
    """Rows that generate random tokens; after each step their logits must be those of the full pass."""

    def __init__(self, model: Model, views: Sequence[DialogueView]) -> None:
        self.model, self.views = model, list(views)
        self.generated: list[list[int]] = [[] for _ in views]
        self.state = model.start(views)
        self.rng = torch.Generator().manual_seed(7)

    def check(self, logits: torch.Tensor) -> None:
        for row, (view, ids) in enumerate(zip(self.views, self.generated, strict=True)):
            assert_close(logits[row], full_logits(self.model, view.with_turn(text_of(ids)))[-1])

    def first(self) -> None:
        logits, self.state = self.model.step(self.state, None)
        self.check(logits)

    def generate(self, times: int = 1) -> None:
        for _ in range(times):
            tokens = torch.randint(6, 6 + len(WORDS), (len(self.views),), generator=self.rng)
            logits, self.state = self.model.step(self.state, tokens)
            for ids, token in zip(self.generated, tokens.tolist(), strict=True):
                ids.append(token)
            self.check(logits)

    def expand(self, count: int) -> None:
        self.state = self.state.expand(count)
        self._select([row for row in range(len(self.views)) for _ in range(count)])

    def select(self, *rows: int) -> None:
        self.state = self.state.select(torch.tensor(rows))
        self._select(rows)

    def _select(self, rows: Sequence[int]) -> None:
        self.views, self.generated = [self.views[i] for i in rows], [list(self.generated[i]) for i in rows]


def test_it_is_a_generator_without_latent_variables(model: Model) -> None:
    assert isinstance(model, Generator)
    assert not isinstance(model, LatentGenerator)


def test_steps_give_the_logits_of_the_full_pass(model: Model) -> None:
    rows = Rows(model, VIEWS)
    rows.first()
    rows.generate(13)


def test_rows_can_be_expanded_dropped_and_repeated(model: Model) -> None:
    rows = Rows(model, VIEWS)
    rows.expand(3)
    rows.first()
    rows.generate(2)
    rows.select(0, 1, 2, 4, 5, 8)  # groups of unequal size
    rows.generate()
    rows.select(5, 0, 0, 3, 4, 0)  # in another order, with repeats
    rows.generate(2)
    rows.expand(2)
    rows.generate()
    rows.select(2, 5, 3)  # one context is left
    rows.generate(2)
    assert rows.state.groups.contexts == 1


def test_expanding_copies_nothing_that_was_read(model: Model) -> None:
    state = model.start(VIEWS)
    expanded = state.expand(50)
    assert len(expanded.groups.context) == 150
    _, stepped = model.step(expanded.select(torch.arange(70, 150)), torch.full((80,), 6))
    for before, after in zip(state.caches, stepped.caches, strict=True):
        for pair, same in zip((*before.prefix, *before.memory), (*after.prefix, *after.memory), strict=True):
            assert same.keys.data_ptr() == pair.keys.data_ptr()
            assert same.values.data_ptr() == pair.values.data_ptr()
        owned = 2 if model.encoder else 1  # with an encoder, the special token of the turn too
        assert all(cache.key_values.shape[1:3] == (owned, 80) for cache in after.rows)


def test_a_state_can_be_continued_twice(model: Model) -> None:
    _, state = model.step(model.start(VIEWS), torch.tensor([6, 7, 8]))
    one, after = model.step(state, torch.tensor([9, 9, 9]))
    model.step(state, torch.tensor([10, 11, 12]))
    again, _ = model.step(state, torch.tensor([9, 9, 9]))
    assert_close(one, again)
    later, _ = model.step(after, torch.tensor([6, 6, 6]))
    assert_close(later[0], full_logits(model, VIEWS[0].with_turn("a d a"))[-1])


def test_later_tokens_do_not_change_earlier_logits(model: Model) -> None:
    one = full_logits(model, VIEWS[0].with_turn("a b c d e f g h i j k l"))
    other = full_logits(model, VIEWS[0].with_turn("a b c d e f l k j i h g"))
    assert_close(one[:7], other[:7])
    assert (one[7:] - other[7:]).abs().amax(1).min() > 1e-3


def test_earlier_turns_and_the_persona_matter(model: Model) -> None:
    view = VIEWS[0].with_turn("b c")
    others = [{"persona": ("l",)}, {"persona": (), "partner": ("l",)}, {"turns": ("l", *view.turns[1:])}]
    nll = model.nll([view, *(replace(view, **other) for other in others)], target_turns="last")
    assert len({round(total, 4) for total in nll.total.tolist()}) == 4


def test_a_likelihood_does_not_depend_on_the_batch(model: Model) -> None:
    together = model.nll(VIEWS)
    alone = [model.nll([view]) for view in VIEWS]
    assert_close(together.total, torch.cat([one.total for one in alone]))
    assert together.tokens.tolist() == [12, 2, 19]


def test_likelihood_is_the_sum_over_steps(model: Model) -> None:
    for view in VIEWS:
        ids = [*model.tokenizer.encode("c a b b"), END]
        logits, state = model.step(model.start([view]), None)
        total = 0.0
        for token in ids:
            total -= float(logits.log_softmax(-1)[0, token])
            logits, state = model.step(state, torch.tensor([token]))
        nll = model.nll([view.with_turn("c a b b")], target_turns="last")
        assert nll.tokens.item() == 5
        assert nll.total.item() == pytest.approx(total, abs=1e-9)


def test_a_dialogue_is_the_sum_of_its_turns(model: Model) -> None:
    view = VIEWS[2]
    parts = [view.before(i) for i in (1, 2, 3)]
    lasts = model.nll(parts, target_turns="last").total.tolist()
    assert model.nll([view]).total.item() == pytest.approx(sum(lasts), abs=1e-9)
    own = model.nll([view], target_turns="own")
    assert own.total.item() == pytest.approx(lasts[1], abs=1e-9)
    assert own.tokens.item() == 2


def test_an_empty_dialogue_has_no_target_tokens(model: Model) -> None:
    nll = model.nll([DialogueView((), ()), DialogueView((), (), ("a",))])
    assert nll.total.tolist() == [0, 0]
    assert nll.tokens.tolist() == [0, 0]
    assert model.nll([]).total.shape == (0,)
    logits, _ = model.step(model.start([DialogueView((), ())]), None)
    assert_close(logits, full_logits(model, DialogueView(("",), (True,))))


@pytest.mark.parametrize("kind", KINDS)
def test_each_turn_of_a_long_dialogue_is_predicted_once(kind: str) -> None:
    model = build(kind, WordTokenizer(WORDS), max_length=20, reserve=8).double().eval()
    view = DialogueView(("a b c d", "e f g h") * 6, (False, True) * 6, ("k l",))
    assert model.nll([view]).tokens.item() == 60
    assert model.nll([view], target_turns="own").tokens.item() == 30
    changed = replace(view, turns=("l l", *view.turns[1:]))
    assert_close(*(model.nll([t], target_turns="last").total for t in (view, changed)))
    rows = Rows(model, [view, DialogueView(("a b c " * 20,), (False,))])
    rows.first()
    rows.generate(12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_the_same_model(kind: str, tmp_path: Path) -> None:
    model = build(kind, WordTokenizer(WORDS), heads=2).eval()
    assert model.save(tmp_path) == ["words.txt"]
    loaded = type(model).load(tmp_path)
    assert not loaded.training
    assert loaded.config == model.config
    assert_close(loaded.double().nll(VIEWS).total, model.double().nll(VIEWS).total)
    (tmp_path / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(DataError, match="damaged"):
        type(model).load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_the_initial_weights(kind: str) -> None:
    one, same, other = (build(kind, WordTokenizer(WORDS), seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"])


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_an_untrained_model_finds_all_tokens_equally_likely(kind: str) -> None:
    words = [f"w{i}" for i in range(2000)]
    view = DialogueView(tuple(" ".join(words[i : i + 40]) for i in range(0, 400, 40)), (False, True) * 5)
    nll = build(kind, WordTokenizer(words), d_model=128).eval().nll([view])
    assert (nll.total / nll.tokens).item() == pytest.approx(math.log(2006), rel=0.04)


def test_a_step_needs_a_state_of_this_model(model: Model) -> None:
    with pytest.raises(TypeError):
        model.step(object(), None)  # type: ignore[arg-type]
    _, state = model.step(model.start(VIEWS), torch.tensor([6, 6, 6]))
    with pytest.raises(ValueError, match="first"):
        model.step(state, None)


def test_sizes_must_fit() -> None:
    with pytest.raises(ConfigError, match="multiple of heads"):
        validate(TransformerConfig, {"d_model": 32, "heads": 5}, where="a test")
    with pytest.raises(ConfigError, match="less than max_length"):
        validate(TransformerConfig, {"max_length": 64, "reserve": 64}, where="a test")


def test_a_renamed_option_is_an_error_that_names_the_new_one() -> None:
    with pytest.raises(ConfigError, match="'longest' is now called 'max_length'"):
        validate(TransformerConfig, {"longest": 64}, where="a test")


@pytest.mark.parametrize("kind", KINDS)
def test_it_can_overfit_a_few_dialogues(kind: str) -> None:
    views = [
        DialogueView(
            tuple(turn.text for turn in dialogue.turns[:3]), (True, False, True), dialogue.personas["a"].sentences[:1]
        )
        for dialogue in dialogues("train")[:8]
    ]
    model = build(kind, WordTokenizer.learn(text for view in views for text in view.turns), d_model=64, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        nll = model.nll(views)
        loss = nll.total.sum() / nll.tokens.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert math.exp(loss.item()) < 1.5
