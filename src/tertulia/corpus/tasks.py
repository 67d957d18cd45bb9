"""Configs of the small corpus commands: show, stats, convert."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from tertulia.core.config import Config

SamplePart = Literal["personas", "dialogues", "threads", "room", "benchmark", "grounded"]


class ReadConfig(Config):
    """What is read, and how strictly."""

    target: str = "sample"
    """A file or folder of dialogues, or `sample` for the bundled corpus."""
    split: str | None = None
    """Only this split: of the sample by name, of a folder the files whose names begin with it."""
    format: str | None = None
    """The format of the lines; recognised by the first record when not given."""
    strict: bool = False
    """Refuse damaged lines instead of skipping and counting them."""


class ShowConfig(ReadConfig):
    """What is shown."""

    part: SamplePart | None = None
    """Of the sample: personas, dialogues, threads, room, benchmark or grounded; a taste of each by default."""
    limit: int = Field(3, ge=1)
    """How many dialogues (or items of a part) to show."""
    skip: int = Field(0, ge=0)
    """How many to pass over first."""


class ConvertConfig(ReadConfig):
    """What becomes of it."""

    out: Path
    """File to write: .jsonl, .jsonl.gz or .parquet."""
    to: str = "tertulia"
    """Format to write."""
