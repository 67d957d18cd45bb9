import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.errors import UsageError
from tertulia.corpus.expression import MAX_LENGTH, parse

TAGS = {"language": "en", "safety": 0.2, "words": 12, "turns": 3, "flag": True, "empty": None, "nan": float("nan")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("language == 'en' and safety < .5", True),
        ("language == 'de'", False),
        ("language != 'de'", True),
        ("language in ['en', 'de']", True),
        ("language not in ('en', 'de')", False),
        ("'n' in language", True),
        ("3 <= words < 20", True),
        ("3 <= words < 12", False),
        ("words / turns >= 4 and words - turns * 3 == 3", True),
        ("-words < +turns", True),
        ("not (safety >= .5 or words < 3)", True),
        ("flag", True),
        ("flag == true", True),
        ("empty == none", True),
        ("empty < 3", False),
        ("empty >= 3", False),
        ("empty + 1 > 0", False),
        ("nan < 1 or nan >= 1", False),
        ("words / (turns - 3) > 0", False),
        ("language < 3", False),
        ("language < 'f'", True),
        ("words in 3", False),
        ("missing == none", True),
    ],
)
def test_conditions_mean_what_they_say(text: str, expected: bool) -> None:
    assert (parse(text).failed(TAGS) is None) == expected


def test_the_first_false_clause_is_named() -> None:
    condition = parse(" words > 3  and safety <   .1 and language=='de' ")
    assert condition.failed(TAGS) == "safety < .1"
    assert condition.names == {"words", "safety", "language"}
    assert parse("words > 30 or turns > 30").failed(TAGS) == "words > 30 or turns > 30"


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "words.__class__",
        "language[0] == 'e'",
        "(lambda: 1)()",
        "[w for w in language]",
        "words ** 9 ** 9 ** 9",
        "'a' * 10 == 1 if words else 2",
        "words := 3",
        "words is none",
        "{'a': 1}",
        "f'{words}'",
        "words == 3; words",
        "b'a' == language",
        "1j < words",
        "~words",
        "words << 3",
        "",
        "words ==",
        "words and",
        "(" * 300 + "words" + ")" * 300,
        "not " * 300 + "words",
        "words > 1\0",
        "w" * (MAX_LENGTH + 1),
        "... == words",
    ],
)
def test_what_is_not_a_condition_is_an_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=string.printable, max_size=60))
def test_any_text_is_a_condition_or_a_usage_error(text: str) -> None:
    try:
        condition = parse(text)
    except UsageError:
        return
    failed = condition.failed(TAGS)
    assert failed is None or isinstance(failed, str)
