"""The token limit, for bots that do not count tokens themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.reply import Provenance, Reply, Usage
from tertulia.core.text import tokens
from tertulia.web.openai.completion import _count_tokens, within_limit


@given(st.text(max_size=60), st.integers(1, 12))
def test_a_limit_keeps_complete_words(text: str, limit: int) -> None:
    limited = within_limit(Reply(text, Provenance("x")), limit)
    assert text.startswith(limited.text)
    assert tokens(limited.text) == tokens(text)[:limit]
    assert limited.finish == ("length" if len(tokens(text)) > limit else "stop")


def test_a_bot_that_counts_tokens_is_not_cut() -> None:
    reply = Reply("one two three", Provenance("x"), usage=Usage(1, 2))
    assert within_limit(reply, 2) == ("one two three", "stop")


def test_tokens_of_a_long_text_are_estimated_from_its_beginning() -> None:
    sentence = "Bees dance, do they? "
    counts = {n: _count_tokens(sentence * n) for n in (1, 100, 10_000)}
    assert counts[100] == 100 * counts[1]
    assert counts[10_000] == pytest.approx(10_000 * counts[1], rel=0.01)
