"""Habits of the code base that a machine can check; every test lists all offenders at once."""

import ast
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tertulia"
MODULES = sorted(SOURCE.rglob("*.py"))
GENERATED = SOURCE / "store" / "migrations"

CHECKED_FOR_RETIRED_NAMES = ("src", "tests", "benchmarks")
"""Folders without retired names."""

RETIRED = {
    # models
    "WRITERS": "GENERATORS",
    "WRITER": "GENERATOR",
    "Writer": "Generator",
    "WriterBot": "GenerativeBot",
    "WriterOptions": "GenerativeOptions",
    "profile_memory_writer": "generative_profile_memory",
    "Talk": "DialogueView",
    "talks_of": "views_of",
    "at_rest": "eval_mode",
    "_begin": "init_weights",
    "fan": "expand",
    "foresee": "predict",
    "foreseen": "predicted",
    "imagine": "sample_prior",
    "imagined": "prior_sample",
    "imagines": "samples_prior",
    "dice": "rng",
    "MARKS": "SPECIAL_TOKENS",
    "marks": "special_tokens",
    "_hear": "encode_utterances",
    "_outset": "init_decoder",
    "unheard": "dropped_utterance",
    "Tail": "RowCache",
    "longest_context": "max_context_length",
    # training
    "Trainee": "TrainingTask",
    "Game": "CandidateSet",
    "unfair": "false_negative_mask",
    "peers": "distributed",
    "_take_up": "load_state",
    "keep_seconds": "save_seconds",
    # bots and chat
    "Sieve": "FilterPolicy",
    "Looked": "a row of word vectors",
    "Nearness": "Similarity",
    "likeness": "similarity",
    "Heard": "RepetitionCheck",
    "Sifted": "FilteredCandidate",
    "sift": "apply_filters",
    "known_sentences": "persona_sentences",
    "Lexicon": "a name that says of what, such as SafetyLexicon",
    # corpora
    "Whose": "PersonaScope",
    "HOMES": "CATALOG",
    "Home": "Dataset",
    "Remote": "Download",
    "harvest": "extract",
    # web and store
    "Desk": "ReplyService",
    "Making": "PendingReply",
    "Guard": "SecurityMiddleware",
    "Trimmer": "StopSequences",
    "Said": "StoredExchange",
    # variables that do not say what they hold
    "found": "what it is",
    "told": "what it is, such as output or message",
    "places": "positions or indices",
    "meant": "averaged",
}
"""Identifiers that must not come back, and what to use instead."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(parse(path))


def test_there_is_source_code_to_check() -> None:
    assert len(MODULES) > 50


def test_modules_have_at_most_500_lines() -> None:
    lengths = {relative(module): len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_functions_have_at_most_80_lines() -> None:
    long = [
        f"{relative(module)}: {node.name}"
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 80
    ]
    assert long == []


def test_every_module_and_everything_public_has_a_docstring() -> None:
    undocumented = []
    for module in MODULES:
        if GENERATED in module.parents:
            continue
        if not ast.get_docstring(parse(module)):
            undocumented.append(relative(module))
        waiting: list[ast.AST] = [parse(module)]
        while waiting:
            for node in ast.iter_child_nodes(waiting.pop()):
                if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if node.name.startswith("_"):
                    continue
                if not ast.get_docstring(node):
                    undocumented.append(f"{relative(module)}: {node.name}")
                if isinstance(node, ast.ClassDef):
                    waiting.append(node)
    assert undocumented == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    modules: dict[str, list[str]] = {}
    for module in MODULES:
        for node in parse(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(relative(module))
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


def test_the_core_imports_the_standard_library_and_pydantic_only() -> None:
    allowed = {*sys.stdlib_module_names, "pydantic", "tomli_w"}
    foreign = []
    for module in sorted((SOURCE / "core").rglob("*.py")):
        for node in nodes(module):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module if node.level == 0 and node.module else "a relative import"]
            else:
                continue
            foreign += [
                f"{relative(module)}: {name}"
                for name in imported
                if name.partition(".")[0] not in allowed and not name.startswith("tertulia.core")
            ]
    assert foreign == []


def test_library_code_never_prints_or_exits() -> None:
    forbidden = {"print", "exit", "quit", "sys.exit"}
    calls = [
        f"{relative(module)}:{node.lineno}"
        for module in MODULES
        if "cli" not in module.parts
        for node in nodes(module)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in forbidden
    ]
    assert calls == []


def identifiers(path: Path) -> Iterator[tuple[str, int]]:
    """The names in a file with their lines; strings and comments are not looked at."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.NAME:
                yield token.string, token.start[0]


def test_retired_names_do_not_come_back() -> None:
    files = [
        file
        for entry in CHECKED_FOR_RETIRED_NAMES
        for file in ([ROOT / entry] if (ROOT / entry).is_file() else sorted((ROOT / entry).rglob("*.py")))
    ]
    assert files
    offenders = [
        f"{relative(file)}:{line}: {name} (now: {RETIRED[name]})"
        for file in files
        for name, line in identifiers(file)
        if name in RETIRED
    ]
    assert offenders == []


def test_retired_names_are_found_in_code_but_not_in_text(tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text('"""found"""\nx = "told"  # found\nfound = x.told\n')
    assert [(name, line) for name, line in identifiers(file) if name in RETIRED] == [("found", 3), ("told", 3)]


def tracked() -> list[Path]:
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a git checkout")
    return [ROOT / path for path in listing.split("\0") if path and (ROOT / path).is_file()]


def test_no_file_mentions_the_machine_it_was_written_on() -> None:
    files = [p for p in tracked() if p.relative_to(ROOT).parts[0] not in ("tests", "benchmarks")]
    assert files
    private = (b"/work" + b"/", b"shared" + b"/data")
    assert [relative(p) for p in files if any(word in p.read_bytes() for word in private)] == []
