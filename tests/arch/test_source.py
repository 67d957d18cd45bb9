"""The habits of the house, where a machine can check them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tertulia"
MODULES = sorted(SOURCE.rglob("*.py"))
GENERATED = SOURCE / "store" / "migrations"


def name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 50


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_modules_and_functions_are_short(module: Path) -> None:
    lines = len(module.read_text(encoding="utf-8").splitlines())
    assert lines <= 500, f"{lines} lines"
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            length = node.end_lineno - node.lineno + 1
            assert length <= 80, f"{node.name} has {length} lines"


@pytest.mark.parametrize("module", [m for m in MODULES if GENERATED not in m.parents], ids=name)
def test_everything_public_says_what_it_is(module: Path) -> None:
    tree = parse(module)
    assert ast.get_docstring(tree), "the module has no docstring"
    silent = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if not node.name.startswith("_") and not ast.get_docstring(node):
                    silent.append(node.name)
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    waiting.append(node)
    assert silent == []


@pytest.mark.parametrize("module", sorted((SOURCE / "core").rglob("*.py")), ids=name)
def test_the_core_stands_on_little(module: Path) -> None:
    allowed = {*sys.stdlib_module_names, "pydantic", "tomli_w"}
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found = [node.module or ""]
        else:
            continue
        for imported in found:
            assert imported.partition(".")[0] in allowed or imported.startswith("tertulia.core"), imported


@pytest.mark.parametrize("module", [m for m in MODULES if "cli" not in m.parts], ids=name)
def test_library_code_never_prints_or_exits(module: Path) -> None:
    calls = [node for node in ast.walk(parse(module)) if isinstance(node, ast.Call)]
    assert [c.lineno for c in calls if isinstance(c.func, ast.Name) and c.func.id in ("print", "exit", "quit")] == []
    assert [c.lineno for c in calls if ast.unparse(c.func) == "sys.exit"] == []


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout")
    return [ROOT / path for path in listed.split("\0") if path and (ROOT / path).is_file()]


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    elsewhere = [p for p in tracked() if p.relative_to(ROOT).parts[0] not in ("tests", "benchmarks")]
    assert elsewhere
    private = (b"/work" + b"/", b"shared" + b"/data")
    assert [str(p.relative_to(ROOT)) for p in elsewhere if any(word in p.read_bytes() for word in private)] == []
