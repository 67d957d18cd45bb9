"""What users install: wheel and source archive are built, installed without the checkout, run, and type-checked.

The new environment sees the packages of the environment that runs the tests (a .pth file), but not its editable
install of Tertulia, so that nothing is downloaded and only the wheel's own files can be imported.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from tests.docs.markdown import ROOT, blocks

from tertulia import __version__

pytest.importorskip("hatchling")
NOT_FOLLOWED = [f"{name}.*" for name in ("torch", "polars", "pyarrow", "scipy", "sklearn", "sqlalchemy", "fastapi")]
"""Packages whose own types would take most of the time, and are not what is checked."""
DEMO = "tertulia demo --no-serve --conversations 1 --turns 4"


def run(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def call(*command: object, folder: Path) -> str:
    done = run(*command, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Installed:
    """The built files, and an environment with the wheel alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        call(sys.executable, "-m", "hatchling", "build", "-d", folder / "dist", folder=ROOT)
        (self.wheel,) = (folder / "dist").glob("*.whl")
        (self.archive,) = (folder / "dist").glob("*.tar.gz")
        venv.create(folder / "env", with_pip=False)
        self.bin = folder / "env" / "bin"
        (site,) = (folder / "env" / "lib").glob("python3*/site-packages")
        pip = (sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "-q")
        call(*pip, "--no-deps", "--no-index", "--no-compile", self.wheel, folder=folder)
        # addsitedir would follow the editable install's own .pth; a plain path line does not.
        (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        self.site = site


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("package"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("package")
class TestPackage:
    def test_the_wheel_has_code_data_and_types_and_nothing_else(self, installed: Installed) -> None:
        with zipfile.ZipFile(installed.wheel) as wheel:
            names = set(wheel.namelist())
        source = ROOT / "src"
        wanted = {
            path.relative_to(source).as_posix()
            for path in (source / "tertulia").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert {name for name in names if ".dist-info/" not in name} == wanted
        assert {"tertulia/py.typed", "tertulia/sample/data/dialogues.jsonl"} <= names

    def test_the_source_archive_can_be_built_and_tested(self, installed: Installed) -> None:
        with tarfile.open(installed.archive) as archive:
            names = {name.split("/", 1)[-1] for name in archive.getnames()}
        wanted = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt", "mkdocs.yml", "Dockerfile"}
        wanted |= {"src/tertulia/py.typed", "tests/docs/test_package.py", "docs/index.md", "benchmarks/cli_start.py"}
        assert wanted <= names
        assert [name for name in names if name.startswith((".venv", "site/", "runs", "tertulia-demo"))] == []

    def test_the_installed_package_runs_the_demo_of_the_first_tutorial(self, installed: Installed) -> None:
        pytest.importorskip("torch")
        shown = [block.text.strip() for block in blocks(ROOT / "docs/tutorials/first-hour.md")]
        assert DEMO in shown, "the tutorial's demo is the one that is run here"
        where = "import tertulia; print(tertulia.__file__)"
        assert call(installed.bin / "python", "-c", where, folder=installed.folder).startswith(str(installed.site))
        printed = call(installed.bin / "tertulia", *DEMO.split()[1:], folder=installed.folder)
        assert "4521 forum messages gave 2806 context-reply pairs." in printed
        assert (installed.folder / "tertulia-demo" / "report.html").is_file()

    @pytest.mark.parametrize("page", ["README.md", "docs/getting-started.md"])
    def test_the_activated_environment_has_the_command_on_the_path(self, installed: Installed, page: str) -> None:
        """The page's own lines, typed in a folder whose .venv this is, in a shell that has no other `tertulia`."""
        (lines,) = (block.text for block in blocks(ROOT / page) if block.text.startswith("source .venv/bin/activate"))
        (installed.folder / ".venv").unlink(missing_ok=True)
        (installed.folder / ".venv").symlink_to(installed.bin.parent)
        script = f"export PATH=/usr/bin:/bin\nset -eu\n{lines}\ncommand -v tertulia\n"
        version, place = call("bash", "-c", script, folder=installed.folder).splitlines()
        assert version == f"tertulia {__version__}"
        assert Path(place).resolve() == (installed.bin / "tertulia").resolve()

    def test_a_client_of_the_installed_package_type_checks(self, installed: Installed) -> None:
        """Against the wheel's py.typed, with mypy --strict and no plugin, from outside of the checkout."""
        client = installed.folder / "client.py"
        skipped = f"[mypy-{','.join(NOT_FOLLOWED)}]\nfollow_imports = skip\n"
        (installed.folder / "mypy.ini").write_text("[mypy]\n" + skipped)
        text = (ROOT / "tests/docs/client.py").read_text(encoding="utf-8")
        wrong = "wrong: int = make_bot('generic').spec\nother = Pay(per_hour='much')\n"
        client.write_text(f"{text}\n{wrong}", encoding="utf-8")
        mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.bin / "python")
        quiet = ("--follow-imports=silent", "--cache-dir", installed.folder / "cache", "--no-error-summary")
        errors = [
            line for line in run(*mypy, *quiet, client, folder=installed.folder).stdout.splitlines() if "error" in line
        ]
        assert len(errors) == 2, errors  # the last two lines alone are wrong
        assert "Incompatible types in assignment" in errors[0]
        assert 'Argument "per_hour" to "Pay" has incompatible type' in errors[1]
