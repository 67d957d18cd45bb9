"""How conversations become prompts, for any engine that computes a language model's logits.

There are three conventions. A tokenizer with a chat template says it itself. A causal model without one is taken to be
like DialoGPT: the turns, each followed by the end token. A model with an encoder (seq2seq) is taken to be like
BlenderBot: the turns in one line, joined by what its tokenizer uses, with the sentences of the persona in front.

`generator.ChatGenerator` makes a chat a `Generator`, which is how it generates and scores replies.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from tertulia.core.errors import BotError


@runtime_checkable
class TokenState(Protocol):
    """Rows of tokens that an engine has read; a `models.generator.State` that can be extended by tokens."""

    @property
    def logits(self) -> torch.Tensor:
        """(rows, vocabulary): of the next token."""
        ...

    def select(self, rows: torch.Tensor, /) -> "TokenState":
        """Only these rows, in this order; a row may appear several times."""
        ...

    def extend(self, tokens: torch.Tensor) -> "tuple[torch.Tensor, TokenState]":
        """Append tokens (rows, n); the logits after each of them (rows, n, vocabulary), and the new state."""
        ...


class TokenModel(Protocol):
    """What computes logits: a transformers model (`state.LanguageModel`), or llama.cpp."""

    seq2seq: bool
    pad: int
    decoder_prefix: Sequence[int]
    max_tokens: int | None
    """For how many tokens there is room at once, if there is a limit."""

    @property
    def vocabulary(self) -> int:
        """The number of logits."""
        ...

    @property
    def device(self) -> torch.device:
        """Where logits are."""
        ...

    def encode(self, prompts: Sequence[Sequence[int]], *, reuse: bool = False) -> TokenState:
        """One row for each prompt; the next token is the first of the reply. With `reuse`, these are prompts of
        conversations: what was computed for them may be kept for their next turns."""
        ...

    def logits_before(
        self, sequences: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]
    ) -> list[torch.Tensor]:
        """What a causal model predicts at some positions of each sequence, none of them the first."""
        ...


class ChatFormat:
    """A tokenizer, a window and end tokens, with the engine that computes logits."""

    def __init__(
        self,
        tokenizer: Any,
        lm: TokenModel,
        *,
        name: str,
        window: int,
        end_tokens: set[int],
        separator: str | None = None,
    ) -> None:
        self.tokenizer, self.lm, self.name, self.window, self.end_tokens = tokenizer, lm, name, window, end_tokens
        self._separator = separator
        """Between the turns that an encoder reads; the end token if it is None."""

    @property
    def seq2seq(self) -> bool:
        """Whether an encoder reads the conversation."""
        return self.lm.seq2seq

    def max_prompt_tokens(self, reply_tokens: int) -> int:
        """How long a prompt may be if the reply has up to `reply_tokens`: a causal model's window holds both."""
        return self.window if self.seq2seq else max(self.window - reply_tokens, self.window // 2)

    def max_reply_tokens(self, prompt_tokens: int) -> int:
        """How many tokens can be generated after a prompt of `prompt_tokens`."""
        return max(1, self.window - (len(self.lm.decoder_prefix) if self.seq2seq else prompt_tokens))

    def prompt(
        self, messages: Sequence[Mapping[str, str]], *, persona: Sequence[str] = (), partner: Sequence[str] = ()
    ) -> list[int]:
        """The conversation as tokens, up to where the reply begins; see the module for the conventions.

        A template finds personas in the system turn. `persona` and `partner` are for models that have no such turn.
        """
        if self.tokenizer.chat_template:
            try:
                text = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
            except Exception as error:  # a template is a program, and may raise anything
                raise BotError(f"The chat template of {self.name} rejects this conversation: {error}.") from error
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) or [self.lm.pad]
        turns = [m["content"] for m in messages if m["role"] != "system" and m["content"]]
        end = self.tokenizer.eos_token or "\n"
        if self.seq2seq:
            separator = end if self._separator is None else self._separator
            sentences = [*(f"your persona: {s}" for s in persona), *(f"partner's persona: {s}" for s in partner)]
            return list(self.tokenizer(separator.join([*sentences, *turns]))["input_ids"])
        return list(self.tokenizer("".join(text + end for text in turns or [""]))["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text, special tokens left out."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def add_end_token(self, token: int) -> None:
        """From now on this token ends a turn, too."""
        self.end_tokens.add(token)
