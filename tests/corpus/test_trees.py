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
    """Counts words as subwords; messages with the word "rude" are unsafe."""
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
    """For each reply, the messages of its turns."""
    return {pair.id: [name for turn in pair.turns for name in turn.source] for pair in mined.pairs}


def test_every_reply_becomes_a_pair_with_its_ancestors() -> None:
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


def test_the_order_of_messages_does_not_change_what_is_kept() -> None:
    forest = [message("a"), message("b", "a"), message("c", "b", "too rude to keep"), message("d", "c")]
    assert sources(mine(forest)) == sources(mine(reversed(forest))) == {"b": ["a", "b"]}


def test_removing_a_message_also_removes_its_replies() -> None:
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
    # f has a reason of its own, which counts instead of that of its ancestor
    assert removed(mined.funnel) == {"unsafe": 1, "length": 1, "subtree": 2}


def test_removing_a_root_removes_its_tree() -> None:
    mined = mine([message("a", author="modbot"), message("b", "a"), message("c", "b")])
    assert mined.pairs == ()
    assert removed(mined.funnel) == {"bot": 1, "subtree": 2}


def test_a_root_without_replies_is_kept_but_is_not_a_pair() -> None:
    funnel = mine([message("a")]).funnel
    assert (funnel.kept, funnel.pairs) == (1, 0)


def test_the_context_has_at_most_seven_ancestors() -> None:
    chain = [message("0")] + [message(str(i), str(i - 1)) for i in range(1, 12)]
    paths = sources(mine(chain))
    assert paths["7"] == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert paths["8"] == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert {name: len(turns) for name, turns in paths.items()} == {str(i): min(i, 7) + 1 for i in range(1, 12)}
    assert sources(mine(chain, context=2))["8"] == ["6", "7", "8"]


def test_removing_a_distant_ancestor_also_removes_its_descendants() -> None:
    chain = [message("0", text="rude from the start")] + [message(str(i), str(i - 1)) for i in range(1, 12)]
    mined = mine(chain)
    assert mined.pairs == ()
    assert removed(mined.funnel) == {"unsafe": 1, "subtree": 11}


def test_removing_orphans_also_removes_their_replies() -> None:
    mined = mine([message("b", "gone"), message("c", "b"), message("d", "c"), message("a")])
    assert mined.pairs == ()
    assert removed(mined.funnel) == {"no parent": 1, "subtree": 2}
    assert mined.funnel.kept == 1


def test_a_parent_in_another_thread_does_not_count() -> None:
    mined = mine([message("a", thread="t"), message("b", "a", thread="u"), message("c", "b", thread="u")])
    assert mined.pairs == ()
    assert removed(mined.funnel) == {"no parent": 1, "subtree": 1}


def test_the_same_id_in_two_threads_means_two_messages() -> None:
    mined = mine([message("a", thread="t"), message("a", thread="u"), message("b", "a", thread="u")])
    assert sources(mined) == {"b": ["a", "b"]}
    assert (mined.funnel.kept, removed(mined.funnel)) == (3, {})


def test_a_reply_to_a_thread_without_its_opening_message_becomes_a_root() -> None:
    mined = mine([message("b", "t", thread="t"), message("c", "b", thread="t"), message("d", "gone", thread="t")])
    assert sources(mined) == {"c": ["b", "c"]}
    assert removed(mined.funnel) == {"no parent": 1}


def test_removing_a_deleted_message_also_removes_its_replies() -> None:
    deleted = Message("b", "ana", "[deleted]", "a", "t", meta={"deleted": True})
    assert removed(mine([message("a"), deleted, message("c", "b")]).funnel) == {"deleted": 1, "subtree": 1}


def test_messages_may_have_no_thread() -> None:
    mined = mine([Message("a", "ana", "hello out there"), Message("b", "ben", "hello back", "a")])
    assert sources(mined) == {"b": ["a", "b"]}
    assert mined.pairs[0].meta == {"thread": None}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_cycles_are_removed_with_everything_below_them(size: int) -> None:
    cycle = [message(str(i), str((i + 1) % size)) for i in range(size)]
    mined = mine([*cycle, message("x", "0"), message("y", "x"), message("a"), message("b", "a")])
    assert sources(mined) == {"b": ["a", "b"]}
    assert sum(mined.funnel.removed.values()) == size + 2
    assert mined.funnel.removed["no parent"] >= size


def test_the_first_message_with_an_id_wins() -> None:
    mined = mine([message("a"), message("b", "a", "the first of them"), message("b", "a", "the second of them")])
    assert [pair.turns[1].text for pair in mined.pairs] == ["the first of them"]
    assert removed(mined.funnel) == {"duplicate id": 1}


def test_repeats_are_counted_over_the_corpus_without_duplicate_ids() -> None:
    many = [message(str(i), text="good morning all", thread=str(i)) for i in range(3)]
    assert removed(mine(many, max_repeats=2).funnel) == {"repeated": 3}
    assert removed(mine([*many[:2], many[0]], max_repeats=2).funnel) == {"duplicate id": 1}
    other = message("0", text="another text for that id", thread="0")
    assert removed(mine([*many[:2], other], max_repeats=2).funnel) == {"duplicate id": 1}


def test_quotes_of_the_parent_are_ignored() -> None:
    forest = [
        message("a", text="the oven light is out again"),
        message("b", "a", "> the oven light is out again\nmine too, since monday"),
        message("c", "b", "> the oven light is out again\nso you all keep saying"),
    ]
    mined = mine(forest, max_overlap=0.5)
    assert [t.text for t in mined.pairs[0].turns] == ["the oven light is out again", "mine too, since monday"]
    # c quotes what b quoted: that is part of b's original text, so it is a quote of b
    assert mined.pairs[1].turns[-1].text == "so you all keep saying"


def test_an_empty_id_is_a_valid_id() -> None:
    same = "good morning to all of you"
    roots = [message("", text=same), message("a", text=same + " here")]
    assert removed(mine(roots, max_overlap=0.5).funnel) == {}
    assert sources(mine([*roots, message("b", "")])) == {"b": ["", "b"]}


def test_the_funnel_lists_what_is_left_after_each_step() -> None:
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
    """By thread and id, the first message with that key."""
    first: dict[tuple[str | None, str], Message] = {}
    for m in messages:
        first.setdefault((m.thread, m.id), m)
    return first


def kept_by_the_paper(messages: list[Message]) -> set[tuple[str | None, str]]:
    """From the paper's text: a message stays if neither it nor an ancestor has a reason, and its path has a root."""
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
def test_kept_messages_agree_with_a_direct_reading_of_the_paper(messages: list[Message]) -> None:
    mined = mine(messages, max_repeats=3)
    expected = kept_by_the_paper(messages)
    first = first_of_each(messages)
    assert mined.funnel.kept == len(expected)
    assert [(p.meta["thread"], p.id) for p in mined.pairs] == [
        key for key, m in first.items() if key in expected and m.parent is not None
    ]
    for pair in mined.pairs:
        path = [first[pair.meta["thread"], turn.source[0]] for turn in pair.turns]
        assert path[-1].id == pair.id
        assert all(child.parent == parent.id for parent, child in pairwise(path))
        assert path[0].parent is None or len(path) == 8


@settings(max_examples=200, deadline=None)
@given(forests)
def test_the_funnel_adds_up(messages: list[Message]) -> None:
    funnel = mine(messages, max_repeats=3).funnel
    assert funnel.messages == len(messages) == sum(funnel.removed.values()) + funnel.kept
    assert dict(funnel.steps())["after subtree"] == funnel.kept


def test_deep_threads_do_not_overflow_the_stack() -> None:
    chain = [message("0")] + [message(str(i), str(i - 1)) for i in range(1, 20_000)]
    assert mine(reversed(chain)).funnel.pairs == 19_999
