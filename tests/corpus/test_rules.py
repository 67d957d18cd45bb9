from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.config import validate
from tertulia.core.dialogue import Message
from tertulia.core.errors import ConfigError
from tertulia.corpus.rules import (
    REASONS,
    MiningRules,
    RuleInput,
    overlap,
    reason_to_remove,
    share_of_letters,
    without_quotes,
)

RULES = MiningRules()


def rule_input(
    text: str = "a plain message", *, author: str = "ana", parent: str | None = None, **more: object
) -> RuleInput:
    item = RuleInput(Message("1", author, text), text, parent, 1, lambda t: len(t.split()), lambda m: False)
    return replace(item, **more)  # type: ignore[arg-type]


def reason(text: str = "a plain message", **more: object) -> str | None:
    return reason_to_remove(rule_input(text, **more), RULES)  # type: ignore[arg-type]


def test_a_plain_message_is_kept() -> None:
    assert reason() is None


@pytest.mark.parametrize("author", ["tidy_bot", "Bot", "RoBoT9", "abbot", "bottle"])
def test_authors_with_bot_in_their_names_are_removed(author: str) -> None:
    assert reason(author=author) == "bot"


@pytest.mark.parametrize("author", ["bo_t", "b0t", "", "BEN"])
def test_other_authors_are_kept(author: str) -> None:
    assert reason(author=author) is None


@pytest.mark.parametrize(
    "text",
    [
        "look at http://example.org now please",
        "HTTPS://EXAMPLE.ORG is what they told me",
        "see www.example.org for the recipe",
        "see (WWW.example.org) for the recipe",
        "i saw it on reddit.com the other day",
        "the files are on ftp://files.example now",
        "try Amazon.CO.UK or your library",
        "this one youtu.be/abc made me laugh",
    ],
)
def test_messages_with_a_url_are_removed(text: str) -> None:
    assert reason(text) == "url"


@pytest.mark.parametrize(
    "text",
    [
        "awww.that is so sweet of you",
        "the www. thing, you know it",
        "i like http more than gopher",
        "no way. really",
        "that is all.it was fun",
        "the .com boom was before my time",
        "i work in asp. net pay is fine",
        "a company.common sense at last",
    ],
)
def test_text_that_only_resembles_a_url_is_kept(text: str) -> None:
    assert reason(text) is None


def test_the_boundary_of_the_letter_share() -> None:
    seven_of_ten, six_of_ten = "abc def g1", "abc de g12"
    assert share_of_letters(seven_of_ten) == 0.7
    assert reason(seven_of_ten) is None
    assert share_of_letters(six_of_ten) == 0.6
    assert reason(six_of_ten) == "letters"


def test_only_letters_count_in_any_script() -> None:
    assert share_of_letters("Straße") == share_of_letters("שלום") == share_of_letters("你好") == 1.0
    assert share_of_letters("12 🙂!") == share_of_letters("") == 0.0


@pytest.mark.parametrize(
    "text",
    ["नमस्ते दुनिया, आप कैसे हैं?", "সব ঠিক আছে তো ভাই", "தமிழ் ஒரு அழகான மொழி", "สวัสดีครับ ที่นี่", "שָׁלוֹם לְכֻלָּם"],
)
def test_combining_marks_count_as_letters(text: str) -> None:
    """In each of these ordinary sentences fewer than 70 % of the characters satisfy str.isalpha."""
    assert sum(map(str.isalpha, text)) < 0.7 * len(text)
    assert share_of_letters(text) >= 0.7
    assert reason(text) is None


def test_variation_selectors_are_not_letters() -> None:
    assert share_of_letters("❤\ufe0f❤\ufe0f") == share_of_letters("1\ufe0f\u20e3") == 0.0
    assert share_of_letters("cafe\u0301") == share_of_letters("café") == 1.0


def test_the_boundary_of_repeats() -> None:
    assert reason(repeats=100) is None
    assert reason(repeats=101) == "repeated"


def test_the_boundary_of_overlap() -> None:
    parent = "one two three four five"  # three trigrams
    assert overlap("one two three four five zes zeven", parent, 3) == 3 / 5
    assert reason("one two three four five zes zeven", parent=parent) is None
    assert overlap("one two three four five zes", parent, 3) == 3 / 4
    assert reason("one two three four five zes", parent=parent) == "overlap"


def test_overlap_ignores_case_and_punctuation() -> None:
    assert overlap("ONE, two: three!", "one two three", 3) == 1.0
    assert overlap("one two", "one two", 3) == 0.0
    assert overlap("", "one two three", 3) == 0.0
    assert overlap("one two three", "", 3) == 0.0


def test_a_message_without_a_parent_has_no_overlap() -> None:
    assert reason("one two three four", parent=None) is None


def test_unsafe_messages_are_removed() -> None:
    assert reason(unsafe=lambda m: m.author == "ana") == "unsafe"
    assert reason(unsafe=lambda m: m.author == "ben") is None


@pytest.mark.parametrize(("count", "why"), [(0, "length"), (1, "length"), (2, None), (128, None), (129, "length")])
def test_the_boundaries_of_length(count: int, why: str | None) -> None:
    assert reason(subwords=lambda t: count) == why


def test_the_first_reason_that_applies_is_reported() -> None:
    """A message that breaks all seven rules; fixing one reveals the next."""
    url, digits, words = "see www.x.org 1 2 3 4", "see 1 2 3 4 5 6", "one two three four"
    message = {"author": "bot", "text": url, "parent": url, "repeats": 500}
    message |= {"unsafe": lambda m: True, "subwords": lambda t: 0}
    fixes = [
        {},
        {"author": "ana"},
        {"text": digits, "parent": digits},
        {"text": words, "parent": words},
        {"repeats": 1},
        {"parent": None},
        {"unsafe": lambda m: False},
    ]
    reasons = []
    for fix in fixes:
        message |= fix
        reasons.append(reason(**message))
    assert tuple(reasons) == REASONS
    assert reason(**(message | {"subwords": lambda t: 2})) is None


def test_thresholds_are_configurable() -> None:
    loose = MiningRules(min_letters=0, max_repeats=1000, max_overlap=1, min_subwords=0)
    assert reason_to_remove(rule_input("1 2 3", repeats=900, parent="1 2 3", subwords=lambda t: 0), loose) is None
    assert (
        reason_to_remove(
            rule_input("one two three four", parent="so one two"), MiningRules(overlap_n=2, max_overlap=0.3)
        )
        == "overlap"
    )


@pytest.mark.parametrize(
    "values", [{"min_letters": 1.1}, {"max_overlap": -0.1}, {"context": 0}, {"overlap_n": 0}, {"max_repeats": 0}]
)
def test_thresholds_out_of_range_are_rejected(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        validate(MiningRules, values, where="x")


PARENT = "It was the oven light again.\nI must   replace it."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("> the oven light\nmine too!", "mine too!"),
        (">the oven light again.\n\nmine too!", "mine too!"),
        (">> I must replace it.\nwhen?", "when?"),
        ("  > I must replace it.\nwhen?", "when?"),
        ("when?\n> It was the oven light", "when?"),
        ("> something you never said\nhm", "> something you never said\nhm"),
        ("3 > 2, as you know", "3 > 2, as you know"),
        (">\nhm", ">\nhm"),
        ("> the oven light", ""),
        ("  no quote  ", "no quote"),
    ],
)
def test_quotes_of_the_parent_are_removed(text: str, expected: str) -> None:
    assert without_quotes(text, PARENT) == expected


def test_without_a_parent_quotes_are_kept() -> None:
    assert without_quotes("> the oven light\nmine too!", None) == "> the oven light\nmine too!"


@settings(max_examples=80, deadline=None)
@given(st.text("ab >\n"), st.text("ab >\n"))
def test_only_complete_quoted_lines_are_removed(text: str, parent: str) -> None:
    kept = without_quotes(text, parent).split("\n")
    lines = iter(line.strip() for line in text.split("\n"))
    assert all(line.strip() in lines for line in kept if line.strip())  # a subsequence, in order
    unquoted = [line.strip() for line in text.split("\n") if line.strip() and not line.strip().startswith(">")]
    assert [line.strip() for line in kept if line.strip() and not line.strip().startswith(">")] == unquoted
