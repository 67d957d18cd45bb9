"""The precision of a run: measured when it starts, and kept when it is resumed."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tertulia.core.errors import UsageError
from tertulia.core.progress import Silent
from tertulia.models.generator import DialogueView
from tertulia.models.generators.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.tokenizer import WordTokenizer
from tertulia.train import compute, loop
from tertulia.train.compute import Computing, Timings, choose_precision, measure
from tertulia.train.loop import LoopConfig, fit
from tertulia.train.record import RECORD, read_record

TALKS = [
    DialogueView(("hi there", "hello you", "how are you"), (True, False, True), ("i like tea",)),
    DialogueView(("you",), (True,)),
]
TOKENS = WordTokenizer(["hi", "there", "hello", "you", "how", "are", "i", "like", "tea"])
GENERATORS = {
    "stream": lambda: Transformer.untrained(TransformerConfig(d_model=16, heads=2, decoder_layers=1), TOKENS),
    "encoder": lambda: Transformer.untrained(
        TransformerConfig(d_model=16, heads=2, encoder_layers=1, decoder_layers=1), TOKENS
    ),
    "evolved": lambda: EvolvedTransformer.untrained(EvolvedConfig(d_model=32, heads=2, decoder_blocks=1), TOKENS),
}


def test_a_product_of_the_models_size_is_timed_in_both_formats() -> None:
    timings = measure(nn.Sequential(nn.Embedding(300, 8), nn.Linear(8, 4)))
    assert timings is not None
    assert 0 < timings.float32 < 1000
    assert 0 < timings.bfloat16 < 1000
    assert measure(nn.LayerNorm(4)) is None


def test_measuring_leaves_the_random_generator_alone() -> None:
    module = nn.Linear(4, 4)
    before = torch.get_rng_state()
    assert choose_precision(module, "auto").bfloat16_ms is not None
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("times", "kind"), [(Timings(2.0, 1.0), "bfloat16"), (Timings(1.1, 1.0), "float32"), (Timings(1.0, 3.0), "float32")]
)
def test_bfloat16_is_chosen_only_if_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, times: Timings, kind: str
) -> None:
    monkeypatch.setattr(compute, "measure", lambda module: times)
    assert choose_precision(nn.Linear(2, 2), "auto").as_json() == {
        "kind": kind,
        "float32_ms": times.float32,
        "bfloat16_ms": times.bfloat16,
    }


def test_a_requested_precision_is_not_measured() -> None:
    assert choose_precision(nn.Linear(2, 2), "bfloat16").as_json() == {"kind": "bfloat16"}
    assert choose_precision(nn.Linear(2, 2), "float32") == Computing()


def test_recurrent_networks_stay_in_float32() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 2))
    assert choose_precision(module, "auto") == Computing()
    with pytest.raises(UsageError, match="recurrent"):
        choose_precision(module, "bfloat16")


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_can_be_trained_in_bfloat16(name: str) -> None:
    torch.manual_seed(0)
    model = GENERATORS[name]().eval()
    exact = model.nll(TALKS).total.sum()
    with Computing("bfloat16").context("cpu"):
        near = model.nll(TALKS).total.sum()
    near.backward()
    assert near.dtype == torch.float32
    assert float(near.detach()) == pytest.approx(float(exact.detach()), rel=0.02)
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())


class Wide(loop.TrainingTask):
    """A task that notes the dtype it computes in."""

    goal = "-error"

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.module = nn.Linear(3, 1)
        self.seen: set[torch.dtype] = set()

    def batches(self, epoch: int) -> list[torch.Tensor]:
        return [torch.rand(4, 3, generator=torch.Generator().manual_seed(10 * epoch + i)) for i in range(4)]

    def loss(self, batch: torch.Tensor) -> loop.Loss:
        made = self.module(batch)
        self.seen.add(made.dtype)
        return loop.Loss(((made.float().squeeze(-1) - batch.sum(1)) ** 2).mean(), len(batch))

    def validate(self) -> dict[str, float]:
        output = self.module(torch.ones(2, 3))
        assert output.dtype == torch.float32
        return {"error": float(((output - 3) ** 2).mean())}


def test_a_resumed_run_keeps_its_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(Silent):
        def advance(self, n: int = 1) -> None:
            if n and (tmp_path / loop.STATE).is_file():
                raise KeyboardInterrupt

    config = LoopConfig(epochs=2, save_seconds=0)
    monkeypatch.setattr(compute, "measure", lambda module: Timings(9.0, 1.0))
    with pytest.raises(KeyboardInterrupt):
        fit(Wide(), config, tmp_path, Stop(), resume=False, run_id="")
    monkeypatch.setattr(compute, "measure", lambda module: Timings(1.0, 9.0))
    task = Wide()
    outcome = fit(task, config, tmp_path, Silent(), resume=True, run_id="")
    assert task.seen == {torch.bfloat16}
    assert outcome.as_json()["precision"] == {"kind": "bfloat16", "float32_ms": 9.0, "bfloat16_ms": 1.0}
    assert [line["precision"]["kind"] for line in read_record(tmp_path / RECORD) if "precision" in line] == ["bfloat16"]
