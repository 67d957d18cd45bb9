"""Low-rank adapters (LoRA, Hu et al. 2022) in a causal language model, by the library peft; or full fine-tuning.

Beside a frozen matrix W two small ones are trained: W x + (alpha / rank) B A x. A starts at random and B at zero, so
the untrained adapter changes nothing. The adapters are injected into the model itself, so that everything that works
with the model works with adapters, too; merged, they leave a plain model behind that is as fast as the base.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from pydantic import Field
from torch import nn
from transformers.pytorch_utils import Conv1D

from tertulia.core.config import Config
from tertulia.core.errors import UsageError

_INDEX = re.compile(r"\.(\d+)\.")


class TuningConfig(Config):
    """What is trained, and how long a dialogue may be."""

    tune: Literal["lora", "full"] = "lora"
    """Train low-rank adapters (lora), or the weights themselves (full), which takes longer, and memory and disk for all
    of them."""
    rank: int = Field(default=16, ge=1)
    """Rank of the adapters: their size grows with it."""
    alpha: float = Field(default=32.0, gt=0)
    """Adapters are scaled by alpha / rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout before the adapters."""
    layers: tuple[str, ...] = ()
    """Names of the layers that get adapters, such as q_proj or mlp.down_proj; by default all linear layers but the one
    that gives the logits."""
    frozen_layers: int = Field(default=0, ge=0)
    """The first blocks of the model that are not trained; with full tuning, not the embeddings either."""
    format: Literal["auto", "plain"] = "auto"
    """How dialogues are laid out: by the base's chat template, in plain text if it has none (auto), or always in plain
    text, which is shorter, and closer to what a model was pretrained on."""
    max_length: int = Field(default=512, ge=16)
    """Longest stream in tokens; a longer dialogue becomes several, each with the personas in front."""
    evidence_words: int = Field(default=150, ge=0)
    """Most words of evidence that the model is shown; 0 for none."""


def prepare(model: nn.Module, config: TuningConfig) -> None:
    """Add adapters to a model, or none, and let only what is to be trained require gradients."""
    model.requires_grad_(False)
    if config.tune == "lora":
        _add_adapters(model, config)
        return
    embeddings = model.get_input_embeddings()  # type: ignore[operator]
    shared = {id(parameter) for parameter in embeddings.parameters()} if config.frozen_layers else set()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_is_trained(name, config) and id(parameter) not in shared)


def merge(model: nn.Module) -> None:
    """Add all adapters to their matrices and remove them."""
    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, module.get_base_layer())
    if hasattr(model, "peft_config"):
        del model.peft_config


def linear_layers(model: Any) -> list[str]:
    """The names of all linear layers but the last."""
    last = model.get_output_embeddings()
    modules = model.named_modules()
    return [name for name, module in modules if isinstance(module, nn.Linear | Conv1D) and module is not last]


def _add_adapters(model: Any, config: TuningConfig) -> None:
    linear = linear_layers(model)
    targets = [name for name in linear if _is_trained(name, config) and _is_named(name, config.layers)]
    for wanted in config.layers:
        if not any(_is_named(name, (wanted,)) for name in linear):
            known = sorted({name.rpartition(".")[2] for name in linear})
            raise UsageError(f"The base has no linear layer {wanted!r}.", hint=f"It has: {', '.join(known)}.")
    if not targets:
        raise UsageError("No layer is left to get an adapter.", hint="Lower frozen_layers, or name other layers.")
    adapters = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]  # any number works
        lora_dropout=config.dropout,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(model.get_submodule(name), Conv1D) for name in targets),
    )
    inject_adapter_in_model(adapters, model)


def _is_trained(name: str, config: TuningConfig) -> bool:
    """Whether a parameter or layer is in a block that is trained, or in none."""
    index = _INDEX.search(name)
    return index is None or int(index[1]) >= config.frozen_layers


def _is_named(name: str, wanted: Sequence[str]) -> bool:
    """Whether a layer has one of these names, by its last parts; no names stand for all.

    >>> _is_named("model.layers.3.mlp.up_proj", ["mlp.up_proj"]), _is_named("model.layers.3.mlp.up_proj", ["proj"])
    (True, False)
    """
    return not wanted or any(f".{name}".endswith(f".{one}") for one in wanted)
