"""Distillation: the loss by hand, its gradients, and students that approach their teacher's distributions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Silent
from tertulia.models.checkpoint import read_manifest, seal
from tertulia.models.generator import DialogueView
from tertulia.models.generators.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.generators.hred import HRED, HREDConfig
from tertulia.models.generators.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.loading import load_generator
from tertulia.models.token_logits import GivesLogits
from tertulia.models.tokenizer import END, Tokenizer, WordTokenizer
from tertulia.train.distillation import Teacher, distillation_loss, load_teacher, token_losses
from tertulia.train.tasks.generative import GenerativeConfig, GenerativeData, GenerativeTask, read_data, train_generator

WORDS = WordTokenizer("hi there hello you how are i like tea and bread".split())
VIEWS = [
    DialogueView(
        ("hi there", "hello you", "how are you", "i like tea and bread", "tea"),
        (True, False) * 2 + (True,),
        ("i like tea",),
    ),
    DialogueView(("bread and tea", "you like bread"), (False, True)),
    DialogueView((), ()),
    DialogueView(("hello",), (True,), ("i like bread",)),
]
MODELS = {
    "stream": lambda **more: Transformer.untrained(
        TransformerConfig(d_model=8, heads=2, decoder_layers=1, **more), WORDS
    ),
    "encoder": lambda **more: Transformer.untrained(
        TransformerConfig(d_model=8, heads=2, encoder_layers=1, decoder_layers=1, **more), WORDS
    ),
    "evolved": lambda **more: EvolvedTransformer.untrained(
        EvolvedConfig(d_model=32, heads=2, decoder_blocks=1, **more), WORDS
    ),
    "seq2seq": lambda **more: Seq2Seq.untrained(Seq2SeqConfig(dim=4, hidden=8, **more), WORDS),
    "decoder": lambda **more: Seq2Seq.untrained(Seq2SeqConfig(dim=4, hidden=8, encoder=False, **more), WORDS),
}


def in_order(views: list[DialogueView], target_turns: str) -> list[int]:
    """The tokens of the target turns, in reading order."""
    tokens: list[int] = []
    for view in views:
        for turn, own in zip(view.turns, view.own, strict=True):
            if target_turns == "all" or own:
                tokens += (*WORDS.encode(turn), END)
    return tokens


@pytest.mark.parametrize("target_turns", ["all", "own"])
@pytest.mark.parametrize("max_length", [10, 512])
@pytest.mark.parametrize("name", MODELS)
def test_token_logits_agree_with_the_likelihood(name: str, max_length: int, target_turns: Any) -> None:
    torch.manual_seed(0)
    model = MODELS[name](max_length=max_length, **({} if name in ("seq2seq", "decoder") else {"reserve": 2})).eval()
    predicted = model.token_logits(VIEWS, target_turns=target_turns)
    assert predicted.tokens.tolist() == in_order(VIEWS, target_turns)
    assert predicted.logits.shape == (len(predicted.tokens), len(WORDS))
    losses = functional.cross_entropy(predicted.logits, predicted.tokens, reduction="none")
    sizes = [len(in_order([view], target_turns)) for view in VIEWS]
    sums = torch.stack([part.sum() for part in losses.split(sizes)])
    torch.testing.assert_close(sums, model.nll(VIEWS, target_turns=target_turns).total)


@pytest.mark.parametrize("name", MODELS)
def test_no_target_tokens_give_no_logits(name: str) -> None:
    assert MODELS[name]().token_logits([DialogueView((), ())]).logits.shape == (0, len(WORDS))


def test_the_loss_by_hand() -> None:
    student, teacher, token = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]]), torch.tensor([0])
    q = torch.tensor([1.0, 0.0]).div(2).log_softmax(-1)
    p = torch.tensor([0.0, 2.0]).div(2).softmax(-1)
    by_hand = 0.7 * -torch.tensor([1.0, 0.0]).log_softmax(-1)[0] + 0.3 * 4 * -(p * q).sum()
    loss = token_losses(student, teacher, token, weight=0.3, temperature=2.0)
    assert float(loss) == pytest.approx(float(by_hand))


def test_the_gradient_of_the_loss() -> None:
    made = torch.Generator().manual_seed(0)
    student = torch.randn(4, 5, generator=made, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(4, 5, generator=made, dtype=torch.float64)
    tokens = torch.tensor([0, 4, 2, 2])

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return token_losses(logits, teacher, tokens, weight=0.4, temperature=3.0)

    assert torch.autograd.gradcheck(loss, (student,))


@pytest.mark.parametrize("name", ["stream", "seq2seq"])
def test_the_gradient_through_a_student(name: str) -> None:
    torch.manual_seed(0)
    teacher = Teacher(MODELS["encoder"]().double().eval(), "")
    student = MODELS[name](dropout=0.0).double()
    loss = distillation_loss(student, teacher, VIEWS, "own", weight=0.6, temperature=2.0)
    loss.value.backward()
    assert loss.count == len(in_order(VIEWS, "own"))
    for weight in student.parameters():
        if weight.grad is None:
            continue
        place = int(weight.grad.abs().argmax())
        values = []
        for change in (1e-5, -1e-5):
            with torch.no_grad():
                weight.view(-1)[place] += change
                values.append(
                    float(distillation_loss(student, teacher, VIEWS, "own", weight=0.6, temperature=2.0).value)
                )
                weight.view(-1)[place] -= change
        slope = (values[0] - values[1]) / 2e-5
        assert slope == pytest.approx(float(weight.grad.view(-1)[place]), rel=1e-4, abs=1e-9)


def save(model: nn.Module, folder: Path, name: str) -> Path:
    files = model.save(folder)  # type: ignore[operator]
    seal(folder, bot=name, model=name, files=files, training={})
    return folder


def test_a_teacher_is_frozen_and_in_eval_mode(tmp_path: Path) -> None:
    folder = save(MODELS["encoder"](), tmp_path, "transformer")
    teacher = load_teacher(folder, MODELS["stream"](), WORDS)
    assert isinstance(teacher.model, nn.Module)
    assert not teacher.model.training
    assert not any(p.requires_grad for p in teacher.model.parameters())
    assert teacher.fingerprint == read_manifest(folder).fingerprint


def test_a_teacher_with_other_tokens_is_refused(tmp_path: Path) -> None:
    folder = save(MODELS["stream"](), tmp_path, "transformer")
    with pytest.raises(DataError, match="other tokens") as caught:
        load_teacher(folder, MODELS["stream"](), WordTokenizer(WORDS.words[:-1]))
    assert "vocabulary" in str(caught.value.hint)


def test_models_without_token_logits_are_refused(tmp_path: Path) -> None:
    folder = save(MODELS["stream"](), tmp_path / "a", "transformer")
    hred = HRED.untrained(HREDConfig(dim=4, encoder=4, context=4, decoder=4), WORDS)
    assert not isinstance(hred, GivesLogits)
    with pytest.raises(UsageError, match=r"The student \(HRED\)"):
        load_teacher(folder, hred, WORDS)
    with pytest.raises(UsageError, match=r"The teacher \(HRED\)"):
        load_teacher(save(hred, tmp_path / "b", "hred"), MODELS["stream"](), WORDS)


def divergence(teacher: GivesLogits, student: GivesLogits, views: list[DialogueView]) -> float:
    """KL divergence from the teacher's distributions, in nats per token."""
    with torch.no_grad():
        taught, predicted = teacher.token_logits(views), student.token_logits(views)
    return float(
        functional.kl_div(
            predicted.logits.log_softmax(-1), taught.logits.log_softmax(-1), log_target=True, reduction="batchmean"
        )
    )


def small(config: GenerativeConfig, tokenizer: Tokenizer) -> nn.Module:
    return Transformer.untrained(TransformerConfig(d_model=16, heads=2, decoder_layers=1, dropout=0.0), tokenizer)


def train(out: Path, **more: Any) -> Mapping[str, Any]:
    settings: dict[str, Any] = {"tokenizer": "words", "vocabulary": 200, "max_dialogues": 16, "valid_dialogues": 3}
    settings |= {"max_steps": 30, "epochs": 99, "learning_rate": 1e-2, "batch_tokens": 800, "out": out} | more
    return train_generator(GenerativeConfig(recipe="transformer", **settings), Silent(), build=small).figures()


def test_distillation_reduces_the_divergence_from_the_teacher(tmp_path: Path) -> None:
    train(tmp_path / "teacher", max_steps=60, learning_rate=2e-2)
    train(tmp_path / "alone")
    figures = train(tmp_path / "taught", teacher=tmp_path / "teacher", teacher_weight=0.9)
    assert figures["teacher"] == read_manifest(tmp_path / "teacher").fingerprint
    teacher, alone, taught = (load_generator(tmp_path / name)[0] for name in ("teacher", "alone", "taught"))
    assert isinstance(teacher, GivesLogits)
    assert isinstance(alone, GivesLogits)
    assert isinstance(taught, GivesLogits)
    data: GenerativeData = read_data(
        GenerativeConfig(tokenizer="words", vocabulary=200, max_dialogues=16, valid_dialogues=3)
    )
    assert divergence(teacher, taught, data.valid) < 0.9 * divergence(teacher, alone, data.valid)


def test_a_run_is_not_resumed_with_another_teacher(tmp_path: Path) -> None:
    for steps in (1, 2):
        train(tmp_path / str(steps), max_steps=steps)
    train(tmp_path / "run", max_steps=2, teacher=tmp_path / "1")
    with pytest.raises(DataError, match="other data or settings"):
        train(tmp_path / "run", max_steps=2, teacher=tmp_path / "2", resume=True)


def test_validation_ignores_the_teacher(tmp_path: Path) -> None:
    folder = save(MODELS["encoder"](), tmp_path, "transformer")
    model = MODELS["stream"]().eval()
    data = GenerativeData(VIEWS[:2], VIEWS[:2], WORDS, 2)
    taught, alone = (GenerativeTask(model, data, GenerativeConfig(teacher=which)) for which in (folder, None))
    assert taught.validate() == alone.validate()
    with torch.no_grad():
        values = [float(one.loss(VIEWS[:2]).value) for one in (taught, alone)]
    assert values[0] != pytest.approx(values[1], rel=1e-6)
