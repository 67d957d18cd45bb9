"""Dialogues as HRED, VHRED and VHCR read them: utterances, and windows of turns in which target turns are predicted.

A long dialogue is read in windows of at most `max_turns` turns that overlap by half: each turn is a target once, and
has some turns before it. The same text by the same speaker is encoded once per batch, however often it occurs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch.nn.utils.rnn import PackedSequence

from tertulia.models.generator import DialogueView, TargetTurns, persona_sentences, target_mask, turn_ids
from tertulia.models.generators.recurrent import pack
from tertulia.models.tokenizer import END, OTHER, OWN, Tokenizer

PrefixedText = tuple[tuple[int, ...], str]
"""Special tokens, and the text after them."""


@dataclass(frozen=True, slots=True)
class HREDBatch:
    """A batch of dialogues: u distinct utterances, p windows of at most l turns, r target turns."""

    size: int  # number of dialogues
    texts: tuple[str, ...]  # u: the utterances' texts
    utterances: PackedSequence | None  # of u rows; None if there are none
    windows: torch.Tensor  # (p, l): indices of utterances, padded with 0
    lengths: torch.Tensor  # (p,): turns of each window
    context_lengths: torch.Tensor  # (p,): turns before the first target turn of each window
    window_view: torch.Tensor  # (p,): index of each window's dialogue
    target_window: torch.Tensor  # (r,): index of each target turn's window
    target_position: torch.Tensor  # (r,): its index in the window
    inputs: PackedSequence | None  # of r rows, None if there are none: the speaker's special token and the words
    targets: PackedSequence | None  # of r rows: the words and END


def collate(
    views: Sequence[DialogueView],
    tokenizer: Tokenizer,
    target_turns: TargetTurns | None,
    *,
    max_length: int,
    max_turns: int,
    personas: bool,
    truncate_targets: bool,
    device: torch.device,
) -> HREDBatch:
    """Build a batch; without `target_turns`, to generate the next turn of each dialogue.

    Utterances are truncated to `max_length` tokens where they are read; targets only with `truncate_targets`.
    """
    utterances: dict[PrefixedText, int] = {}  # to its index
    windows: list[list[int]] = []
    window_info: list[tuple[int, int]] = []  # of each window: the dialogue, and the number of turns before its targets
    target_info: list[tuple[int, int]] = []  # of each target turn: the window, and the position in it
    rows: list[tuple[int, ...]] = []
    for i, view in enumerate(views):
        persona: list[PrefixedText] = list(persona_sentences(view)) if personas else []
        turns: list[PrefixedText] = [
            ((OWN if own else OTHER,), text) for text, own in zip(view.turns, view.own, strict=True)
        ]
        for first, targets in _windows(view, target_turns, max_turns):
            shift = len(persona) - first  # from a turn's index in the dialogue to its position in the window
            for turn in targets if target_turns is not None else ():
                target_info.append((len(windows), turn + shift))
                ids = turn_ids(view.turns[turn], view.own[turn], tokenizer)
                rows.append(ids[: max_length + 1] if truncate_targets else ids)
            window = (*persona, *turns[first : targets[-1] + 1])
            windows.append([utterances.setdefault(one, len(utterances)) for one in window])
            window_info.append((i, targets[0] + shift))
    encoded = [(*(*special, *tokenizer.encode(text))[: max_length + 1], END) for special, text in utterances]
    longest = max(map(len, windows), default=0)

    def matrix(lines: Sequence[Sequence[int]], width: int) -> torch.Tensor:
        return torch.tensor(lines, dtype=torch.long, device=device).reshape(len(lines), width)

    return HREDBatch(
        size=len(views),
        texts=tuple(text for _, text in utterances),
        utterances=pack(encoded, device) if encoded else None,
        windows=matrix([window + [0] * (longest - len(window)) for window in windows], longest),
        lengths=matrix([[len(window)] for window in windows], 1)[:, 0],
        window_view=matrix(window_info, 2)[:, 0],
        context_lengths=matrix(window_info, 2)[:, 1],
        target_window=matrix(target_info, 2)[:, 0],
        target_position=matrix(target_info, 2)[:, 1],
        inputs=pack([row[:-1] for row in rows], device) if rows else None,
        targets=pack([row[1:] for row in rows], device) if rows else None,
    )


def window_start(turn: int, max_turns: int) -> int:
    """The first turn of the window in which a turn is a target: windows of `max_turns` turns, half a window apart.

    >>> [window_start(turn, 10) for turn in (0, 9, 10, 14, 15)]
    [0, 0, 5, 5, 10]
    """
    stride = max_turns // 2
    return max(0, -(-(turn - max_turns + 1) // stride) * stride)  # rounded up to a multiple of the stride


def _windows(view: DialogueView, target_turns: TargetTurns | None, max_turns: int) -> Iterator[tuple[int, list[int]]]:
    """First turn and target turns of each window that has targets; to generate, the target is the turn to come."""
    if target_turns is None:
        targets = [len(view.turns)]
    else:
        targets = [turn for turn, is_target in enumerate(target_mask(view, target_turns)) if is_target]
    for first, turns in groupby(targets, key=lambda turn: window_start(turn, max_turns)):
        yield first, list(turns)
