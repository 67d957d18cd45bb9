"""Stop sequences and limits, held against the simplest way to say the same."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.reply import Provenance, Reply, Usage
from tertulia.core.text import tokens
from tertulia.web.trim import Trimmer, within_limit

LETTERS = st.text("abc", max_size=12)


@given(st.lists(LETTERS, max_size=6), st.lists(st.text("abc", max_size=4), max_size=3))
def test_pieces_are_cut_where_the_whole_text_would_be(pieces: list[str], stops: list[str]) -> None:
    trimmer = Trimmer(stops)
    shown = [trimmer.feed(piece) for piece in pieces]
    text = "".join(shown) + trimmer.rest()
    whole = "".join(pieces)
    found = [whole.find(stop) for stop in stops if stop and stop in whole]
    assert trimmer.stopped == bool(found)
    if not found:
        assert text == whole
    else:
        assert whole.startswith(text)
        assert not any(stop and stop in text for stop in stops)
        assert any(stop and whole[len(text) :].startswith(stop) for stop in stops)


@given(st.text(max_size=60), st.integers(1, 12))
def test_a_limit_keeps_whole_words(text: str, limit: int) -> None:
    limited = within_limit(Reply(text, Provenance("x")), limit)
    assert text.startswith(limited.text)
    assert tokens(limited.text) == tokens(text)[:limit]
    assert limited.finish == ("length" if len(tokens(text)) > limit else "stop")


def test_a_bot_that_counts_tokens_is_believed() -> None:
    reply = Reply("one two three", Provenance("x"), usage=Usage(1, 2))
    assert within_limit(reply, 2) == ("one two three", "stop")
