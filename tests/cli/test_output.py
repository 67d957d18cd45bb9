"""Progress bars without a terminal: a line from time to time, and one at the end of each step."""

import io
import re

import pytest
from rich.console import Console

from tertulia.cli import output
from tertulia.cli.output import Bars


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=stream, force_terminal=False, highlight=False, width=40))
    return stream


def test_a_long_step_prints_its_progress_from_time_to_time(
    stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bars, "LINE_SECONDS", 0.0)
    with Bars() as bars:
        bars.step("Training", total=4)
        bars.note("2,310 tokens/s, loss 3.212, perplexity 44.1")
        bars.advance()
        bars.advance()
    first, second, last = stderr.getvalue().splitlines()
    assert first == "Training 1/4, 2,310 tokens/s, loss 3.212, perplexity 44.1"
    assert second.startswith("Training 2/4, 0 s left, 2,310 tokens/s")
    assert last.startswith("Training: 2,310 tokens/s, loss 3.212, perplexity 44.1 (")


def test_a_short_step_prints_one_line(stderr: io.StringIO) -> None:
    with Bars() as bars:
        bars.step("Reading")
        bars.advance()
    assert [line.partition(" (")[0] for line in stderr.getvalue().splitlines()] == ["Reading"]


def test_a_terminal_shows_the_remaining_time_and_the_note(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=stream, force_terminal=True, width=160, color_system=None))
    with Bars() as bars:
        bars.step("Training", total=3)
        bars.advance()
        bars.advance()
        bars.note("loss 3.2")
        bars._progress.refresh()
        shown = stream.getvalue()
    assert "2/3" in shown
    assert "s left" in shown
    assert "loss 3.2" in shown


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120])
def test_a_bar_is_one_line_on_any_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=stream, force_terminal=True, width=width, color_system=None))
    with Bars() as bars:
        bars.step("Training a rather long title of a step on 12,345 dialogues", total=30)
        bars.advance()
        bars.advance(9)
        bars.note("2,310 tokens/s, loss 3.212, perplexity 44.1")
        bars._progress.refresh()
        frame = "".join(column.text for column in output.err.render_lines(bars._progress.get_renderable())[0])
        lines = output.err.render_lines(bars._progress.get_renderable())
    assert len(lines) == 1
    assert "10/30" in frame


def test_a_table_shows_a_dash_for_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("bot", "value"), [("a", None), ("b", float("nan")), ("c", 0)])
    shown = capsys.readouterr().out.split()
    assert shown == ["bot", "value", "a", "–", "b", "–", "c", "0"]


def test_a_step_that_is_not_counted_shows_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=stream, force_terminal=True, width=80, color_system=None))
    with Bars() as bars:
        bars.step("Reading")
        bars.step("Ranking", total=2)
        bars.advance(2)
    shown = stream.getvalue()
    assert "2/2" in shown
    assert not re.search(r"1/1|/\?", shown)


@pytest.mark.parametrize("width", [36, 40, 60, 80, 100])
def test_no_word_interval_or_count_of_a_table_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setattr(output.out, "_width", width)
    head = ("subject", "sentiment coherence", "self-repetition", "word coherence", "p", "shared run of 3 turns")
    cells = ("0.728\n(n = 2)", "n/a\n(n = 0)", "0.294\n[0.294, 0.388]\n(n = 2) *", "<.001", "1.000\n(n = 2) ~")
    output.print_table(head, [("tfidf:sample", *cells), ("generic", *cells)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    shown = " ".join(lines)
    words = {word for name in head for word in name.split()} | {"tfidf:sample"}
    assert [word for word in words if word not in shown.split()] == []
    assert [shown.count(part) for part in ("[0.294, 0.388]", "(n = 2) *", "(n = 2) ~", "(n = 0)")] == [2, 2, 2, 2]
    of_p = [line.split() for line in lines if "p" in line.split()]
    assert [line[line.index("p") - 1] for line in of_p] == ["coherence"]
