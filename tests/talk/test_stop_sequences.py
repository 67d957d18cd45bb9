"""Stop sequences, compared with the plainest way to find them."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue
from tertulia.core.reply import Ask
from tertulia.talk.stop_sequences import StopSequences, cut_at_stop, stops_of

PIECES = st.lists(st.text("abc ", max_size=12), max_size=6)
STOPS = st.lists(st.text("abc ", max_size=4), max_size=3)


def first_stop(text: str, stops: list[str]) -> int | None:
    """Where the text is cut: character by character, until it ends in a stop sequence."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


@given(PIECES, STOPS)
def test_pieces_are_cut_where_the_full_text_is(pieces: list[str], stops: list[str]) -> None:
    sequences, text = StopSequences(stops), "".join(pieces)
    shown = "".join([sequences.feed(piece) for piece in pieces]) + sequences.rest()
    cut = first_stop(text, stops)
    assert shown == text[:cut]
    assert sequences.stopped == (cut is not None)
    assert cut_at_stop(text, stops) == (shown, sequences.stopped)


@given(PIECES, STOPS)
def test_stripping_drops_blanks_at_both_ends(pieces: list[str], stops: list[str]) -> None:
    sequences, text = StopSequences(stops, strip=True), "".join(pieces).lstrip()
    shown = [sequences.feed(piece) for piece in pieces]
    so_far = ["".join(shown[:n]) for n in range(len(shown) + 1)]
    assert all(part == part.strip() for part in so_far)
    assert so_far[-1] + sequences.rest() == text[: first_stop(text, stops)].rstrip()


@given(PIECES, STOPS)
def test_no_more_is_held_back_than_may_begin_a_stop_sequence(pieces: list[str], stops: list[str]) -> None:
    sequences = StopSequences(stops)
    shown = "".join([sequences.feed(piece) for piece in pieces])
    held = "" if sequences.stopped else "".join(pieces)[len(shown) :]
    assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def test_nothing_is_shown_after_a_stop() -> None:
    sequences = StopSequences(["\n", "END"])
    assert [sequences.feed(piece) for piece in ("a\nb", "c")] == ["a", ""]
    assert (sequences.rest(), sequences.stopped) == ("", True)


def test_stop_sequences_of_an_ask() -> None:
    def ask(**options: object) -> Ask:
        return Ask(Dialogue("d", ()), options=options)

    assert stops_of(ask(stop="x")) == ["x"]
    assert stops_of(ask(stop=["x", "", "yz"])) == ["x", "yz"]
    assert stops_of(ask(stop=None)) == stops_of(ask()) == []
