"""How commands end when something goes wrong on the way: a full disk, Ctrl-C, odd texts, plugins that are broken."""

import io
import json
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

from tertulia.artefacts.outputs import Output
from tertulia.cli import output
from tertulia.cli.ending import interruptible, prepare_outputs, report_error
from tertulia.cli.output import SafeConsole
from tertulia.core.config import Config
from tertulia.core.registry import Registry
from tertulia.corpus.registry import READERS
from tertulia.metrics.registry import METRICS
from tertulia.talk.registry import BOTS

Tertulia = Callable[..., Any]
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
RECIPE = """recipe = "seq2seq"
epochs = 100000
patience = 100000
save_seconds = 0
max_dialogues = 8
valid_dialogues = 2
[model]
dim = 4
hidden = 4
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def no_room(size: int) -> Iterator[None]:
    """No file may become larger: writing fails as on a full disk, though with another reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def interrupted(pattern: str, *arguments: Any) -> tuple[int, str]:
    """Press Ctrl-C as soon as a file of that name is there; the exit code, and what it said.

    A process of its own: the signal may come between any two steps, also after a file was opened and before it is known
    to the code that closes it. In the process of the tests that would be a warning now and then.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        command = [sys.executable, "-m", "tertulia", *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not any(Path().glob(pattern)):
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=200)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "Traceback" not in err, err
    return process.returncode, err


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_nothing_half(tertulia: Tertulia) -> None:
    assert tertulia("judge", "rank", "generic", "--limit", 20, "--out", "judged").code == 0
    Path("recipe.toml").write_text(RECIPE)
    for words in (
        "corpus convert sample made.jsonl",
        "corpus split sample --out made",
        "corpus testset sample --out made.jsonl",
        "corpus tag sample --out made",
        "corpus mine sample --out made",
        "selfplay generic -n 60 --turns 20 --out made.jsonl",
        "report judged --out made.html",
        "judge rank generic --limit 20 --out made",
        "train recipe.toml --out made",
    ):
        before = {path.name for path in Path().iterdir()}
        with no_room(6000):
            result = tertulia(*words.split())
        assert result.code == 1, f"{words}: {result.err}"
        assert re.search(r"made.*(File too large|No space left)", result.err), f"{words}: {result.err}"
        assert list(Path().rglob("*.unfinished")) == [], words
        assert not Path("made.jsonl").exists(), words
        assert not Path("made/manifest.json").exists() or "mine" in words, words  # its manifest comes first
        if words.startswith(("judge", "report")):
            assert "0.100" in result.out, words  # what was computed is printed all the same
        for name in {path.name for path in Path().iterdir()} - before:
            Path(name).rename(f"{name}-{len(words)}")


def test_an_interrupted_training_says_what_was_kept_and_is_not_overwritten(tertulia: Tertulia) -> None:
    Path("recipe.toml").write_text(RECIPE)
    code, err = interrupted("run/partial/state.pt", "train", "recipe.toml", "--out", "run")
    assert code == 130
    assert re.search(r"Interrupted. Update \d+ was reached; the state after update \d+ is in run/partial", err)
    assert "--resume to continue" in err
    state = Path("run/partial/state.pt").read_bytes()
    refused = tertulia("train", "recipe.toml", "--out", "run")
    assert (refused.code, Path("run/partial/state.pt").read_bytes()) == (2, state)
    assert "--resume" in refused.err
    assert "--force" in refused.err


def test_an_interrupted_selfplay_keeps_what_is_finished() -> None:
    command = ("selfplay", "generic", "-n", 2000, "--shard", 1, "--out", "talks.jsonl")
    code, err = interrupted("talks.jsonl.work/*.jsonl", *command)
    assert code == 130
    assert re.search(r"Interrupted. \d+ of 2000 shards are finished and kept in talks.jsonl.work", err)
    assert not Path("talks.jsonl").exists()


class _Writes(Config):
    out: Annotated[Path, Output("file")] = Path("made.txt")


def test_an_interruption_says_whether_something_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    def stop(change: Callable[[], object]) -> str:
        def work() -> None:
            with interruptible():
                prepare_outputs(_Writes())
                change()
                raise KeyboardInterrupt

        with pytest.raises(SystemExit) as stopped:
            work()
        assert stopped.value.code == 130
        return capsys.readouterr().err

    assert "Writing to made.txt; --out names another place." in stop(lambda: None)
    assert "Interrupted. Nothing was written." in stop(lambda: None)
    assert "made.txt may be incomplete" in stop(lambda: Path("made.txt").write_text(""))
    assert "What was there before is unchanged." in stop(lambda: None)


def test_escape_sequences_in_data_never_reach_the_terminal(tertulia: Tertulia) -> None:
    odd = "\x1b[31mred\x1b]0;title\x07 \x9b2J"
    turns = [{"speaker": f"a{odd}", "text": f"hi {odd}"}, {"speaker": "b", "text": f"{odd}\rover"}]
    record = {"id": f"d{odd}", "turns": turns, "personas": {"b": {"sentences": [odd]}}}
    Path("odd.jsonl").write_text(json.dumps(record) + "\n")
    Path(f"{odd}.jsonl").write_text("{}\n")
    calls = [
        ("corpus", "show", "odd.jsonl"),
        ("corpus", "show", "odd.jsonl", "--json"),
        ("corpus", "show", f"{odd}.jsonl"),
        ("corpus", "stats", f"{odd}.jsonl"),
        ("corpus", "convert", "odd.jsonl", f"{odd}/x"),
        ("judge", "conversations", "odd.jsonl"),
        ("selfplay", "generic", "-n", 1, "--turns", 2, "--opener", odd, "--out", f"{odd}-talks.jsonl"),
        ("corpus", "show", "odd.jsonl", "--format", odd),
    ]
    shown = [tertulia(*call) for call in calls]
    for call, result in zip(calls, shown, strict=True):
        assert not CONTROL.search(result.out + result.err), f"{call}: {result}"
    assert "hi \\x1b[31mred" in shown[0].out
    assert json.loads(shown[1].out)[0]["turns"][0]["text"] == f"hi {odd}"


def test_commands_print_through_the_safe_console_only() -> None:
    """What goes around it would reach the terminal as it is."""
    folder = Path(output.__file__).parent
    unsafe = re.compile(r"typer\.s?echo|sys\.stdout\.write|(?<![\w.])print\(")
    around_it = {file.name for file in folder.glob("*.py") if unsafe.search(file.read_text(encoding="utf-8"))}
    assert around_it == {"output.py", "ending.py", "main.py"}


def test_no_color_means_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {}
    for name, value in (("with", ""), ("without", "1")):
        monkeypatch.setenv("NO_COLOR", value)
        monkeypatch.setenv("TERM", "xterm-256color")
        stream = io.StringIO()
        monkeypatch.setattr(output, "err", SafeConsole(file=stream, force_terminal=True, highlight=False))
        report_error("Wrong.", "Do it right.")
        shown[name] = stream.getvalue()
    assert shown == {"with": "\x1b[31mError: Wrong.\x1b[0m\nDo it right.\n", "without": "Error: Wrong.\nDo it right.\n"}


@pytest.fixture
def plugins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package whose module cannot be imported and whose names are taken, installed for one test."""
    place = folder / "packages"
    info = place / "wreck-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wreck\nVersion: 1.0\n")
    (place / "wreck.py").write_text("raise RuntimeError('out of order')\n")
    things = ["broken = wreck:Thing", "nothing = json:loads", "malformed = wreck"]
    groups = {"bots": "generic = wreck:Bot\nkv-memory = wreck:Bot", "readers": "tertulia = wreck:R", "metrics": ""}
    lines = [line for group, own in groups.items() for line in (f"[tertulia.{group}]", *things, own)]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(place)
    for registry in (BOTS, READERS, METRICS):
        monkeypatch.setattr(registry, "_rows", dict(registry._rows))
        monkeypatch.setattr(registry, "_reported", set())
        monkeypatch.setattr(registry, "_plugins_loaded", False)
    yield
    sys.modules.pop("wreck", None)


def test_a_broken_plugin_is_named_and_does_not_take_others_down(
    plugins: None, tertulia: Tertulia, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(READERS, Registry)
    assert tertulia("corpus", "list").code == 0
    assert tertulia("corpus", "show", "sample", "--part", "dialogues").code == 0
    assert tertulia("judge", "rank", "generic", "tfidf", "--limit", 5).code == 0
    warnings = {record.getMessage() for record in caplog.records}
    skipped = "Skipped the format '{}' of the plugin wreck"
    for name in ("broken", "nothing", "malformed", "tertulia"):
        assert len([warning for warning in warnings if warning.startswith(skipped.format(name))]) == 1, name
    assert any("bot 'generic' of the plugin wreck" in warning for warning in warnings)
    assert any("bot 'kv-memory' of the plugin wreck" in warning for warning in warnings)
    for listing in ("bots", "metrics", "formats", "bots broken", "metrics nothing", "formats --json"):
        assert tertulia(*listing.split()).code == 0, listing
    for words in ("selfplay broken --out x.jsonl", "judge rank generic --limit 5 --metric broken"):
        result = tertulia(*words.split())
        assert result.code == 1, result.err
        assert "of the plugin wreck cannot be used: RuntimeError: out of order" in result.err
        assert "uninstall the package wreck" in result.err
