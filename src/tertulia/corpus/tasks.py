"""Configs of the small corpus commands: get, show, stats, convert."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from tertulia.core.config import Config

SamplePart = Literal["personas", "dialogues", "threads", "room", "benchmark", "grounded"]


class ReadConfig(Config):
    """What is read, and how strictly."""

    target: str = "sample"
    """A file or folder of dialogues or exchanges, or `sample` for the bundled corpus."""
    split: str | None = None
    """Only this split: of the sample by name, of a folder the files whose names begin with it."""
    format: str | None = None
    """The format it is in (see `tertulia corpus list`); recognised by its beginning when not given."""
    strict: bool = False
    """Refuse damaged lines instead of skipping and counting them."""


class GetConfig(Config):
    """What is brought home, and where to."""

    name: str
    """Name of the corpus, as `tertulia corpus list` shows it."""
    out: Path | None = None
    """Folder to keep it in; `corpora/NAME` by default."""


class ShowConfig(ReadConfig):
    """What is shown."""

    part: SamplePart | None = None
    """Of the sample: personas, dialogues, threads, room, benchmark or grounded; a taste of each by default."""
    limit: int = Field(3, ge=1)
    """How many dialogues or exchanges (or items of a part) to show."""
    skip: int = Field(0, ge=0)
    """How many to pass over first."""


class ConvertConfig(ReadConfig):
    """What becomes of it."""

    out: Path
    """File to write, with an ending that fits the format (.jsonl, .json, .parquet, .txt, .tsv, .csv), or a folder."""
    to: str | None = None
    """Format to write; Tertulia's own dialogues, or its own exchanges where the corpus holds those, by default."""


class EraseConfig(Config):
    """Whom or what a mined corpus has to forget."""

    folder: Path
    """Folder of a mined corpus."""
    authors: tuple[str, ...] = ()
    """Erase everything by this author; repeat the option for more."""
    ids: tuple[str, ...] = ()
    """Erase the message with this id; repeat the option for more."""
