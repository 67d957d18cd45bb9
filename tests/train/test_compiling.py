"""Compiled blocks give the same losses; without a compiler there is a clear error."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tertulia.core.errors import UsageError
from tertulia.models.generator import DialogueView
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.tokenizer import WordTokenizer
from tertulia.train.compute import compile_blocks

WORDS = WordTokenizer("hi there you like tea".split())
BATCHES = [
    [DialogueView(("hi there", "you like tea"), (True, False))] * n + [DialogueView(("tea",) * n, (True,) * n)]
    for n in (2, 3)
]


def losses(*, compiled: bool) -> list[float]:
    """The losses of some updates, on batches of different shapes."""
    torch.manual_seed(0)
    model = Transformer.untrained(TransformerConfig(d_model=8, heads=2, decoder_layers=1, dropout=0.0), WORDS)
    names = list(model.state_dict())
    if compiled:
        assert compile_blocks(model) == 1
    optimizer, values = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for step in range(6):
        optimizer.zero_grad()
        loss = model.nll(BATCHES[step % 2]).total.sum()
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))
    assert list(model.state_dict()) == names
    return values


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")  # the compiler's own, of which each version has others
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="there is no C++ compiler")
def test_compiled_blocks_give_the_same_losses() -> None:
    assert losses(compiled=True) == pytest.approx(losses(compiled=False), rel=1e-4)


def test_a_model_without_blocks_cannot_be_compiled() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(2, 2)

    with pytest.raises(UsageError, match="no blocks") as caught:
        compile_blocks(Recurrent())
    assert "compile" in str(caught.value.hint)


@pytest.mark.slow
def test_a_missing_compiler_is_an_error_that_says_so(tmp_path: Path) -> None:
    script = "from torch import nn; from tertulia.train.compute import compile_blocks; compile_blocks(nn.Linear(2, 2))"
    nowhere = {"CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
        env={**os.environ, **nowhere},
    )
    assert done.returncode == 1
    assert "UsageError: torch.compile does not work on this machine" in done.stderr
    assert "C++ compiler" in done.stderr
