"""What a run computes in: measured, kept, and never more than arithmetic."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tertulia.core.errors import UsageError
from tertulia.core.progress import Silent
from tertulia.models.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.generator import Talk
from tertulia.models.tokenizer import WordTokenizer
from tertulia.models.transformer import Transformer, TransformerConfig
from tertulia.train import loop, precision
from tertulia.train.loop import LoopConfig, fit
from tertulia.train.precision import Computing, Times, choose, measure
from tertulia.train.record import RECORD, read_record

TALKS = [Talk(("hi there", "hello you", "how are you"), (True, False, True), ("i like tea",)), Talk(("you",), (True,))]
TOKENS = WordTokenizer(["hi", "there", "hello", "you", "how", "are", "i", "like", "tea"])
WRITERS = {
    "stream": lambda: Transformer(TransformerConfig(d_model=16, heads=2, decoder_layers=1), TOKENS),
    "encoder": lambda: Transformer(TransformerConfig(d_model=16, heads=2, encoder_layers=1, decoder_layers=1), TOKENS),
    "evolved": lambda: EvolvedTransformer(EvolvedConfig(d_model=32, heads=2, decoder_blocks=1), TOKENS),
}


def test_a_product_of_the_models_size_is_measured_in_both() -> None:
    found = measure(nn.Sequential(nn.Embedding(300, 8), nn.Linear(8, 4)))
    assert found is not None
    assert 0 < found.float32 < 1000
    assert 0 < found.bfloat16 < 1000
    assert measure(nn.LayerNorm(4)) is None


def test_measuring_draws_nothing() -> None:
    module = nn.Linear(4, 4)
    before = torch.get_rng_state()
    assert choose(module, "auto").bfloat16_ms is not None
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("times", "kind"), [(Times(2.0, 1.0), "bfloat16"), (Times(1.1, 1.0), "float32"), (Times(1.0, 3.0), "float32")]
)
def test_bfloat16_must_gain(monkeypatch: pytest.MonkeyPatch, times: Times, kind: str) -> None:
    monkeypatch.setattr(precision, "measure", lambda module: times)
    assert choose(nn.Linear(2, 2), "auto").as_json() == {
        "kind": kind,
        "float32_ms": times.float32,
        "bfloat16_ms": times.bfloat16,
    }


def test_what_is_wanted_is_not_measured() -> None:
    assert choose(nn.Linear(2, 2), "bfloat16").as_json() == {"kind": "bfloat16"}
    assert choose(nn.Linear(2, 2), "float32") == Computing()


def test_recurrent_networks_stay_in_float32() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 2))
    assert choose(module, "auto") == Computing()
    with pytest.raises(UsageError, match="recurrent"):
        choose(module, "bfloat16")


@pytest.mark.parametrize("name", WRITERS)
def test_writers_can_be_trained_in_bfloat16(name: str) -> None:
    torch.manual_seed(0)
    model = WRITERS[name]().eval()
    exact = model.nll(TALKS).total.sum()
    with Computing("bfloat16").context("cpu"):
        near = model.nll(TALKS).total.sum()
    near.backward()
    assert near.dtype == torch.float32
    assert float(near.detach()) == pytest.approx(float(exact.detach()), rel=0.02)
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())


class Wide:
    """Something whose arithmetic can be told by its dtype."""

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
        found = self.module(torch.ones(2, 3))
        assert found.dtype == torch.float32
        return {"error": float(((found - 3) ** 2).mean())}


def test_a_run_keeps_what_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(Silent):
        def advance(self, n: int = 1) -> None:
            if n and (tmp_path / loop.STATE).is_file():
                raise KeyboardInterrupt

    config = LoopConfig(epochs=2, keep_seconds=0)
    monkeypatch.setattr(precision, "measure", lambda module: Times(9.0, 1.0))
    with pytest.raises(KeyboardInterrupt):
        fit(Wide(), config, tmp_path, Stop(), resume=False, same="")
    monkeypatch.setattr(precision, "measure", lambda module: Times(1.0, 9.0))
    trainee = Wide()
    outcome = fit(trainee, config, tmp_path, Silent(), resume=True, same="")
    assert trainee.seen == {torch.bfloat16}
    assert outcome.as_json()["precision"] == {"kind": "bfloat16", "float32_ms": 9.0, "bfloat16_ms": 1.0}
    assert [line["precision"]["kind"] for line in read_record(tmp_path / RECORD) if "precision" in line] == ["bfloat16"]


def test_a_state_that_says_nothing_is_of_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = LoopConfig(epochs=1, keep_seconds=0, precision="float32")
    fit(Wide(), config, tmp_path, Silent(), resume=False, same="")
    state = torch.load(tmp_path / loop.STATE, weights_only=True)
    del state["computing"]
    torch.save(state, tmp_path / loop.STATE)
    monkeypatch.setattr(precision, "measure", lambda module: Times(9.0, 1.0))
    outcome = fit(Wide(), LoopConfig(epochs=1), tmp_path, Silent(), resume=True, same="")
    assert outcome.computing.kind == "float32"
