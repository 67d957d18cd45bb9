"""Which engine computes the logits of a bot's model: torch, the reference, or llama.cpp, which is faster on a CPU.

Everything else is the same code for both: prompts, decoding, filters, scores. What llama.cpp cannot serve is an error
with `engine=llamacpp`, and left to torch with `auto`. The provenance of each reply says which engine it was.
"""

import logging
import os
from typing import Literal

import torch

from tertulia.core.dialogue import Json
from tertulia.core.errors import MissingExtra, UsageError
from tertulia.models.device import resolve_device
from tertulia.models.llamacpp.generator import EngineConfig, LlamaCppGenerator
from tertulia.models.llamacpp.library import UnusableLibrary, load_library
from tertulia.talk.bots.huggingface import HuggingFaceOptions

log = logging.getLogger(__name__)


class EngineOptions(HuggingFaceOptions):
    """How it decodes, and what computes."""

    engine: Literal["auto", "torch", "llamacpp"] = "auto"
    """What computes: `torch` (the reference), `llamacpp` (llama.cpp, faster on a CPU; the extra `fast`), or `auto` for
    llama.cpp where it is installed and can serve the model."""


def use_llamacpp(options: EngineOptions, *, obstacle: str = "") -> bool:
    """Whether llama.cpp computes. If it has to and cannot, for an `obstacle` of the caller's too, that is an error."""
    if options.engine == "torch":
        return False
    obstacle = obstacle or _obstacle(options)
    try:
        load_library()
    except MissingExtra:
        if options.engine == "llamacpp":
            raise
        return False
    except UnusableLibrary as error:
        if options.engine == "llamacpp":
            raise
        log.warning("torch is used instead of llama.cpp: %s", error.message)
        return False
    if obstacle and options.engine == "llamacpp":
        raise UsageError(f"llama.cpp cannot serve this: {obstacle}.", hint="Use engine=torch, or engine=auto.")
    return not obstacle


def _obstacle(options: EngineOptions) -> str:
    """Why llama.cpp cannot compute as the options want; empty if it can."""
    device, decoding = resolve_device(options.device), options.decoding()
    if device.type != "cpu":
        return f"the device is {device}, and the engine llama.cpp computes on the CPU"
    rows, limit = decoding.rows, LlamaCppGenerator.max_rows
    if rows > limit or rows * decoding.max_tokens > LlamaCppGenerator.max_tokens:
        return (
            f"{rows} samples or beams of {decoding.max_tokens} tokens are more than it has room for"
            f" ({limit}, and {LlamaCppGenerator.max_tokens} tokens in all)"
        )
    return ""


def engine_config(options: EngineOptions) -> EngineConfig:
    """The options as llama.cpp needs them; 0 threads are half the cores, as for torch."""
    threads = options.threads or max(1, (os.cpu_count() or 2) // 2)
    return EngineConfig(threads, options.prefix_cache_mb * 2**20)


def torch_provenance(sha256: str = "") -> dict[str, Json]:
    """Engine, version and, where they come from one file, the digest of the weights."""
    weights: dict[str, Json] = {"weights_sha256": sha256} if sha256 else {}
    return {"engine": "torch", "engine_version": f"torch {torch.__version__}", **weights}
