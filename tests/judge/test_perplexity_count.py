"""Perplexity of models whose probabilities are known, worked out by hand."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.judge.perplexity import TOKEN, WORD
from tertulia.judge.perplexity_count import (
    BOUND,
    KL,
    bootstrap_ratios,
    count,
    counts_of,
    figures_of,
    times_of,
    told_of,
)
from tertulia.judge.perplexity_run import judge_perplexity
from tertulia.judge.rank import Setting
from tertulia.metrics.significance import bootstrap_mean
from tertulia.models.generator import Nll, Scored, State, Talk, counted
from tertulia.models.tokenizer import END, UNKNOWN, Tokenizer, WordTokenizer
from tertulia.models.vhred import VHRED, VHREDConfig

WORDS = WordTokenizer(["tea", "dog"])
TEA, DOG = 6, 7
OWN, REVISED = Setting("own"), Setting("own", "revised")


class Letters:
    """Every letter is a token."""

    def __len__(self) -> int:
        return 32

    def encode(self, text: str, /) -> tuple[int, ...]:
        return tuple(6 + ord(letter) - ord("a") for letter in text if letter.isalpha())

    def decode(self, ids: Sequence[int], /) -> str:
        return "".join(chr(i - 6 + ord("a")) for i in ids)

    def save(self, folder: Path, /) -> str:
        raise NotImplementedError


class Fixed:
    """Each token has a probability, whatever came before; a persona makes tea certain."""

    def __init__(self, tokenizer: Tokenizer, chances: dict[int, float]) -> None:
        self.tokenizer, self.chances = tokenizer, chances
        self.batches: list[list[Talk]] = []

    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        self.batches.append(list(talks))
        found = [self._one(talk, scored) for talk in talks]
        total, tokens = zip(*found, strict=True)
        return Nll(torch.tensor(total, dtype=torch.float64), torch.tensor(tokens))

    def _one(self, talk: Talk, scored: Scored) -> tuple[float, int]:
        said = [text for text, counts in zip(talk.turns, counted(talk, scored), strict=True) if counts]
        ids = [i for text in said for i in (*self.tokenizer.encode(text), END)]
        sure = {TEA: 1.0} if talk.persona else {}
        return -sum(math.log((self.chances | sure)[i]) for i in ids), len(ids)

    def start(self, talks: Sequence[Talk], /) -> State:
        raise NotImplementedError

    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, State]:
        raise NotImplementedError

    def save(self, folder: Path, /) -> Sequence[str]:
        raise NotImplementedError


def dialogue(name: str, *texts: str, personas: dict[str, Persona] | None = None) -> Dialogue:
    turns = tuple(Turn("ab"[i % 2], text) for i, text in enumerate(texts))
    return Dialogue(name, turns, personas or {})


def fixed() -> Fixed:
    return Fixed(WORDS, {TEA: 1 / 2, DOG: 1 / 4, END: 1 / 4, UNKNOWN: 1 / 16})


TALKS = [dialogue("one", "tea dog", "tea"), dialogue("two", "dog", "dog dog", "tea")]


def test_known_probabilities_give_the_perplexity_worked_out_by_hand() -> None:
    everybody = judge_perplexity(fixed(), TALKS)  # type: ignore[arg-type]
    # bits: "tea dog" 1 + 2 + 2, "tea" 1 + 2, "dog" 2 + 2, "dog dog" 2 + 2 + 2, "tea" 1 + 2; words with ends: 3 2 2 3 2
    assert everybody[WORD].value == pytest.approx(2 ** (21 / 12))
    assert everybody[TOKEN].value == pytest.approx(2 ** (21 / 12))
    assert everybody[WORD].n == 5
    second = judge_perplexity(fixed(), TALKS, speaker="b")  # type: ignore[arg-type]
    assert second[WORD].value == pytest.approx(2 ** (9 / 5))
    assert second[WORD].n == 2


def test_the_interval_is_over_dialogues() -> None:
    found = judge_perplexity(fixed(), TALKS)[WORD]  # type: ignore[arg-type]
    one, two = 2 ** (8 / 5), 2 ** (13 / 7)  # what drawing the same dialogue twice gives
    assert (found.low, found.high) == (pytest.approx(one), pytest.approx(two))
    alone = judge_perplexity(fixed(), TALKS[:1])[WORD]  # type: ignore[arg-type]
    assert alone.low == alone.high == pytest.approx(one)


def test_per_word_does_not_depend_on_tokens() -> None:
    uniform = Fixed(Letters(), dict.fromkeys((END, *range(6, 32)), 1 / 27))
    found = judge_perplexity(uniform, [dialogue("d", "tea dog", "yes")])  # type: ignore[arg-type]
    assert found[TOKEN].value == pytest.approx(27)
    assert found[WORD].value == pytest.approx(27 ** (11 / 5))  # seven tokens in three words, four in two


def test_only_those_with_the_persona_of_the_setting_count() -> None:
    persona = Persona(("i like tea",), revised=("i boil leaves",))
    some = [
        dialogue("both", "tea", "dog", personas={"a": persona}),
        dialogue("original", "tea", personas={"a": Persona(("i bake",))}),
        dialogue("none", "dog"),
    ]
    model = fixed()
    shown = {setting: told_of(some, setting) for setting in (Setting(), OWN, REVISED)}
    assert [(t.dialogue, t.talk.persona) for t in shown[OWN]] == [("both", ("i like tea",)), ("original", ("i bake",))]
    assert [(t.dialogue, t.talk.persona) for t in shown[REVISED]] == [("both", ("i boil leaves",))]
    assert [t.talk.persona for t in shown[Setting()]] == [()] * 4
    both = dialogue("pair", "tea", "dog", personas={"a": persona, "b": Persona(("i bark",))})
    for whose, expected in (("their", [((), ("i bark",))]), ("both", [(("i like tea",), ("i bark",))])):
        told = told_of([*some, both], Setting(whose), "a")
        assert [(t.talk.persona, t.talk.partner) for t in told] == expected
    found = figures_of(count(model, shown[REVISED]))  # type: ignore[arg-type]
    assert found[WORD].value == pytest.approx(2 ** (2 / 2))  # tea is certain now
    nobody = figures_of(count(model, []))  # type: ignore[arg-type]
    assert nobody[WORD].n == 0
    assert math.isnan(nobody[WORD].value)


def test_unknown_words_are_counted() -> None:
    found = count(fixed(), told_of([dialogue("d", "tea and milk", "dog")], Setting()))  # type: ignore[arg-type]
    counts = counts_of(found, fixed())  # type: ignore[arg-type]
    assert (counts.dialogues, counts.turns, counts.words, counts.tokens, counts.unknown) == (1, 2, 6, 6, 2)


def test_two_models_are_compared_on_the_same_words() -> None:
    told = told_of(TALKS, Setting())
    likes_dogs = Fixed(WORDS, {TEA: 1 / 4, DOG: 1 / 2, END: 1 / 4})
    ours, theirs = (count(model, told) for model in (fixed(), likes_dogs))  # type: ignore[arg-type]
    times = times_of(theirs, ours)
    assert times.value == pytest.approx(2 ** (-1 / 12))  # one bit less in twelve words: four dogs, three cups of tea
    assert times_of(ours, ours).high == 1
    with pytest.raises(ValueError, match="same talks"):
        times_of(ours, count(fixed(), told[:2]))  # type: ignore[arg-type]


def test_ratios_of_single_things_are_means() -> None:
    values = np.random.default_rng(2).normal(size=(40, 1))
    groups = [str(i // 4) for i in range(40)]
    (ratio,) = bootstrap_ratios(values, np.ones((40, 1)), groups, n=40, seed=3)
    mean = bootstrap_mean(values[:, 0], groups, seed=3)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((mean.value, mean.low, mean.high))


class Hidden(Fixed):
    """A plugin's model with latent variables, which knows importance sampling but tells no more."""

    draws = True
    asked: tuple[int, int] = (0, 0)

    def importance_nll(self, talks: Sequence[Talk], /, *, samples: int, seed: int, scored: Scored = "all") -> Nll:
        self.asked = samples, seed
        return self.nll(talks, scored=scored)


def test_latent_variables_are_asked_about_by_importance_sampling() -> None:
    model = Hidden(WORDS, fixed().chances)
    found = count(model, told_of(TALKS, Setting()), importance_samples=7, seed=5)  # type: ignore[arg-type]
    assert (found.kind, model.asked, found.latent) == ("importance", (7, 5), None)
    blind = fixed()
    blind.draws = True  # type: ignore[attr-defined]
    assert count(blind, told_of(TALKS, Setting())).kind == "bound"  # type: ignore[arg-type]
    assert count(fixed(), told_of(TALKS, Setting())).kind == "exact"  # type: ignore[arg-type]


def test_a_variational_model_tells_bound_and_divergence() -> None:
    torch.manual_seed(1)
    sizes = VHREDConfig(dim=4, encoder=4, context=4, decoder=4, latent=2)
    model = VHRED.untrained(sizes, WORDS).train()
    told = told_of(TALKS, Setting())
    first, again, many = (figures_of(count(model, told, importance_samples=n)) for n in (3, 3, 60))
    assert model.training  # as it was; dropout would have made these differ
    assert first == again
    assert first[KL].value > 0
    assert many[WORD].value <= many[BOUND].value
    by_hand = model.eval().importance([one.talk for one in told], scored="own", samples=3)
    assert first[KL].value == pytest.approx(float(by_hand.kl.sum()) / 5, rel=0.05)
    assert first[KL].n == 5
