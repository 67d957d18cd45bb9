"""Fine-tuned runs for others: as a plain Hugging Face model, or as an adapter at half precision.

Kept apart from the models, which need torch: the command line reads the config without it.
"""

from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import model_validator

from tertulia.artefacts.manifest import MANIFEST, is_complete, read_about
from tertulia.artefacts.outputs import Output
from tertulia.core.config import Cli, Config, InvalidKey
from tertulia.core.errors import UsageError
from tertulia.models.registry import GENERATORS

FINETUNED = "finetune"


class ExportConfig(Config):
    """Which run, and where to."""

    run: Annotated[Path, Cli(argument=True)]
    """The folder of a training run of the recipe finetune."""
    merged: Annotated[Path | None, Output("folder")] = None
    """Write a plain Hugging Face model (weights, config, tokenizer with chat template) into this new folder."""
    adapter: Annotated[Path | None, Output("folder")] = None
    """Write the trained weights alone, at half precision, into this new folder; it is a run's folder like the first."""
    base: str = ""
    """Where the base is, if not where it was in training: a folder, or a name on the Hugging Face hub."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.merged is None) == (self.adapter is None):
            raise InvalidKey("give either --merged FOLDER or --adapter FOLDER", ("merged",))
        return self


class Export(NamedTuple):
    """What was written."""

    folder: Path
    files: list[str]
    size: int
    """Bytes."""


def export_run(config: ExportConfig) -> Export:
    """Write the trained weights of a run: merged into its base, or alone at half precision."""
    if not is_complete(config.run):
        raise UsageError(
            f"{config.run} is not the folder of a finished training run.",
            hint="Train one with `tertulia train configs/sample-finetune.toml --out RUN`.",
        )
    model = read_about(config.run).get("model")
    if model != FINETUNED:
        content = f"contains a model of the kind {model!r}, which Hugging Face's library does not have"
        raise UsageError(
            f"{config.run} {content if model else 'contains no model'}.",
            hint=f"Only runs of the recipe {FINETUNED} can be exported.",
        )
    folder = config.merged or config.adapter
    assert folder is not None  # validated
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty.", hint="Choose another folder.")
    if config.merged:
        files = GENERATORS.get(FINETUNED).load(config.run, base=config.base).export(folder)
    else:
        from tertulia.models.checkpoint import save_half  # imports torch, which the command's help does not need

        files = sorted([*save_half(config.run, folder).files, MANIFEST])
    return Export(folder, files, sum((folder / name).stat().st_size for name in files))
