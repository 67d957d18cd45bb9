"""Compiling blocks: the same losses where there is a compiler, a clear error where there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tertulia.core.errors import UsageError
from tertulia.models.generator import Talk
from tertulia.models.tokenizer import WordTokenizer
from tertulia.models.transformer import Transformer, TransformerConfig
from tertulia.train.compiling import compile_blocks

WORDS = WordTokenizer("hi there you like tea".split())
TALKS = [[Talk(("hi there", "you like tea"), (True, False))] * n + [Talk(("tea",) * n, (True,) * n)] for n in (2, 3)]


def losses(*, compiled: bool) -> list[float]:
    """Of some updates, on batches of different shapes."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(d_model=8, heads=2, decoder_layers=1, dropout=0.0), WORDS)
    names = list(model.state_dict())
    if compiled:
        assert compile_blocks(model) == 1
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for step in range(6):
        optimizer.zero_grad()
        loss = model.nll(TALKS[step % 2]).total.sum()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    assert list(model.state_dict()) == names
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")  # the compiler's own, of which each version has others
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="there is no C++ compiler")
def test_losses_are_the_same() -> None:
    assert losses(compiled=True) == pytest.approx(losses(compiled=False), rel=1e-4)


def test_without_blocks_there_is_nothing_to_compile() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(2, 2)

    with pytest.raises(UsageError, match=r"no blocks") as caught:
        compile_blocks(Recurrent())
    assert "compile" in str(caught.value.hint)


@pytest.mark.slow
def test_without_a_compiler_the_error_says_so(tmp_path: Path) -> None:
    script = (
        "from torch import nn; from tertulia.train.compiling import compile_blocks; compile_blocks(nn.Linear(2, 2))"
    )
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
    assert "UsageError: torch.compile does not work here" in done.stderr
    assert "C++ compiler" in done.stderr
