"""The config of `tertulia judge llm`. Nothing here needs an HTTP client."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tertulia.artefacts.outputs import Force, Output
from tertulia.core.config import Cli, Config
from tertulia.judge.config import RUN_FOLDER, Strings

About = Literal["reply", "conversation"]
CONFIRM_ABOVE = 1000
"""More calls than this need --yes."""


class LlmJudgeConfig(Config):
    """What is judged, by which model, and what it is asked."""

    data: Annotated[Strings, Cli(argument=True)] = Field(min_length=1)
    """Dialogues (such as those of `selfplay`), items of a study with responses, or judged runs that hold replies."""
    endpoint: str
    """The judge: openai:MODEL?base_url=URL, any OpenAI-compatible endpoint."""
    question: str = "ssa"
    """What it is asked: ssa, likert, pairwise, or a TOML file with [[questions]]."""
    about: About | None = None
    """With pairwise: compare replies to the same context, or complete conversations. Default: as the question says."""
    speaker: str | None = None
    """Of dialogues without provenance: judge only the turns of this speaker."""
    human: Path | None = None
    """The judged run of a study (`study report --out`): people's labels, which the judge is compared with."""
    limit: int | None = Field(default=None, ge=1)
    """Judge at most this many units, drawn at random."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Sampling temperature of the judge."""
    logprobs: Annotated[bool, Cli("--logprobs/--words")] = False
    """Use the probabilities of the allowed answers, if the endpoint reports them, instead of the most probable one."""
    concurrency: int = Field(default=4, ge=1, le=256)
    """Maximum number of concurrent calls."""
    price_in: float | None = Field(default=None, ge=0)
    """Price of a million prompt tokens, for the estimate of the cost."""
    price_out: float | None = Field(default=None, ge=0)
    """Price of a million tokens of answers."""
    dry_run: Annotated[bool, Cli("--dry-run")] = False
    """Print the estimate of calls, tokens and cost, and stop."""
    yes: Annotated[bool, Cli("--yes")] = False
    """Make more than 1000 calls without further questions."""
    cache: Annotated[Path | None, Output("folder", "own")] = None
    """Folder of kept answers; by default in the user's cache folder."""
    seed: int = 0
    """Random seed of drawing, pairing and of the judge."""
    out: Annotated[Path | None, RUN_FOLDER] = None
    """Folder to save the judged run in: every answer with its prompt, and the report."""
    force: Force = False
