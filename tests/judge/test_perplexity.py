"""Perplexity of models whose probabilities are known, worked out by hand."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.estimate import Estimate
from tertulia.judge.config import PersonaSetting
from tertulia.judge.perplexity import ViewLikelihoods, compute_likelihoods, judge_perplexity, target_views
from tertulia.judge.spelling import CharacterModel
from tertulia.metrics.registry import metric_named
from tertulia.metrics.significance import compare, estimate
from tertulia.models.generator import DialogueView, Importance, Latent, Nll, State, TargetTurns, target_mask
from tertulia.models.generators.vhred import VHRED, VHREDConfig
from tertulia.models.tokenizer import END, UNKNOWN, Tokenizer, WordTokenizer

WORD, TOKEN, BOUND, KL = "perplexity", "perplexity per token", "perplexity bound", "KL"
SPELLED = "perplexity with spelling"
WORDS = WordTokenizer(["tea", "dog"])
TEA, DOG = 6, 7
OWN, REVISED = PersonaSetting("own"), PersonaSetting("own", "revised")


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


class UnigramModel:
    """Each token has a fixed probability, whatever the context; with a persona, tea is certain."""

    def __init__(self, tokenizer: Tokenizer, probabilities: dict[int, float]) -> None:
        self.tokenizer, self.probabilities = tokenizer, probabilities
        self.batches: list[list[DialogueView]] = []

    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        self.batches.append(list(views))
        total, tokens = zip(*(self._one(view, target_turns) for view in views), strict=True)
        return Nll(torch.tensor(total, dtype=torch.float64), torch.tensor(tokens))

    def _one(self, view: DialogueView, target_turns: TargetTurns) -> tuple[float, int]:
        targets = [text for text, target in zip(view.turns, target_mask(view, target_turns), strict=True) if target]
        ids = [i for text in targets for i in (*self.tokenizer.encode(text), END)]
        certain = {TEA: 1.0} if view.persona else {}
        return -sum(math.log((self.probabilities | certain)[i]) for i in ids), len(ids)

    def start(self, views: Sequence[DialogueView], /) -> State:
        raise NotImplementedError

    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, State]:
        raise NotImplementedError

    def save(self, folder: Path, /) -> Sequence[str]:
        raise NotImplementedError


def dialogue(name: str, *texts: str, personas: dict[str, Persona] | None = None) -> Dialogue:
    turns = tuple(Turn("ab"[i % 2], text) for i, text in enumerate(texts))
    return Dialogue(name, turns, personas or {})


def unigram() -> UnigramModel:
    return UnigramModel(WORDS, {TEA: 1 / 2, DOG: 1 / 4, END: 1 / 4, UNKNOWN: 1 / 16})


DIALOGUES = [dialogue("one", "tea dog", "tea"), dialogue("two", "dog", "dog dog", "tea")]


def test_known_probabilities_give_the_perplexity_worked_out_by_hand() -> None:
    everybody = judge_perplexity(unigram(), DIALOGUES)  # type: ignore[arg-type]
    # bits: "tea dog" 1 + 2 + 2, "tea" 1 + 2, "dog" 2 + 2, "dog dog" 2 + 2 + 2, "tea" 1 + 2; words with ends: 3 2 2 3 2
    assert everybody[WORD].value == pytest.approx(2 ** (21 / 12))
    assert everybody[TOKEN].value == pytest.approx(2 ** (21 / 12))
    assert everybody[WORD].n == 4  # two dialogues, each as either speaker sees it
    second = judge_perplexity(unigram(), DIALOGUES, speaker="b")  # type: ignore[arg-type]
    assert second[WORD].value == pytest.approx(2 ** (9 / 5))
    assert second[WORD].n == 2


def test_the_interval_is_over_dialogues() -> None:
    figure = judge_perplexity(unigram(), DIALOGUES)[WORD]  # type: ignore[arg-type]
    one, two = 2 ** (8 / 5), 2 ** (13 / 7)  # what drawing the same dialogue twice gives
    assert (figure.low, figure.high) == (pytest.approx(one), pytest.approx(two))
    alone = judge_perplexity(unigram(), DIALOGUES[:1])[WORD]  # type: ignore[arg-type]
    assert alone.value == pytest.approx(one)
    assert math.isnan(alone.low), "a single dialogue says nothing about others"


def test_perplexity_per_word_does_not_depend_on_tokens() -> None:
    uniform = UnigramModel(Letters(), dict.fromkeys((END, *range(6, 32)), 1 / 27))
    figures = judge_perplexity(uniform, [dialogue("d", "tea dog", "yes")])  # type: ignore[arg-type]
    assert figures[TOKEN].value == pytest.approx(27)
    assert figures[WORD].value == pytest.approx(27 ** (11 / 5))  # seven tokens in three words, four in two


def figures_of(computed: ViewLikelihoods) -> dict[str, Estimate]:
    scores = computed.scores(subject="model", setting="")
    return {score.metric: estimate(score, metric_named(score.metric)) for score in scores}


def test_only_views_with_the_persona_of_the_setting_are_used() -> None:
    persona = Persona(("i like tea",), revised=("i boil leaves",))
    dialogues = [
        dialogue("both", "tea", "dog", personas={"a": persona}),
        dialogue("original", "tea", personas={"a": Persona(("i bake",))}),
        dialogue("none", "dog"),
    ]
    model = unigram()
    views = {setting: target_views(dialogues, setting) for setting in (PersonaSetting(), OWN, REVISED)}
    assert [(v.unit, v.view.persona) for v in views[OWN]] == [
        ("both/a", ("i like tea",)),
        ("original/a", ("i bake",)),
    ]
    assert [(v.dialogue, v.view.persona) for v in views[REVISED]] == [("both", ("i boil leaves",))]
    assert [v.view.persona for v in views[PersonaSetting()]] == [()] * 4
    both = dialogue("pair", "tea", "dog", personas={"a": persona, "b": Persona(("i bark",))})
    for scope, expected in (("their", [((), ("i bark",))]), ("both", [(("i like tea",), ("i bark",))])):
        visible = target_views([*dialogues, both], PersonaSetting(scope), "a")
        assert [(v.view.persona, v.view.partner) for v in visible] == expected
    figures = figures_of(compute_likelihoods(model, views[REVISED]))  # type: ignore[arg-type]
    assert figures[WORD].value == pytest.approx(2 ** (2 / 2))  # tea is certain now
    empty = figures_of(compute_likelihoods(model, []))  # type: ignore[arg-type]
    assert empty[WORD].n == 0
    assert math.isnan(empty[WORD].value)


def test_unknown_words_are_counted() -> None:
    views = target_views([dialogue("d", "tea and milk", "dog")], PersonaSetting())
    counts = compute_likelihoods(unigram(), views).counts(unigram())  # type: ignore[arg-type]
    charged = counts.pop("charged")
    assert counts == {"dialogues": 1, "turns": 2, "words": 6, "tokens": 6, "unknown": 2}
    spelled = CharacterModel(WORDS.words)
    assert charged == pytest.approx(spelled.nats("and") + spelled.nats("milk"), abs=1e-3)


def test_unknown_words_are_charged_for_their_letters() -> None:
    text = [dialogue("d", "tea and milk", "dog")]
    figures = judge_perplexity(unigram(), text)  # type: ignore[arg-type]
    bits = 1 + 4 + 4 + 2 + 2 + 2  # tea, two unknown words, the end; dog, the end
    assert figures[WORD].value == pytest.approx(2 ** (bits / 6))
    spelled = CharacterModel(WORDS.words)
    nats = bits * math.log(2) + spelled.nats("and") + spelled.nats("milk")
    assert figures[SPELLED].value == pytest.approx(math.exp(nats / 6))
    same = judge_perplexity(unigram(), DIALOGUES)  # type: ignore[arg-type]
    assert same[SPELLED].value == same[WORD].value, "printed all the same, so that models can be compared"


def test_two_models_are_compared_on_the_same_words() -> None:
    views = target_views(DIALOGUES, PersonaSetting())
    dogs = UnigramModel(WORDS, {TEA: 1 / 4, DOG: 1 / 2, END: 1 / 4})
    one, other = (
        compute_likelihoods(model, views).scores(subject="m", setting="")[0]  # type: ignore[arg-type]
        for model in (unigram(), dogs)
    )
    comparison = compare(other, one, metric_named(WORD))
    assert comparison is not None
    assert comparison.kind == "ratio"
    assert comparison.estimate.value == pytest.approx(2 ** (-1 / 12))  # one bit less in twelve words: 4 dogs, 3 teas
    same = compare(one, one, metric_named(WORD))
    assert same is not None
    assert same.estimate.value == 1
    assert math.isnan(same.estimate.high), "no difference in any dialogue says nothing about others"


class LatentModel(UnigramModel):
    """A plugin's model with latent variables: the bound is one nat above the likelihood, half of it KL."""

    options: tuple[int, int] = (0, 0)

    def nll(
        self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all", latent: Latent = "sample"
    ) -> Nll:
        return super().nll(views, target_turns=target_turns)

    def importance(
        self, views: Sequence[DialogueView], /, *, samples: int, seed: int, target_turns: TargetTurns = "all"
    ) -> Importance:
        self.options = samples, seed
        nll = self.nll(views, target_turns=target_turns)
        return Importance(nll, nll.total + 1, torch.full((len(views),), 0.5))


def test_latent_models_are_evaluated_by_importance_sampling() -> None:
    views = target_views(DIALOGUES, PersonaSetting())
    model = LatentModel(WORDS, unigram().probabilities)
    computed = compute_likelihoods(model, views, importance_samples=7, seed=5)  # type: ignore[arg-type]
    assert (computed.kind, model.options) == ("importance", (7, 5))
    figures = figures_of(computed)
    assert figures[KL].value == pytest.approx(4 * 0.5 / 12)
    assert figures[BOUND].value == pytest.approx(math.exp((21 * math.log(2) + 4) / 12))
    exact = compute_likelihoods(unigram(), views)  # type: ignore[arg-type]
    assert (exact.kind, exact.latent) == ("exact", None)
    assert set(figures_of(exact)) == {WORD, SPELLED, TOKEN}


def test_a_variational_model_has_bound_and_divergence() -> None:
    torch.manual_seed(1)
    sizes = VHREDConfig(dim=4, encoder=4, context=4, decoder=4, latent=2)
    model = VHRED.untrained(sizes, WORDS).train()
    views = target_views(DIALOGUES, PersonaSetting())
    first, again, many = (figures_of(compute_likelihoods(model, views, importance_samples=n)) for n in (3, 3, 60))
    assert model.training  # as it was; dropout would have made these differ
    assert first == again
    assert first[KL].value > 0
    assert many[WORD].value <= many[BOUND].value
    by_hand = model.eval().importance([v.view for v in views], target_turns="own", samples=3, seed=0)
    assert first[KL].value == pytest.approx(float(by_hand.kl.sum()) / 12, rel=0.05)
