"""Trained models in other people's formats: a fine-tuned run as a plain Hugging Face model.

Kept apart from the models, which need torch: the command line reads the config without it.
"""

from pathlib import Path
from typing import Annotated, NamedTuple

from tertulia.artefacts.manifest import is_complete, read_about
from tertulia.core.config import Cli, Config
from tertulia.core.errors import UsageError
from tertulia.models.registry import GENERATORS

FINETUNED = "finetune"


class ExportConfig(Config):
    """Which run, and where to."""

    run: Annotated[Path, Cli(argument=True)]
    """The folder of a training run of the recipe finetune."""
    merged: Path
    """Write a plain Hugging Face model (weights, config, tokenizer with chat template) into this new folder."""
    base: str = ""
    """Where the base is, if not where it was in training: a folder, or a name on the Hugging Face hub."""


class Export(NamedTuple):
    """What was written."""

    folder: Path
    files: list[str]
    size: int
    """Bytes."""


def export_run(config: ExportConfig) -> Export:
    """Merge the trained weights of a run into its base, and write the result."""
    if not is_complete(config.run):
        raise UsageError(
            f"{config.run} is not the folder of a finished training run.",
            hint="Train one with `tertulia train configs/sample-finetune.toml --out RUN`.",
        )
    model = read_about(config.run).get("model")
    if model != FINETUNED:
        raise UsageError(
            f"{config.run} contains a model of the kind {model!r}, which Hugging Face's library does not have.",
            hint=f"Only runs of the recipe {FINETUNED} can be exported.",
        )
    if config.merged.exists() and (not config.merged.is_dir() or any(config.merged.iterdir())):
        raise UsageError(f"{config.merged} exists and is not empty.", hint="Choose another folder.")
    files = GENERATORS.get(FINETUNED).load(config.run, base=config.base).export(config.merged)
    return Export(config.merged, files, sum((config.merged / name).stat().st_size for name in files))
