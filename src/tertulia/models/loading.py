"""Load a trained generator from the folder of its training run.

Kept apart from the registry, which must not import torch: listing architectures is instantaneous that way.
"""

from pathlib import Path

import torch
from torch import nn

from tertulia.core.errors import UsageError
from tertulia.models.checkpoint import ModelManifest, read_manifest
from tertulia.models.generator import Generator
from tertulia.models.registry import GENERATORS


def load_generator(folder: Path, *, device: torch.device | str = "cpu") -> tuple[Generator, ModelManifest]:
    """The model of a finished run on a device, and the run's manifest."""
    manifest = read_manifest(folder)
    if manifest.model not in GENERATORS:
        raise UsageError(
            f"{folder} contains a model of the kind {manifest.model!r}, which is not generative.",
            hint=f"Generative models: {', '.join(GENERATORS)}.",
        )
    model: Generator = GENERATORS.get(manifest.model).load(folder)
    if isinstance(model, nn.Module):  # every registered architecture is one; the protocol does not say so
        model.to(device)
    return model, manifest
