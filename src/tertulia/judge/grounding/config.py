"""What `judge grounding` judges, and by which classifiers. Nothing here needs torch."""

from typing import Annotated

from pydantic import Field

from tertulia.core.config import Cli
from tertulia.judge.config import JudgeConfig, Strings
from tertulia.judge.conversations import By


class GroundingConfig(JudgeConfig):
    """Which responses, labelled or not, and which classifiers."""

    files: Annotated[Strings, Cli(argument=True)] = Field(min_length=1)
    """Labelled responses (BEGIN, or JSON lines of exchanges with labels), conversations with evidence, or the export of
    a study of the preset begin; `sample` for the bundled labelled responses."""
    data: Annotated[str, Cli(hidden=True)] = ""
    """Not used: FILES are the data."""
    split: str = ""
    """The split of a folder to use; empty for all."""
    classifiers: Annotated[Strings, Cli("--classifier")] = ()
    """A grounding classifier, one per option: a registered name, the folder of a training run, or hf:NAME_OR_FOLDER. By
    default the registered default. Word overlap is always shown beside it."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    """Word overlap from which the baseline calls a response supported; 0.8 by default."""
    tune: str | None = None
    """Choose that threshold on these labelled responses instead, which must be others than the judged ones."""
    band: tuple[float, float] = (0.4, 0.85)
    """Word overlap between which everything is measured again: below and above it, overlap alone says nearly all."""
    examples: int = Field(default=2, ge=0)
    """Errors to show of each true and predicted label."""
    by: By | None = None
    """Of conversations: what a row of the results is. By default a bot where conversations name one, else a file."""
    speaker: str | None = None
    """Of conversations: judge the turns of this speaker only."""
    limit: int | None = Field(default=None, ge=1)
    """Judge at most this many responses, or conversations, of each file, the first ones."""
