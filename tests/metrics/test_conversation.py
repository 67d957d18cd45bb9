"""The eleven conversation metrics against loops that follow the paper's definitions, and by hand."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.metrics.conversation import CONVERSATION_METRICS, EmotionModel, TurnTable, count_laughs
from tertulia.metrics.embeddings import TextPairs, WordVectors, pair_similarities
from tertulia.metrics.metric import ConversationExample
from tertulia.metrics.registry import metric_named

EMOTIONS = {"good": (0.9, 0.1), "ok": (0.5, 0.5), "bad": (0.2, 0.8), "haha": (1.0, 0.0), "what?": (0.4, 0.6)}
MODEL = EmotionModel(("joy", "anger"), (1.0, -0.5), lambda texts: np.array([EMOTIONS[t] for t in texts]).reshape(-1, 2))
VECTORS = WordVectors.rows(
    ["good", "ok", "bad", "haha"], np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0], [-1.0, 1.0, 0.5], [0.3, 0.0, -1.0]])
)
RESOURCES = {
    "emotions": MODEL,
    "word_vectors": VECTORS,
    "sentences": lambda texts: np.array([[len(text), ord(text[0]) - 100.0] for text in texts]),
}


def measured(name: str, *batch: ConversationExample) -> list[float]:
    values, weights = metric_named(name).measure(batch, RESOURCES)
    assert weights is None
    return values.tolist()


def valence(text: str) -> float:
    joy, anger = EMOTIONS[text]
    return joy - 0.5 * anger


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other))


def mean(values: list[float]) -> float:
    valid = [value for value in values if not math.isnan(value)]
    return sum(valid) / len(valid) if valid else math.nan


def slope(values: list[float]) -> float:
    if not values:
        return math.nan
    high, low = values.index(max(values)), values.index(min(values))
    return (max(values) - min(values)) / (high - low) if high != low else 0.0


def word_similarity(kind: str) -> Callable[[str, str], float]:
    return lambda a, b: float(pair_similarities(TextPairs.of([(a, b)]), VECTORS, kind)[0])  # type: ignore[arg-type]


def by_definition(chat: ConversationExample) -> dict[str, float]:
    """The paper's definitions, turn by turn."""
    turns, judged = chat.turns, chat.judged
    replies = [i for i in range(1, len(turns)) if judged[i]]
    after = [i for i in range(1, len(turns)) if judged[i - 1]]
    user = [i for i in range(len(turns)) if (i and judged[i - 1]) or (i + 1 < len(turns) and judged[i + 1])]
    pairs = [(turns[i - 1], turns[i]) for i in replies]
    vectors = RESOURCES["sentences"]
    return {
        "sentiment": mean([valence(turns[i]) for i in after]),
        "sentiment coherence": mean([cosine(np.array(EMOTIONS[a]), np.array(EMOTIONS[b])) for a, b in pairs]),
        "sentiment transition": mean(
            [valence(turns[i + 1]) - valence(turns[i - 1]) for i in replies if i + 1 < len(turns)]
        ),
        "sentiment min-max": slope([valence(turns[i]) for i in user]),
        "laughter": mean([2.0 * (turns[i] == "haha") for i in after]),
        "words elicited": mean([1.0 for _ in after]),
        "semantic coherence": mean([cosine(*vectors([a, b])) for a, b in pairs]),  # type: ignore[operator]
        "question score": mean([float(turns[i] == "what?") for i in range(len(turns)) if judged[i]]),
    } | {
        f"word coherence {kind}": mean([word_similarity(kind)(a, b) for a, b in pairs])
        for kind in ("average", "extrema", "greedy")
    }


def chats(sides: Callable[[int], tuple[bool, ...]]) -> st.SearchStrategy[ConversationExample]:
    turns = st.lists(st.sampled_from(sorted(EMOTIONS)), max_size=7).map(tuple)
    return turns.map(lambda own: ConversationExample(own, sides(len(own))))


human_bot = chats(lambda n: tuple(i % 2 == 1 for i in range(n)))
bot_human = chats(lambda n: tuple(i % 2 == 0 for i in range(n)))
self_play = chats(lambda n: (True,) * n)
after_a_given_opener = chats(lambda n: tuple(i > 0 for i in range(n)))


@settings(max_examples=60, deadline=None)
@given(st.lists(human_bot | bot_human | self_play | after_a_given_opener, min_size=1, max_size=5))
def test_the_eleven_follow_their_definitions(batch: list[ConversationExample]) -> None:
    expected = [by_definition(chat) for chat in batch]
    assert set(expected[0]) == set(CONVERSATION_METRICS)
    for name in CONVERSATION_METRICS:
        assert measured(name, *batch) == pytest.approx([one[name] for one in expected], nan_ok=True), name


def test_of_a_bot_the_users_turns_count_and_in_self_play_all() -> None:
    turns = ("bad", "good", "ok", "bad", "haha")
    with_user = ConversationExample(turns, (False, True, False, True, False))
    with_itself = ConversationExample(turns, (True,) * 5)
    elicited = [valence("ok"), valence("haha")]
    assert measured("sentiment", with_user) == pytest.approx([sum(elicited) / 2])
    assert measured("sentiment", with_itself) == pytest.approx([sum(map(valence, turns[1:])) / 4])
    # user turns bad, ok, haha rise; in self-play the lowest turn is the first, the highest the last
    rise = valence("haha") - valence("bad")
    assert measured("sentiment min-max", with_user, with_itself) == pytest.approx([rise / 2, rise / 4])
    assert measured("sentiment transition", with_user) == pytest.approx([rise / 2])
    assert measured("turns", with_user, with_itself) == [5, 5]
    assert measured("words per turn", with_user) == [1]


@pytest.mark.parametrize(
    ("text", "laughs"),
    [
        ("That is what I have, perhaps", 0),
        ("haha", 2),
        ("Ha!", 1),
        ("bahaha, LOL", 3),
        ("hihi hehehe", 5),
        ("ha-ha", 2),
        ("lmao rofl 🤣", 3),
        ("哈哈真好笑", 2),
        ("his hehexe hallo", 0),
    ],
)
def test_laughter_is_laughter(text: str, laughs: int) -> None:
    assert count_laughs(text) == laughs
    chat = ConversationExample(("joke?", "joke.", text), (False, True, False))
    assert measured("laughter", chat) == [min(laughs, 4)]


def test_the_literal_rule_counts_letters() -> None:
    chat = ConversationExample(("", "joke.", "That is what I have, perhaps"), (False, True, False))
    assert measured("laughter (literal)", chat) == [4]
    assert measured("laughter", chat) == [0]


def test_question_points() -> None:
    texts = {"What's that?": 1.0, "Tell me how": 0.5, "Really？": 0.5, "Whatever, somehow.": 0.0, "": 0.0}
    assert measured("question score", *(ConversationExample((text,), (True,)) for text in texts)) == list(
        texts.values()
    )


def test_every_turn_says_whether_it_is_judged() -> None:
    with pytest.raises(ValueError, match="2 turns, but 1 entries"):
        TurnTable.of([ConversationExample(("a", "b"), (True,))])
    with pytest.raises(ValueError, match="1 labels, but 2 valences"):
        EmotionModel(("joy",), (1.0, 0.0), len)
