"""The options of `tertulia selfplay`."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tertulia.artefacts.outputs import Output
from tertulia.core.config import Cli, Config, InvalidKey


class SelfplayConfig(Config):
    """Who talks to whom, how often and how long, and where the conversations go."""

    bots: Annotated[tuple[str, ...], Cli(argument=True)] = Field(min_length=1)
    """One bot, which talks to itself, two, which talk to each other, or more with --with-itself or --all-pairs:
    name[:path or model][?option=value&...], with NAME= before it to give it a name."""
    with_itself: Annotated[bool, Cli("--with-itself")] = False
    """Each bot talks to itself."""
    all_pairs: Annotated[bool, Cli("--all-pairs")] = False
    """Each bot talks to each other one; the one that is named first opens."""
    out: Annotated[Path, Output("either", "own")] = Path("selfplay.jsonl")
    """Folder for the conversations, or a single file (.jsonl, .parquet, ...)."""
    conversations: Annotated[int, Cli("--conversations -n")] = Field(default=10, ge=1)
    """Number of conversations of each pairing."""
    turns: int = Field(default=10, ge=2, le=200)
    """Number of turns in each conversation, the opener included."""
    opener: str = "Hi!"
    """The first turn; if empty, the first bot opens the conversation."""
    openers: Path | None = None
    """Text file of first turns, one per line; each conversation takes the next one, in an order drawn by the seed."""
    personas: str = "none"
    """Personas of the speakers: `sample` for those of the bundled corpus, a file or folder of dialogues, or `none`.
    Each speaker sees only its own."""
    seed: int = 0
    """Random seed: the same seed gives the same conversations."""
    shard: int = Field(default=20, ge=1, le=1000)
    """Conversations that are played side by side and saved together; after an interruption, those of unfinished shards
    are played again."""
    processes: int = Field(default=1, ge=1)
    """Number of processes; each loads the bots it needs and computes with one thread. The results do not depend on
    it."""
    engine: Literal["pool", "ray"] = "pool"
    """Where to play: in processes on this machine, or on a Ray cluster with a shared disk."""
    address: str | None = None
    """Address of the Ray cluster; by default a local one is started."""
    force: Annotated[bool, Cli("--force")] = False
    """Replace the file, or in a folder what an earlier self-play wrote there."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.bots) > 2 and not (self.with_itself or self.all_pairs):
            raise InvalidKey(
                f"{len(self.bots)} bots need --with-itself (each with itself), --all-pairs, or both", ("bots",)
            )
        if self.all_pairs and len(self.bots) < 2:
            raise InvalidKey("--all-pairs needs at least two bots", ("bots",))
        if self.openers and "opener" in self.model_fields_set:
            raise InvalidKey("give --opener or --openers, not both", ("openers",))
        return self
