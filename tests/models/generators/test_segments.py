"""Segments: every target turn is predicted once, whatever the limits."""

from hypothesis import given
from hypothesis import strategies as st

from tertulia.models.generator import DialogueView, target_mask
from tertulia.models.generators.segments import Segment, batch_segments, pair_segments, stream_segments
from tertulia.models.tokenizer import END, OTHER, OWN, WordTokenizer

WORDS = WordTokenizer(list("abcd"))
turns = st.lists(st.tuples(st.lists(st.sampled_from("abcd"), max_size=6).map(" ".join), st.booleans()), max_size=8)


def view_of(turns: list[tuple[str, bool]]) -> DialogueView:
    return DialogueView(tuple(text for text, _ in turns), tuple(own for _, own in turns), ("d d",))


def predicted(segments: list[Segment]) -> list[int]:
    """The predicted tokens in the order of the text."""
    ordered = sorted(segments, key=lambda one: (one.view, one.turn))
    return [token for one in ordered for token, mask in zip(one.ids, one.loss_mask, strict=True) if mask]


@given(turns, st.sampled_from(["all", "own", "last"]), st.integers(8, 40))
def test_each_target_turn_is_predicted_once(turns: list[tuple[str, bool]], target_turns, max_length: int) -> None:  # type: ignore[no-untyped-def]
    view = view_of(turns)
    mask = target_mask(view, target_turns)
    expected = [t for text, is_target in zip(view.turns, mask, strict=True) if is_target for t in WORDS.encode(text)]
    views = [view, view]
    streams = list(stream_segments(views, WORDS, target_turns, max_length=max_length, context_length=max_length))
    pairs = list(pair_segments(views, WORDS, target_turns, context_length=max_length))
    for segments in (streams, pairs):
        tokens = predicted(segments)
        assert [token for token in tokens if token != END] == 2 * expected
        assert tokens.count(END) == 2 * sum(mask)
        assert not any(one.loss_mask[0] for one in segments)


def test_turns_of_a_long_dialogue_have_turns_before_them() -> None:
    """Ten turns of four tokens in windows of five: the first three of a window are only read, but for the oldest."""
    view = DialogueView(("a b",) * 10, (False, True) * 5)
    segments = list(stream_segments([view], WORDS, "all", max_length=20, context_length=20))
    assert [one.turn for one in segments] == [8, 6, 4, 0]
    assert [one.loss_mask.index(True) for one in segments] == [13, 13, 13, 1]
    assert [len(one.ids) for one in segments] == [20, 20, 20, 16]


def test_a_pair_has_the_speakers_token_at_the_end_of_the_source_and_at_the_start_of_the_target() -> None:
    view = DialogueView(("a b", "c"), (False, True))
    first, second = pair_segments([view], WORDS, "all", context_length=20)
    assert (first.source, first.ids) == ((OTHER,), (OTHER, *WORDS.encode("a b"), END))
    assert (second.source, second.ids) == (
        (OTHER, *WORDS.encode("a b"), END, OWN),
        (OWN, *WORDS.encode("c"), END),
    )


@given(st.lists(st.integers(1, 30), max_size=30), st.integers(1, 100))
def test_batches_hold_all_segments_within_the_limit(lengths: list[int], max_tokens: int) -> None:
    segments = [Segment(i, 0, (OWN,) * length, (False,) * length) for i, length in enumerate(lengths)]
    batches = list(batch_segments(segments, max_tokens))
    assert sorted(one.view for batch in batches for one in batch) == list(range(len(segments)))
    assert all(len(batch) == 1 or len(batch) * max(len(one.ids) for one in batch) <= max_tokens for batch in batches)
