"""The short way to remove quotes gives what the rule gives."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.corpus.mining.filters import without_quotes_of
from tertulia.corpus.rules import without_quotes

LINES = st.lists(
    st.sampled_from(
        ["> a b", ">a  b", ">> c", " > b", "a b", "", ">", "b > a", "\u2003> c", ">\tc\r", "> a\x1cb", "a\u2003b"]
    )
)


@given(LINES.map("\n".join), LINES.map("\n".join))
def test_the_short_way_agrees_with_the_rule(text: str, parent: str) -> None:
    assert without_quotes_of(text, parent) == without_quotes(text, parent)
