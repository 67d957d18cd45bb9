"""What all our generators share: how they are built, saved and loaded, and on which device they are."""

from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

import torch
from torch import nn

from tertulia.core.config import Config, validate
from tertulia.core.errors import DataError
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.tokenizer import Tokenizer, load_tokenizer

C = TypeVar("C", bound=Config)


class GeneratorModule(nn.Module, Generic[C]):
    """A torch module with a config and a tokenizer; subclasses make it a `Generator`."""

    config_type: type[C]
    layout: ClassVar[int] = 1
    """Raised whenever the architecture changes so that earlier weights no longer fit."""

    def __init__(self, config: C, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.config, self.tokenizer = config, tokenizer

    def init_weights(self) -> None:
        """Set all weights to where training starts, from torch's global random generator."""
        raise NotImplementedError

    @classmethod
    def untrained(cls, config: C, tokenizer: Tokenizer) -> Self:
        """A model with initial weights."""
        model = cls(config, tokenizer)
        model.init_weights()
        return model

    @property
    def device(self) -> torch.device:
        """Where the weights are; every tensor the model creates is created there."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return next(self.parameters()).dtype

    def saved_config(self) -> C:
        """The config to rebuild the module from."""
        return self.config

    def save(self, folder: Path, /) -> list[str]:
        """Save weights, config and tokenizer; returns the tokenizer's file name."""
        about = {"config": self.saved_config().model_dump(mode="json"), "layout": self.layout}
        save_weights(folder, self, about)
        return [self.tokenizer.save(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load what `save` wrote."""
        about = read_model(folder)
        if about.get("layout", 1) != cls.layout:
            raise DataError(
                f"The {cls.__name__} in {folder} is of another version of Tertulia, in which the architecture was"
                " different: its weights do not fit.",
                hint="Train the model again, or use the version that trained it.",
            )
        config = validate(cls.config_type, about["config"], where=str(folder))
        model = cls(config, load_tokenizer(folder))
        load_weights(folder, model)
        return model.eval()

    def indices(self, values: list[int]) -> torch.Tensor:
        """Integers as a tensor on the model's device; also correct for an empty list."""
        return torch.tensor(values, dtype=torch.long, device=self.device)


def full_precision(x: torch.Tensor) -> torch.Tensor:
    """At least float32: what autocast computed in half precision is converted, float64 stays."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
