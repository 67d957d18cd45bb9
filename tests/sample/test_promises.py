"""Every count, split, limit and property that docs/sample.md states, checked against the data."""

import re
from collections import Counter, defaultdict
from importlib.resources import files
from itertools import pairwise

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from tertulia import sample
from tertulia.core.text import words
from tertulia.corpus.duplicates import near_duplicates
from tertulia.corpus.stats import sample_stats

# Function words that scikit-learn's list lacks: contractions, numerals, the most common verbs.
FUNCTION_WORDS = ENGLISH_STOP_WORDS | set(
    "i'm i've i'd i'll don't doesn't didn't can't cannot won't wouldn't isn't aren't wasn't couldn't it's that's he's "
    "she's you're we're they're there's let's two three four five six seven eight nine ten just like likes really got "
    "get gets getting go goes going gone did does doing having make makes made let one only ever never always every "
    "still".split()
)


def content(text: str) -> set[str]:
    return {stem(w) for w in words(text) if w not in FUNCTION_WORDS}


def stem(word: str) -> str:
    word = word.removesuffix("'s")
    for ending in ("ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "s", "ly", "y", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def test_personas_and_their_splits():
    assert {split: len(sample.personas(split)) for split in sample.SPLITS} == {"train": 80, "valid": 10, "test": 10}
    assert len({p.id for p in sample.personas()}) == 100
    assert [p.id for p in sample.personas() if not len(p.sentences) == len(p.revised) == 5] == []
    too_long = [p.id for p in sample.personas() if any(len(words(s)) > 15 for s in (*p.sentences, *p.revised))]
    assert too_long == []


def test_revised_personas_share_no_content_word_with_the_original():
    shared = {p.id: content(" ".join(p.sentences)) & content(" ".join(p.revised)) for p in sample.personas()}
    assert len(shared) == 100
    assert {name: common for name, common in shared.items() if common} == {}


def test_dialogues_and_their_splits():
    counts = {split: len(sample.dialogues(split)) for split in sample.SPLITS}
    assert counts["train"] >= 240
    assert counts["valid"] >= 30
    assert counts["test"] >= 30
    assert sum(len(d.turns) for d in sample.dialogues()) >= 4000


def test_no_persona_is_in_two_splits():
    splits_of = defaultdict(set)
    for dialogue in sample.dialogues():
        for persona in dialogue.personas.values():
            splits_of[persona.id].add(dialogue.meta["split"])
    assert {name: splits for name, splits in splits_of.items() if len(splits) > 1} == {}
    assert len(splits_of) == 100, "every persona is used"


def test_dialogues_have_10_to_16_turns():
    assert {d.id: len(d.turns) for d in sample.dialogues() if not 10 <= len(d.turns) <= 16} == {}


def test_two_speakers_alternate():
    wrong = [d.id for d in sample.dialogues() if any(t.speaker != "ab"[i % 2] for i, t in enumerate(d.turns))]
    assert wrong == []


def test_turns_have_at_most_15_words_on_average():
    means = {d.id: sum(len(words(t.text)) for t in d.turns) / len(d.turns) for d in sample.dialogues()}
    assert {name: mean for name, mean in means.items() if mean > 15} == {}


def test_the_two_personas_of_a_dialogue_differ():
    assert [d.id for d in sample.dialogues() if d.personas["a"].id == d.personas["b"].id] == []


def test_no_turn_copies_five_words_of_its_persona():
    def five_grams(texts) -> set[tuple[str, ...]]:
        tokens = [words(text) for text in texts]
        return {tuple(t[i : i + 5]) for t in tokens for i in range(len(t) - 4)}

    copied = {}
    for dialogue in sample.dialogues():
        for speaker, persona in dialogue.personas.items():
            turns = five_grams(t.text for t in dialogue.turns if t.speaker == speaker)
            copied[dialogue.id, speaker] = turns & five_grams((*persona.sentences, *persona.revised))
    assert {key: grams for key, grams in copied.items() if grams} == {}


def test_the_vocabulary_is_large_and_duplicates_are_rare():
    texts = [turn.text for dialogue in sample.dialogues() for turn in dialogue.turns]
    assert len({w for text in texts for w in words(text)}) >= 4000
    assert len(near_duplicates(texts, threshold=0.7)) / len(texts) < 0.02
    same = Counter(" ".join(words(text)) for text in texts)
    repeated = sum(n - 1 for text, n in same.items() if n > 1 and len(text.split()) > 3)
    assert repeated / len(texts) < 0.02


def test_no_six_words_recur_as_in_a_template():
    """Templates with slots would show as long word sequences in many dialogues."""
    grams: Counter[tuple[str, ...]] = Counter()
    for dialogue in sample.dialogues():
        grams.update({tuple(w[i : i + 6]) for t in dialogue.turns for w in [words(t.text)] for i in range(len(w) - 5)})
    assert [(gram, n) for gram, n in grams.most_common(3) if n > 6] == []


def test_forum_threads():
    stats = sample_stats()["threads"]
    assert stats["threads"] >= 250
    assert stats["messages"] >= 4000
    assert 12 <= stats["deepest"] <= 14
    assert stats["answered_twice_or_more"] >= 250
    messages = sample.messages()
    assert len({m.id for m in messages}) == len(messages)
    thread_of = {m.id: m.thread for m in messages}
    assert [m.id for m in messages if m.parent is not None and thread_of[m.parent] != m.thread] == []
    assert Counter(m.text for m in messages)["lol"] >= 20
    rare = {kind: stats[kind] for kind in ("with_quotes", "with_urls", "by_bots", "rude") if stats[kind] < 40}
    assert rare == {}


def test_all_urls_are_reserved_example_domains():
    hosts = re.findall(r"(?:https?://|www\.)([^/\s)\]]+)", "\n".join(m.text for m in sample.messages()))
    assert hosts
    assert [host for host in hosts if not re.search(r"(^|\.)example\.(org|com|net)\b", host)] == []


def test_chat_room():
    days = sample.room()
    assert len(days) == 5
    assert sum(len(day.lines) for day in days) >= 1500
    nicks = {m[1] for day in days for line in day.lines if (m := re.match(r"\[\d\d:\d\d\] <([^>]+)>", line))}
    assert len(nicks) >= 60
    assert {"will", "may", "hope", "mark", "bill", "rose"} <= nicks, "nicks that are English words"
    text = "\n".join(line for day in days for line in day.lines)
    assert all(sign in text for sign in (" has joined #", " has quit [", " is now known as "))


def test_every_day_of_the_chat_room():
    for day in sample.room():
        assert len(day.lines) >= 300, day.day
        assert all(0 <= earlier <= later for later, earlier in enumerate(day.answers)), day.day
        times = [m[0] for line in day.lines if (m := re.match(r"\[\d\d:\d\d\]", line))]
        assert times == sorted(times), day.day
        assert all(line.startswith(("[", "=== ")) for line in day.lines), day.day
        thread = list(range(len(day.lines)))
        for later, earlier in enumerate(day.answers):
            thread[later] = thread[earlier]
        messages = [thread[i] for i, line in enumerate(day.lines) if line.startswith("[")]
        switches = sum(a != b for a, b in pairwise(messages)) / len(messages)
        assert switches > 0.35, f"conversations of {day.day} are interleaved"


def test_the_mini_benchmark():
    items = sample.benchmark()
    assert Counter(len(item.context) for item in items) == {1: 150, 2: 150, 3: 150}
    assert all(item.context[-1].speaker == "user" and item.response.speaker == "bot" for item in items)
    assert len({item.response.text for item in items}) == 450
    kinds = Counter(item.label for item in items)
    required = {"greeting", "opinion", "favourite", "feeling", "common sense", "personality", "joke", "consistency"}
    assert required <= set(kinds)
    assert min(kinds.values()) >= 15
    assert all(len(item.context) > 1 for item in items if item.label == "consistency")


def test_grounded_replies_are_balanced_over_the_labels():
    triples = sample.grounded()
    assert Counter(t.label for t in triples) == dict.fromkeys(sample.LABELS, 80)
    assert len({t.response.text for t in triples}) == 400
    assert all(len(words(t.evidence[0].text)) >= 12 for t in triples)


def test_word_overlap_alone_does_not_predict_grounding():
    """There are entailed paraphrases with little overlap, and hallucinations with much."""

    def overlap(triple) -> float:
        own = content(triple.response.text)
        return len(own & content(triple.evidence[0].text)) / len(own) if own else 0.0

    low = [t for t in sample.grounded() if t.label == "entailment" and overlap(t) < 1 / 3]
    high = [t for t in sample.grounded() if t.label == "hallucination" and overlap(t) > 2 / 3]
    assert len(low) >= 15, len(low)
    assert len(high) >= 15, len(high)


def test_the_files_are_small():
    data = files("tertulia.sample") / "data"
    sizes = [f.stat().st_size for f in [*data.iterdir(), *(data / "room").iterdir()] if f.is_file()]
    assert sum(sizes) < 5_000_000
