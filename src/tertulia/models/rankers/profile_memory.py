"""Profile Memory of Persona-Chat (Zhang et al. 2018, arXiv 1801.07243): Starspace that attends to the persona.

The query attends to the persona sentences p_i: s_i = softmax(sim(q, p_i)), q+ = q + sum s_i p_i.

In the paper q itself attends. But what a reply should be similar to is not what a sentence should be similar to: q
contains the speaker's own turns, and attends to the very sentences that have already been used. Here a second mixture
of the same turns attends, with weights and matrices of its own. Trained, it gives the partner's last turn a large
weight and all of the speaker's own turns negative ones, back to the start of the dialogue: say what you have not said
yet. The similarity is a dot product, not a cosine, so that sentences of rare words get more attention. On Persona-Chat
the two changes gain five points of hits@1 (docs/benchmarks.md); with q and cosines the model is a point below
Starspace's sum.

With more than one hop, what was read is added to what attends next.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from tertulia.models.rankers.starspace import EncodedTexts, Starspace, StarspaceConfig, mix_turns
from tertulia.models.rankers.vocabulary import Vocabulary


class ProfileMemoryConfig(StarspaceConfig):
    """Sizes and shape."""

    turns: int = Field(default=14, ge=1)
    """Turns of context that are read, the last ones; enough to see which persona sentences have been said."""
    hops: int = Field(default=1, ge=1)
    """Times the persona is read."""


class ProfileMemory(Starspace):
    """Attends to persona sentences."""

    config_type: ClassVar[type[StarspaceConfig]] = ProfileMemoryConfig
    config: ProfileMemoryConfig

    def __init__(self, config: ProfileMemoryConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.attention_turns = nn.Parameter(torch.zeros(config.turns))
        self.attention_sides = nn.Parameter(torch.eye(config.dim).repeat(2, 1, 1))
        with torch.no_grad():
            self.attention_turns[0] = 1.0
            self.persona_weight.fill_(2.0)

    def attention(self, attending: torch.Tensor, texts: EncodedTexts) -> torch.Tensor:
        """Attention of vectors (n, d) to the persona sentences: (n, sentences), all 0 for queries without any."""
        similarity = torch.einsum("nd,nkd->nk", attending, texts.persona).masked_fill(~texts.mask, -1e4)
        return similarity.softmax(dim=1) * texts.mask

    def with_persona(self, query: torch.Tensor, texts: EncodedTexts) -> torch.Tensor:
        """Add what the query (n, d) needs of the persona: q+."""
        attending = mix_turns(texts, self.attention_turns, self.attention_sides)
        for _ in range(self.config.hops):
            read = torch.einsum("nk,nkd->nd", self.attention(attending, texts), texts.persona)
            query, attending = query + self.persona_weight * read, attending + read
        return query
