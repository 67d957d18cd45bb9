"""Configs of the commands that read a corpus: show, and the base of the others."""

from typing import Annotated, Literal

from pydantic import Field

from tertulia.core.config import Cli, Config

SamplePart = Literal["personas", "dialogues", "threads", "room", "benchmark", "grounded"]


class ReadConfig(Config):
    """What to read, and how strictly."""

    target: Annotated[str, Cli(argument=True)] = "sample"
    """A file or folder of dialogues or exchanges, or `sample` for the bundled corpus."""
    split: str | None = None
    """Read only this split: of the sample by name, of a folder the files whose names begin with it."""
    format: str | None = None
    """Format of the corpus (see `tertulia corpus list`); detected by default."""
    strict: bool = False
    """Stop at the first damaged line instead of skipping and counting damaged lines."""


class ShowConfig(ReadConfig):
    """What to show."""

    part: SamplePart | None = None
    """Part of the sample to show; by default a little of each."""
    limit: Annotated[int, Cli("--limit -n")] = Field(default=3, ge=1)
    """How many dialogues or exchanges (or items of a part) to show."""
    skip: int = Field(default=0, ge=0)
    """How many to skip first."""
