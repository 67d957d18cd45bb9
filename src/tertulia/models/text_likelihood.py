"""The likelihood of given texts under a generator: of each text as the next turn after a prompt of turns.

Metrics score many continuations of the same context (follow-ups of a reply), and several metrics ask for the same
ones. So what prompts and continuations have in common at the beginning is read once (`hf.token_tree`; for models that
cannot do so, prompts of similar length share a batch), and every result is remembered, on disk too if a folder is given
(`remember_in`). The speakers take turns, and the model speaks for whoever says the continuation.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from tertulia.models.generator import DialogueView, Generator, Nll, eval_mode
from tertulia.models.hf.generator import ChatGenerator, HuggingFaceGenerator
from tertulia.models.likelihood import log_likelihoods
from tertulia.models.likelihood_cache import LikelihoodCache

MAX_TURNS = 6
"""Turns of a prompt that the model reads, the last ones: what is further back changes little and costs time."""
BATCH_TOKENS = 2048
"""Tokens encoded together: prompts, padding included, and continuations."""
PROMPTS_AT_ONCE = 128
"""Prompts whose results are computed, and remembered, together if common beginnings are read once."""
MAX_TOKENS = 1024
"""Tokens of a continuation that is scored. A longer one is no turn of a conversation, and its time grows squared."""
TOO_LONG = float("nan"), 0


class LogLikelihood(NamedTuple):
    """How probable a text is."""

    logprob: float
    """Natural logarithm of its probability, the end of the turn included."""
    tokens: int
    """Its tokens, the end of the turn included if the model has one."""


class TextScorer:
    """A generator that scores given texts; the resource "language_model" of metrics."""

    def __init__(self, model: Generator, *, name: str = "", max_turns: int = MAX_TURNS) -> None:
        self.model, self.name, self.max_turns = model, name, max_turns
        self._scores: dict[tuple[tuple[str, ...], str], LogLikelihood] = {}
        self._cache: LikelihoodCache | None = None

    def remember_in(self, folder: Path) -> None:
        """Keep results in a folder, by the content of model, prompt and text; later runs need not compute them."""
        self._cache = LikelihoodCache(folder / f"{_digest_of(self.model)}.bin")

    def log_likelihoods(self, prompts: Sequence[tuple[str, ...]], continuations: Sequence[str]) -> list[LogLikelihood]:
        """The likelihood of each continuation as the next turn after the turns of its prompt, in order.

        A continuation that does not fit into the model's window, or has more than `MAX_TOKENS`, has none: nan.
        """
        pairs = [(tuple(prompt[-self.max_turns :]), text) for prompt, text in zip(prompts, continuations, strict=True)]
        new: dict[tuple[str, ...], list[str]] = {}
        for prompt, text in dict.fromkeys(pairs):
            if (prompt, text) in self._scores:
                continue
            if self._cache is not None and (known := self._cache.get((prompt, text))):
                self._scores[prompt, text] = LogLikelihood(*known)
            elif self._fits(text):
                new.setdefault(prompt, []).append(text)
            else:
                self._scores[prompt, text] = LogLikelihood(*TOO_LONG)
        with eval_mode(self.model):
            for group in self._batches(new):
                scored = [(prompt, text) for prompt in group for text in new[prompt]]
                results = dict(zip(scored, self._score(scored), strict=True))
                self._scores |= results
                if self._cache is not None:
                    self._cache.add(results)
        return [self._scores[pair] for pair in pairs]

    def _fits(self, text: str) -> bool:
        limit = MAX_TOKENS
        if isinstance(self.model, ChatGenerator):
            limit = min(limit, self.model.chat.max_reply_tokens(0) - 1)
        return len(self.model.tokenizer.encode(text)) < limit

    def _reads_beginnings_once(self) -> bool:
        """Whether the model itself finds out what the prompts have in common, and bounds its batches."""
        return isinstance(self.model, HuggingFaceGenerator) and self.model.chat.lm.capabilities.shared_prefix

    def _batches(self, new: dict[tuple[str, ...], list[str]]) -> list[list[tuple[str, ...]]]:
        """Prompts of similar length together, or those that begin alike, if the model reads beginnings once."""
        if self._reads_beginnings_once():
            prompts = sorted(new)
            return [prompts[i : i + PROMPTS_AT_ONCE] for i in range(0, len(prompts), PROMPTS_AT_ONCE)]
        encode = self.model.tokenizer.encode
        lengths = {prompt: sum(len(encode(text)) + 2 for text in prompt) for prompt in new}
        batches: list[list[tuple[str, ...]]] = []
        batch: list[tuple[str, ...]] = []
        behind = 0  # tokens of the batch's continuations
        for prompt in sorted(new, key=lengths.__getitem__):
            own = sum(len(encode(text)) + 1 for text in new[prompt])
            if batch and lengths[prompt] * (len(batch) + 1) + behind + own > BATCH_TOKENS:
                batches.append(batch)
                batch, behind = [], 0
            batch.append(prompt)
            behind += own
        return [*batches, batch] if batch else batches

    @torch.inference_mode()
    def _score(self, pairs: Sequence[tuple[tuple[str, ...], str]]) -> list[LogLikelihood]:
        views = [view_before(prompt).with_turn(text) for prompt, text in pairs]
        if isinstance(self.model, ChatGenerator):
            nll: Nll = self.model.nll(views, target_turns="last")
            return [LogLikelihood(-n, t) for n, t in zip(nll.total.tolist(), nll.tokens.tolist(), strict=True)]
        sums = log_likelihoods(self.model, views, score="sum")
        counts = [len(self.model.tokenizer.encode(text)) + 1 for _, text in pairs]
        return [LogLikelihood(*pair) for pair in zip(sums, counts, strict=True)]


def _digest_of(model: Generator) -> str:
    """What tells apart models that may score differently: weights, their type, and the layout of a conversation."""
    assert isinstance(model, torch.nn.Module)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
    if isinstance(model, HuggingFaceGenerator):
        digest.update(str(model.chat.tokenizer.chat_template).encode())
    return digest.hexdigest()[:32]


def view_before(turns: Sequence[str]) -> DialogueView:
    """The turns as whoever speaks next sees them: the last turn is the other one's, and the speakers alternate.

    >>> view_before(("Hi!", "Hello.", "Tea?")).own
    (False, True, False)
    """
    return DialogueView(tuple(turns), tuple((len(turns) - i) % 2 == 0 for i in range(len(turns))))
