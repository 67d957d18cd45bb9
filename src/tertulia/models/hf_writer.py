"""A Hugging Face model as a model that writes: decoding, filters and judging see no difference to our own.

Our marks keep their numbers and the model's tokens come behind them, shifted. The end of a turn has the summed
probability of all tokens that end it (chat models have several), and those tokens themselves have none, so that the
probabilities are the model's own, down to the last one. Other marks have none either.

What a conversation looks like to the model is settled before it comes here where it comes from a bot (`Prompt`); a
plain `Talk` is laid out with its persona in the system turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Self

import torch
from torch import nn

from tertulia.core.errors import BotError
from tertulia.models.generator import Nll, Scored, State, Talk, counted
from tertulia.models.hf_branches import Branches
from tertulia.models.hf_rows import Rows, filled
from tertulia.models.huggingface import ChatModel
from tertulia.models.tokenizer import END, MARKS, Tokenizer

SHIFT = len(MARKS)
LOGITS_AT_ONCE = 2**25
"""Logits held while given replies are scored: 128 MB."""


@dataclass(frozen=True, slots=True)
class Prompt(Talk):
    """A talk whose layout is settled: the tokens of all that was said before the reply, ready for it."""

    tokens: tuple[int, ...] = ()
    """The model's own numbers."""


class ShiftedTokenizer:
    """A Hugging Face tokenizer whose numbers begin behind our marks."""

    def __init__(self, chat: ChatModel) -> None:
        self.chat = chat

    def __len__(self) -> int:
        return int(self.chat.model.get_output_embeddings().weight.shape[0]) + SHIFT

    def encode(self, text: str, /) -> tuple[int, ...]:
        """The tokens of a reply, without any that begin or end it."""
        return tuple(i + SHIFT for i in self.chat.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int], /) -> str:
        """A text again; marks and special tokens are left out."""
        return self.chat.decode([i - SHIFT for i in ids if i >= SHIFT])

    def save(self, folder: Path, /) -> str:
        """All files of the tokenizer; the name of the one that says how to load it."""
        self.chat.tokenizer.save_pretrained(folder)
        return "tokenizer_config.json"


@dataclass(frozen=True, slots=True)
class HuggingFaceState:
    """What the model remembers: a `State`, whether rows share what was read or not."""

    inner: Rows | Branches

    def fan(self, count: int, /) -> Self:
        """Each row so many times."""
        return type(self)(self.inner.fan(count))

    def keep(self, rows: torch.Tensor, /) -> Self:
        """Only these rows."""
        return type(self)(self.inner.keep(rows))


class HuggingFaceWriter(nn.Module):
    """A chat model as a `Generator`."""

    def __init__(self, chat: ChatModel) -> None:
        super().__init__()
        self.chat = chat
        self.model = chat.model
        self.tokenizer: Tokenizer = ShiftedTokenizer(chat)
        self._ends = torch.tensor(sorted(chat.ends), dtype=torch.long, device=chat.model.device)
        self.eval()  # a module is born in training, and decoding leaves it as it was

    def start(self, talks: Sequence[Talk], /) -> State:
        """Read the talks."""
        return HuggingFaceState(self.chat.network.read([self.prompt(talk) for talk in talks]))

    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, State]:
        """Logits of the next token after `tokens`, or of the first one after None."""
        if not isinstance(state, HuggingFaceState):
            raise TypeError(f"a state of another model: {type(state).__name__}")
        if tokens is None:
            return self._shifted(state.inner.logits), state
        after = state.inner.extend((tokens - SHIFT).clamp(min=0)[:, None])[
            1
        ]  # rows that have ended go along for a while
        return self._shifted(after.logits), HuggingFaceState(after)

    @torch.inference_mode()
    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        """How improbable the turns that count are, each given all before it.

        A prompt that several replies follow is read once. A turn of the other is scored as if the model spoke for them,
        whose persona it does not know. Where a model has no end token, the end of a turn does not count.
        """
        total = torch.zeros(len(talks), dtype=torch.float64)
        tokens = torch.zeros(len(talks), dtype=torch.long)
        exchanges: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}
        for place, talk in enumerate(talks):
            for prompt, reply in self._exchanges(talk, scored):
                exchanges.setdefault(prompt, []).append((place, reply))
                tokens[place] += len(reply) + bool(self.chat.ends)
        replies = [(at, *pair) for at, pairs in enumerate(exchanges.values()) for pair in pairs]
        if replies:
            start = self.chat.network.read(list(exchanges))
            longest = max(len(reply) for *_, reply in replies) + 1
            size = max(1, LOGITS_AT_ONCE // (longest * len(self.tokenizer)))
            for first in range(0, len(replies), size):
                rows, places, given = zip(*replies[first : first + size], strict=True)
                total.index_add_(0, torch.tensor(places), self._improbable(start, rows, given).double().cpu())
        return Nll(total.float(), tokens)

    def save(self, folder: Path, /) -> Sequence[str]:
        """The model as Hugging Face keeps it."""
        self.chat.save(folder)
        own = ("config.json", "model.safetensors")
        return sorted(file.name for file in folder.iterdir() if file.name not in own)

    def prompt(self, talk: Talk) -> list[int]:
        """What the model reads of a talk."""
        if isinstance(talk, Prompt):
            return list(talk.tokens)
        found = self.chat.prompt(messages(talk), persona=talk.persona, partner=talk.partner)
        return found[-self.chat.room(self.chat.window // 4) :]

    def _exchanges(self, talk: Talk, scored: Scored) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """What was read and what is to be said, for each turn that counts."""
        if isinstance(talk, Prompt) and scored != "last":
            raise ValueError("only the last turn of a prompt can be scored")
        found = []
        for turn, counts in enumerate(counted(talk, scored)):
            if not counts:
                continue
            reply = tuple(i - SHIFT for i in self.tokenizer.encode(talk.turns[turn]))
            before = replace(talk, turns=talk.turns[:turn], own=talk.own[:turn])
            prompt = self.prompt(before if talk.own[turn] else _turned(before))
            room = self.chat.most(0) - len(reply)
            if room < 1:
                raise BotError(
                    f"A turn of {len(reply)} tokens is longer than what {self.chat.name} can write.",
                    hint="Leave such turns out, or take a model with a larger window.",
                )
            found.append((tuple(prompt if self.chat.seq2seq else prompt[-room:]), reply))
        return found

    def _improbable(self, start: Rows, rows: Sequence[int], replies: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Minus log P of each reply after its prompt, its end included. (replies,)"""
        state = start.keep(torch.tensor(rows, device=self._ends.device))
        logits = state.logits[:, None]
        tokens, mask = (part.to(self._ends.device) for part in filled(replies, pad=0))
        if tokens.shape[1]:
            logits = torch.cat([logits, state.extend(tokens)[0]], 1)  # (replies, longest + 1, vocabulary)
        whole = logits.logsumexp(-1)
        said = logits[:, :-1].gather(2, tokens[..., None])[..., 0] - whole[:, :-1]
        found = -(said * mask).sum(-1)
        if not len(self._ends):
            return found
        length = mask.sum(-1, keepdim=True)
        ends = logits[..., self._ends].logsumexp(-1) - whole
        return found - ends.gather(1, length)[:, 0]

    def _shifted(self, logits: torch.Tensor) -> torch.Tensor:
        """(rows, vocabulary) with our marks in front."""
        found = logits.new_full((len(logits), logits.shape[1] + SHIFT), -torch.inf)
        found[:, SHIFT:] = logits
        if len(self._ends):
            found[:, END] = logits[:, self._ends].logsumexp(-1)
            found[:, self._ends + SHIFT] = -torch.inf
        return found


def messages(talk: Talk) -> list[dict[str, str]]:
    """A talk as chat messages: personas as the system's, turns of one side in a row as one.

    The user comes first, with nothing to say if need be: many models' templates refuse anything else.

    >>> found = messages(Talk(("hi", "there?", "yes"), (False, False, True), ("I sail.",), ("I bake.",)))
    >>> found[0]["content"], found[1:] == messages(Talk(("hi", "there?", "yes"), (False, False, True)))
    ('I sail. About the other one: I bake.', True)
    >>> found[1:]
    [{'role': 'user', 'content': 'hi\\nthere?'}, {'role': 'assistant', 'content': 'yes'}]
    """
    known = (*talk.persona, *(("About the other one:", *talk.partner) if talk.partner else ()))
    found = [{"role": "system", "content": " ".join(known)}] if known else []
    if not talk.own or talk.own[0]:
        found.append({"role": "user", "content": ""})
    for own, turns in groupby(zip(talk.own, talk.turns, strict=True), key=lambda turn: turn[0]):
        found.append({"role": "assistant" if own else "user", "content": "\n".join(text for _, text in turns)})
    return found


def _turned(talk: Talk) -> Talk:
    """As the other sees it, who has not read this one's persona."""
    return replace(talk, own=tuple(not own for own in talk.own), persona=talk.partner, partner=())
