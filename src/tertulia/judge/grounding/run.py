"""`judge grounding`: read what is given, and judge it in the way that fits."""

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.identity import describe_paths
from tertulia.judge.grounding.config import GroundingConfig
from tertulia.judge.grounding.inputs import LabelledSet, read_inputs
from tertulia.judge.grounding.labelled import run_labelled
from tertulia.judge.grounding.replies import run_replies
from tertulia.judge.runs import JudgedRun


def run_grounding(
    config: GroundingConfig, progress: Progress | None = None, problems: Problems | None = None
) -> JudgedRun:
    """Judge classifiers on labelled responses, or bots by classifiers in conversations with evidence."""
    progress = progress or Silent()
    if config.band[0] >= config.band[1]:
        raise UsageError(f"--band {config.band[0]:g} {config.band[1]:g}: the first must be lower than the second.")
    if config.threshold is not None and config.tune is not None:
        raise UsageError(
            "--threshold and --tune exclude each other.", hint="Give the threshold, or where to choose it."
        )
    progress.step("Reading")
    given = read_inputs(config, problems)
    if isinstance(given, LabelledSet):
        return run_labelled(given, config, progress)
    if config.threshold is not None or config.tune is not None:
        raise UsageError(
            "--threshold and --tune are for labelled responses, and these have no labels.",
            hint="Give labelled responses, or leave the options out.",
        )
    return run_replies(given, config, progress)


def describe_grounding_data(config: GroundingConfig) -> dict[str, Json]:
    """Path and digest of the data, and of what the threshold was chosen on."""
    data = describe_paths(config.files, config.split or None)
    if config.tune is not None:
        data["tuned on"] = describe_paths((config.tune,), None)
    return data
