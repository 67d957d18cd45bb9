"""Dialogues cut into segments, the rows of a batch: each target turn is predicted in exactly one of them.

A model without an encoder reads a dialogue as one stream, and a single pass predicts every target turn. A dialogue
longer than the model's limit becomes several streams, from the newest to the oldest, which overlap by half: each takes
the newest turns that fit and predicts those of its second half, so that these have turns before them, as when a reply
is generated; the next one ends where the predicted turns begin. A model with an encoder needs a (source, target) pair
per target turn. The same goes for a single last turn, whose context is then as long as when a reply is generated.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tertulia.models.generator import DialogueView, TargetTurns, stream, target_mask
from tertulia.models.tokenizer import END, OTHER, OWN, Tokenizer


class Segment(NamedTuple):
    """One row: the tokens of the decoder, and those of the encoder if there is one."""

    view: int
    """Index of its dialogue in the batch."""
    turn: int
    """Index of the first turn that it may predict; (view, turn) sorts segments in the order of the text."""
    ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    """Which ids are predicted; never the first."""
    source: tuple[int, ...] = ()


def context_ids(view: DialogueView, tokenizer: Tokenizer, max_length: int) -> tuple[int, ...]:
    """What is read before the next turn; if a single turn is too long, its end."""
    return stream(view, tokenizer, max_length=max_length).ids[-max_length:]


def stream_segments(
    views: Sequence[DialogueView],
    tokenizer: Tokenizer,
    target_turns: TargetTurns,
    *,
    max_length: int,
    context_length: int,
) -> Iterator[Segment]:
    """Streams of at most `max_length` tokens; for a single last turn, after a context of at most `context_length`."""
    for i, view in enumerate(views):
        if target_turns == "last":
            if view.turns:
                yield turn_segment(i, view, len(view.turns) - 1, tokenizer, context_length)
            continue
        end = len(view.turns)
        while end:
            ids, loss_mask = stream(view.before(end), tokenizer, target_turns=target_turns, max_length=max_length)
            starts = [position for position, token in enumerate(ids) if token in (OWN, OTHER)]
            first = end - len(starts)
            carried = _carried_over(starts, len(ids)) if first else 0
            loss_mask = (False,) * starts[carried] + loss_mask[starts[carried] :]
            if any(loss_mask):
                yield Segment(i, first + carried, ids, loss_mask)
            end = first + carried


def _carried_over(starts: Sequence[int], end: int) -> int:
    """How many turns of a stream are only read, being predicted in the next one: those that begin in its first half."""
    middle = (starts[0] + end) / 2
    return min(sum(start < middle for start in starts), len(starts) - 1)


def pair_segments(
    views: Sequence[DialogueView], tokenizer: Tokenizer, target_turns: TargetTurns, *, context_length: int
) -> Iterator[Segment]:
    """One (source, target) pair per target turn, for encoder-decoder models.

    The source ends with the special token of the speaker, and the target starts with it.
    """
    for i, view in enumerate(views):
        for turn, is_target in enumerate(target_mask(view, target_turns)):
            if is_target:
                segment = turn_segment(i, view, turn, tokenizer, context_length)
                start = segment.loss_mask.index(True)
                yield segment._replace(
                    source=segment.ids[:start], ids=segment.ids[start - 1 :], loss_mask=segment.loss_mask[start - 1 :]
                )


def turn_segment(i: int, view: DialogueView, turn: int, tokenizer: Tokenizer, context_length: int) -> Segment:
    """A single target turn after its context."""
    context = context_ids(view.before(turn), tokenizer, context_length)
    words = (*tokenizer.encode(view.turns[turn]), END)
    ids = (*context, OWN if view.own[turn] else OTHER, *words)
    return Segment(i, turn, ids, (False,) * (len(context) + 1) + (True,) * len(words))


def batch_segments(segments: Sequence[Segment], max_tokens: int) -> Iterator[list[Segment]]:
    """Segments of similar length together, at most `max_tokens` per batch with padding, except for a single one."""
    batch: list[Segment] = []
    longest = 0
    for segment in sorted(segments, key=lambda one: (len(one.source), len(one.ids))):
        longest = max(longest, len(segment.ids))
        if batch and (len(batch) + 1) * (len(segment.source) + longest) > max_tokens:
            yield batch
            batch, longest = [], len(segment.ids)
        batch.append(segment)
    if batch:
        yield batch
