from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Message
from tertulia.corpus.rules import MiningRules, without_quotes
from tertulia.corpus.trees import Funnel, Mined, mine_trees


def message(name: str, parent: str | None = None, text: str = "", *, author: str = "ana", thread: str = "t") -> Message:
    return Message(name, author, text or f"this is message {name}", parent, thread)


def mine(messages: Iterable[Message], **rules: float) -> Mined:
    """With words as subwords, and messages whose text has the word "rude" as unsafe."""
    loose = {"max_overlap": 1, "min_letters": 0.3} | rules
    return mine_trees(
        messages,
        MiningRules.model_validate(loose),
        subwords=lambda text: len(text.split()),
        unsafe=lambda m: "rude" in m.text.split(),
    )


def removed(funnel: Funnel) -> dict[str, int]:
    return {reason: count for reason, count in funnel.removed.items() if count}


def sources(mined: Mined) -> dict[str, list[str]]:
    """By reply, the messages its turns came from."""
    return {pair.id: [name for turn in pair.turns for name in turn.source] for pair in mined.pairs}


def test_every_reply_with_its_ancestors_is_a_pair() -> None:
    r"""a - b - d
    \ c
    """
    mined = mine([message("a"), message("b", "a"), message("c", "a", author="ben"), message("d", "b")])
    assert sources(mined) == {"b": ["a", "b"], "c": ["a", "c"], "d": ["a", "b", "d"]}
    assert mined.pairs[1].turns[1].speaker == "ben"
    assert mined.pairs[1].turns[1].text == "this is message c"
    assert mined.pairs[1].meta == {"thread": "t"}
    assert (mined.funnel.messages, mined.funnel.kept, mined.funnel.pairs) == (4, 4, 3)
    assert removed(mined.funnel) == {}


def test_the_order_of_the_messages_does_not_matter_to_what_is_kept() -> None:
    forest = [message("a"), message("b", "a"), message("c", "b", "too rude to keep"), message("d", "c")]
    assert sources(mine(forest)) == sources(mine(reversed(forest))) == {"b": ["a", "b"]}


def test_a_message_that_goes_takes_its_sub_tree_along() -> None:
    forest = [
        message("a"),
        message("b", "a", "too rude to keep"),
        message("c", "b"),
        message("d", "c"),
        message("e", "a"),
        message("f", "d", "short"),
    ]
    mined = mine(forest)
    assert sources(mined) == {"e": ["a", "e"]}
    # f has a reason of its own: it is charged to that, not to its ancestor
    assert removed(mined.funnel) == {"unsafe": 1, "length": 1, "subtree": 2}


def test_a_root_that_goes_leaves_nothing() -> None:
    mined = mine([message("a", author="modbot"), message("b", "a"), message("c", "b")])
    assert mined.pairs == ()
    assert removed(mined.funnel) == {"bot": 1, "subtree": 2}


def test_a_root_alone_is_kept_but_no_pair() -> None:
    funnel = mine([message("a")]).funnel
    assert (funnel.kept, funnel.pairs) == (1, 0)


def test_at_most_seven_ancestors_are_context() -> None:
    chain = [message("0")] + [message(str(i), str(i - 1)) for i in range(1, 12)]
    found = sources(mine(chain))
    assert found["7"] == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert found["8"] == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert {name: len(turns) for name, turns in found.items()} == {str(i): min(i, 7) + 1 for i in range(1, 12)}
    assert sources(mine(chain, context=2))["8"] == ["6", "7", "8"]


def test_an_ancestor_out_of_sight_still_takes_its_sub_tree_along() -> None:
    chain = [message("0", text="rude from the start")] + [message(str(i), str(i - 1)) for i in range(1, 12)]
    mined = mine(chain)
    assert mined.pairs == ()
    assert removed(mined.funnel) == {"unsafe": 1, "subtree": 11}


def test_orphans_go_and_take_their_sub_trees_along() -> None:
    mined = mine([message("b", "gone"), message("c", "b"), message("d", "c"), message("a")])
    assert mined.pairs == ()
    assert removed(mined.funnel) == {"no parent": 1, "subtree": 2}
    assert mined.funnel.kept == 1


def test_a_parent_in_another_thread_is_no_parent() -> None:
    mined = mine([message("a", thread="t"), message("b", "a", thread="u"), message("c", "b", thread="u")])
    assert mined.pairs == ()
    assert removed(mined.funnel) == {"no parent": 1, "subtree": 1}


def test_one_id_in_two_threads_is_two_messages() -> None:
    mined = mine([message("a", thread="t"), message("a", thread="u"), message("b", "a", thread="u")])
    assert sources(mined) == {"b": ["a", "b"]}
    assert (mined.funnel.kept, removed(mined.funnel)) == (3, {})


def test_a_reply_to_a_thread_whose_opening_is_missing_opens_it() -> None:
    mined = mine([message("b", "t", thread="t"), message("c", "b", thread="t"), message("d", "gone", thread="t")])
    assert sources(mined) == {"c": ["b", "c"]}
    assert removed(mined.funnel) == {"no parent": 1}


def test_a_deleted_message_takes_its_sub_tree_along() -> None:
    gone = Message("b", "ana", "[deleted]", "a", "t", meta={"deleted": True})
    assert removed(mine([message("a"), gone, message("c", "b")]).funnel) == {"deleted": 1, "subtree": 1}


def test_threads_may_be_unknown() -> None:
    mined = mine([Message("a", "ana", "hello out there"), Message("b", "ben", "hello back", "a")])
    assert sources(mined) == {"b": ["a", "b"]}
    assert mined.pairs[0].meta == {"thread": None}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_circles_go_with_all_that_hangs_on_them(size: int) -> None:
    circle = [message(str(i), str((i + 1) % size)) for i in range(size)]
    mined = mine([*circle, message("x", "0"), message("y", "x"), message("a"), message("b", "a")])
    assert sources(mined) == {"b": ["a", "b"]}
    assert sum(mined.funnel.removed.values()) == size + 2
    assert mined.funnel.removed["no parent"] >= size


def test_the_first_of_two_messages_with_one_id_counts() -> None:
    mined = mine([message("a"), message("b", "a", "the first of them"), message("b", "a", "the second of them")])
    assert [pair.turns[1].text for pair in mined.pairs] == ["the first of them"]
    assert removed(mined.funnel) == {"duplicate id": 1}


def test_repeats_are_counted_over_the_corpus_but_not_for_duplicate_ids() -> None:
    many = [message(str(i), text="good morning all", thread=str(i)) for i in range(3)]
    assert removed(mine(many, max_repeats=2).funnel) == {"repeated": 3}
    assert removed(mine([*many[:2], many[0]], max_repeats=2).funnel) == {"duplicate id": 1}
    other = message("0", text="another text for that id", thread="0")
    assert removed(mine([*many[:2], other], max_repeats=2).funnel) == {"duplicate id": 1}


def test_quotes_of_the_parent_do_not_count() -> None:
    forest = [
        message("a", text="the oven light is out again"),
        message("b", "a", "> the oven light is out again\nmine too, since monday"),
        message("c", "b", "> the oven light is out again\nso you all keep saying"),
    ]
    mined = mine(forest, max_overlap=0.5)
    assert [t.text for t in mined.pairs[0].turns] == ["the oven light is out again", "mine too, since monday"]
    # c quotes what b quoted: it stands in b as it was written, so it is a quote of b
    assert mined.pairs[1].turns[-1].text == "so you all keep saying"


def test_an_empty_id_is_an_id_like_any_other() -> None:
    same = "good morning to all of you"
    roots = [message("", text=same), message("a", text=same + " here")]
    assert removed(mine(roots, max_overlap=0.5).funnel) == {}
    assert sources(mine([*roots, message("b", "")])) == {"b": ["", "b"]}


def test_the_funnel_as_steps() -> None:
    forest = [message("a"), message("b", "a", "rude words here"), message("c", "b"), message("d", "a")]
    steps = mine(forest).funnel.steps()
    assert steps[0] == ("messages", 4)
    assert steps[-1] == ("pairs", 1)
    assert dict(steps)["after unsafe"] == 3
    assert steps[-2] == ("after subtree", 2)


TEXTS = ["fine words", "rude words", "short", "> fine words\nyes indeed", "see www.x.org", "fine words too", "12 34 56"]
forests = st.lists(
    st.builds(
        Message,
        st.sampled_from("abcdefgh"),
        st.sampled_from(["ana", "tidybot"]) | st.just("ben"),
        st.sampled_from(TEXTS),
        parent=st.none() | st.sampled_from("abcdefgh"),
        thread=st.sampled_from(["t", "t", "t", "u"]),
    ),
    max_size=14,
)


def first_of_each(messages: list[Message]) -> dict[tuple[str | None, str], Message]:
    """By thread and id, the first message that has them."""
    first: dict[tuple[str | None, str], Message] = {}
    for m in messages:
        first.setdefault((m.thread, m.id), m)
    return first


def kept_by_definition(messages: list[Message]) -> set[tuple[str | None, str]]:
    """Slowly, from the paper: a message stays if neither it nor any ancestor has a reason, and its line has a root."""
    first = first_of_each(messages)
    seen = {(m.thread, m.id, m.text) for m in messages}

    def has_reason(m: Message) -> bool:
        parent = first.get((m.thread, m.parent or "none"))
        text = without_quotes(m.text, parent.text if parent else None)
        letters = [c for c in text if c.isalpha()]
        return (
            "bot" in m.author
            or "www.x" in text
            or len(letters) < 0.3 * len(text)
            or [text for *_, text in seen].count(m.text) > 3
            or "rude" in m.text.split()
            or len(text.split()) < 2
        )

    def stays(m: Message, depth: int = 0) -> bool:
        if depth > len(first) or has_reason(m):
            return False
        if m.parent is None:
            return True
        parent = first.get((m.thread, m.parent))
        return parent is not None and stays(parent, depth + 1)

    return {key for key, m in first.items() if stays(m)}


@settings(max_examples=300, deadline=None)
@given(forests)
def test_what_is_kept_is_what_the_definition_keeps(messages: list[Message]) -> None:
    mined = mine(messages, max_repeats=3)
    expected = kept_by_definition(messages)
    first = first_of_each(messages)
    assert mined.funnel.kept == len(expected)
    assert [(p.meta["thread"], p.id) for p in mined.pairs] == [
        key for key, m in first.items() if key in expected and m.parent is not None
    ]
    for pair in mined.pairs:
        line = [first[pair.meta["thread"], turn.source[0]] for turn in pair.turns]
        assert line[-1].id == pair.id
        assert all(child.parent == parent.id for parent, child in pairwise(line))
        assert line[0].parent is None or len(line) == 8


@settings(max_examples=200, deadline=None)
@given(forests)
def test_the_funnel_adds_up(messages: list[Message]) -> None:
    funnel = mine(messages, max_repeats=3).funnel
    assert funnel.messages == len(messages) == sum(funnel.removed.values()) + funnel.kept
    assert dict(funnel.steps())["after subtree"] == funnel.kept


def test_deep_threads_are_no_trouble() -> None:
    chain = [message("0")] + [message(str(i), str(i - 1)) for i in range(1, 20_000)]
    assert mine(reversed(chain)).funnel.pairs == 19_999
