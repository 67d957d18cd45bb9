"""The column filters agree with the reference implementation: same pairs and funnel for any forest."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia import sample
from tertulia.core.dialogue import Message
from tertulia.core.safety import KINDS, SafetyConfig, SafetyLexicon
from tertulia.core.text import words
from tertulia.corpus.mine import marked
from tertulia.corpus.mining.columns import letters_and_length, plain_rows, texts_of
from tertulia.corpus.mining.filters import COLUMNS, DELETED, MARKED, FilterSettings, filter_messages, name_bot
from tertulia.corpus.mining.forest import paths_to
from tertulia.corpus.mining.hashing import hash_texts, hash_words
from tertulia.corpus.mining.lengths import LengthFilter
from tertulia.corpus.mining.words import UnsafePhrases, word_hashes
from tertulia.corpus.rules import MiningRules, UnsafeMode, share_of_letters
from tertulia.corpus.subwords import SubwordCounter, train_subwords
from tertulia.corpus.trees import Funnel, mine_trees

UNSAFE = UnsafePhrases(("darn", "holy smoke", "Ärger"))


@pytest.fixture(scope="module")
def counter() -> SubwordCounter:
    return train_subwords((m.text for m in sample.messages()), vocabulary=500)


@pytest.fixture(scope="module")
def lengths(counter: SubwordCounter) -> LengthFilter:
    return LengthFilter(counter.model)


def table(messages: list[Message]) -> pa.Table:
    columns = {name: [getattr(m, name) for m in messages] for name in ("id", "parent", "thread", "author", "text")}
    arrays = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    flags = [MARKED * marked(m) + DELETED * bool(m.meta.get("deleted")) for m in messages]
    hashes = {"text_hash": hash_texts(arrays["text"]), "thread_hash": hash_texts(arrays["thread"])}
    kept = {"time": pa.nulls(len(messages), pa.float64()), "kept": pa.nulls(len(messages), pa.string())}
    return pa.table(arrays | {"flags": pa.array(flags, pa.uint8())} | hashes | kept, COLUMNS)


Pairs = list[tuple[tuple[str, str, str], ...]]


JUDGES = SafetyConfig().load()


def by_filters(
    messages: list[Message], rules: MiningRules, lengths: LengthFilter, unsafe: UnsafeMode = "marked"
) -> tuple[Pairs, Funnel]:
    seen = {(m.thread, m.id, m.text) for m in messages}
    texts = [text for *_, text in seen]
    frequent = [text for text in set(texts) if texts.count(text) > rules.max_repeats]
    repeated = np.sort(hash_texts(pa.array(frequent, pa.string())))
    filtered = filter_messages(table(messages), FilterSettings(rules, lengths, UNSAFE, unsafe, repeated=repeated))
    paths = paths_to(filtered.replies, filtered.parent, context=rules.context)
    ids, authors, texts = (column.to_pylist() for column in (filtered.ids, filtered.authors, filtered.texts))
    rows = [paths.members[a:b].tolist() for a, b in pairwise(paths.offsets.tolist())]
    return [tuple((ids[r], authors[r], texts[r]) for r in path) for path in rows], filtered.funnel()


def by_reference(
    messages: list[Message], rules: MiningRules, counter: SubwordCounter, *, judged: bool = False
) -> tuple[Pairs, Funnel]:
    def unsafe(message: Message) -> bool:
        return marked(message) or message.text in UNSAFE or (judged and JUDGES.reasons([message.text])[0] is not None)

    mined = mine_trees(messages, rules, subwords=counter, unsafe=unsafe)
    return [tuple((t.source[0], t.speaker, t.text) for t in pair.turns) for pair in mined.pairs], mined.funnel


TEXTS = [
    "fine words here",
    "Fine, words HERE!",
    "> fine words here\nyes indeed, and more",
    ">fine words\n\n> never said\nno",
    "see www.x.org or not",
    "on Reddit.com or not. Or ftp://x.y",
    "I will KILL   you and your whole family tonight",
    "never said i'll kill-you",
    "you should, just - die!",
    "  blanks   around\t",
    "Fine words here and some more that go on",
    "darn it all again",
    "oh HOLY smoke no",
    "viel Ärger heute wieder",
    "don't well-known 'tis o'-clock -x- a--b",
    "don’t naïve déjà-vu 日本語 words",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "e\u0301t\u0301\u0301 1 ❤\ufe0f\ufe0f",
    "12 34 56 ab",
    "café au lait £££££",
    "",
    " ",
    "x",
    "\x1c odd \x85 blanks\u3000",
]
names = st.sampled_from("abcdefghij")
alphabet = st.characters(exclude_categories=("Cs",)) | st.sampled_from(" \n>'-abcABC.,éßİſ’👍")
forests = st.lists(
    st.builds(
        Message,
        names,
        st.sampled_from(["ana", "ben", "TidyBot", "ÖBOT", "bo t"]),
        st.sampled_from(TEXTS) | st.sampled_from(TEXTS) | st.text(alphabet, max_size=40),
        parent=st.none() | names | names | st.just("t"),
        thread=st.sampled_from(["t", "t", "t", "u", None, ""]),
        meta=st.sampled_from([{}, {}, {}, {"rude": True}, {"deleted": True}]),
    ),
    max_size=24,
)
all_rules = st.builds(
    MiningRules,
    min_subwords=st.sampled_from([0, 1, 2, 3]),
    max_subwords=st.sampled_from([5, 9, 128]),
    min_letters=st.sampled_from([0.0, 0.5, 0.7]),
    max_repeats=st.sampled_from([1, 2, 100]),
    overlap_n=st.sampled_from([1, 2, 3]),
    max_overlap=st.sampled_from([0.0, 0.5, 0.6, 1.0]),
    context=st.sampled_from([1, 2, 7]),
)


@settings(max_examples=400, deadline=None)
@given(messages=forests, rules=all_rules, judged=st.booleans())
def test_filters_agree_with_the_reference_on_small_forests(
    messages: list[Message], rules: MiningRules, judged: bool, counter: SubwordCounter, lengths: LengthFilter
) -> None:
    filtered = by_filters(messages, rules, lengths, "judged" if judged else "auto")
    assert filtered == by_reference(messages, rules, counter, judged=judged)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", [*KINDS, "swearing"])
def test_every_unsafe_text_matches_the_loose_pattern(kind: str, data: st.DataObject) -> None:
    """The engine shows the lexicon only texts that match it; any signs may stand between the words."""
    lexicon = SafetyLexicon.built_in(swearing=True)
    text = data.draw(st.from_regex(lexicon.patterns[kind], alphabet=st.characters(codec="ascii")))
    signs = st.sampled_from([" ", " ", "  ", "\n", "-", " * ", "'", "\u2019", " \u2026 ", "\u3000", "_"])
    text = "".join(data.draw(signs) if c == " " else c for c in text)
    if lexicon.reasons([text])[0]:
        assert pc.match_substring_regex(pa.array([text.upper(), text]), lexicon.loose_pattern).to_pylist() == [True] * 2


def test_filters_agree_with_the_reference_on_the_sample(counter: SubwordCounter, lengths: LengthFilter) -> None:
    messages, rules = sample.messages(), MiningRules(max_repeats=10)
    assert by_filters(messages, rules, lengths) == by_reference(messages, rules, counter)


def test_filters_agree_with_the_reference_on_a_long_shuffled_thread(
    counter: SubwordCounter, lengths: LengthFilter
) -> None:
    chain = [Message(str(i), "ana", f"well then {i} it is", str(i - 1) if i else None, "t") for i in range(3000)]
    random.Random(0).shuffle(chain)
    rules = MiningRules(min_letters=0, max_overlap=1)
    pairs, funnel = by_filters(chain, rules, lengths)
    assert (pairs, funnel) == by_reference(chain, rules, counter)
    assert funnel.pairs == 2999


def test_no_messages_give_no_pairs(lengths: LengthFilter) -> None:
    assert by_filters([], MiningRules(), lengths) == ([], Funnel())


scripts = st.sampled_from("aB1'’-_ .éßİſΣς日本שָׁלוֹםनमस्ते́️👍“”…—½ﬁ\u0301\u200d\u00a0\u3000\u0e33") | st.characters(
    exclude_categories=("Cs",)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(scripts, max_size=15), max_size=6))
def test_word_hashes_agree_with_the_words_function(texts: list[str]) -> None:
    """The same words by hash, row by row, in any script."""
    array = pa.array(texts, pa.string())
    plain = np.array([text.isascii() for text in texts], np.bool_)
    hashed = word_hashes(array, plain, np.arange(len(texts)))
    all_words = pa.array([word for text in texts for word in words(text)], pa.string())
    flat = texts_of(all_words)
    assert hashed.hashes.tolist() == hash_words(flat.data, flat.offsets[:-1], flat.offsets[1:]).tolist()
    assert hashed.rows.tolist() == [row for row, text in enumerate(texts) for _ in words(text)]


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(st.text(scripts, max_size=15), min_size=1, max_size=6))
def test_the_length_filter_agrees_with_encoding_every_text(
    texts: list[str], counter: SubwordCounter, lengths: LengthFilter
) -> None:
    assert lengths.word_by_word
    array = pa.array(texts, pa.string())
    plain = plain_rows(texts_of(array))
    assert plain.tolist() == [all(c.isprintable() or c in "\t\n\r" for c in t) and t.isascii() for t in texts]
    for low, high in ((0, 3), (2, 9), (5, 128)):
        bad = lengths.out_of_bounds(array, plain, low=low, high=high)
        assert bad.tolist() == [not low <= counter(text) <= high for text in texts]


def test_the_words_of_one_model_are_not_counted_as_those_of_another(counter: SubwordCounter) -> None:
    other = train_subwords((m.text for m in sample.messages()), vocabulary=2000)
    texts = sorted({m.text for m in sample.messages()})[:300]
    array = pa.array(texts, pa.string())
    plain = plain_rows(texts_of(array))
    assert [counter(text) for text in texts] != [other(text) for text in texts]
    for model in (counter, other, counter):
        bad = LengthFilter(model.model).out_of_bounds(array, plain, low=2, high=15)
        assert bad.tolist() == [not 2 <= model(text) <= 15 for text in texts]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(scripts, max_size=15), min_size=1, max_size=6))
def test_letter_counts_agree_with_the_rules(texts: list[str]) -> None:
    """The same share, row by row, in any script."""
    flat = texts_of(pa.array(texts, pa.string()))
    letters, length = letters_and_length(flat, plain_rows(flat))
    assert length.tolist() == [len(text) for text in texts]
    shares = [n / size if size else 0.0 for n, size in zip(letters.tolist(), length.tolist(), strict=True)]
    assert shares == [share_of_letters(text) for text in texts]


@given(st.lists(st.text(st.sampled_from("bBoOtTx\u00df\u0130 "), max_size=5), max_size=12))
@settings(max_examples=60, deadline=None)
def test_names_of_bots_are_found_in_any_case_and_not_across_rows(names: list[str]) -> None:
    assert name_bot(pa.array(names, pa.string())).tolist() == ["bot" in name.lower() for name in names]
