"""How easy the code is to read: sizes of modules and functions, hidden imports, calls from a command to its work.

    python benchmarks/house.py [--source src] [--quick]

Static figures are read from the syntax trees of a source folder. A walk runs a real command on small data under
Python's profiler and looks at the stack when the work begins: how many functions of ours stand on it, in how many
files. Point `--source` at another checkout's `src` to compare two versions (the walks know old and new names).
"""

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
WORK = {
    "chat message": ("bots/tfidf.py", ("reply",)),
    "judge rank": ("bots/tfidf.py", ("score",)),
    "train": ("train/", ("loss",)),
    "judge perplexity": ("blocks.py", ("nll",)),
    "mine": ("mining/", ("harvest", "extract_pairs")),
    "trained bot": ("blocks.py", ("step",)),
}
"""Where the work of each walk begins: the end of the file's path, and the function."""

PROBE = """
import json, sys, os
ends, names, argv = json.loads(os.environ["WALK"])
def watch(frame, event, argument):
    code = frame.f_code
    if event != "call" or code.co_name not in names or ends not in code.co_filename.replace(os.sep, "/"):
        return
    sys.setprofile(None)
    stack = []
    while frame is not None:
        if "/tertulia/" in frame.f_code.co_filename.replace(os.sep, "/"):
            stack.append((frame.f_code.co_filename.rpartition("/tertulia/")[2], frame.f_code.co_name))
        frame = frame.f_back
    with open(os.environ["WALK_OUT"], "w") as out:
        json.dump(stack[::-1], out)
import threading
threading.setprofile(watch)
sys.setprofile(watch)
from tertulia.cli.main import run
run(argv)
"""
OUTSIDE = {"run", "_run", "<module>", "wrapper"}
"""Frames of the command line's root, which every command shares."""


def main() -> None:
    """Print the table, and the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=HERE / "src", help="the folder that holds the package")
    parser.add_argument("--quick", action="store_true", help="static figures only")
    options = parser.parse_args()
    figures: dict[str, Any] = static_figures(options.source / "tertulia")
    if not options.quick:
        with tempfile.TemporaryDirectory() as folder:
            figures |= walks(options.source, Path(folder))
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):42} {value}")
    print(json.dumps({"benchmark": "house", "figures": figures, "settings": {"quick": options.quick}}))


def static_figures(package: Path) -> dict[str, float]:
    """Sizes, hidden imports and modules with a single importer."""
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(package.rglob("*.py"))}
    lines = [len(file.read_text(encoding="utf-8").splitlines()) for file in trees if file.name != "__init__.py"]
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    sizes = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    hidden = sum(
        isinstance(inner, ast.Import | ast.ImportFrom)
        for node in functions
        for inner in ast.walk(node)
        if inner is not node
    )
    importers = Counter(module for file, tree in trees.items() for module in imported(tree))
    modules = {".".join(file.relative_to(package.parent).with_suffix("").parts) for file in trees}
    return {
        "modules": len(lines),
        "lines": sum(lines),
        "module_lines_median": statistics.median(lines),
        "module_lines_90th_percentile": statistics.quantiles(lines, n=10)[-1],
        "module_lines_max": max(lines),
        "functions": len(functions),
        "function_lines_median": statistics.median(sizes),
        "function_lines_max": max(sizes),
        "imports_inside_functions": hidden,
        "modules_with_one_importer": sum(importers[module] == 1 for module in modules),
        "variables_named_found": sum(
            isinstance(node, ast.Name) and node.id == "found" for tree in trees.values() for node in ast.walk(tree)
        ),
    }


def imported(tree: ast.Module) -> set[str]:
    """The modules of ours that a module imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tertulia"):
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("tertulia")}
    return names


def walks(source: Path, folder: Path) -> dict[str, int]:
    """Calls and files between each command and its work."""
    figures: dict[str, int] = {}
    for name, argv in commands(folder).items():
        stack = walk(source, folder, WORK[name], argv)
        key = name.replace(" ", "_")
        figures[f"calls_{key}"] = len(stack)
        figures[f"files_{key}"] = len({file for file, _ in stack})
        print(f"{name}: {' > '.join(f'{file}:{function}' for file, function in stack)}", file=sys.stderr)
    return figures


def commands(folder: Path) -> dict[str, list[str]]:
    """A real command for each walk, in an order in which each finds what it needs."""
    few = "max_dialogues = 8\nvalid_dialogues = 16\n"
    recipes = {
        "starspace": f'recipe = "starspace"\nepochs = 1\nbatch = 16\n{few}',
        "transformer": f'recipe = "transformer"\nmax_steps = 2\nvocabulary = 300\n{few}'
        "[model]\nd_model = 16\nheads = 2\n",
    }
    for name, text in recipes.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    (folder / "messages.jsonl").write_text(
        "".join(
            json.dumps({"id": f"m{i}", "author": f"a{i % 3}", "text": f"well number {i} it is then", "thread": "t"}
                       | ({"parent": f"m{i - 1}"} if i else {})) + "\n"
            for i in range(20)
        ),
        encoding="utf-8",
    )  # fmt: skip
    run = str(folder / "transformer")
    return {
        "chat message": ["chat", "tfidf"],
        "judge rank": ["judge", "rank", "tfidf", "--limit", "5"],
        "train": ["train", str(folder / "starspace.toml"), "--out", str(folder / "starspace")],
        "mine": ["corpus", "mine", str(folder / "messages.jsonl"), "--out", str(folder / "mined")],
        "judge perplexity": ["judge", "perplexity", run, "--limit", "2"],
        "trained bot": ["chat", run],
    }


def walk(source: Path, folder: Path, work: tuple[str, tuple[str, ...]], argv: list[str]) -> list[tuple[str, str]]:
    """Our functions on the stack when the work begins, outermost first."""
    environment = os.environ | {"PYTHONPATH": str(source.resolve()), "WALK_OUT": str(folder / "stack.json")}
    if str(folder / "transformer") in argv:
        recipe = folder / "transformer.toml"
        if not (folder / "transformer" / "manifest.json").is_file():
            train = [sys.executable, "-m", "tertulia", "train", str(recipe), "--out", str(folder / "transformer")]
            subprocess.run(train, env=environment, check=True, capture_output=True)
    (folder / "stack.json").unlink(missing_ok=True)
    environment["WALK"] = json.dumps([*work, argv])
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, input="hello there\n/quit\n", capture_output=True, text=True
    )
    if not (folder / "stack.json").is_file():
        raise SystemExit(f"the work of {argv[0]} {argv[1]} was never reached:\n{done.stderr[-2000:]}")
    stack = [tuple(frame) for frame in json.loads((folder / "stack.json").read_text())]
    return [frame for frame in stack if not (frame[0].startswith("cli/") and frame[1] in OUTSIDE)]


if __name__ == "__main__":
    main()
