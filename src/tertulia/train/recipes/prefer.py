"""The recipe `prefer`: from people's judgements to a better bot; see docs/preferences.md."""

import os
from pathlib import Path
from typing import Literal

from tertulia.artefacts.files import fingerprint, sha256_of, write_json
from tertulia.artefacts.manifest import is_complete, read_about
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.progress import Progress
from tertulia.corpus.preferences.read import FORMATS, read_preferences
from tertulia.corpus.preferences.values import LabelledReply, PreferencePair, PreferenceSet, as_pairs, as_replies
from tertulia.models.checkpoint import read_manifest
from tertulia.models.hf.finetuned import FinetunedGenerator
from tertulia.models.hf.lora import TuningConfig
from tertulia.train.loop import check_updates, fit
from tertulia.train.preference_report import report
from tertulia.train.recipe import Recipe
from tertulia.train.runs import PARTIAL, TrainedModel, run_id, save_run, start_run
from tertulia.train.tasks.preference import PreferenceConfig, PreferenceTask, prepare_examples

FINETUNED = "finetune"
"""The architecture of what comes out: a fine-tuned run like any other."""
SOURCES = "preferences.json"
"""Where a run's folder says what it was taught with."""
ENDINGS = (".jsonl", ".csv", ".parquet", ".jsonl.gz", ".jsonl.zst")


class PreferRecipe(PreferenceConfig):
    """How a language model is improved by preferences."""

    recipe: Literal["prefer"] = "prefer"
    """The recipe's name, so that the config saved with a run can be trained again."""


def train(config: PreferRecipe, progress: Progress) -> TrainedModel:
    """Train on preferences and save the adapters in `config.out`, which is a bot then."""
    start_run(config, progress, step="Reading preferences")
    files = preference_files(Path(config.data))
    preferences = _read(files, config)
    examples = select(preferences, config)
    progress.step(f"Loading {config.start}")
    model = load_start(config)
    try:
        data = prepare_examples(examples, model, config)
    except DataError as error:  # here a wrong setting rather than a damaged file
        raise UsageError(error.message, hint=error.hint) from error
    started = read_manifest(Path(config.start)).fingerprint if is_complete(Path(config.start)) else ""
    identity = run_id(config, [model.base.digest, started, *data.train, *data.valid])
    folder = config.out / PARTIAL
    task = PreferenceTask(model, data, config, run_id=identity, folder=folder, progress=progress)
    check_updates(task, config, int(os.environ.get("WORLD_SIZE", "1")))
    outcome = fit(task, config, folder, progress, resume=config.resume, run_id=identity)
    counts = {**preferences.counts, "used": len(data.train) + len(data.valid), "too_long": data.too_long}
    about: dict[str, Json] = {
        "start": config.start,
        "base": model.base.name,
        "base_digest": model.base.digest,
        "preferences": {name: count for name, count in counts.items() if count or name == "used"},
        "examples": len(data.train),
        "valid_examples": len(data.valid),
    }
    model.eval()
    if outcome.is_main:
        progress.step("Comparing with the reference")
        about |= report(task)

    def save_sources(run: Path) -> list[str]:
        write_json(run / SOURCES, sources(files, preferences, counts))
        return [SOURCES]

    return save_run(task, config, outcome, about=about, save_more=save_sources, architecture=FINETUNED)


def sources(files: list[Path], preferences: PreferenceSet, counts: dict[str, int]) -> dict[str, Json]:
    """What a run was taught with: files by digest, what was used and left out, and whose judgements these were.

    People appear by the digest of their pseudonym: whoever has a pseudonym can tell whether its judgements were used,
    and nobody can read pseudonyms from it.
    """
    return {
        "files": {file.name: sha256_of(file) for file in files},
        "counts": {"tied": 0, "withdrawn": 0, **counts},
        "raters": sorted(fingerprint([rater]) for rater in preferences.raters),
        "withdrawn": sorted(fingerprint([rater]) for rater in preferences.withdrawn),
    }


def preference_files(data: Path) -> list[Path]:
    """The file, or the files of a folder."""
    if not data.is_dir():
        return [data]
    files = sorted(file for file in data.iterdir() if file.name.endswith(ENDINGS))
    if not files:
        raise UsageError(f"The folder {data} has no file of preferences.", hint=f"Give {FORMATS}.")
    return files


def _read(files: list[Path], config: PreferenceConfig) -> PreferenceSet:
    try:
        return read_preferences(
            files, questions=config.questions, thresholds=config.thresholds, withdrawn=config.withdrawn
        )
    except DataError as error:  # here a wrong setting rather than a damaged corpus
        raise UsageError(error.message, hint=f"Repair the file, or give {FORMATS}.") from error


def select(preferences: PreferenceSet, config: PreferenceConfig) -> list[PreferencePair] | list[LabelledReply]:
    """What the loss learns from: pairs, or replies of both labels."""
    left_out = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in preferences.counts.items())
    if not preferences.pairs and not preferences.replies:
        hint = f"Give {FORMATS}."
        if preferences.counts.get("without_threshold"):
            hint = (
                "Say from which mean rating on a reply is desirable: thresholds = { QUESTION = NUMBER } in the recipe."
            )
        raise UsageError(f"{config.data} has no preferences that can be used ({left_out}).", hint=hint)
    if config.loss == "dpo":
        return _pairs(preferences, config)
    replies = as_replies(preferences)
    desirable = sum(one.desirable for one in replies)
    if desirable in (0, len(replies)):
        raise UsageError(
            f"All {len(replies)} replies in {config.data} are {'desirable' if desirable else 'undesirable'}.",
            hint="KTO needs replies of both kinds: add votes of the other kind, or pairs.",
        )
    return replies


def _pairs(preferences: PreferenceSet, config: PreferenceConfig) -> list[PreferencePair]:
    if pairs := as_pairs(preferences):
        return pairs
    desirable, count = sum(one.desirable for one in preferences.replies), len(preferences.replies)
    if desirable in (0, count):
        raise UsageError(
            f"{config.data} has no pairs, and all {count} votes are {'up' if desirable else 'down'}.",
            hint='DPO needs two replies to one context. Give another file, or votes of both kinds with loss = "kto".',
        )
    raise UsageError(
        f"{config.data} has no pairs: no context has both a desirable and an undesirable reply.",
        hint=f'Set loss = "kto", which learns from single replies: {desirable} are desirable, {count - desirable} not.',
    )


def load_start(config: PreferenceConfig) -> FinetunedGenerator:
    """The model to improve, which is the reference, too, as long as it is not trained."""
    folder = Path(config.start)
    if not is_complete(folder):
        if (folder / PARTIAL).is_dir():
            raise UsageError(
                f"The run in {folder} is not finished.", hint="Resume it with --resume, or choose another start."
            )
        return FinetunedGenerator.untrained(config.model or TuningConfig(), config.start)
    architecture = read_about(folder).get("model")
    if architecture != FINETUNED:
        raise UsageError(
            f"{folder} contains a model of the kind {architecture!r}, which cannot learn preferences.",
            hint="Start from a run of the recipe finetune or prefer, or from a Hugging Face model.",
        )
    try:
        model = FinetunedGenerator.load_to_train(folder, base=config.base)
    except UsageError as error:
        hint = f'Say where the base is: base = "NAME_OR_FOLDER" in the recipe. {error.hint.splitlines()[0]}'
        raise UsageError(error.message, hint=hint) from error
    if model.config.tune != "lora":
        raise UsageError(
            f"The run in {folder} has no adapters: it was fine-tuned as a whole.",
            hint=f"Write it as a plain model with `tertulia export {folder} --merged FOLDER`, and start from FOLDER.",
        )
    if config.model is not None and config.model != model.config:
        raise UsageError(
            f"[model] differs from that of the run in {folder}, whose adapters are trained further.",
            hint="Omit [model] in the recipe, or start from a base.",
        )
    return model


RECIPE = Recipe("prefer", PreferRecipe, train)
