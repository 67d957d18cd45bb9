"""What holds for every command: paths that cannot be written, things that exist, files that are missing, full streams.

The table has a row for each command. A command without one, or an output that no config marks, fails the first tests.
"""

import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic.fields import FieldInfo

from tertulia.artefacts.outputs import Output, marked_fields
from tertulia.cli.commands import leaves
from tertulia.cli.main import run
from tertulia.core.config import Cli, Config

Tertulia = Callable[..., Any]


class Row(NamedTuple):
    """How a command is called."""

    call: str = ""
    """Arguments without outputs; with an output, it can be called."""
    outputs: tuple[str, ...] = ()
    """Fields that are written to."""
    missing: str = ""
    """Arguments that name something that does not exist; empty if the command reads nothing."""
    adds: bool = False
    """Whether the command adds to what is there, so that nothing can be in its way."""


NO_DB = "--db sqlite:///nowhere.db"
ENDPOINT = "--endpoint openai:x?base_url=http://127.0.0.1:9/v1"
ROWS = {
    "demo": Row("--no-serve", ("out",)),
    "corpus list": Row(),
    "corpus get": Row("personachat", ("out",), "nowhere", adds=True),
    "corpus show": Row(missing="nowhere.jsonl"),
    "corpus stats": Row(missing="nowhere.jsonl"),
    "corpus convert": Row("sample", ("out",), "nowhere.jsonl a.jsonl"),
    "corpus split": Row("sample", ("out",), "nowhere.jsonl"),
    "corpus testset": Row("sample", ("out",), "nowhere.jsonl"),
    "corpus silver": Row("sample", ("out",), "nowhere.jsonl"),
    "corpus personas": Row("sample", ("out",), "nowhere.jsonl"),
    "corpus dedup": Row("sample", ("out",), "nowhere.jsonl --out made"),
    "corpus tag": Row("sample", ("out",), "nowhere.jsonl --out made"),
    "corpus filter": Row("sample --scrub", ("out",), "nowhere.jsonl --scrub --out made"),
    "corpus push": Row("sample", ("out",), "nowhere.jsonl --out made"),
    "corpus card": Row(missing="nowhere"),
    "corpus mine": Row("sample", ("out",), "nowhere.jsonl"),
    "corpus erase": Row(missing="nowhere --author anna"),
    "train": Row("recipe.toml", ("out",), "nowhere.toml"),
    "export": Row("nowhere", ("merged", "adapter"), "nowhere --merged made"),
    "chat": Row("generic", ("save",), "nowhere/run"),
    "serve": Row(missing="generic --config nowhere.toml"),
    "key": Row(),
    "account add": Row(missing="anna --db sqlite:///nowhere/x.db"),
    "account list": Row(missing=NO_DB),
    "account remove": Row(missing=f"anna {NO_DB}"),
    "store export": Row(NO_DB, ("out",), f"{NO_DB} --out made.jsonl"),
    "store backup": Row(NO_DB, ("out",), f"{NO_DB} --out made.db"),
    "store restore": Row(missing="nowhere.db"),
    "store check": Row(missing=NO_DB),
    "selfplay": Row("generic -n 1 --turns 2", ("out",), "nowhere/run"),
    "judge rank": Row("generic --limit 5", ("out", "report"), "generic --data nowhere.jsonl"),
    "judge curve": Row("recipe.toml --sizes 10", ("out",), "nowhere.toml"),
    "judge profiles": Row("", ("out",), "--data nowhere.jsonl"),
    "judge perplexity": Row("nowhere", ("out",), "nowhere"),
    "judge samples": Row("nowhere --prompt Hi", ("out",), "nowhere --prompt Hi"),
    "judge conversations": Row("sample", ("out",), "nowhere.jsonl"),
    "judge grounding": Row("nowhere.jsonl", ("out",), "nowhere.jsonl"),
    "judge meta": Row("nowhere.json", ("out",), "nowhere.json"),
    "judge hybrid": Row("--ratings nowhere --metrics nowhere", ("out", "model"), "--ratings nowhere --metrics nowhere"),
    "judge proxy": Row("nowhere nowhere", ("out",), "nowhere nowhere"),
    "judge replies": Row("generic", ("out",), "generic --data nowhere.jsonl"),
    "judge llm": Row(f"nowhere.jsonl {ENDPOINT}", ("out", "cache"), f"nowhere.jsonl {ENDPOINT} --cache kept"),
    "judge ppi": Row("--human nowhere --judge nowhere", ("out",), "--human nowhere --judge nowhere"),
    "judge replay": Row(
        "nowhere.jsonl --bot generic --each", ("out", "study"), "nowhere.jsonl --bot generic --each --out made"
    ),
    "study new": Row(missing="nowhere"),
    "study presets": Row(),
    "study check": Row(missing="nowhere.toml"),
    "study open": Row(missing=f"nowhere.toml {NO_DB}"),
    "study close": Row(missing=f"s {NO_DB}"),
    "study status": Row(missing=NO_DB),
    "study invite": Row(missing=f"s {NO_DB}"),
    "study plan": Row(missing="nowhere.toml --effect 0.1"),
    "study simulate": Row("nowhere.toml", ("out",), "nowhere.toml"),
    "study import": Row(missing=f"nowhere.json {NO_DB}"),
    "study export": Row(f"s {NO_DB}", ("out",), f"s {NO_DB} --out made.csv"),
    "study report": Row(f"s {NO_DB}", ("out",), f"s {NO_DB}"),
    "report": Row("nowhere", ("out", "inspect"), "nowhere"),
    "bots": Row(),
    "recipes": Row(),
    "metrics": Row(),
    "formats": Row(),
    "presets": Row(),
}
ENDINGS = {"study": ".toml", "inspect": ".json", "report": ".html", "save": ".jsonl"}
"""How the names of outputs end that must end so; those of files."""
FILES = {"corpus convert": ".jsonl", "corpus testset": ".jsonl", "corpus silver": ".jsonl", "corpus personas": ".jsonl"}
FILES |= {"store export": ".jsonl", "store backup": ".db", "selfplay": ".jsonl", "study export": ".csv"}
WRITING = re.compile(r"(?:Also )?(?:[Ww]rite|Append|Save)|(?:File|Folder)(?: to (?:write|save)| for)")
RECIPE = 'recipe = "seq2seq"\n'


def config_of(name: str) -> type[Config] | None:
    """The config that a row's call is for."""
    target = next(command.target for path, command in leaves() if " ".join(path) == name)
    module, _, attribute = target.partition(":")
    function = getattr(import_module(f"tertulia.cli.{module}"), attribute)
    if name == "train":
        return import_module("tertulia.train.recipe").RecipeConfig  # type: ignore[no-any-return]
    return next(iter(getattr(function, "configs", ())), None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file, a folder that has something in it, and a recipe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERTULIA_ACCOUNT_PASSWORD", "a long enough password")
    Path("file").write_text("precious\n")
    Path("full").mkdir()
    Path("full/precious.txt").write_text("precious\n")
    Path("recipe.toml").write_text(RECIPE)
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(f.relative_to(folder)): f.read_bytes() if f.is_file() else None for f in folder.rglob("*")}


def flag(info: FieldInfo, field: str) -> list[str]:
    cli = next((item for item in info.metadata if isinstance(item, Cli)), Cli())
    return [] if cli.argument else [f"--{field.replace('_', '-')}"]


def ending(name: str, field: str, mark: Output) -> str:
    return "" if mark.kind == "folder" else ENDINGS.get(field) or FILES.get(name) or ""


def calls_with_output(name: str, row: Row, field: str, path: str) -> list[str]:
    """The arguments of a call that writes one of its outputs to a path, and others that it must have elsewhere."""
    config = config_of(name)
    assert config
    words = row.call.split()
    for other in row.outputs:
        info = config.model_fields[other]
        if other == field:
            words += [*flag(info, other), path]
        elif info.is_required():
            words += [*flag(info, other), f"made-{other}"]
    return [*name.split(), *words]


def test_every_command_has_a_row() -> None:
    assert {" ".join(path) for path, _ in leaves()} == set(ROWS)


def test_every_output_is_marked() -> None:
    """A field whose help says that something is written must be an output, and the table knows all outputs."""
    for name, row in ROWS.items():
        config = config_of(name)
        fields = config.model_fields if config else {}
        said = {
            field
            for field, info in fields.items()
            if WRITING.match(info.description or "") and "Path" in str(info.annotation)
        }
        marked = marked_fields(config) if config else {}
        assert said <= set(marked) == set(row.outputs), name


def bad_paths(mark: Output, name: str, field: str, *, adds: bool) -> Iterator[str]:
    """Where an output of this kind cannot go."""
    end = ending(name, field, mark)
    yield f"file/made{end}"  # a file in the place of a folder
    yield f"/proc/nowhere/made{end}"
    yield f"{'x' * 300}{end}"
    if mark.kind == "folder":
        yield "file"
    if mark.kind == "file" and not mark.endings:
        yield "full"
    if not adds:
        yield {"folder": "full", "file": f"precious{end}", "either": f"precious{end}"}[mark.kind]


@pytest.mark.parametrize("group", ["corpus", "judge", "study store report", "demo train export chat selfplay"])
def test_an_output_that_cannot_be_written_or_exists_is_refused_before_the_work(
    tertulia: Tertulia, folder: Path, group: str
) -> None:
    for name, row in ROWS.items():
        if name.split()[0] not in group.split() or not row.outputs:
            continue
        config = config_of(name)
        assert config
        for field in row.outputs:
            mark = marked_fields(config)[field]
            Path(f"precious{ending(name, field, mark)}").write_text("precious\n")
            before = snapshot(folder)
            for path in bad_paths(mark, name, field, adds=row.adds or field == "cache"):
                result = tertulia(*calls_with_output(name, row, field, path))
                called = f"{name} {field} {path[:40]}: {result.err}"
                assert result.code == 2, called
                assert path.split("/made")[0] in result.err, called
                assert result.out == "", called
                assert snapshot(folder) == before, called


def test_what_is_missing_is_a_wrong_call_and_leaves_nothing_behind(tertulia: Tertulia, folder: Path) -> None:
    before = snapshot(folder)
    for name, row in ROWS.items():
        if row.missing:
            result = tertulia(*name.split(), *row.missing.split())
            assert result.code == 2, f"{name}: {result.err}"
            assert re.search("nowhere", result.err), f"{name}: {result.err}"
            assert snapshot(folder) == before, name


def test_a_full_or_closed_standard_output_is_no_traceback_in_any_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printing = ["corpus list", "corpus show sample", "corpus stats sample", "study presets", "study new ssa-static"]
    printing += ["key anna", "key anna --json", "corpus list --json"]
    for words in (*(f"{name} --help" for name in ROWS), *printing):
        for full in (True, False):
            if full:
                stream = open("/dev/full", "w")  # noqa: PTH123, SIM115 - closed below, which must not raise
            else:
                reading, writing = os.pipe()
                os.close(reading)
                stream = os.fdopen(writing, "w")
            with monkeypatch.context() as patched:
                patched.setattr("sys.stdout", stream)
                with pytest.raises(SystemExit) as stop:
                    run(words.split())
            stream.close()
            said = capsys.readouterr().err
            assert stop.value.code == 1, words
            assert ("cannot be printed: No space left" in said) == full, f"{words}: {said}"
            assert "Traceback" not in said, words
