"""The command line called from Python (fast), and as a process (slow, for what only a process shows)."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tertulia import __version__
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
        result = Result(int(exit_info.value.code or 0), captured.out, captured.err)
        if arguments[:1] == ("judge",) or arguments[:2] == ("study", "report"):
            check_identity([str(a) for a in arguments], result)
        return result

    return call


def check_identity(arguments: list[str], result: Result) -> None:
    """Whatever is judged, printed or saved, says what it is about: command, time, version, data by its digest."""
    if result.code or {"--dry-run", "--help", "-h"} & set(arguments):
        return
    records: list[dict[str, Any]] = [json.loads(result.out)["identity"]] if "--json" in arguments else []
    if "--out" in arguments:
        folder = Path(arguments[arguments.index("--out") + 1])
        records.append(json.loads((folder / "report.json").read_text())["identity"])
        assert records[-1]["data"]["digest"] in (folder / "report.html").read_text()
    if not records:
        assert f"command: {shlex.join(['tertulia', *arguments])}\ndate: 20" in result.out
        assert "digest" in result.out
    for record in records:
        assert record["command"] == shlex.join(["tertulia", *arguments])
        assert record["created"].startswith("20")
        assert record["version"] == __version__
        assert len(record["data"]["digest"]) == 16


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
