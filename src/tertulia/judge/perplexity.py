"""How well generative models predict human turns: perplexity, ranking by likelihood, and the replies they generate.

Perplexity is a ratio of sums (nats over words), so its interval comes from drawing whole dialogues. The likelihood of
models with latent variables is estimated by importance sampling; every figure says how it was computed. Units are
views: a dialogue as one of its speakers sees it, with that speaker's turns as targets.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Literal, NamedTuple

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError
from tertulia.core.estimate import Estimate
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.corpus.candidates import CandidateReply, RankTask
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import PerplexityConfig, PersonaSetting, RankSettings, planned
from tertulia.judge.paper_tables import PERPLEXITY_PLANS
from tertulia.judge.rank import judge_rank, rank_items
from tertulia.judge.ranking_tasks import load_tasks
from tertulia.judge.replies import (
    GeneratedReply,
    GeneratorSource,
    LoadedBot,
    draw_contexts,
    generate_replies,
    load_bot,
    load_vectors,
    reply_items,
    reply_metrics,
    score_replies,
    short_names,
)
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, describe_config, describe_subject, unique_ids
from tertulia.judge.spelling import spelling_charge
from tertulia.metrics.likelihood import (
    KL,
    PERPLEXITY,
    PERPLEXITY_BOUND,
    PERPLEXITY_PER_TOKEN,
    PERPLEXITY_WITH_SPELLING,
)
from tertulia.metrics.metric import DialogueLikelihood, LatentTerms, Metric
from tertulia.metrics.registry import metric_named
from tertulia.metrics.significance import estimates
from tertulia.models.generator import DialogueView, Generator, LatentGenerator, Nll, eval_mode
from tertulia.models.likelihood import likelihoods, view_as
from tertulia.models.tokenizer import UNKNOWN

ALL_SPEAKERS = "all"
PERSONACHAT_SPEAKERS = frozenset(("first", "second"))
"""As the reader of Persona-Chat names them; the paper's bots speak for the second."""
LikelihoodKind = Literal["exact", "importance"]
"""The likelihood itself, or its estimate by importance sampling."""


class TargetView(NamedTuple):
    """A dialogue as one of its speakers sees it: the unit of perplexity."""

    unit: str
    dialogue: str
    view: DialogueView


@dataclass(frozen=True, slots=True)
class ViewLikelihoods:
    """Likelihoods of several views under one model; the tuples run in parallel."""

    views: tuple[TargetView, ...]
    likelihoods: tuple[DialogueLikelihood, ...]
    kind: LikelihoodKind
    latent: tuple[LatentTerms, ...] | None = None
    """What latent variables add, for models that have some."""
    spelled: bool = True
    """Whether unknown words are charged for their spelling, or there are none."""

    @property
    def metrics(self) -> list[Metric]:
        """The metrics that can be computed from them. All but models that cannot be charged have the figure with
        spelling, also those whose two figures are equal: it is the one that compares models."""
        latent = (PERPLEXITY_BOUND, KL) if self.kind == "importance" else ()
        return [PERPLEXITY, *((PERPLEXITY_WITH_SPELLING,) if self.spelled else ()), PERPLEXITY_PER_TOKEN, *latent]

    def scores(self, *, subject: str, setting: str) -> list[Score]:
        """One score per metric."""
        return [
            metric.score(
                self.likelihoods,
                subject=subject,
                setting=setting,
                units=[one.unit for one in self.views],
                clusters=[one.dialogue for one in self.views],
                resources={"latent": self.latent or ()},
            )
            for metric in self.metrics
        ]

    def counts(self, model: Generator) -> dict[str, Json]:
        """What perplexity was computed over."""
        return {
            "dialogues": len({one.dialogue for one in self.views}),
            "turns": sum(one.turns for one in self.likelihoods),
            "words": sum(one.words for one in self.likelihoods),
            "tokens": sum(one.tokens for one in self.likelihoods),
            "unknown": count_unknown(model, self.views),
            "charged": round(sum(one.spelling for one in self.likelihoods), 3),
        }


def count_unknown(model: Generator, views: Sequence[TargetView]) -> int:
    """Unknown tokens of the target turns."""
    targets = (text for one in views for text in compress(one.view.turns, one.view.own))
    return sum(model.tokenizer.encode(text).count(UNKNOWN) for text in targets)


def target_views(
    dialogues: Sequence[Dialogue], setting: PersonaSetting, speaker: str | None = None
) -> list[TargetView]:
    """The dialogues as their speakers (or one of them) see them, where they have the personas of the setting."""
    views = []
    for dialogue, name in zip(dialogues, unique_ids(d.id for d in dialogues), strict=True):
        worded = _with_revised_personas(dialogue) if setting.wording == "revised" else dialogue
        for me in worded.speakers:
            if speaker in (None, me):
                view = view_as(worded, me, setting.scope)
                if all(setting.select(view.persona, view.partner)):
                    views.append(TargetView(f"{name}/{me}", dialogue.id, view))
    return views


def compute_likelihoods(
    model: Generator,
    views: Sequence[TargetView],
    *,
    importance_samples: int = 20,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n: None,
) -> ViewLikelihoods:
    """The likelihoods of the target turns of all views. `progress` is called with the number of views done."""
    terms: dict[DialogueView, LatentTerms] = {}

    def nll(batch: list[DialogueView]) -> Nll:
        progress(len(batch))
        if not isinstance(model, LatentGenerator):
            return model.nll(batch, target_turns="own")
        computed = model.importance(batch, samples=importance_samples, seed=seed, target_turns="own")
        for view, bound, kl in zip(batch, computed.bound.tolist(), computed.kl.tolist(), strict=True):
            terms[view] = LatentTerms(bound, kl)  # batches go by length, not in the order of the views
        return computed.nll

    with eval_mode(model):
        computed = likelihoods(model, [one.view for one in views], nll=nll)
    charge = spelling_charge(model.tokenizer)
    return ViewLikelihoods(
        tuple(views),
        tuple(
            DialogueLikelihood(*one, sum(view.own), charge(" ".join(compress(view.turns, view.own))) if charge else 0.0)
            for one, (_, _, view) in zip(computed, views, strict=True)
        ),
        "importance" if isinstance(model, LatentGenerator) else "exact",
        tuple(terms[one.view] for one in views) if terms else None,
        spelled=charge is not None or not count_unknown(model, views),
    )


def judge_perplexity(
    model: GeneratorSource,
    dialogues: Sequence[Dialogue],
    *,
    setting: PersonaSetting | None = None,
    speaker: str | None = None,
    importance_samples: int = 20,
    seed: int = 0,
) -> dict[str, Estimate]:
    """The figures of one model, or of a bot's specification, on some dialogues: perplexity per word and per token."""
    views = target_views(dialogues, setting or PersonaSetting(), speaker)
    bot = load_bot(model).bot
    computed = compute_likelihoods(bot.model, views, importance_samples=importance_samples, seed=seed)
    scores = computed.scores(subject=bot.spec, setting=str(setting or PersonaSetting()))
    figures = estimates(scores, {metric.name: metric for metric in computed.metrics}, seed=seed)
    return {score.metric: figure for score, figure in zip(scores, figures, strict=True)}


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """What all models are judged on."""

    dialogues: Sequence[Dialogue]
    """Those that perplexity is computed on."""
    settings: Sequence[PersonaSetting]
    speaker: str | None
    contexts: Sequence[CandidateReply] = ()
    tasks: Sequence[RankTask] = ()


@dataclass(frozen=True, slots=True)
class JudgedCell:
    """One model in one setting."""

    subject: str
    setting: str
    scores: list[Score]
    replies: list[GeneratedReply]
    details: dict[str, Json]


def run_perplexity(
    config: PerplexityConfig,
    progress: Progress | None = None,
    problems: Problems | None = None,
    *,
    models: Sequence[GeneratorSource] = (),
) -> JudgedRun:
    """Judge all models in all settings. With `problems`, damaged lines are counted there instead of being an error.

    `models` replace the runs of the config where they are already in memory.
    """
    progress = progress or Silent()
    config = planned(config, [PERPLEXITY_PLANS[name] for name in config.table])
    metrics = reply_metrics(config)
    progress.step("Reading")
    data = _evaluation_set(config, problems)
    cells: list[JudgedCell] = []
    subjects: list[Subject] = []
    for name, spec, model in zip(short_names(config.runs), config.runs, models or config.runs, strict=True):
        progress.step(f"Loading {name}")
        loaded = load_bot(model, preset=config.preset, method=config.method)
        subject = describe_subject(name, spec, loaded.bot) if isinstance(model, str) else Subject(name, spec)
        subjects.append(replace(subject, kind=loaded.architecture))
        cells += [_judge(name, loaded, data, setting, config, progress) for setting in data.settings]
    progress.step("Comparing")
    cells = _with_reply_scores(cells, metrics, config)
    scores = [score for cell in cells for score in cell.scores]
    return JudgedRun(
        verb="perplexity",
        config=describe_config(config),
        subjects=tuple(subjects),
        settings=tuple(map(str, data.settings)),
        scores=tuple(scores),
        metrics={name: metric_named(name).info for name in dict.fromkeys(score.metric for score in scores)},
        items=tuple(_items(cells, data)),
        notes=tuple(_notes(config, cells, data)),
        details={"cells": [{"subject": c.subject, "setting": c.setting} | c.details for c in cells]},
    )


def target_speaker(config: PerplexityConfig, dialogues: Sequence[Dialogue]) -> str | None:
    """Whose turns are predicted; None for everybody's."""
    if config.speaker is not None:
        return None if config.speaker == ALL_SPEAKERS else config.speaker
    names = {name for dialogue in dialogues for name in dialogue.speakers}
    return "second" if names == PERSONACHAT_SPEAKERS else None


def settings_of(config: PerplexityConfig, dialogues: Sequence[Dialogue]) -> list[PersonaSetting]:
    """The persona settings to judge in; by default own personas, if the data has any."""
    has_personas = any(persona.sentences for dialogue in dialogues for persona in dialogue.personas.values())
    return config.settings(has_personas=has_personas)


def _evaluation_set(config: PerplexityConfig, problems: Problems | None) -> EvaluationSet:
    dialogues = list(load_dialogues(config.data, split=config.selected_split, problems=problems))
    speaker = target_speaker(config, dialogues)
    if not any(speaker in (None, turn.speaker) for dialogue in dialogues for turn in dialogue.turns):
        raise DataError(
            f"No turns to predict in {config.data}.",
            hint="Check --split, and omit --speaker if the data has no such speaker.",
        )
    selected = dialogues
    if config.limit is not None and config.limit < len(dialogues):
        chosen = random.Random(config.seed).sample(range(len(dialogues)), config.limit)
        selected = [dialogues[i] for i in sorted(chosen)]
    return EvaluationSet(
        selected,
        settings_of(config, dialogues),
        speaker,
        draw_contexts(dialogues, config.replies, speaker=speaker, seed=config.seed) if config.replies else (),
        load_tasks(_rank_settings(config, speaker), Problems()).tasks if config.ranked else (),
    )


def _rank_settings(config: PerplexityConfig, speaker: str | None) -> RankSettings:
    """The config of `judge rank` that ranks the same replies among the same distractors."""
    return RankSettings(
        data=config.data,
        split=config.selected_split or "",
        candidates=config.candidates,
        speaker=speaker,
        metrics=("hits@1",),
        limit=config.ranked or None,
        seed=config.seed,
    )


def _judge(
    name: str,
    loaded: LoadedBot,
    data: EvaluationSet,
    setting: PersonaSetting,
    config: PerplexityConfig,
    progress: Progress,
) -> JudgedCell:
    """Perplexity, ranks and replies of one model in one setting; replies are scored later, all together."""
    views = target_views(data.dialogues, setting, data.speaker)
    progress.step(f"Perplexity of {name}, persona: {setting}", total=len(views))
    computed = compute_likelihoods(
        loaded.bot.model,
        views,
        importance_samples=config.importance_samples,
        seed=config.seed,
        progress=progress.advance,
    )
    scores = computed.scores(subject=name, setting=str(setting))
    details: dict[str, Json] = {"likelihood": computed.kind, "counts": computed.counts(loaded.bot.model)}
    if config.ranked:
        progress.step(f"Ranking with {name}, persona: {setting}", total=len(data.tasks))
        rank = _rank_settings(config, data.speaker)
        scores += judge_rank(
            loaded.bot, data.tasks, rank, setting=setting, subject=name, batch=16, progress=progress.advance
        )
    replies: list[GeneratedReply] = []
    if config.replies:
        progress.step(f"Generating with {name}, persona: {setting}", total=len(data.contexts))
        replies = generate_replies(loaded.bot, data.contexts, setting, seed=config.seed, progress=progress.advance)
        details["decoding"] = loaded.bot.decoding.model_dump(mode="json") | {"filters": loaded.bot.options.filters}
    return JudgedCell(name, str(setting), scores, replies, details)


def _with_reply_scores(
    cells: Sequence[JudgedCell], metrics: Sequence[Metric], config: PerplexityConfig
) -> list[JudgedCell]:
    """The cells with scores of their replies; word vectors are read once for all."""
    vectors = None
    if config.vectors and any(cell.replies for cell in cells):
        vectors = load_vectors(config.vectors, (reply for cell in cells for reply in cell.replies))
    complete = []
    for cell in cells:
        resources = {"word_vectors": vectors} if vectors else {}
        scores = score_replies(
            [metric for metric in metrics if vectors or "word_vectors" not in metric.needs],
            cell.replies,
            subject=cell.subject,
            setting=cell.setting,
            resources=resources,
        )
        details = cell.details
        if vectors and cell.replies:
            texts = (text for reply in cell.replies for text in (reply.example.reply, reply.example.reference))
            details = details | {"missing_vectors": vectors.missing_share(texts)}
        complete.append(replace(cell, scores=cell.scores + scores, details=details))
    return complete


def _items(cells: Sequence[JudgedCell], data: EvaluationSet) -> Iterator[JudgedItem]:
    """Replies of each cell, target turns of each dialogue, and candidates of what was ranked."""
    for cell in cells:
        yield from reply_items(cell.replies, subject=cell.subject, setting=cell.setting)
    for one in target_views(data.dialogues, PersonaSetting(), data.speaker):
        targets = [text for text, own in zip(one.view.turns, one.view.own, strict=True) if own]
        yield JudgedItem(one.unit, {"dialogue": one.dialogue, "context": list(one.view.turns), "targets": targets})
    yield from rank_items(data.tasks)


def _notes(config: PerplexityConfig, cells: Sequence[JudgedCell], data: EvaluationSet) -> Iterator[str]:
    """What a reader must know, so that nobody compares what is not comparable."""
    first = [next(cell for cell in cells if cell.subject == name) for name in dict.fromkeys(c.subject for c in cells)]
    largest = max((cell.details["counts"] for cell in cells), key=lambda counts: int(counts["turns"]))
    of = f" of {data.speaker}" if data.speaker else ""
    drawn = "a random sample" if config.limit else "all there are"
    yield (
        f"{largest['turns']} turns{of} with {largest['words']} words in {largest['dialogues']} dialogues of"
        f" {config.source} ({drawn}); 95 % intervals by bootstrap over dialogues; seed {config.seed}."
    )
    yield (
        "Perplexity is per word (words, punctuation marks and the end of each turn), whatever the model's tokens; the"
        " first turn of a dialogue counts too. n is the number of dialogues, once for each speaker."
    )
    for cell in first:
        yield from _likelihood_notes(config, cell)
    if config.ranked:
        yield (
            f"hits@1: the true reply among {config.candidates} by log-likelihood, per token unless the run's option"
            " `score` says otherwise; latent variables at their means."
        )
    for cell in first:
        if "decoding" in cell.details:
            count = plural(len(cell.replies), "reply", "replies")
            yield f"{cell.subject}: {count} generated by {_decoding(cell.details['decoding'])}."
    missing = [float(c.details["missing_vectors"]) for c in cells if "missing_vectors" in c.details]
    if config.vectors and missing:
        yield (
            f"Word vectors from {config.vectors.name}; at most {100 * max(missing):.1f} % of a run's words have none"
            " and are left out."
        )
    yield from _missing_notes([cell for cell in cells if cell.subject == cells[0].subject])


def _likelihood_notes(config: PerplexityConfig, cell: JudgedCell) -> Iterator[str]:
    if cell.details["likelihood"] == "importance":
        yield (
            f"{cell.subject}: perplexity by importance sampling, {config.importance_samples} samples; on average not"
            " below the true one. KL is in nats per word and part of the bound that the model was trained on."
        )
    counts = cell.details["counts"]
    if counts["unknown"]:
        share = f"{cell.subject}: {100 * counts['unknown'] / counts['tokens']:.1f} % of the tokens are unknown words"
        yield (
            f"{share}, and any of them counts as predicted: compare with other models by perplexity with spelling,"
            " which also charges their letters, under a model of characters of the training words."
            if counts["charged"]
            else f"{share}, and nothing says how they are spelled, so there is no perplexity with spelling: a model"
            " that can spell them is at a disadvantage."
        )


def _decoding(decoding: dict[str, Json]) -> str:
    """The decoding options that matter, in words.

    >>> _decoding({"method": "sample-and-rank", "samples": 20, "temperature": 0.88, "top_k": 0, "filters": "none"})
    'sample-and-rank (samples 20, temperature 0.88, top_k 0), filters none'
    """
    relevant = {
        "sample": ("temperature", "top_k"),
        "sample-and-rank": ("samples", "temperature", "top_k"),
        "beam": ("beams", "length_penalty"),
    }.get(str(decoding["method"]), ())
    options = ", ".join(f"{name} {decoding[name]}" for name in relevant)
    return f"{decoding['method']}{f' ({options})' if options else ''}, filters {decoding['filters'] or 'none'}"


def _missing_notes(cells: Sequence[JudgedCell]) -> Iterator[str]:
    """Which settings the data does not have, or not for all turns."""
    turns = {cell.setting: int(cell.details["counts"]["turns"]) for cell in cells}
    for setting, count in turns.items():
        if not count:
            yield f"persona {setting}: the data has no such personas, n = 0."
        elif count < max(turns.values()):
            yield f"persona {setting}: only what speakers with such personas say: {plural(count, 'turn')}."


def _with_revised_personas(dialogue: Dialogue) -> Dialogue:
    personas = {who: replace(p, sentences=p.revised, revised=()) for who, p in dialogue.personas.items()}
    return replace(dialogue, personas=personas)
