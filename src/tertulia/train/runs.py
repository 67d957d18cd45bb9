"""What all runs of gradient training share: where data comes from, what identifies a run, and the folder it leaves.

A recipe builds a task (`tertulia.train.tasks`), the loop fits it (`tertulia.train.loop`), and `save_run` saves the
model with its config, record and plot as a folder that is a bot by itself.
"""

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import Field

from tertulia.artefacts.files import fingerprint, save_config
from tertulia.core.dialogue import Dialogue, Json, PersonaScope
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress
from tertulia.corpus.identity import describe_data
from tertulia.corpus.load import load_dialogues
from tertulia.models.checkpoint import count_parameters, seal
from tertulia.models.threads import use_threads
from tertulia.train.loop import FitOutcome, LoopConfig, TrainingTask
from tertulia.train.recipe import RecipeConfig
from tertulia.train.record import PLOT, RECORD, plot_record

CONFIG = "config.toml"
PARTIAL = "partial"
"""The folder of an unfinished run's state, inside the run's own."""
_NOT_IDENTIFYING = {"out", "resume", "force", "save_seconds", "threads", "device"}
_NOT_IDENTIFYING |= {"data", "teacher", "pool", "base", "start"}
"""Settings that may change when a run is resumed; data, teacher, base and start are identified by their content."""

T = TypeVar("T")


class TrainingConfig(LoopConfig, RecipeConfig):
    """What the recipes of all models have that the loop trains."""

    threads: int = Field(default=1, ge=1)
    """CPU threads to compute with; on a busy machine one is fastest."""


class RunConfig(TrainingConfig):
    """What the recipes of all models trained on dialogues have."""

    split: str = "train"
    """The split to train on."""
    valid_split: str = "valid"
    """The split to validate on, which decides when to stop."""
    persona: PersonaScope = "own"
    """Whose persona the model sees: none, own (of the speaker it replies for), their (of the partner), or both."""
    revised_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the dialogues whose personas are trained on in their revised wording, where they have one: less to copy
    from, more to understand. Data without any revised persona is refused."""
    speaker: str | None = None
    """Train on this speaker's side only; by default on every speaker's in turn."""
    valid_speaker: str | None = None
    """Validate on this speaker's side only."""
    max_dialogues: int | None = Field(default=None, ge=1)
    """Train on this many dialogues only, drawn by the seed: for learning curves and quick experiments."""
    valid_dialogues: int | None = Field(default=None, ge=1)
    """Validate on this many dialogues, drawn by the seed; by default on all."""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The result of a run."""

    folder: Path
    record: Mapping[str, Json]

    def figures(self) -> Mapping[str, Json]:
        """What was measured, and what it cost."""
        return self.record


def start_run(config: TrainingConfig, progress: Progress, *, step: str = "Reading dialogues") -> None:
    """Set threads and seed, and announce the first step."""
    use_threads(config.threads)
    torch.manual_seed(config.seed)
    progress.step(step)


def read_split(config: RunConfig, split: str, count: int | None) -> list[Dialogue]:
    """The dialogues of a split, or `count` of them."""
    return subsample(load_dialogues(config.data, split=split), count, config.seed)


def with_revised_personas(dialogues: Sequence[Dialogue], config: RunConfig, *, required: bool = True) -> list[Dialogue]:
    """The dialogues, `revised_share` of them (drawn by the seed) with their personas in the revised wording.

    If some are `required`, it is an error that there are none.
    """
    revised = any(persona.revised for dialogue in dialogues for persona in dialogue.personas.values())
    if config.revised_share and required and not revised:
        raise UsageError(
            f"revised_share is {config.revised_share}, but no persona in the split {config.split!r} of {config.data}"
            " has a revised wording.",
            hint="Leave revised_share out, or train on data with revised personas (`tertulia corpus stats` tells).",
        )
    rng = random.Random(f"{config.seed} revised")
    return [_revised(dialogue) if rng.random() < config.revised_share else dialogue for dialogue in dialogues]


def _revised(dialogue: Dialogue) -> Dialogue:
    """The dialogue with its personas in their revised wording, those that have one."""
    personas = {
        speaker: replace(persona, sentences=persona.revised or persona.sentences)
        for speaker, persona in dialogue.personas.items()
    }
    return replace(dialogue, personas=personas)


def subsample(items: Iterable[T], count: int | None, seed: int) -> list[T]:
    """`count` items drawn by the seed, in their order; all of them if no count is given.

    >>> subsample("abcdefgh", 3, 0) == subsample("abcdefgh", 3, 0), len(subsample("abcdefgh", 3, 0))
    (True, 3)
    >>> subsample("ab", None, 0)
    ['a', 'b']
    """
    pool = list(items)
    if count is None or count >= len(pool):
        return pool
    return [pool[i] for i in sorted(random.Random(seed).sample(range(len(pool)), count))]


def run_id(config: TrainingConfig, examples: Iterable[object]) -> str:
    """What tells runs apart: the architecture, the settings and the data, but not where the results go."""
    settings = json.dumps(config.model_dump(mode="json", exclude=_NOT_IDENTIFYING), sort_keys=True)
    return fingerprint([config.recipe, settings, *map(repr, examples)])


def save_run(
    task: TrainingTask,
    config: TrainingConfig,
    outcome: FitOutcome,
    *,
    about: Mapping[str, Json],
    save_more: Callable[[Path], list[str]] | None = None,
    architecture: str = "",
) -> TrainedModel:
    """Save the model of a task that was fitted in `config.out`, the manifest last.

    `about` describes the examples in the record, which also says what data they are from; `save_more` writes further
    files and returns their names. `architecture` is the model's in the table of architectures, if the recipe has
    another name.
    """
    record = {**about, "parameters": count_parameters(task.module), **outcome.as_json()}
    if outcome.is_main:
        record["data"] = describe_data(config.data, getattr(config, "split", "") or None)
        folder = config.out
        files: list[str] = [*task.module.save(folder)]  # type: ignore[operator]
        save_config(config.model_copy(update={"resume": False, "force": False}), folder / CONFIG)
        (folder / RECORD).write_bytes((folder / PARTIAL / RECORD).read_bytes())
        plot_record(folder, goal=task.goal)
        files += [CONFIG, RECORD, PLOT, *(save_more(folder) if save_more else ())]
        name = architecture or config.recipe
        seal(folder, bot=name, model=name, files=sorted(set(files)), training=record)
    return TrainedModel(config.out, record)
