"""The tagger `perplexity`: language models are loaded as for metrics of replies, so it lives with the judges."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from tertulia.core.config import Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.corpus.derived import turns_of
from tertulia.corpus.readers.base import Item
from tertulia.corpus.taggers import TagInfo
from tertulia.judge.reply_resources import language_model


class PerplexityTagger(Config):
    """How surprising the replies are to a language model, given what was said before."""

    model: str = ""
    """smollm2, hf:NAME_OR_FOLDER (with %3A for the colon), or the folder of a generative run."""
    tags: ClassVar[Mapping[str, TagInfo]] = {
        "perplexity": TagInfo("double", "per token, of all turns but the first; none if there are none")
    }

    def __call__(self, items: Sequence[Item], /) -> list[dict[str, Json]]:
        """The perplexity of each item."""
        if not self.model:
            raise UsageError(
                "The tagger perplexity needs a language model.", hint="For example: --tagger perplexity:model=smollm2"
            )
        texts = [[turn.text for turn in turns_of(item)] for item in items]
        prompts = [tuple(own[:i]) for own in texts for i in range(1, len(own))]
        replies = [text for own in texts for text in own[1:]]
        scored = iter(_language_model(self.model).log_likelihoods(prompts, replies))
        tags: list[dict[str, Json]] = []
        for own in texts:
            likelihoods = [likelihood for likelihood in (next(scored) for _ in own[1:]) if likelihood.tokens]
            total = sum(likelihood.tokens for likelihood in likelihoods)
            nats = -sum(likelihood.logprob for likelihood in likelihoods)
            tags.append({"perplexity": round(math.exp(min(nats / total, 50.0)), 3) if total else None})
        return tags


@lru_cache(maxsize=1)
def _language_model(spec: str) -> Any:
    return language_model(spec)
