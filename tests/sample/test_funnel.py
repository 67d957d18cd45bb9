"""The funnel of the sample's forum, computed independently from the paper's text, without the miner's code.

Thread by thread, from the root down: removing a message also removes its replies. The counts are recorded here, so that
a change of the rules, of the sample or of the subword model is noticed.
"""

from collections import Counter, defaultdict

import pytest

from tertulia import sample
from tertulia.core.text import words
from tertulia.corpus.mine import MineConfig, marked, read_messages
from tertulia.corpus.subwords import train_subwords
from tertulia.corpus.trees import mine_trees

EXPECTED = {
    "bot": 112,
    "url": 32,
    "letters": 246,
    "repeated": 113,
    "overlap": 40,
    "unsafe": 105,
    "length": 73,
    "subtree": 752,
    "kept": 3048,
    "pairs": 2806,
}
MAX_REPEATS = 10


@pytest.fixture(scope="module")
def messages():
    return sample.messages()


@pytest.fixture(scope="module")
def subwords(messages):
    return train_subwords(m.text for m in messages)


def independent_funnel(messages, subwords) -> Counter:
    """Meena's seven rules and the subtree rule, written out."""
    times = Counter(m.text for m in messages)
    answers = defaultdict(list)
    for m in messages:
        answers[m.parent].append(m)
    count: Counter[str] = Counter()

    def visit(m, parent_raw, parent_clean, is_removed):
        text = m.text
        if parent_raw is not None:
            flat = " ".join(parent_raw.split())
            lines = text.split("\n")
            quotes = [x for x in lines if x.strip().startswith(">") and " ".join(x.strip().lstrip("> ").split())]
            lines = [x for x in lines if x not in quotes or " ".join(x.strip().lstrip("> ").split()) not in flat]
            text = "\n".join(lines)
        text = text.strip()
        why = broken_rule(m, text, parent_clean)
        if why is None and is_removed:
            why = "subtree"
        count[why or "kept"] += 1
        count["pairs"] += why is None and m.parent is not None
        for child in answers[m.id]:
            visit(child, m.text, text, is_removed or why is not None)

    def broken_rule(m, text, parent):
        if "bot" in m.author.lower():
            return "bot"
        if any(sign in text.lower() for sign in ("http://", "https://", "www.")):
            return "url"
        if not text or sum(map(str.isalpha, text)) / len(text) < 0.7:
            return "letters"
        if times[m.text] > MAX_REPEATS:
            return "repeated"
        if parent is not None and overlap(text, parent) > 0.6:
            return "overlap"
        if m.meta.get("rude"):
            return "unsafe"
        if subwords(text) < 2 or subwords(text) > 128:
            return "length"
        return None

    for root in answers[None]:
        visit(root, None, None, is_removed=False)
    return count


def overlap(text: str, parent: str) -> float:
    a, b = words(text), words(parent)
    own = [" ".join(a[i : i + 3]) for i in range(len(a) - 2)]
    in_parent = {" ".join(b[i : i + 3]) for i in range(len(b) - 2)}
    return sum(x in in_parent for x in own) / len(own) if own else 0.0


def test_the_miner_agrees_with_an_independent_computation(messages, subwords):
    expected = independent_funnel(messages, subwords)
    funnel = mine_trees(messages, MineConfig(max_repeats=MAX_REPEATS), subwords=subwords, unsafe=marked).funnel
    assert {reason: n for reason, n in funnel.removed.items() if n} == {
        reason: n for reason, n in expected.items() if reason not in ("kept", "pairs")
    }
    assert (funnel.kept, funnel.pairs) == (expected["kept"], expected["pairs"])
    assert funnel.messages == sum(funnel.removed.values()) + funnel.kept


def test_the_counts_have_not_changed(messages, subwords):
    assert dict(independent_funnel(messages, subwords)) == EXPECTED


def test_every_rule_removes_at_least_ten_messages(messages, subwords):
    funnel = mine_trees(messages, MineConfig(max_repeats=MAX_REPEATS), subwords=subwords, unsafe=marked).funnel
    for reason in ("bot", "url", "letters", "repeated", "overlap", "unsafe", "length", "subtree"):
        assert funnel.removed[reason] >= 10, reason


def test_the_source_sample_means_these_messages(messages):
    assert list(read_messages("sample")) == messages
