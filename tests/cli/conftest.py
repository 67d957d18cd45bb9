"""The command line called from Python (fast), and as a process (slow, for what only a process shows)."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tertulia.cli.main import run


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def stderr(self) -> str:
        """stderr on one line: consoles break lines anywhere."""
        return " ".join(self.err.split())


Tertulia = Callable[..., Result]


@pytest.fixture
def tertulia(capsys: pytest.CaptureFixture[str]) -> Tertulia:
    def call(*arguments: Any) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            run([str(a) for a in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(int(exit_info.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def process(tmp_path: Path) -> Tertulia:
    def call(*arguments: Any, folder: Path = tmp_path) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "tertulia", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=200,
            cwd=folder,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    return call
