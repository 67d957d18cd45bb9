"""KV Profile Memory of Persona-Chat (Zhang et al. 2018, arXiv 1801.07243): a second hop, over what people answered.

Profile Memory makes q+ of a query. The training pairs are a memory besides: its keys are their histories, encoded with
the persona as q+ too, its values their replies. The query looks up the nearest keys, and their values, weighted by a
softmax of the cosines, are added: q++ = q+ + weight * sum s_j v_j. As in the paper nothing is learned for this hop:
it is added when the weights are done, and its three settings are chosen on validation data.

Keys and values are kept in half precision. Looking at every key is exact, needs nothing to be built, and takes a few
milliseconds for 130,000 of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.models.checkpoint import read_model
from tertulia.models.profile_memory import ProfileMemory, ProfileMemoryConfig
from tertulia.models.ranker import Pair, Queries, Query
from tertulia.models.vocabulary import Vocabulary

KEYS, VALUES = "memory-keys.npy", "memory-values.npy"
AT_ONCE = 64
"""Queries that look up keys side by side; more would only fill the memory with products."""


class Nearest(NamedTuple):
    """What queries found."""

    places: torch.Tensor  # (n, k), the nearest first
    cosines: torch.Tensor  # (n, k)


class Hop(NamedTuple):
    """How the memory is read."""

    breadth: int = 100
    """Memories that count, the nearest."""
    sharpness: float = 20.0
    """Factor of their cosines in the softmax."""
    weight: float = 0.5
    """Of what was read, beside the query; 0 turns the hop off."""

    def shares(self, found: Nearest) -> torch.Tensor:
        """How much each of the nearest counts: (n, breadth)."""
        return (found.cosines[:, : self.breadth] * self.sharpness).softmax(dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Histories and what was answered."""

    keys: torch.Tensor  # (m, d), single precision: what every query is multiplied with
    values: torch.Tensor  # (m, d), half precision: few of them are looked at

    @classmethod
    def of(cls, keys: NDArray[np.floating], values: NDArray[np.floating]) -> Self:
        """Rounded to half precision, as they are kept: a memory read back finds what it found before."""
        return cls(torch.from_numpy(keys.astype(np.float16)).float(), torch.from_numpy(values.astype(np.float16)))

    def nearest(self, vectors: torch.Tensor, breadth: int) -> Nearest:
        """The nearest keys of each vector (n, d); all where there are fewer."""
        cosines = vectors @ self.keys.T  # (n, m)
        found = cosines.topk(min(breadth, len(self.keys)), dim=1)
        return Nearest(found.indices, found.values)

    def read(self, found: Nearest, hop: Hop) -> torch.Tensor:
        """The values of the nearest keys, weighted: (n, d)."""
        return torch.einsum("nk,nkd->nd", hop.shares(found), self.values[found.places[:, : hop.breadth]].float())


class KVProfileMemory(ProfileMemory):
    """A second hop over what people answered in training."""

    def __init__(self, config: ProfileMemoryConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.hop = Hop()
        self.memory: Memory | None = None

    def remember(self, pairs: Sequence[Pair]) -> None:
        """Keep histories and replies; before this there is no second hop."""
        keys = self.first_hop([pair.query for pair in pairs]).numpy()
        self.memory = Memory.of(keys, self.replies([pair.reply for pair in pairs]))

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode queries: (n, d), of length 1; q++ where there is a memory."""
        parts = self.first_hop(queries).split(AT_ONCE)  # type: ignore[no-untyped-call]
        return Queries(torch.cat([self.second_hop(part) for part in parts]).numpy())

    def first_hop(self, queries: Sequence[Query]) -> torch.Tensor:
        """Queries with what they need of the persona, q+: (n, d)."""
        return torch.from_numpy(super().queries(queries).vectors)

    def second_hop(self, queries: torch.Tensor) -> torch.Tensor:
        """And with what was answered to the like of them, q++: (n, d)."""
        if self.memory is None or not self.hop.weight:
            return queries
        found = self.memory.nearest(queries, self.hop.breadth)
        return normalize(queries + self.hop.weight * self.memory.read(found, self.hop), dim=-1)

    def save(self, folder: Path, /) -> list[str]:
        """As Starspace, and the memory beside it."""
        files = super().save(folder)
        if self.memory is None:
            return files
        np.save(folder / KEYS, self.memory.keys.half().numpy(), allow_pickle=False)
        np.save(folder / VALUES, self.memory.values.numpy(), allow_pickle=False)
        return [*files, KEYS, VALUES]

    def describe(self) -> dict[str, Json]:
        """What is needed to build the module again."""
        return super().describe() | {"hop": self.hop._asdict(), "remembers": self.memory is not None}

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """What `save` wrote, ready to rank."""
        made, about = super().load(folder), read_model(folder)
        made.hop = Hop(**about["hop"])
        if about["remembers"]:
            made.memory = _read_memory(folder, made.config.dim)
        return made


def _read_memory(folder: Path, dim: int) -> Memory:
    try:
        keys, values = (np.load(folder / name, allow_pickle=False) for name in (KEYS, VALUES))
        if keys.shape != values.shape or keys.shape[1:] != (dim,):
            raise ValueError(f"keys {keys.shape}, values {values.shape}")
    except (OSError, ValueError) as error:
        raise DataError(
            f"The memory in {folder} is missing or damaged ({error}).", hint="Train it anew, or fetch a whole copy."
        ) from None
    return Memory.of(keys, values)
