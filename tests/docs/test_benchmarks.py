"""Benchmarks that use more of the code than its public face still run: their parts can change under them."""

import json
import subprocess
import sys

import pytest
from tests.docs.markdown import ROOT


@pytest.mark.slow
def test_the_plan_of_a_large_mining_run_is_simulated_with_the_real_driver() -> None:
    command = [sys.executable, ROOT / "benchmarks/mine_plan.py", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    figures = printed["figures"]
    assert printed["benchmark"] == "mine_plan"
    assert figures["driver_buckets"] > 500
    assert 0 < figures["driver_peak_mb"] < 2000
