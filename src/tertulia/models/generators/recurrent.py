"""What the recurrent generators share: packed rows, target turns as rows of their own, and initialisation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tertulia.core.config import Config
from tertulia.models.embedding import TiedEmbedding
from tertulia.models.generator import Nll
from tertulia.models.generators.base import GeneratorModule
from tertulia.models.generators.segments import Segment
from tertulia.models.tokenizer import END, PAD, Tokenizer


class RecurrentConfig(Config):
    """Options of all recurrent generators."""

    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_length"}

    dim: int = Field(default=300, ge=1)
    """Size of the word embeddings."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Dropout on embeddings and hidden states."""
    vectors: Path | None = None
    """Pretrained word vectors to start from: GloVe's text format, or .npz with `words` and `vectors`."""


R = TypeVar("R", bound=RecurrentConfig)


class RecurrentGenerator(GeneratorModule[R]):
    """Tied embeddings, dropout, losses and initial weights."""

    embedding: TiedEmbedding

    def __init__(self, config: R, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.dropout = nn.Dropout(config.dropout)

    @torch.no_grad()
    def init_weights(self) -> None:
        """Orthogonal recurrent weights, Xavier elsewhere, embeddings of norm 1 or pretrained ones."""
        for module in self.modules():
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                init_recurrent_weights(module)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        if self.config.vectors is not None:
            self.embedding.load_vectors(self.tokenizer, self.config.vectors)

    def saved_config(self) -> R:
        """Without the path of the pretrained vectors, which are part of the weights by now."""
        return self.config.model_copy(update={"vectors": None})

    def _embed(self, ids: PackedSequence) -> PackedSequence:
        return replace_data(ids, self.dropout(self.embedding(ids.data)))

    def _losses(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.embedding.losses(self.dropout(states), targets)

    def _nll(self, losses: torch.Tensor, owners: torch.Tensor, views: int) -> Nll:
        """Sum token losses (n,) by the dialogue `owners` (n,) that each token belongs to."""
        return Nll(sum_by_owner(losses, owners, views), owners.bincount(minlength=views))

    def _zero_nll(self, views: int) -> Nll:
        """For dialogues without target turns."""
        return self._nll(self.embedding.bias[:0], self.indices([]), views)


class TargetBatch(NamedTuple):
    """All target turns of a batch of segments, one turn per row."""

    segment: torch.Tensor  # (r,): index of the turn's segment
    position: torch.Tensor  # (r,): where the turn starts in it
    inputs: PackedSequence  # of r rows: the speaker's special token and the words
    targets: PackedSequence  # of r rows: the words and END


def target_starts(segment: Segment) -> list[int]:
    """Positions at which target turns start, with their speaker's token, which is not predicted itself."""
    return [i for i in range(len(segment.ids) - 1) if segment.loss_mask[i + 1] and not segment.loss_mask[i]]


def target_batch(segments: Sequence[Segment], device: torch.device) -> TargetBatch:
    """Collect the target turns of all segments."""
    owners, positions, rows = [], [], []
    for i, segment in enumerate(segments):
        for start in target_starts(segment):
            owners.append(i)
            positions.append(start)
            rows.append(segment.ids[start : segment.ids.index(END, start) + 1])
    return TargetBatch(
        torch.tensor(owners, device=device),
        torch.tensor(positions, device=device),
        pack([row[:-1] for row in rows], device),
        pack([row[1:] for row in rows], device),
    )


def prefix_states(
    encoder: nn.LSTM, embedding: TiedEmbedding, dropout: nn.Module, rows: Sequence[Sequence[int]]
) -> torch.Tensor:
    """Encoder states after each prefix: none (zeros), the first token, and so on: (n, longest + 1, hidden).

    As the encoder reads forward only, the state at position t is the context of a turn that starts at t: a dialogue is
    encoded once, however many target turns it has. Rows may be empty.
    """
    states = embedding.bias.new_zeros(len(rows), max(map(len, rows)) + 1, encoder.hidden_size)
    filled = [i for i, row in enumerate(rows) if row]
    if filled:
        ids = pack([rows[i] for i in filled], states.device)
        packed = encoder(replace_data(ids, dropout(embedding(ids.data))))[0]
        padded, _ = pad_packed_sequence(packed, batch_first=True)  # (filled, longest, hidden)
        shifted = nn.functional.pad(padded, (0, 0, 1, 0))  # (filled, longest + 1, hidden): zeros come first
        states = states.index_put((torch.tensor(filled, device=states.device),), shifted)
    return states


def pack(rows: Sequence[Sequence[int]], device: torch.device) -> PackedSequence:
    """Rows of any lengths above 0, packed: recurrent networks then compute nothing for padding."""
    padded = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    lengths = torch.tensor([len(row) for row in rows], device="cpu")  # torch wants the lengths on the CPU
    return pack_padded_sequence(torch.from_numpy(padded).to(device), lengths, batch_first=True, enforce_sorted=False)


def replace_data(packed: PackedSequence, data: torch.Tensor) -> PackedSequence:
    """Other data at the same positions."""
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


def row_indices(packed: PackedSequence) -> torch.Tensor:
    """The row of each packed position: (positions,)."""
    assert packed.sorted_indices is not None
    return torch.cat([packed.sorted_indices[:size] for size in packed.batch_sizes.tolist()])


def sum_by_owner(values: torch.Tensor, owners: torch.Tensor, count: int) -> torch.Tensor:
    """Sums by owner: (n,) and (n,) -> (count,)."""
    return values.new_zeros(count).index_add(0, owners, values)


def init_recurrent_weights(module: nn.RNNBase | nn.RNNCellBase) -> None:
    """Orthogonal from state to state, so that states neither grow nor vanish; forget gates of LSTMs start open."""
    for name, weight in module.named_parameters():
        if "bias" in name:
            nn.init.zeros_(weight)
            if name.startswith("bias_ih") and isinstance(module, nn.LSTM | nn.LSTMCell):
                weight[module.hidden_size : 2 * module.hidden_size] = 1.0
            continue
        for gate in torch.split(weight, module.hidden_size):
            (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(gate)
