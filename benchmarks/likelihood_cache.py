"""Shared by the benchmarks: a language model whose likelihoods are kept in a file, so that a stopped run resumes."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from tertulia.models.text_likelihood import TextScorer

PROMPTS_AT_ONCE = 24
"""Prompts that are scored before their results are written."""
Key = tuple[tuple[str, ...], str]


class CachedScorer:
    """The resource "language_model" with its results in a file of JSON lines: prompt, text, log-probability, tokens."""

    def __init__(self, scorer: TextScorer, path: Path | None, *, bfloat16: bool = False) -> None:
        self.scorer, self.path = scorer, path
        self.scores: dict[Key, tuple[float, int]] = {}
        if bfloat16:
            scorer.model.model.to(torch.bfloat16)  # type: ignore[union-attr,operator]
        if path and path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                prompt, text, logprob, tokens = json.loads(line)
                self.scores[tuple(prompt), text] = (logprob, tokens)

    def log_likelihoods(
        self, prompts: Sequence[tuple[str, ...]], continuations: Sequence[str]
    ) -> list[tuple[float, int]]:
        """From the file where it has them."""
        turns = self.scorer.max_turns
        keys = [(tuple(prompt[-turns:]), text) for prompt, text in zip(prompts, continuations, strict=True)]
        new: dict[tuple[str, ...], list[str]] = {}
        for prompt, text in dict.fromkeys(keys):
            if (prompt, text) not in self.scores:
                new.setdefault(prompt, []).append(text)
        waiting = sorted(new)  # prompts that begin alike are read together
        for start in range(0, len(waiting), PROMPTS_AT_ONCE):
            self._score([(prompt, text) for prompt in waiting[start : start + PROMPTS_AT_ONCE] for text in new[prompt]])
        return [self.scores[key] for key in keys]

    def _score(self, keys: Sequence[Key]) -> None:
        computed = self.scorer.log_likelihoods([prompt for prompt, _ in keys], [text for _, text in keys])
        self.scores.update(zip(keys, map(tuple, computed), strict=True))
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps([*key, *self.scores[key]]) + "\n" for key in keys)
