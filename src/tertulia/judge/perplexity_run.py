"""`judge perplexity` as one call: all runs in all settings on the same turns, compared, counted and told in tables."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.candidates import RankTask, Reply
from tertulia.corpus.load import load_dialogues
from tertulia.judge.perplexity import (
    PerplexityConfig,
    Ratio,
    Said,
    Verdict,
    planned,
    settings_of,
    speaker_of,
)
from tertulia.judge.perplexity_bots import Judged, Model, judged, short_names
from tertulia.judge.perplexity_count import Counted, Told, count, counts_of, figures_of, times_of, told_of
from tertulia.judge.perplexity_notes import notes_of
from tertulia.judge.perplexity_replies import (
    drawn_contexts,
    vector_nearness,
    vectors_for,
    word_overlap,
    write_replies,
)
from tertulia.judge.perplexity_tables import paper_tables
from tertulia.judge.rank import Figures, RankSettings, Setting, fitting, judge_rank
from tertulia.judge.rank_tables import PaperTable
from tertulia.judge.rank_tasks import load_tasks


@dataclass(frozen=True, slots=True)
class PerplexityOutcome:
    """Everything there is to tell."""

    config: PerplexityConfig
    settings: tuple[Setting, ...]
    verdicts: tuple[tuple[Verdict, ...], ...]
    """A row for each run, with a verdict for each setting."""
    ratios: tuple[Ratio, ...]
    """Each of the other runs against the first one, in each setting."""
    notes: tuple[str, ...]
    """What has to be said beside the figures."""
    tables: tuple[PaperTable, ...] = ()

    @property
    def rows(self) -> list[Verdict]:
        """All verdicts, run by run."""
        return [verdict for row in self.verdicts for verdict in row]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of all figures that any verdict has."""
        return tuple(dict.fromkeys(name for verdict in self.rows for name in verdict.figures))

    def as_json(self) -> dict[str, Json]:
        """For `--json` and the report."""
        return {
            "settings": self.config.model_dump(mode="json"),
            "runs": [verdict.as_json() for verdict in self.rows],
            "ratios": [ratio.as_json() for ratio in self.ratios],
            "notes": list(self.notes),
            "tables": [table.as_json() for table in self.tables],
        }


@dataclass(frozen=True, slots=True)
class Material:
    """What all runs are judged on."""

    dialogues: Sequence[Dialogue]
    """Those that perplexity is taken over."""
    speaker: str | None
    contexts: Sequence[Reply] = ()
    tasks: Sequence[RankTask] = ()


def run_perplexity(
    config: PerplexityConfig,
    progress: Progress | None = None,
    problems: Problems | None = None,
    *,
    models: Sequence[Model] = (),
) -> PerplexityOutcome:
    """Judge all runs in all settings. With `problems`, damaged lines are counted there, else refused.

    `models` stand for the runs of the config where they are loaded already.
    """
    progress = progress or Silent()
    config = planned(config)
    progress.step("Reading")
    material, settings = _material(config, problems)
    names = short_names(config.runs)
    rows: list[list[Verdict]] = []
    counted: list[list[Counted]] = []
    for name, spec, model in zip(names, config.runs, models or config.runs, strict=True):
        progress.step(f"Loading {name}")
        one = judged(model, preset=config.preset, method=config.method)
        found = [_judge(name, spec, one, material, setting, config, progress) for setting in settings]
        rows.append([verdict for verdict, _ in found])
        counted.append([numbers for _, numbers in found])
    progress.step("Comparing")
    verdicts = tuple(tuple(row) for row in _with_vectors(rows, config))
    notes = notes_of(config, verdicts, speaker=material.speaker)
    return PerplexityOutcome(
        config=config,
        settings=tuple(settings),
        verdicts=verdicts,
        ratios=tuple(_ratios(names, settings, counted, config.seed)),
        notes=notes,
        tables=paper_tables(config.table, verdicts, notes),
    )


def judge_perplexity(
    model: Model,
    dialogues: Sequence[Dialogue],
    *,
    setting: Setting | None = None,
    speaker: str | None = None,
    importance_samples: int = 20,
    seed: int = 0,
) -> Figures:
    """The figures of one model, or of a run's folder, on some dialogues: perplexity per word and per token."""
    told = told_of(dialogues, setting or Setting(), speaker)
    return figures_of(count(judged(model).bot.model, told, importance_samples=importance_samples, seed=seed), seed=seed)


def _material(config: PerplexityConfig, problems: Problems | None) -> tuple[Material, list[Setting]]:
    dialogues = list(load_dialogues(config.data, split=config.split or None, problems=problems))
    speaker = speaker_of(config, dialogues)
    if not any(speaker in (None, turn.speaker) for dialogue in dialogues for turn in dialogue.turns):
        raise DataError(
            f"There is no turn to judge by in {config.data}.",
            hint="Check --split, and leave --speaker out where nobody is called so.",
        )
    some = dialogues
    if config.limit is not None and config.limit < len(dialogues):
        chosen = random.Random(config.seed).sample(range(len(dialogues)), config.limit)
        some = [dialogues[place] for place in sorted(chosen)]
    contexts = drawn_contexts(dialogues, config.replies, speaker=speaker, seed=config.seed)
    tasks = load_tasks(_rank_settings(config, speaker), Problems()).tasks if config.ranked else []
    return Material(some, speaker, contexts, tasks), settings_of(config, dialogues)


def _rank_settings(config: PerplexityConfig, speaker: str | None) -> RankSettings:
    """As `judge rank` would be asked: the very same replies among the very same others."""
    return RankSettings(
        data=config.data,
        split=config.split,
        candidates=config.candidates,
        speaker=speaker,
        metrics=("hits@1",),
        limit=config.ranked or None,
        seed=config.seed,
    )


def _judge(
    name: str,
    spec: str,
    one: Judged,
    material: Material,
    setting: Setting,
    config: PerplexityConfig,
    progress: Progress,
) -> tuple[Verdict, Counted]:
    told = told_of(material.dialogues, setting, material.speaker)
    counted = _counted(name, one, told, setting, config, progress)
    figures = figures_of(counted, seed=config.seed)
    said: list[Said] = []
    if config.ranked:
        fit = fitting(material.tasks, setting)
        progress.step(f"Ranking with {name}, persona: {setting}", total=len(fit))
        rank = _rank_settings(config, material.speaker)
        figures |= judge_rank(one.bot, fit, rank, setting=setting, batch=16, progress=progress.advance).figures
    if config.replies:
        progress.step(f"Writing with {name}, persona: {setting}", total=len(material.contexts))
        said = write_replies(one.bot, material.contexts, setting, seed=config.seed, progress=progress.advance)
        figures |= word_overlap(said, seed=config.seed)
    verdict = Verdict(
        run=name,
        spec=spec,
        model=one.model,
        setting=setting,
        kind=counted.kind,
        figures=figures,
        counts=counts_of(counted, one.bot.model),
        said=tuple(said),
        decoding=_decoding(one) if said else {},
    )
    return verdict, counted


def _counted(
    name: str, one: Judged, told: Sequence[Told], setting: Setting, config: PerplexityConfig, progress: Progress
) -> Counted:
    progress.step(f"Perplexity of {name}, persona: {setting}", total=len(told))
    return count(
        one.bot.model,
        told,
        importance_samples=config.importance_samples,
        seed=config.seed,
        progress=progress.advance,
    )


def _decoding(one: Judged) -> dict[str, Json]:
    return one.bot.decoding.model_dump(mode="json") | {"filters": one.bot.options.filters}


def _with_vectors(rows: list[list[Verdict]], config: PerplexityConfig) -> list[list[Verdict]]:
    """The same, with what the vectors of words tell of the replies; they are read once for all."""
    said = [one for row in rows for verdict in row for one in verdict.said]
    if config.vectors is None or not said:
        return rows
    vectors = vectors_for(config.vectors, said)
    found = []
    for row in rows:
        measured = [vector_nearness(verdict.said, vectors, seed=config.seed) for verdict in row]
        found.append(
            [
                replace(verdict, figures=verdict.figures | figures, missing_vectors=missing)
                for verdict, (figures, missing) in zip(row, measured, strict=True)
            ]
        )
    return found


def _ratios(
    names: Sequence[str], settings: Sequence[Setting], counted: Sequence[Sequence[Counted]], seed: int
) -> list[Ratio]:
    return [
        Ratio(name, names[0], setting, times_of(other, first, seed=seed))
        for name, row in zip(names[1:], counted[1:], strict=True)
        for setting, first, other in zip(settings, counted[0], row, strict=True)
        if first.told
    ]
