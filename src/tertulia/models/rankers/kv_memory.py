"""KV Profile Memory of Persona-Chat (Zhang et al. 2018, arXiv 1801.07243): a second hop, over the training pairs.

Profile Memory turns a query into q+. The training pairs are a key-value memory: keys are their histories, encoded with
the persona like q+, values are their replies. The query finds the nearest keys, and their values, weighted by a softmax
of the cosines, are added: q++ = q+ + weight * sum s_j v_j. As in the paper this hop has no trained parameters: it is
added after training, and its three settings are chosen on validation data.

Keys and values are stored in half precision. Comparing with every key is exact, needs no index, and takes a few
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
from tertulia.models.rankers.base import Queries, Query, TrainingPair, as_array
from tertulia.models.rankers.profile_memory import ProfileMemory, ProfileMemoryConfig
from tertulia.models.rankers.vocabulary import Vocabulary

KEYS, VALUES = "memory-keys.npy", "memory-values.npy"
QUERIES_AT_ONCE = 64
"""Queries compared with all keys together; more would only fill the RAM with products."""


class NearestKeys(NamedTuple):
    """The keys nearest to each query."""

    indices: torch.Tensor  # (n, k), the nearest first
    cosines: torch.Tensor  # (n, k)


class Hop(NamedTuple):
    """How the memory is read."""

    breadth: int = 100
    """Number of nearest memories that count."""
    sharpness: float = 20.0
    """Factor of their cosines in the softmax."""
    weight: float = 0.5
    """Weight of what was read, relative to the query; 0 turns the hop off."""

    def attention(self, nearest: NearestKeys) -> torch.Tensor:
        """Attention to each of the nearest memories: (n, breadth)."""
        return (nearest.cosines[:, : self.breadth] * self.sharpness).softmax(dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class KeyValueMemory:
    """Histories and their replies."""

    keys: torch.Tensor  # (m, d), float32: multiplied with every query
    values: torch.Tensor  # (m, d), float16: few of them are read

    @classmethod
    def of(cls, keys: NDArray[np.floating], values: NDArray[np.floating], device: torch.device) -> Self:
        """Rounded to half precision as they are stored, so that a saved memory gives the same results."""
        half_keys, half_values = (torch.from_numpy(array.astype(np.float16)).to(device) for array in (keys, values))
        return cls(half_keys.float(), half_values)

    def to(self, device: torch.device) -> "KeyValueMemory":
        """The same memory on a device."""
        return KeyValueMemory(self.keys.to(device), self.values.to(device))

    def nearest(self, vectors: torch.Tensor, breadth: int) -> NearestKeys:
        """The nearest keys of each vector (n, d); all keys if there are fewer."""
        cosines = vectors @ self.keys.T  # (n, m)
        top = cosines.topk(min(breadth, len(self.keys)), dim=1)
        return NearestKeys(top.indices, top.values)

    def read(self, nearest: NearestKeys, hop: Hop) -> torch.Tensor:
        """The values of the nearest keys, weighted: (n, d)."""
        values = self.values[nearest.indices[:, : hop.breadth]].float()  # (n, k, d)
        return torch.einsum("nk,nkd->nd", hop.attention(nearest), values)


class KVProfileMemory(ProfileMemory):
    """Profile Memory with a second hop over the training pairs."""

    def __init__(self, config: ProfileMemoryConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.hop = Hop()
        self.memory: KeyValueMemory | None = None

    def store(self, pairs: Sequence[TrainingPair]) -> None:
        """Make these pairs the memory; without one there is no second hop."""
        keys = as_array(self.first_hop([pair.query for pair in pairs]))
        self.memory = KeyValueMemory.of(keys, self.replies([pair.reply for pair in pairs]), self.device)

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode queries: (n, d), of unit length; q++ if there is a memory."""
        parts = self.first_hop(queries).split(QUERIES_AT_ONCE)  # type: ignore[no-untyped-call]
        return Queries(as_array(torch.cat([self.second_hop(part) for part in parts])))

    def first_hop(self, queries: Sequence[Query]) -> torch.Tensor:
        """Queries with what they need of the persona, q+: (n, d)."""
        return torch.from_numpy(super().queries(queries).vectors).to(self.device)

    def second_hop(self, queries: torch.Tensor) -> torch.Tensor:
        """Queries with the replies to similar histories added, q++: (n, d)."""
        if self.memory is None or not self.hop.weight:
            return queries
        if self.memory.keys.device != queries.device:  # the module has been moved since
            self.memory = self.memory.to(queries.device)
        nearest = self.memory.nearest(queries, self.hop.breadth)
        return normalize(queries + self.hop.weight * self.memory.read(nearest, self.hop), dim=-1)

    def save(self, folder: Path, /) -> list[str]:
        """Save the model as Starspace does, and its memory."""
        files = super().save(folder)
        if self.memory is None:
            return files
        np.save(folder / KEYS, self.memory.keys.half().cpu().numpy(), allow_pickle=False)
        np.save(folder / VALUES, self.memory.values.cpu().numpy(), allow_pickle=False)
        return [*files, KEYS, VALUES]

    def describe(self) -> dict[str, Json]:
        """What is needed to build the module again."""
        return super().describe() | {"hop": self.hop._asdict(), "has_memory": self.memory is not None}

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load what `save` wrote."""
        model, about = super().load(folder), read_model(folder)
        model.hop = Hop(**about["hop"])
        if about["has_memory"]:
            model.memory = _read_memory(folder, model.config.dim)
        return model


def _read_memory(folder: Path, dim: int) -> KeyValueMemory:
    try:
        keys, values = (np.load(folder / name, allow_pickle=False) for name in (KEYS, VALUES))
        if keys.shape != values.shape or keys.shape[1:] != (dim,):
            raise ValueError(f"keys {keys.shape}, values {values.shape}")
    except (OSError, ValueError) as error:
        raise DataError(
            f"The memory in {folder} is missing or damaged ({error}).",
            hint="Train the model again, or copy the folder again.",
        ) from None
    return KeyValueMemory.of(keys, values, torch.device("cpu"))
