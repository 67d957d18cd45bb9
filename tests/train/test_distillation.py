"""Learning from a teacher: the loss by hand, its gradients, and pupils that come nearer to what the teacher expects."""

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
from tertulia.models.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.generator import Talk
from tertulia.models.hred import HRED, HREDConfig
from tertulia.models.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.token_logits import GivesLogits
from tertulia.models.tokenizer import END, Tokenizer, WordTokenizer
from tertulia.models.transformer import Transformer, TransformerConfig
from tertulia.models.writers import load_writer
from tertulia.train.distillation import Teacher, distilled, load_teacher, soft_losses
from tertulia.train.writers import Data, WriterConfig, WriterTrainee, read_data, train_writer

WORDS = WordTokenizer("hi there hello you how are i like tea and bread".split())
TALKS = [
    Talk(
        ("hi there", "hello you", "how are you", "i like tea and bread", "tea"),
        (True, False) * 2 + (True,),
        ("i like tea",),
    ),
    Talk(("bread and tea", "you like bread"), (False, True)),
    Talk((), ()),
    Talk(("hello",), (True,), ("i like bread",)),
]
MODELS = {
    "stream": lambda **more: Transformer(TransformerConfig(d_model=8, heads=2, decoder_layers=1, **more), WORDS),
    "encoder": lambda **more: Transformer(
        TransformerConfig(d_model=8, heads=2, encoder_layers=1, decoder_layers=1, **more), WORDS
    ),
    "evolved": lambda **more: EvolvedTransformer(EvolvedConfig(d_model=32, heads=2, decoder_blocks=1, **more), WORDS),
    "seq2seq": lambda **more: Seq2Seq.untrained(Seq2SeqConfig(dim=4, hidden=8, **more), WORDS),
    "decoder": lambda **more: Seq2Seq.untrained(Seq2SeqConfig(dim=4, hidden=8, encoder=False, **more), WORDS),
}


def in_order(talks: list[Talk], scored: str) -> list[int]:
    """The tokens that count, as a reader comes upon them."""
    found: list[int] = []
    for talk in talks:
        for turn, own in zip(talk.turns, talk.own, strict=True):
            if scored == "all" or own:
                found += (*WORDS.encode(turn), END)
    return found


@pytest.mark.parametrize("scored", ["all", "own"])
@pytest.mark.parametrize("longest", [10, 512])
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_tokens_are_those_of_the_likelihood(name: str, longest: int, scored: Any) -> None:
    torch.manual_seed(0)
    model = MODELS[name](longest=longest, **({} if name in ("seq2seq", "decoder") else {"reserve": 2})).eval()
    found = model.token_logits(TALKS, scored=scored)
    assert found.tokens.tolist() == in_order(TALKS, scored)
    assert found.logits.shape == (len(found.tokens), len(WORDS))
    losses = functional.cross_entropy(found.logits, found.tokens, reduction="none")
    sizes = [len(in_order([talk], scored)) for talk in TALKS]
    sums = torch.stack([part.sum() for part in losses.split(sizes)])
    torch.testing.assert_close(sums, model.nll(TALKS, scored=scored).total)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_to_predict_gives_nothing(name: str) -> None:
    assert MODELS[name]().token_logits([Talk((), ())]).logits.shape == (0, len(WORDS))


def test_the_loss_by_hand() -> None:
    pupil, teacher, token = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]]), torch.tensor([0])
    q = torch.tensor([1.0, 0.0]).div(2).log_softmax(-1)
    p = torch.tensor([0.0, 2.0]).div(2).softmax(-1)
    by_hand = 0.7 * -torch.tensor([1.0, 0.0]).log_softmax(-1)[0] + 0.3 * 4 * -(p * q).sum()
    found = soft_losses(pupil, teacher, token, weight=0.3, temperature=2.0)
    assert float(found) == pytest.approx(float(by_hand))


def test_gradients_of_the_loss() -> None:
    made = torch.Generator().manual_seed(0)
    pupil = torch.randn(4, 5, generator=made, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(4, 5, generator=made, dtype=torch.float64)
    tokens = torch.tensor([0, 4, 2, 2])

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return soft_losses(logits, teacher, tokens, weight=0.4, temperature=3.0)

    assert torch.autograd.gradcheck(loss, (pupil,))


@pytest.mark.parametrize("name", ["stream", "seq2seq"])
def test_gradients_of_a_whole_pupil(name: str) -> None:
    torch.manual_seed(0)
    teacher = Teacher(MODELS["encoder"]().double().eval(), "")
    pupil = MODELS[name](dropout=0.0).double()
    loss = distilled(pupil, teacher, TALKS, "own", weight=0.6, temperature=2.0)
    loss.value.backward()
    assert loss.count == len(in_order(TALKS, "own"))
    for weight in pupil.parameters():
        if weight.grad is None:
            continue
        place = int(weight.grad.abs().argmax())
        values = []
        for change in (1e-5, -1e-5):
            with torch.no_grad():
                weight.view(-1)[place] += change
                values.append(float(distilled(pupil, teacher, TALKS, "own", weight=0.6, temperature=2.0).value))
                weight.view(-1)[place] -= change
        slope = (values[0] - values[1]) / 2e-5
        assert slope == pytest.approx(float(weight.grad.view(-1)[place]), rel=1e-4, abs=1e-9)


def leave(model: nn.Module, folder: Path, name: str) -> Path:
    files = model.save(folder)  # type: ignore[operator]
    seal(folder, bot=name, model=name, files=files, training={})
    return folder


def test_a_teacher_is_loaded_to_be_asked_only(tmp_path: Path) -> None:
    folder = leave(MODELS["encoder"](), tmp_path, "transformer")
    teacher = load_teacher(folder, MODELS["stream"](), WORDS)
    assert isinstance(teacher.model, nn.Module)
    assert not teacher.model.training
    assert not any(p.requires_grad for p in teacher.model.parameters())
    assert teacher.fingerprint == read_manifest(folder).fingerprint


def test_other_tokens_are_refused(tmp_path: Path) -> None:
    folder = leave(MODELS["stream"](), tmp_path, "transformer")
    with pytest.raises(DataError, match="other tokens") as caught:
        load_teacher(folder, MODELS["stream"](), WordTokenizer(WORDS.words[:-1]))
    assert "vocabulary" in str(caught.value.hint)


def test_models_without_logits_of_tokens_are_refused(tmp_path: Path) -> None:
    folder = leave(MODELS["stream"](), tmp_path / "a", "transformer")
    hred = HRED.untrained(HREDConfig(dim=4, encoder=4, context=4, decoder=4), WORDS)
    assert not isinstance(hred, GivesLogits)
    with pytest.raises(UsageError, match=r"This model \(HRED\)"):
        load_teacher(folder, hred, WORDS)
    with pytest.raises(UsageError, match=r"The teacher \(HRED\)"):
        load_teacher(leave(hred, tmp_path / "b", "hred"), MODELS["stream"](), WORDS)


def divergence(teacher: GivesLogits, pupil: GivesLogits, talks: list[Talk]) -> float:
    """From the teacher's distributions, in nats a token."""
    with torch.no_grad():
        told, found = teacher.token_logits(talks), pupil.token_logits(talks)
    return float(
        functional.kl_div(
            found.logits.log_softmax(-1), told.logits.log_softmax(-1), log_target=True, reduction="batchmean"
        )
    )


def small(tokenizer: Tokenizer) -> nn.Module:
    return Transformer(TransformerConfig(d_model=16, heads=2, decoder_layers=1, dropout=0.0), tokenizer)


def train(out: Path, **more: Any) -> Mapping[str, Any]:
    settings: dict[str, Any] = {"tokenizer": "words", "vocabulary": 200, "max_dialogues": 16, "valid_dialogues": 3}
    settings |= {"max_steps": 30, "epochs": 99, "rate": 1e-2, "tokens": 800, "out": out} | more
    return train_writer(WriterConfig(**settings), Silent(), name="transformer", build=small).figures()


def test_a_taught_pupil_comes_nearer_to_its_teacher(tmp_path: Path) -> None:
    train(tmp_path / "teacher", max_steps=60, rate=2e-2)
    train(tmp_path / "alone")
    figures = train(tmp_path / "taught", teacher=tmp_path / "teacher", teacher_weight=0.9)
    assert figures["teacher"] == read_manifest(tmp_path / "teacher").fingerprint
    teacher, alone, taught = (load_writer(tmp_path / name)[0] for name in ("teacher", "alone", "taught"))
    assert isinstance(teacher, GivesLogits)
    assert isinstance(alone, GivesLogits)
    assert isinstance(taught, GivesLogits)
    data: Data = read_data(WriterConfig(tokenizer="words", vocabulary=200, max_dialogues=16, valid_dialogues=3))
    assert divergence(teacher, taught, data.valid) < 0.9 * divergence(teacher, alone, data.valid)


def test_another_teacher_is_another_run(tmp_path: Path) -> None:
    for steps in (1, 2):
        train(tmp_path / str(steps), max_steps=steps)
    train(tmp_path / "run", max_steps=2, teacher=tmp_path / "1")
    with pytest.raises(DataError, match="other data or settings"):
        train(tmp_path / "run", max_steps=2, teacher=tmp_path / "2", resume=True)


def test_validation_is_by_the_text_alone(tmp_path: Path) -> None:
    folder = leave(MODELS["encoder"](), tmp_path, "transformer")
    model = MODELS["stream"]().eval()
    data = Data(TALKS[:2], TALKS[:2], WORDS, 2)
    taught, alone = (WriterTrainee(model, data, WriterConfig(teacher=which)) for which in (folder, None))
    assert taught.validate() == alone.validate()
    with torch.no_grad():
        values = [float(one.loss(TALKS[:2]).value) for one in (taught, alone)]
    assert values[0] != pytest.approx(values[1], rel=1e-6)
