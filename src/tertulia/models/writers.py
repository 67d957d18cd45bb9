"""The table of models that write, by the name that a run's manifest has under "model"; loading them, asking them.

A row points at the model's class, which has `load(folder)`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch

from tertulia.core.registry import Registry
from tertulia.models.checkpoint import Manifest, read_manifest
from tertulia.models.generator import Generator, Talk

WRITERS = Registry("model that writes", "tertulia.writers")

WRITERS.add("seq2seq", "tertulia.models.seq2seq:Seq2Seq", "an LSTM, with or without an encoder (Persona-Chat)")
WRITERS.add(
    "profile-memory-writer",
    "tertulia.models.profile_memory_writer:GenerativeProfileMemory",
    "attends to the persona's sentences as it writes (Persona-Chat)",
)
WRITERS.add("hred", "tertulia.models.hred:HRED", "utterances, and the conversation over them")
WRITERS.add("vhred", "tertulia.models.vhred:VHRED", "HRED that imagines each utterance before it writes it")
WRITERS.add("vhcr", "tertulia.models.vhcr:VHCR", "VHRED with an idea of the whole conversation above")
WRITERS.add("transformer", "tertulia.models.transformer:Transformer", "the vanilla Transformer, Meena's baseline")
WRITERS.add("evolved", "tertulia.models.evolved_transformer:EvolvedTransformer", "the Evolved Transformer (Meena)")

AT_ONCE = 64
"""Talks whose likelihood is asked for at once."""


def load_writer(folder: Path) -> tuple[Generator, Manifest]:
    """The model of a whole folder, and what the folder says of itself."""
    manifest = read_manifest(folder)
    model: Generator = WRITERS.get(manifest.model).load(folder)
    return model, manifest


@torch.inference_mode()
def log_likelihoods(model: Generator, talks: Sequence[Talk], *, score: Literal["mean", "sum"] = "mean") -> list[float]:
    """How probable the last turn of each talk is, given all before it: log P of a token, or of the whole turn.

    Talks of like length go together. Latent variables are taken at their means: the same talk has the same value in any
    batch (for such models it is a bound's estimate, not the likelihood itself).
    """
    order = sorted(range(len(talks)), key=lambda i: sum(map(len, talks[i].texts)))
    found = [0.0] * len(talks)
    with _at_means(model):
        for start in range(0, len(order), AT_ONCE):
            part = order[start : start + AT_ONCE]
            nll = model.nll([talks[i] for i in part], scored="last")
            values = -nll.total.double() / (nll.tokens.clamp(min=1) if score == "mean" else 1)
            for i, value in zip(part, values.tolist(), strict=True):
                found[i] = value
    return found


@contextmanager
def _at_means(model: Generator) -> Iterator[None]:
    if not getattr(model, "draws", False):
        yield
        return
    model.draws = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        model.draws = True  # type: ignore[attr-defined]
