"""The benchmark that compares the engine with the reference: they agree on 100,000 messages, and it detects errors."""

import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.corpus.mine import MineOutcome
from tertulia.corpus.trees import Funnel, Mined

from .conftest import BENCHMARKS


@pytest.mark.slow
@pytest.mark.timeout(600)  # 25 seconds of CPU time, which may take long on a busy machine
def test_engine_and_reference_agree_on_a_hundred_thousand_messages(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "mine_reference.py"), "--messages", "100000", "--seed", "11"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["figures"]["equal"] == 1
    assert report["figures"]["pairs"] > 30_000
    assert report["settings"]["messages"] == 100_000


PAIRS = tuple(Dialogue(str(i), (Turn("a", "x"), Turn("b", f"y{i}")), meta={"thread": "t"}) for i in range(3))
FUNNEL = Funnel(messages=4, kept=4, pairs=3)


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("mine_reference")


@pytest.mark.parametrize(
    ("pairs", "funnel", "differs"),
    [
        (PAIRS[::-1], FUNNEL, {}),
        (PAIRS[1:], FUNNEL, {"missing": [("t", "0")]}),
        ((*PAIRS, replace(PAIRS[0], id="9")), FUNNEL, {"added": [("t", "9")]}),
        ((replace(PAIRS[0], turns=PAIRS[1].turns), *PAIRS[1:]), FUNNEL, {"other": [("t", "0")]}),
        (PAIRS, Funnel(messages=4, kept=3, pairs=2), {"counts": {"pairs": (2, 3)}}),
    ],
)
def test_the_comparison_reports_what_differs(
    reference: Any, pairs: tuple[Dialogue, ...], funnel: Funnel, differs: dict[str, Any]
) -> None:
    outcome = MineOutcome(funnel, Problems(), subwords=0, pairs=Path())
    compared = reference.compare(outcome, pairs, Mined(PAIRS, FUNNEL))
    assert {name: value for name, value in compared._asdict().items() if value} == differs
    assert compared.equal == (not differs)
