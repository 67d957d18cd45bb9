"""Every count, split, limit and promise of docs/sample.md, checked against the files themselves."""

import re
from collections import Counter, defaultdict
from importlib.resources import files
from itertools import pairwise

import pytest
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from tertulia import sample
from tertulia.core.text import words
from tertulia.corpus.duplicates import near_duplicates
from tertulia.corpus.sample_stats import sample_stats

# Words that carry no content beside those of scikit-learn's list: contractions, numerals, the commonest verbs.
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
    for persona in sample.personas():
        assert len(persona.sentences) == len(persona.revised) == 5, persona.id
        assert all(len(words(s)) <= 15 for s in (*persona.sentences, *persona.revised)), persona.id


@pytest.mark.parametrize("persona", sample.personas(), ids=lambda p: p.id)
def test_a_revised_persona_shares_no_content_word_with_the_original(persona):
    assert not content(" ".join(persona.sentences)) & content(" ".join(persona.revised))


def test_dialogues_and_their_splits():
    counts = {split: len(sample.dialogues(split)) for split in sample.SPLITS}
    assert counts["train"] >= 240
    assert counts["valid"] >= 30
    assert counts["test"] >= 30
    assert sum(len(d.turns) for d in sample.dialogues()) >= 4000


def test_no_persona_is_in_two_splits():
    of = defaultdict(set)
    for dialogue in sample.dialogues():
        for persona in dialogue.personas.values():
            of[persona.id].add(dialogue.meta["split"])
    assert all(len(splits) == 1 for splits in of.values())
    assert len(of) == 100, "every persona talks"


@pytest.mark.parametrize("dialogue", sample.dialogues(), ids=lambda d: d.id)
def test_the_shape_of_a_dialogue(dialogue):
    assert 10 <= len(dialogue.turns) <= 16
    assert [t.speaker for t in dialogue.turns] == ["ab"[i % 2] for i in range(len(dialogue.turns))]
    lengths = [len(words(t.text)) for t in dialogue.turns]
    assert sum(lengths) / len(lengths) <= 15
    assert dialogue.personas["a"].id != dialogue.personas["b"].id


def test_nobody_recites_a_persona():
    def runs(text: str) -> set[tuple[str, ...]]:
        found = words(text)
        return {tuple(found[i : i + 5]) for i in range(len(found) - 4)}

    for dialogue in sample.dialogues():
        for speaker, persona in dialogue.personas.items():
            said = set().union(*(runs(t.text) for t in dialogue.turns if t.speaker == speaker))
            known = set().union(*(runs(s) for s in (*persona.sentences, *persona.revised)))
            assert not said & known, (dialogue.id, speaker)


def test_vocabulary_and_duplicates():
    texts = [turn.text for dialogue in sample.dialogues() for turn in dialogue.turns]
    assert len({w for text in texts for w in words(text)}) >= 4000
    assert len(near_duplicates(texts, threshold=0.7)) / len(texts) < 0.02
    same = Counter(" ".join(words(text)) for text in texts)
    repeated = sum(n - 1 for text, n in same.items() if n > 1 and len(text.split()) > 3)
    assert repeated / len(texts) < 0.02


def test_no_frame_is_used_again_and_again():
    """Templates with slots would show as long runs of words that come back."""
    runs: Counter[tuple[str, ...]] = Counter()
    for dialogue in sample.dialogues():
        said = {tuple(w[i : i + 6]) for t in dialogue.turns for w in [words(t.text)] for i in range(len(w) - 5)}
        runs.update(said)
    assert runs.most_common(1)[0][1] <= 6, runs.most_common(3)


def test_threads():
    counted = sample_stats()["threads"]
    assert counted["threads"] >= 250
    assert counted["messages"] >= 4000
    assert 12 <= counted["deepest"] <= 14
    assert counted["answered_twice_or_more"] >= 250
    messages = sample.messages()
    assert len({m.id for m in messages}) == len(messages)
    known = {m.id: m.thread for m in messages}
    assert all(m.parent is None or known[m.parent] == m.thread for m in messages)
    assert Counter(m.text for m in messages)["lol"] >= 20
    for what in ("with_quotes", "with_urls", "by_bots", "rude"):
        assert counted[what] >= 40, what


def test_invented_urls_only():
    hosts = re.findall(r"(?:https?://|www\.)([^/\s)\]]+)", "\n".join(m.text for m in sample.messages()))
    assert hosts
    assert all(re.search(r"(^|\.)example\.(org|com|net)\b", host) for host in hosts), hosts


def test_room():
    days = sample.room()
    assert len(days) == 5
    assert sum(len(day.lines) for day in days) >= 1500
    nicks = {m[1] for day in days for line in day.lines if (m := re.match(r"\[\d\d:\d\d\] <([^>]+)>", line))}
    assert len(nicks) >= 60
    assert {"will", "may", "hope", "mark", "bill", "rose"} <= nicks, "nicks that are English words"
    text = "\n".join(line for day in days for line in day.lines)
    assert all(sign in text for sign in (" has joined #", " has quit [", " is now known as "))


@pytest.mark.parametrize("day", sample.room(), ids=lambda d: d.day)
def test_a_day_of_the_room(day):
    assert len(day.lines) >= 300
    assert all(0 <= earlier <= later for later, earlier in enumerate(day.answers))
    times = [m[0] for line in day.lines if (m := re.match(r"\[\d\d:\d\d\]", line))]
    assert times == sorted(times)
    assert all(line.startswith(("[", "=== ")) for line in day.lines)
    thread = list(range(len(day.lines)))
    for later, earlier in enumerate(day.answers):
        thread[later] = thread[earlier]
    talk = [thread[i] for i, line in enumerate(day.lines) if line.startswith("[")]
    switches = sum(a != b for a, b in pairwise(talk)) / len(talk)
    assert switches > 0.35, "conversations overlap"


def test_mini_benchmark():
    items = sample.benchmark()
    assert Counter(len(item.context) for item in items) == {1: 150, 2: 150, 3: 150}
    assert all(item.context[-1].speaker == "user" and item.response.speaker == "bot" for item in items)
    assert len({item.response.text for item in items}) == 450
    kinds = Counter(item.label for item in items)
    needed = {"greeting", "opinion", "favourite", "feeling", "common sense", "personality", "joke", "consistency"}
    assert needed <= set(kinds)
    assert min(kinds.values()) >= 15
    assert all(len(item.context) > 1 for item in items if item.label == "consistency")


def test_grounded_turns():
    triples = sample.grounded()
    assert Counter(t.label for t in triples) == dict.fromkeys(sample.LABELS, 80)
    assert len({t.response.text for t in triples}) == 400
    assert all(len(words(t.evidence[0].text)) >= 12 for t in triples)


def test_the_hard_middle_of_grounding():
    """Entailed paraphrases with little overlap, hallucinations with much: overlap alone must not tell the label."""

    def overlap(triple) -> float:
        own = content(triple.response.text)
        return len(own & content(triple.evidence[0].text)) / len(own) if own else 0.0

    low = [t for t in sample.grounded() if t.label == "entailment" and overlap(t) < 1 / 3]
    high = [t for t in sample.grounded() if t.label == "hallucination" and overlap(t) > 2 / 3]
    assert len(low) >= 15, len(low)
    assert len(high) >= 15, len(high)


def test_the_files_stay_small():
    data = files("tertulia.sample") / "data"
    sizes = [f.stat().st_size for f in [*data.iterdir(), *(data / "room").iterdir()] if f.is_file()]
    assert sum(sizes) < 5_000_000
