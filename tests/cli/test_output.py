"""Bars where there is no terminal: a line now and then, and one at the end of each step."""

import io

import pytest
from rich.console import Console

from tertulia.cli import output
from tertulia.cli.output import Bars


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    found = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=found, force_terminal=False, highlight=False, width=40))
    return found


def test_a_long_step_says_now_and_then_how_far_it_is(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bars, "LINE_SECONDS", 0.0)
    with Bars() as bars:
        bars.step("Training", total=4)
        bars.note("2,310 tokens/s, loss 3.212, perplexity 44.1")
        bars.advance()
        bars.advance()
    first, second, last = written.getvalue().splitlines()
    assert first == "Training 1/4, 2,310 tokens/s, loss 3.212, perplexity 44.1"
    assert second.startswith("Training 2/4, 0 s left, 2,310 tokens/s")
    assert last.startswith("Training: 2,310 tokens/s, loss 3.212, perplexity 44.1 (")


def test_a_short_step_says_only_that_it_is_done(written: io.StringIO) -> None:
    with Bars() as bars:
        bars.step("Reading")
        bars.advance()
    assert [line.partition(" (")[0] for line in written.getvalue().splitlines()] == ["Reading"]


def test_a_terminal_shows_what_is_left_and_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=found, force_terminal=True, width=160, color_system=None))
    with Bars() as bars:
        bars.step("Training", total=3)
        bars.advance()
        bars.advance()
        bars.note("loss 3.2")
        bars._progress.refresh()
        shown = found.getvalue()
    assert "2/3" in shown
    assert "s left" in shown
    assert "loss 3.2" in shown
