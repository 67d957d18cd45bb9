"""HRED, and what VHRED and VHCR inherit: batches, windows, steps. Latent variables are fixed here."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia.models.checkpoint import seal
from tertulia.models.generator import DialogueView, LatentGenerator
from tertulia.models.generators.gaussian import MIN_STD
from tertulia.models.generators.hred import HRED, HREDConfig
from tertulia.models.generators.hred_batch import window_start
from tertulia.models.generators.vhcr import VHCR, VHCRConfig
from tertulia.models.generators.vhred import VHRED, VHREDConfig
from tertulia.models.tokenizer import END, WordTokenizer

from ..conftest import assert_batch_independent, assert_close, assert_steps_match_full_pass, mean_nll, stepwise_nll

VIEWS = [
    DialogueView(("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True)),
    DialogueView(("do you like tea ?", "no , i like coffee !"), (False, True)),
    DialogueView(("hello",), (True,)),
    DialogueView((), ()),
    DialogueView(("you", "i", "", "no"), (True, True, False, True)),
]
REPLIES = ["bread", "i like coffee , you ?", "", "hi", "no no no"]
LONG = DialogueView(
    ("hi", "tea ?", "no", "a dog", "you like bread", "", "i", "a baker", "no , tea", "hello"), (False, True) * 5
)
WORDS = WordTokenizer.learn(text for view in (*VIEWS, LONG) for text in view.turns)
KINDS: dict[str, tuple[type[HRED], type[HREDConfig]]] = {
    "hred": (HRED, HREDConfig),
    "vhred": (VHRED, VHREDConfig),
    "vhcr": (VHCR, VHCRConfig),
}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def build(kind: str, **settings: Any) -> HRED:
    """A small model. Its latent variables depend on nothing: N(0.3, 0.7) for turns, N(0, 1) for conversations."""
    torch.manual_seed(1)
    cls, config = KINDS[kind]
    sizes: dict[str, Any] = {"dim": 10, "encoder": 8, "context": 12, "decoder": 14, "dropout": 0.0}
    sizes |= {"latent": 3, "word_drop": 0.0} if kind != "hred" else {}
    sizes |= {"conversation": 2, "utterance_drop": 0.0} if kind == "vhcr" else {}
    model = cls.untrained(config(**{**sizes, **settings}), WORDS).double().eval()
    with torch.no_grad():
        model.embedding.bias.normal_()
        if isinstance(model, VHRED):
            for net in (model.prior, model.posterior, *((model.conversation,) if isinstance(model, VHCR) else ())):
                top = isinstance(model, VHCR) and net is model.conversation
                net.mean.weight.zero_()
                net.mean.bias.fill_(0.0 if top else 0.3)
                net.std.weight.zero_()
                net.std.bias.fill_(math.log(math.exp((1.0 if top else 0.7) - MIN_STD) - 1))
    return model


@kinds
def test_steps_match_the_full_pass(kind: str) -> None:
    assert_steps_match_full_pass(build(kind), VIEWS, REPLIES)


@kinds
def test_a_likelihood_does_not_depend_on_the_batch(kind: str) -> None:
    assert_batch_independent(build(kind, max_turns=3), [*VIEWS, LONG])


@kinds
@pytest.mark.parametrize("max_turns", [10, 4, 3, 2])
def test_a_dialogue_is_the_sum_of_its_turns(kind: str, max_turns: int) -> None:
    model = build(kind, max_turns=max_turns)
    for view in (VIEWS[0], LONG):
        parts = [view.before(n + 1) for n in range(len(view.turns))]
        with torch.no_grad():
            turns = mean_nll(model, parts, "last")
            full = mean_nll(model, [view])
            own = mean_nll(model, [view], "own").total
        assert float(full.total) == pytest.approx(float(turns.total.sum()), abs=1e-9)
        assert int(full.tokens) == int(turns.tokens.sum()) == sum(len(WORDS.encode(text)) + 1 for text in view.turns)
        assert float(own) == pytest.approx(float(turns.total[torch.tensor(view.own)].sum()), abs=1e-9)


@kinds
def test_a_long_dialogue_is_read_from_the_start_of_its_window(kind: str) -> None:
    model = build(kind, max_turns=4)
    full = mean_nll(model, [LONG.with_turn("no tea")], "last").total.detach()
    assert_close(stepwise_nll(model, [LONG], ["no tea"], copies=1)[0], full)
    assert window_start(10, 4) == 8
    last = DialogueView(LONG.turns[8:], LONG.own[8:])
    assert_close(stepwise_nll(model, [last], ["no tea"], copies=1)[0], full)


@kinds
def test_a_persona_is_read_like_utterances_before_the_first(kind: str) -> None:
    model, ignoring = build(kind, personas=True, max_turns=2), build(kind, max_turns=2)
    view = DialogueView(("hi", "tea ?", "no", "a dog"), (False, True) * 2, persona=("i like bread", "a baker"))
    bare, other = replace(view, persona=()), replace(view, persona=("a baker", "i like bread"))
    theirs = replace(bare, partner=view.persona)
    with torch.no_grad():
        totals = mean_nll(model, [view, bare, other, theirs]).total
        assert len({round(value, 4) for value in totals.tolist()}) == 4
        assert mean_nll(model, [view]).tokens.tolist() == mean_nll(model, [bare]).tokens.tolist()
        assert_close(totals[:1], mean_nll(model, [view]).total)
        assert_close(mean_nll(ignoring, [view]).total, mean_nll(ignoring, [bare]).total)
        last = mean_nll(model, [view.with_turn("no tea")], "last").total
    assert_close(stepwise_nll(model, [view], ["no tea"], copies=2)[0], last.expand(2))


@kinds
def test_half_precision_gives_nearly_the_same_loss(kind: str) -> None:
    model = build(kind).float().train()
    torch.manual_seed(0)
    full = model.losses(VIEWS)
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        half = model.losses(VIEWS)
        half.loss(0.5).backward()
    assert half.kl.dtype == torch.float32
    assert torch.allclose(half.nll.total, full.nll.total, rtol=0.02)


def test_windows_are_short_enough_and_half_a_window_apart() -> None:
    for size in range(2, 12):
        firsts = [window_start(turn, size) for turn in range(60)]
        assert all(0 <= turn - first < size for turn, first in enumerate(firsts))
        assert all(turn - first >= size // 2 for turn, first in enumerate(firsts) if first)
        assert firsts == sorted(firsts)
        assert set(firsts) == set(range(0, firsts[-1] + 1, size // 2))


def test_long_turns_are_truncated_where_they_are_read_and_learned_from() -> None:
    model = build("hred", max_length=3)
    long, truncated = (
        DialogueView(("tea tea tea no no", "i like bread , i do"), (False, True)),
        DialogueView(("tea tea tea",), (False,)),
    )
    with torch.no_grad():
        complete = model.nll([long], target_turns="last")
        model.train()
        learned = model.nll([long], target_turns="last")
        model.eval()
        same = model.nll([truncated.with_turn("i like bread , i do")], target_turns="last").total
    assert int(complete.tokens) == 7
    assert int(learned.tokens) == 3
    assert_close(complete.total, same)
    assert float(learned.total) < float(complete.total)


def test_the_speaker_matters() -> None:
    model = build("hred")
    nll = model.nll(
        [DialogueView(("hi", "tea"), own) for own in ((True, True), (False, True), (True, False))], target_turns="last"
    )
    assert len({round(value, 4) for value in nll.total.tolist()}) == 3


@kinds
def test_dialogues_without_target_turns_have_zero_nll(kind: str) -> None:
    model = build(kind)
    assert model.nll([]).total.shape == (0,)
    for nll in (
        model.nll([DialogueView(("hi",), (False,)), DialogueView((), ())], target_turns="own"),
        model.losses([DialogueView((), ())] * 2).nll,
    ):
        assert nll.total.tolist() == [0, 0]
        assert nll.tokens.tolist() == [0, 0]


@kinds
def test_only_the_first_step_takes_none(kind: str) -> None:
    model = build(kind)
    state = model.start(VIEWS[:1])
    with pytest.raises(ValueError, match="first step takes None"):
        model.step(state, torch.tensor([END]))
    _, state = model.step(state, None)
    with pytest.raises(ValueError, match="first step takes None"):
        model.step(state, None)


def test_it_can_overfit_a_few_dialogues() -> None:
    model = build("hred", context=24, decoder=24).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        losses = model.losses(VIEWS)
        assert losses.kl.tolist() == [0] * len(VIEWS)
        (losses.loss() / losses.nll.tokens.sum()).backward()
        optimizer.step()
    with torch.no_grad():
        nll = model.eval().nll(VIEWS)
    assert math.exp(float(nll.total.sum() / nll.tokens.sum())) < 1.5


@kinds
def test_a_saved_model_is_the_same_model(kind: str, tmp_path: Path) -> None:
    model = build(kind).float()
    seal(tmp_path, bot=kind, model=kind, files=model.save(tmp_path), training={})
    loaded = KINDS[kind][0].load(tmp_path)
    assert type(loaded.config) is KINDS[kind][1]
    assert loaded.config == model.config
    assert_close(mean_nll(loaded.double(), VIEWS).total, mean_nll(model.double(), VIEWS).total)


@kinds
def test_models_with_latent_variables_fulfil_their_protocol(kind: str) -> None:
    assert isinstance(build(kind), LatentGenerator) == (kind != "hred")
