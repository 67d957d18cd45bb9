"""HRED, and what VHRED and VHCR have of it: layout, windows, steps. Latent variables are pinned down here."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia.models.checkpoint import seal
from tertulia.models.generator import Talk
from tertulia.models.hred import HRED, HREDConfig, first_read
from tertulia.models.tokenizer import END, WordTokenizer
from tertulia.models.vhcr import VHCR, VHCRConfig
from tertulia.models.vhred import NARROWEST, VHRED, VHREDConfig

from .conftest import assert_neighbours_do_not_matter, assert_steps_agree, stepped

TALKS = [
    Talk(("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True)),
    Talk(("do you like tea ?", "no , i like coffee !"), (False, True)),
    Talk(("hello",), (True,)),
    Talk((), ()),
    Talk(("you", "i", "", "no"), (True, True, False, True)),
]
REPLIES = ["bread", "i like coffee , you ?", "", "hi", "no no no"]
LONG = Talk(
    ("hi", "tea ?", "no", "a dog", "you like bread", "", "i", "a baker", "no , tea", "hello"), (False, True) * 5
)
WORDS = WordTokenizer.learn(text for talk in (*TALKS, LONG) for text in talk.turns)
KINDS: dict[str, tuple[type[HRED], type[HREDConfig]]] = {
    "hred": (HRED, HREDConfig),
    "vhred": (VHRED, VHREDConfig),
    "vhcr": (VHCR, VHCRConfig),
}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def made(kind: str, **settings: Any) -> HRED:
    """A small model. Its latent variables do not depend on anything: N(0.3, 0.7) for turns, N(0, 1) above."""
    torch.manual_seed(1)
    cls, config = KINDS[kind]
    sizes: dict[str, Any] = {"dim": 10, "encoder": 8, "context": 12, "decoder": 14, "dropout": 0.0}
    sizes |= {"latent": 3, "word_drop": 0.0} if kind != "hred" else {}
    sizes |= {"conversation": 2, "utterance_drop": 0.0} if kind == "vhcr" else {}
    model = cls.untrained(config(**{**sizes, **settings}), WORDS).eval()
    with torch.no_grad():
        model.words.bias.normal_()
        if isinstance(model, VHRED):
            model.draws = False
            for net in (model.prior, model.posterior, *((model.conversation,) if isinstance(model, VHCR) else ())):
                top = isinstance(model, VHCR) and net is model.conversation
                net.mean.weight.zero_()
                net.mean.bias.fill_(0.0 if top else 0.3)
                net.spread.weight.zero_()
                net.spread.bias.fill_(math.log(math.exp((1.0 if top else 0.7) - NARROWEST) - 1))
    return model


@kinds
def test_steps_give_what_the_full_pass_gives(kind: str) -> None:
    assert_steps_agree(made(kind), TALKS, REPLIES)


@kinds
def test_nothing_depends_on_the_neighbours(kind: str) -> None:
    assert_neighbours_do_not_matter(made(kind, max_turns=3), [*TALKS, LONG])


@kinds
@pytest.mark.parametrize("max_turns", [10, 4, 3, 2])
def test_a_talk_is_the_sum_of_its_turns(kind: str, max_turns: int) -> None:
    model = made(kind, max_turns=max_turns)
    for talk in (TALKS[0], LONG):
        parts = [Talk(talk.turns[: n + 1], talk.own[: n + 1]) for n in range(len(talk.turns))]
        with torch.no_grad():
            turns = model.nll(parts, scored="last")
            found = model.nll([talk])
            own = model.nll([talk], scored="own").total
        assert float(found.total) == pytest.approx(float(turns.total.sum()), abs=1e-4)
        assert int(found.tokens) == int(turns.tokens.sum()) == sum(len(WORDS.encode(text)) + 1 for text in talk.turns)
        assert float(own) == pytest.approx(float(turns.total[torch.tensor(talk.own)].sum()), abs=1e-4)


@kinds
def test_a_long_talk_is_read_from_where_its_window_begins(kind: str) -> None:
    model = made(kind, max_turns=4)
    full = model.nll([LONG.said("no tea")], scored="last").total.detach()
    assert stepped(model, [LONG], ["no tea"], fan=1)[0] == pytest.approx(full, abs=1e-4)
    assert first_read(10, 4) == 8
    last = Talk(LONG.turns[8:], LONG.own[8:])
    assert stepped(model, [last], ["no tea"], fan=1)[0] == pytest.approx(full, abs=1e-4)


@kinds
def test_a_persona_is_read_like_utterances_before_the_first(kind: str) -> None:
    model, deaf = made(kind, personas=True, max_turns=2), made(kind, max_turns=2)
    talk = Talk(("hi", "tea ?", "no", "a dog"), (False, True) * 2, persona=("i like bread", "a baker"))
    bare, other = replace(talk, persona=()), replace(talk, persona=("a baker", "i like bread"))
    theirs = replace(bare, partner=talk.persona)
    with torch.no_grad():
        found, *rest = model.nll([talk, bare, other, theirs]).total.tolist()
        assert len({round(value, 4) for value in (found, *rest)}) == 4
        assert model.nll([talk]).tokens.tolist() == model.nll([bare]).tokens.tolist()
        assert found == pytest.approx(float(model.nll([talk]).total), abs=1e-4)
        assert deaf.nll([talk]).total.tolist() == deaf.nll([bare]).total.tolist()
        last = model.nll([talk.said("no tea")], scored="last").total
    assert stepped(model, [talk], ["no tea"], fan=2)[0].tolist() == pytest.approx([float(last)] * 2, abs=1e-4)


@kinds
def test_half_precision_learns_nearly_the_same(kind: str) -> None:
    model = made(kind).train()
    whole = model.losses(TALKS)
    with torch.autocast("cpu", torch.bfloat16):
        half = model.losses(TALKS)
        half.loss(0.5).backward()
    assert half.kl.dtype == torch.float32
    assert torch.allclose(half.nll.total, whole.nll.total, rtol=0.02)


def test_windows_are_never_too_long_and_begin_seldom() -> None:
    for most in range(2, 12):
        firsts = [first_read(turn, most) for turn in range(60)]
        assert all(0 <= turn - first < most for turn, first in enumerate(firsts))
        assert all(turn - first >= most // 2 for turn, first in enumerate(firsts) if first)
        assert firsts == sorted(firsts)
        assert set(firsts) == set(range(0, firsts[-1] + 1, most // 2))


def test_long_turns_are_cut_where_they_are_read_and_learned() -> None:
    model = made("hred", longest=3)
    long, cut = Talk(("tea tea tea no no", "i like bread , i do"), (False, True)), Talk(("tea tea tea",), (False,))
    with torch.no_grad():
        whole = model.nll([long], scored="last")
        model.train()
        learned = model.nll([long], scored="last")
        model.eval()
        same = model.nll([cut.said("i like bread , i do")], scored="last").total
    assert int(whole.tokens) == 7
    assert int(learned.tokens) == 3
    assert float(whole.total) == pytest.approx(float(same), abs=1e-5)
    assert float(learned.total) < float(whole.total)


def test_it_matters_who_said_what() -> None:
    model = made("hred")
    found = model.nll([Talk(("hi", "tea"), own) for own in ((True, True), (False, True), (True, False))], scored="last")
    assert len({round(value, 4) for value in found.total.tolist()}) == 3


@kinds
def test_no_turn_that_counts_costs_nothing(kind: str) -> None:
    model = made(kind)
    assert model.nll([]).total.shape == (0,)
    for found in (
        model.nll([Talk(("hi",), (False,)), Talk((), ())], scored="own"),
        model.losses([Talk((), ())] * 2).nll,
    ):
        assert found.total.tolist() == [0, 0]
        assert found.tokens.tolist() == [0, 0]


@kinds
def test_a_turn_is_begun_once(kind: str) -> None:
    model = made(kind)
    state = model.start(TALKS[:1])
    with pytest.raises(ValueError, match="begun with None"):
        model.step(state, torch.tensor([END]))
    _, state = model.step(state, None)
    with pytest.raises(ValueError, match="begun with None"):
        model.step(state, None)


def test_it_learns_a_few_talks_by_heart() -> None:
    model = made("hred", context=24, decoder=24).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        losses = model.losses(TALKS)
        assert losses.kl.tolist() == [0] * len(TALKS)
        (losses.loss() / losses.nll.tokens.sum()).backward()
        optimizer.step()
    with torch.no_grad():
        found = model.eval().nll(TALKS)
    assert math.exp(float(found.total.sum() / found.tokens.sum())) < 1.5


@kinds
def test_it_is_the_same_after_it_was_saved(kind: str, tmp_path: Path) -> None:
    model = made(kind)
    seal(tmp_path, bot="some", model=kind, files=model.save(tmp_path), training={})
    again = KINDS[kind][0].load(tmp_path)
    assert type(again.config) is KINDS[kind][1]
    assert again.config == model.config
    if isinstance(again, VHRED):
        again.draws = False
    assert torch.equal(again.nll(TALKS).total, model.nll(TALKS).total)
