"""Judging with a language model: from data and questions to a judged run, with its agreement with people.

The order of work: read the units, estimate the cost, ask (answers that are known are not asked again), turn answers
into scores, compare them with people's labels. Pairs are asked about in both orders, since models prefer a position
(Zheng et al. 2023); a bot that wins in one order only has half a win.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tertulia.artefacts.cache import cache_folder
from tertulia.artefacts.files import fingerprint
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.judge.llm.agreement import validated
from tertulia.judge.llm.answers import (
    CHARACTERS_PER_TOKEN,
    Answer,
    AnswerCache,
    CallSettings,
    CostEstimate,
    Judge,
    JudgeTask,
    estimate_cost,
)
from tertulia.judge.llm.config import CONFIRM_ABOVE, LlmJudgeConfig
from tertulia.judge.llm.questions import SENSIBLE, SPECIFIC, VERSION, JudgeQuestion, make_prompt, read_questions
from tertulia.judge.llm.units import JudgeUnit, make_pairs, read_units
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, describe_config, load_run
from tertulia.metrics import judge_labels
from tertulia.metrics.judge_labels import JudgeSsa, JudgeVerdict
from tertulia.metrics.metric import Metric
from tertulia.talk.bots.openai import OpenAIBot
from tertulia.talk.spec import make_bot, parse_spec

VERB = "llm"


class LlmPlan(NamedTuple):
    """What will be asked about what."""

    questions: tuple[JudgeQuestion, ...]
    units: Mapping[str, Sequence[JudgeUnit]]
    """By question."""
    judge: Judge
    cost: CostEstimate

    @property
    def is_ssa(self) -> bool:
        """Whether the second question depends on the first."""
        return [question.id for question in self.questions] == [SENSIBLE, SPECIFIC]


@contextmanager
def planned_judge(config: LlmJudgeConfig, problems: Problems | None = None) -> Iterator[LlmPlan]:
    """Units, questions, the judge with its kept answers, and the estimate of the cost."""
    questions = read_questions(config.question)
    if config.about is not None:
        questions = tuple(question.model_copy(update={"about": config.about}) for question in questions)
    bot = _endpoint(config.endpoint)
    units = {question.id: _units(config, question, problems) for question in questions}
    settings = CallSettings(
        config.temperature, seed=config.seed, logprobs=config.logprobs, concurrency=config.concurrency
    )
    name = f"{fingerprint([bot.model, bot.endpoint.url])}.jsonl"
    with AnswerCache((config.cache or cache_folder() / "judge") / name) as cache:
        judge = Judge(bot, cache, settings)
        tasks = [task for question in questions for task in _tasks(question, units[question.id])]
        cost = estimate_cost(judge, tasks, price_in=config.price_in, price_out=config.price_out)
        yield LlmPlan(questions, units, judge, cost)


def run_llm(plan: LlmPlan, config: LlmJudgeConfig, progress: Progress | None = None) -> JudgedRun:
    """Ask everything, and compare with people's labels if there are any."""
    progress = progress or Silent()
    if plan.cost.calls > CONFIRM_ABOVE and not config.yes:
        raise UsageError(
            f"That takes up to {plural(plan.cost.calls, 'call')}, about {plan.cost.prompt_tokens:,} prompt tokens"
            f"{describe_price(plan.cost)}.",
            hint="Look at --dry-run, draw fewer units with --limit N, or confirm with --yes.",
        )
    people = load_run(config.human) if config.human else None
    results = [*_ssa(plan, progress)] if plan.is_ssa else [*_each(plan, progress)]
    scores = tuple(score for result in results for score in result.scores)
    metrics = {m.name: m.info for result in results for m in result.metrics}
    subjects = dict.fromkeys(one.subject for units in plan.units.values() for u in units for one in u.shown)
    answers = [answer for result in results for answer in result.answers]
    run = JudgedRun(
        VERB,
        describe_config(config),
        tuple(_subject(name, plan) for name in subjects),
        tuple(dict.fromkeys(score.setting for score in scores)),
        scores,
        metrics,
        tuple(item for result in results for item in result.items),
        _notes(plan, answers),
        {"judge": _judge_details(plan, answers), "bounds": {q.id: list(q.bounds) for q in plan.questions}},
    )
    return validated(run, people)


def _subject(name: str, plan: LlmPlan) -> Subject:
    """A judged bot with the digests of what its replies came from, where the data has them."""
    shown = (one for units in plan.units.values() for unit in units for one in unit.shown if one.subject == name)
    return Subject(name, fingerprint=", ".join(dict.fromkeys(one.checkpoint for one in shown if one.checkpoint)))


def describe_price(cost: CostEstimate) -> str:
    """The price in words, if it is known."""
    return "" if cost.cost is None else f", at a price of about {cost.cost:.2f}"


def _endpoint(spec: str) -> OpenAIBot:
    if parse_spec(spec).name != "openai":
        raise UsageError(
            f"{spec!r} is not an endpoint.",
            hint="Serve the model (`tertulia serve smollm2`), and give openai:smollm2?base_url=http://127.0.0.1:8000/v1.",
        )
    bot = make_bot(spec, reference=True)
    assert isinstance(bot, OpenAIBot)
    return bot


def _units(config: LlmJudgeConfig, question: JudgeQuestion, problems: Problems | None) -> list[JudgeUnit]:
    units = read_units(config.data, question.about, speaker=config.speaker, problems=problems)
    if question.kind == "pairwise":
        units = make_pairs(units, seed=config.seed)
    else:
        units = [unit for unit in units if len(unit.shown) == 1]
    if not units:
        raise UsageError("The data has pairs only.", hint="Ask for a choice with --question pairwise.")
    if config.limit is not None and config.limit < len(units):
        chosen = random.Random(config.seed).sample(range(len(units)), config.limit)
        units = [units[i] for i in sorted(chosen)]
    return units


def _tasks(question: JudgeQuestion, units: Sequence[JudgeUnit]) -> list[JudgeTask]:
    """One task per unit; for pairs two, in either order."""
    orders = (False, True) if question.kind == "pairwise" else (False,)
    return [JudgeTask(question, make_prompt(question, unit, swapped=swapped)) for unit in units for swapped in orders]


class _Result(NamedTuple):
    scores: Sequence[Score]
    metrics: Sequence[Metric]
    items: Sequence[JudgedItem]
    answers: Sequence[Answer]


def _ssa(plan: LlmPlan, progress: Progress) -> Iterator[_Result]:
    """Sensible? Then specific? With probabilities both are asked about every turn: a doubtful one may be specific."""
    sensible, specific = plan.questions
    units = plan.units[sensible.id]
    progress.step("Asking whether turns make sense", total=len(units))
    tasks = _tasks(sensible, units)
    first = plan.judge.ask(tasks, progress.advance)
    every = plan.judge.settings.logprobs
    chosen = [i for i, answer in enumerate(first) if not math.isnan(answer.value) and (every or answer.value > 0.5)]
    later = _tasks(specific, [units[i] for i in chosen])
    progress.step("Asking whether they are specific", total=len(chosen))
    second = dict(zip(chosen, plan.judge.ask(later, progress.advance), strict=True))
    labels = [JudgeSsa(a.value, second[i].value if i in second else math.nan) for i, a in enumerate(first)]
    asked = dict(zip(chosen, later, strict=True))
    metrics = (judge_labels.SENSIBLENESS, judge_labels.SPECIFICITY, judge_labels.SSA)
    scores = _by_subject(units, labels, metrics, "")
    unread = [
        math.nan if math.isnan(a.value) or (i in second and math.isnan(second[i].value)) else 0.0
        for i, a in enumerate(first)
    ]
    scores += _by_subject(units, unread, (judge_labels.UNPARSED,), "")
    items = []
    for i, unit in enumerate(units):
        answers = [(tasks[i], first[i]), *([(asked[i], second[i])] if i in second else [])]
        items.append(_item(unit, answers, plan, unit.subject, ""))
    yield _Result(scores, (*metrics, judge_labels.UNPARSED), items, [*first, *second.values()])


def _each(plan: LlmPlan, progress: Progress) -> Iterator[_Result]:
    """Questions that do not depend on each other."""
    for question in plan.questions:
        units, tasks = plan.units[question.id], _tasks(question, plan.units[question.id])
        progress.step(f"Asking: {question.text}", total=len(tasks))
        answers = plan.judge.ask(tasks, progress.advance)
        if question.kind == "pairwise":
            yield _pairwise(plan, question, units, tasks, answers)
            continue
        metric = judge_labels.RATING if question.kind == "scale" else judge_labels.YES
        values = [answer.value for answer in answers]
        items = [
            _item(unit, [(task, answer)], plan, unit.subject, question.id)
            for unit, task, answer in zip(units, tasks, answers, strict=True)
        ]
        metrics = (metric, judge_labels.UNPARSED)
        yield _Result(_by_subject(units, values, metrics, question.id), metrics, items, answers)


def _pairwise(
    plan: LlmPlan,
    question: JudgeQuestion,
    units: Sequence[JudgeUnit],
    tasks: Sequence[JudgeTask],
    answers: Sequence[Answer],
) -> _Result:
    """Votes of each bot against each other one; 1 is the first bot of the unit, in whichever order it was shown."""
    verdicts = [JudgeVerdict(a.value, 1 - b.value) for a, b in zip(answers[::2], answers[1::2], strict=True)]
    groups: dict[tuple[str, str], list[tuple[JudgeUnit, JudgeVerdict]]] = {}
    for unit, verdict in zip(units, verdicts, strict=True):
        one, other = (shown.subject for shown in unit.shown)
        groups.setdefault((one, other), []).append((unit, verdict))
        reverse = JudgeVerdict(1 - verdict.second, 1 - verdict.first)
        groups.setdefault((other, one), []).append((unit, reverse))
    metrics = (judge_labels.WINS, judge_labels.FIRST_POSITION, judge_labels.ORDER_AGREEMENT)
    scores = []
    for (one, other), rows in groups.items():
        setting = f"{question.id}, against {other}"
        ids, clusters = [unit.id for unit, _ in rows], [unit.cluster for unit, _ in rows]
        verdicts_of = [verdict for _, verdict in rows]
        batches: list[tuple[Metric, Sequence[object]]] = [(metric, verdicts_of) for metric in metrics]
        batches.append((judge_labels.UNPARSED, [verdict.value for verdict in verdicts_of]))
        for metric, batch in batches:
            scores.append(metric.score(batch, subject=one, setting=setting, units=ids, clusters=clusters))
    items = [
        _item(unit, [(tasks[2 * i], answers[2 * i]), (tasks[2 * i + 1], answers[2 * i + 1])], plan, "", "")
        for i, unit in enumerate(units)
    ]
    return _Result(scores, (*metrics, judge_labels.UNPARSED), items, answers)


def _by_subject(
    units: Sequence[JudgeUnit], values: Sequence[object], metrics: Sequence[Metric], setting: str
) -> list[Score]:
    rows: dict[str, list[int]] = {}
    for i, unit in enumerate(units):
        rows.setdefault(unit.subject, []).append(i)
    return [
        metric.score(
            [values[i] for i in own],
            subject=subject,
            setting=setting,
            units=[units[i].id for i in own],
            clusters=[units[i].cluster for i in own],
        )
        for subject, own in rows.items()
        for metric in metrics
    ]


def _item(
    unit: JudgeUnit, asked: Sequence[tuple[JudgeTask, Answer]], plan: LlmPlan, subject: str, setting: str
) -> JudgedItem:
    """The texts, and every prompt with its answer."""
    calls = [
        {
            "question": task.question.id,
            "system": task.prompt.system,
            "prompt": task.prompt.user,
            "answer": answer.text,
            "value": None if math.isnan(answer.value) else answer.value,
            "attempts": answer.attempts,
        }
        for task, answer in asked
    ]
    first = unit.shown[0]
    texts: dict[str, Json] = {"context": [turn.text for turn in unit.context or first.turns]}
    if len(unit.shown) == 1 and first.reply is not None:
        texts["reply"] = first.reply
    elif first.reply is not None:
        texts["reply"] = " | ".join(f"{one.subject}: {one.reply}" for one in unit.shown)
    words: Json = first.words if len(unit.shown) == 1 else {one.subject: one.words for one in unit.shown}
    content = {
        **texts,
        "asked": calls,
        "model": plan.judge.bot.model,
        "temperature": plan.judge.settings.temperature,
        "words": words,
        "study_item": unit.study_item,
        "text_key": unit.text_key,
    }
    return JudgedItem(unit.id, content, subject, setting)


def _judge_details(plan: LlmPlan, answers: Sequence[Answer]) -> dict[str, Json]:
    judge = plan.judge
    return {
        "model": judge.bot.model,
        "endpoint": judge.bot.endpoint.url,
        "checkpoints": sorted({answer.checkpoint for answer in answers if answer.checkpoint}),
        "questions": [question.model_dump() for question in plan.questions],
        "version": VERSION,
        "settings": judge.settings._asdict(),
        "answers": len(answers),
        "calls": judge.calls,
        "prompt_tokens": judge.prompt_tokens,
        "completion_tokens": judge.completion_tokens,
    }


def _notes(plan: LlmPlan, answers: Sequence[Answer]) -> tuple[str, ...]:
    judge, unread = plan.judge, sum(math.isnan(answer.value) for answer in answers)
    reminded = sum(answer.attempts > 1 for answer in answers)
    notes = [
        f"{plural(len(answers), 'answer')} by {judge.bot.model} at temperature {judge.settings.temperature:g}:"
        f" {plural(judge.calls, 'call')} ({judge.prompt_tokens:,} prompt tokens, {judge.completion_tokens:,} of"
        " answers), the rest were kept answers.",
        f"Could not be read and count for nothing: {plural(unread, 'answer')}; {reminded} needed a reminder.",
    ]
    if judge.settings.logprobs:
        hard = sum(not answer.soft and not math.isnan(answer.value) for answer in answers)
        notes.append(f"Answers are expectations by log-probabilities; {hard} have none and count as said.")
    if any(question.kind == "pairwise" for question in plan.questions):
        notes.append("Every pair was shown in both orders; a bot that wins in one order only has half a win.")
    return tuple(notes)


def describe_cost(cost: CostEstimate) -> str:
    """The estimate in one sentence."""
    kept = f" ({cost.tasks - cost.calls} answers are kept)" if cost.tasks > cost.calls else ""
    return (
        f"At most {cost.tasks} questions, {cost.calls} new calls{kept}: about {cost.prompt_tokens:,} prompt tokens"
        f" ({CHARACTERS_PER_TOKEN:g} characters per token) and {cost.completion_tokens:,} tokens of answers"
        f"{describe_price(cost)}; answers that cannot be read are asked for once more."
    )
