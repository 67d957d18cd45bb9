"""A chat model as a `Generator`: decoding, filters and judging see no difference from our own architectures.

Our special tokens keep their ids and the model's tokens follow, shifted by `SHIFT`. `END` has the summed probability of
all tokens that end a turn (chat models have several), and those tokens themselves have none, so that the probabilities
stay the model's own. The other special tokens have probability 0.

A bot lays out the conversation itself and passes the prompt's tokens (`Prompt`); for a plain `DialogueView` the persona
goes into the system turn.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import nn

from tertulia.core.errors import BotError
from tertulia.models.generator import DialogueView, Nll, State, TargetTurns, target_mask
from tertulia.models.generators.base import full_precision
from tertulia.models.hf.chat_format import ChatFormat, TokenState
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.state import pad
from tertulia.models.hf.token_tree import PromptAndReply, tree_nll
from tertulia.models.likelihood import batches_of
from tertulia.models.tokenizer import END, SPECIAL_TOKENS, Tokenizer

SHIFT = len(SPECIAL_TOKENS)
LOGITS_AT_ONCE = 2**25
"""Logits held in memory while given replies are scored: 128 MB."""
ROWS_OF_LIMITED = 128
"""Prompts, and tokens of replies, that an engine with limited room gets at once."""
PADDING = 1.2
"""How much longer the longest reply of a batch may be than the shortest one, and one token."""
ScoredReply = tuple[int, int, tuple[int, ...]]
"""Row of its prompt, index of its view, tokens."""
RepliesByPrompt = dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]
"""By the tokens of a prompt its replies: index of the view, tokens."""


class Chain(NamedTuple):
    """Target turns of one dialogue that one pass can score: the prompt of each begins with all that is before it."""

    ids: tuple[int, ...]
    """From the first prompt to the end of the last turn."""
    turns: tuple[slice, ...]
    """Where the words of each target turn are; the token behind them is its end, if the model has end tokens."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """What is before the first target turn."""
        return self.ids[: self.turns[0].start]

    @property
    def first(self) -> tuple[int, ...]:
        """The words of the first target turn."""
        return self.ids[self.turns[0]]


@dataclass(frozen=True, slots=True)
class Prompt(DialogueView):
    """A view whose prompt is laid out already; its turns are the replies to score, if any."""

    tokens: tuple[int, ...] = ()
    """The prompt, in the model's own token ids."""


class ShiftedTokenizer:
    """A Hugging Face tokenizer whose ids are shifted to make room for our special tokens."""

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat

    def __len__(self) -> int:
        return self.chat.lm.vocabulary + SHIFT

    def encode(self, text: str, /) -> tuple[int, ...]:
        """The tokens of a reply, without special tokens around it."""
        return tuple(i + SHIFT for i in self.chat.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int], /) -> str:
        """Tokens as text; special tokens are left out."""
        return self.chat.decode([i - SHIFT for i in ids if i >= SHIFT])

    def save(self, folder: Path, /) -> str:
        """Write all files of the tokenizer; returns the name of the one that says how to load it."""
        self.chat.tokenizer.save_pretrained(folder)
        return "tokenizer_config.json"


class ChatGenerator(ABC):
    """A chat model as a `Generator`, whatever computes its logits."""

    chat: ChatFormat
    tokenizer: Tokenizer
    _ends: torch.Tensor
    """The tokens that end a turn."""

    @abstractmethod
    def save(self, folder: Path, /) -> Sequence[str]:
        """Save the model; returns the names of its files other than weights and config."""

    def start(self, views: Sequence[DialogueView], /) -> State:
        """Encode the prompts."""
        # The cast: expanding it may give a `SharedPrefixState`, where the protocol expects a state of the same class.
        return cast(State, self.chat.lm.encode([self.prompt(view) for view in views], reuse=True))

    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, State]:
        """Logits of the next token after `tokens`, or of the first one after None."""
        if not isinstance(state, TokenState):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if tokens is None:
            return self._shift(state.logits), state
        own_ids = (tokens - SHIFT).clamp(min=0)  # rows that have ended may stay in the batch: END has no own id
        _, after = state.extend(own_ids[:, None])
        return self._shift(after.logits), cast(State, after)

    @torch.inference_mode()
    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        """Negative log-likelihood of the target turns, each given everything before it.

        Common beginnings are read once where the model can do so (`token_tree`), and the turns of a dialogue are scored
        in one pass where the prompt of each continues the one before. A partner's turn is scored as if the model spoke
        for the partner, whose persona it does not see. If a model has no end token, the end of a turn is not scored.
        """
        total = torch.zeros(len(views), dtype=torch.float64, device="cpu")
        tokens = torch.zeros(len(views), dtype=torch.long, device="cpu")
        by_prompt: RepliesByPrompt = {}
        chains: list[tuple[int, Chain]] = []
        for i, view in enumerate(views):
            for chain in self._chains(view, target_turns):
                tokens[i] += sum(turn.stop - turn.start + bool(self.chat.end_tokens) for turn in chain.turns)
                if len(chain.turns) == 1:
                    by_prompt.setdefault(chain.prompt, []).append((i, chain.first))
                else:
                    chains.append((i, chain))
        for indices, nll in self._replies_nll(by_prompt):
            total.index_add_(0, torch.tensor(indices, dtype=torch.long, device="cpu"), nll.cpu().double())
        chains.sort(key=lambda one: len(one[1].ids))
        for group in batches_of([len(chain.ids) for _, chain in chains], self._at_once, None):
            nll = self._chain_nll([chains[i][1] for i in group])
            total.index_add_(0, torch.tensor([chains[i][0] for i in group], device="cpu"), nll.cpu().double())
        return Nll(total.float(), tokens)

    @property
    def _at_once(self) -> int:
        """Tokens of replies that are scored together."""
        return min(
            LOGITS_AT_ONCE // len(self.tokenizer), ROWS_OF_LIMITED if self.chat.lm.max_tokens else LOGITS_AT_ONCE
        )

    def _replies_nll(self, by_prompt: RepliesByPrompt) -> Iterator[tuple[Sequence[int], torch.Tensor]]:
        """NLL of the replies to each prompt, some at a time, with the indices of their views."""
        for prompts in _groups(list(by_prompt), self.chat.lm.max_tokens):
            replies = [(row, *pair) for row, prompt in enumerate(prompts) for pair in by_prompt[prompt]]
            start = self.chat.lm.encode(prompts)
            for batch in _batches(replies, self._at_once):
                rows, indices, texts = zip(*batch, strict=True)
                yield indices, self._reply_nll(start, rows, texts)

    def prompt(self, view: DialogueView) -> list[int]:
        """The tokens that the model reads before it generates the next turn of a view."""
        if isinstance(view, Prompt):
            return list(view.tokens)
        tokens = self.chat.prompt(messages(view), persona=view.persona, partner=view.partner)
        return tokens[-self.chat.max_prompt_tokens(self.chat.window // 4) :]

    def _prompts_and_replies(
        self, view: DialogueView, target_turns: TargetTurns
    ) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Prompt and reply of each target turn, in the model's own token ids."""
        if isinstance(view, Prompt) and target_turns != "last":
            raise ValueError("only the last turn of a prompt can be scored")
        pairs = []
        for turn, is_target in enumerate(target_mask(view, target_turns)):
            if not is_target:
                continue
            reply = tuple(i - SHIFT for i in self.tokenizer.encode(view.turns[turn]))
            before = replace(view, turns=view.turns[:turn], own=view.own[:turn])
            prompt = self.prompt(before if view.own[turn] else _as_partner(before))
            room = self.chat.max_reply_tokens(0) - len(reply)
            if room < 1:
                raise BotError(
                    f"A turn of {len(reply)} tokens does not fit into the window of {self.chat.name}.",
                    hint="Leave out such turns, or use a model with a larger window.",
                )
            pairs.append((tuple(prompt if self.chat.seq2seq else prompt[-room:]), reply))
        return pairs

    def _chains(self, view: DialogueView, target_turns: TargetTurns) -> list[Chain]:
        """The target turns, in as few chains as possible; both sides of a dialogue have chains of their own."""
        end = tuple(self._ends[:1].tolist())
        chains: list[Chain] = []
        for prompt, reply in self._prompts_and_replies(view, target_turns):
            before = next((chain for chain in chains if self._continues(chain, prompt)), None)
            if before:
                chains.remove(before)
            turn = slice(len(prompt), len(prompt) + len(reply))
            chains.append(Chain((*prompt, *reply, *end), (*(before.turns if before else ()), turn)))
        return chains

    def _continues(self, chain: Chain, prompt: tuple[int, ...]) -> bool:
        """Whether a prompt begins with a chain; the last turn may end with any of the end tokens."""
        stop = chain.turns[-1].stop
        if self.chat.seq2seq or len(prompt) <= stop or prompt[:stop] != chain.ids[:stop]:
            return False
        return not self.chat.end_tokens or prompt[stop] in self.chat.end_tokens

    def _chain_nll(self, chains: Sequence[Chain]) -> torch.Tensor:
        """NLL of all target turns of each chain, their ends included: (chains,)."""
        has_ends = bool(len(self._ends))
        positions = [[p for turn in c.turns for p in range(turn.start, turn.stop + has_ends)] for c in chains]
        sums = []
        for chain, some, logits in zip(
            chains, positions, self.chat.lm.logits_before([c.ids for c in chains], positions), strict=True
        ):
            logits = full_precision(logits)
            ids = torch.tensor([chain.ids[p] for p in some], device=logits.device)
            values = logits.gather(1, ids[:, None])[:, 0]
            if has_ends:
                stops = {turn.stop for turn in chain.turns}
                is_end = torch.tensor([p in stops for p in some], device=logits.device)
                values = torch.where(is_end, logits[:, self._ends].logsumexp(-1), values)
            sums.append((logits.logsumexp(-1) - values).sum())
        return torch.stack(sums)

    def _reply_nll(self, start: TokenState, rows: Sequence[int], replies: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """NLL of each reply after the prompt in its row of `start`, its end included: (replies,)."""
        state = start.select(torch.tensor(rows, device=self._ends.device))
        logits = state.logits[:, None]
        tokens, mask = (part.to(self._ends.device) for part in pad(replies, value=0))
        if tokens.shape[1]:
            logits = torch.cat([logits, state.extend(tokens)[0]], 1)  # (replies, max length + 1, vocabulary)
        logits = full_precision(logits)
        normaliser = logits.logsumexp(-1)
        logprobs = logits[:, :-1].gather(2, tokens[..., None])[..., 0] - normaliser[:, :-1]
        nll = -(logprobs * mask).sum(-1)
        if not len(self._ends):
            return nll
        length = mask.sum(-1, keepdim=True)
        ends = logits[..., self._ends].logsumexp(-1) - normaliser
        return nll - ends.gather(1, length)[:, 0]

    def _shift(self, logits: torch.Tensor) -> torch.Tensor:
        """(rows, SHIFT + vocabulary): our special tokens in front, the ends of a turn summed in `END`."""
        logits = full_precision(logits)
        shifted = logits.new_full((len(logits), logits.shape[1] + SHIFT), -torch.inf)
        shifted[:, SHIFT:] = logits
        if len(self._ends):
            shifted[:, END] = logits[:, self._ends].logsumexp(-1)
            shifted[:, self._ends + SHIFT] = -torch.inf
        return shifted


class HuggingFaceGenerator(ChatGenerator, nn.Module):
    """A Hugging Face model as a `Generator`, a torch module."""

    chat: ChatModel

    def __init__(self, chat: ChatModel) -> None:
        nn.Module.__init__(self)
        self.chat = chat
        self.model = chat.model
        self.tokenizer = ShiftedTokenizer(chat)
        # A buffer moves with the model, and this one is not among its weights.
        self.register_buffer("_ends", end_tensor(chat), persistent=False)
        self.eval()  # a new module is in training mode, and decoding restores the mode it finds

    def _replies_nll(self, by_prompt: RepliesByPrompt) -> Iterator[tuple[Sequence[int], torch.Tensor]]:
        """Every common beginning is read once if the model can do so."""
        if not self.chat.lm.capabilities.shared_prefix:
            yield from super()._replies_nll(by_prompt)
            return
        replies = [(i, PromptAndReply(prompt, text)) for prompt, own in by_prompt.items() for i, text in own]
        nll = tree_nll(self.chat.lm, [pair for _, pair in replies], self._ends, max_scored=self._at_once)
        yield [i for i, _ in replies], nll

    def save(self, folder: Path, /) -> Sequence[str]:
        """Write the model in Hugging Face's format."""
        self.chat.save(folder)
        own = ("config.json", "model.safetensors")
        return sorted(file.name for file in folder.iterdir() if file.name not in own)


def end_tensor(chat: ChatFormat) -> torch.Tensor:
    """The tokens that end a turn, where logits are."""
    return torch.tensor(sorted(chat.end_tokens), dtype=torch.long, device=chat.lm.device)


def _groups(prompts: Sequence[tuple[int, ...]], limit: int | None) -> Iterator[Sequence[tuple[int, ...]]]:
    """Prompts that there is room for at once, in half of an engine's memory; all of them if it has no limit."""
    group: list[tuple[int, ...]] = []
    for prompt in prompts:
        tokens = sum(map(len, group)) + len(prompt)
        if limit is not None and group and (tokens > limit // 2 or len(group) == ROWS_OF_LIMITED):
            yield group
            group = []
        group.append(prompt)
    if group:
        yield group


def _batches(replies: Sequence[ScoredReply], tokens: int) -> Iterator[Sequence[ScoredReply]]:
    """Replies of similar length together, at most `tokens` with padding and ends: padding costs as much as text."""
    ordered = sorted(replies, key=lambda one: len(one[2]))
    first = 0
    for i, (_, _, reply) in enumerate(ordered):
        size = len(reply) + 1
        if i > first and (size * (i + 1 - first) > tokens or size > 2 + PADDING * len(ordered[first][2])):
            yield ordered[first:i]
            first = i
    yield ordered[first:]


def messages(view: DialogueView) -> list[dict[str, str]]:
    """A view as chat messages: personas as the system message, consecutive turns of one side as one message.

    The first message is the user's, empty if need be: many models' templates reject anything else.

    >>> chat = messages(DialogueView(("hi", "there?", "yes"), (False, False, True), ("I sail.",), ("I bake.",)))
    >>> chat[0]["content"], chat[1:] == messages(DialogueView(("hi", "there?", "yes"), (False, False, True)))
    ('I sail. About the other one: I bake.', True)
    >>> chat[1:]
    [{'role': 'user', 'content': 'hi\\nthere?'}, {'role': 'assistant', 'content': 'yes'}]
    """
    sentences = (*view.persona, *(("About the other one:", *view.partner) if view.partner else ()))
    chat = [{"role": "system", "content": " ".join(sentences)}] if sentences else []
    if not view.own or view.own[0]:
        chat.append({"role": "user", "content": ""})
    for own, turns in groupby(zip(view.own, view.turns, strict=True), key=lambda turn: turn[0]):
        chat.append({"role": "assistant" if own else "user", "content": "\n".join(text for _, text in turns)})
    return chat


def _as_partner(view: DialogueView) -> DialogueView:
    """The dialogue as the partner sees it, who does not know this side's persona."""
    return replace(view, own=tuple(not own for own in view.own), persona=view.partner, partner=())
