"""What a model may say: its best samples beside those of beam search, and what more samples change (Meena, table 2, 3).

For each prompt N replies are sampled and ordered by their log-probability per token under the model itself; those of
beam search are shown beside them. The sweep compares the best of 1, 20 or 400 samples: its log-probability, its length,
how many different replies there are, and the time it takes. Nothing is filtered. Units are prompts, so that two models
can be compared paired on the same prompts; all replies are kept as items.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tertulia.artefacts.files import fingerprint
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, MissingFile, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.judge.config import SamplesConfig
from tertulia.judge.replies import GeneratorSource, load_bot, short_names
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, describe_config, describe_subject, unique_ids
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.registry import metric_named
from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.generated import Generation
from tertulia.models.generator import DialogueView, Generator

TURN_SEPARATOR = "\t"
"""Between the turns of one prompt."""
SEED_STRIDE = 1_000_003
"""Between the seeds of two prompts, so that no two prompts share one."""
SAMPLING, BEAM = "sample-and-rank", "beam search"
METRICS = ("log-probability per token", "words per reply")
SWEEP_METRICS = (*METRICS, "distinct replies", "seconds per reply")


def run_samples(
    config: SamplesConfig, progress: Progress | None = None, *, model: GeneratorSource | None = None
) -> JudgedRun:
    """Answer all prompts in all ways. `model` replaces the run of the config if it is already in memory."""
    progress = progress or Silent()
    prompts = read_prompts(config)
    progress.step(f"Loading {config.run}")
    loaded = load_bot(config.run if model is None else model, preset=config.preset)
    (name,) = short_names([config.run])
    views = [_view(turns, config.persona) for turns in prompts]
    seeds = [config.seed + SEED_STRIDE * i for i in range(len(views))]
    decoding = loaded.bot.decoding
    ways = {
        SAMPLING: decoding.model_copy(update={"method": SAMPLING, "score": "mean", "samples": config.samples}),
        BEAM: decoding.model_copy(update={"method": "beam", "beams": config.beams}),
    }
    scores: list[Score] = []
    items: list[JudgedItem] = []
    for setting, way in ways.items():
        progress.step(f"Generating by {setting}", total=len(views))
        replies = _decode_each(loaded.bot.model, views, way, seeds, progress)
        scores += _scores([_best(some) for some in replies], prompts, subject=name, setting=setting)
        items += _items(replies, prompts, subject=name, setting=setting)
    sizes = sorted(set(config.sizes)) if config.sweep else []
    for n in sizes:
        progress.step(f"Best of {n}")
        scores += sweep_scores(
            loaded.bot.model, views, prompts, ways[SAMPLING], n, subject=name, times=config.times, seed=config.seed
        )
    subject = describe_subject(name, config.run, loaded.bot) if model is None else Subject(name, config.run)
    return JudgedRun(
        verb="samples",
        config=describe_config(config),
        subjects=(replace(subject, kind=loaded.architecture),),
        settings=(SAMPLING, BEAM, *(f"best of {n}" for n in sizes)),
        scores=tuple(scores),
        metrics={name: metric_named(name).info for name in dict.fromkeys(score.metric for score in scores)},
        items=tuple(items),
        notes=_notes(config, ways[SAMPLING], ways[BEAM]),
        details={"sweep": sizes},
    )


def describe_prompts(config: SamplesConfig) -> dict[str, Json]:
    """Where the prompts are from, and their digest."""
    digest = fingerprint(TURN_SEPARATOR.join(turns) for turns in read_prompts(config))
    return {"path": str(config.prompts or "prompts of the command line"), "split": None, "digest": digest}


def read_prompts(config: SamplesConfig) -> list[tuple[str, ...]]:
    """The prompts as turns, those of the file last."""
    lines = list(config.prompt)
    if config.prompts is not None:
        try:
            lines += config.prompts.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            raise MissingFile(f"File not found: {config.prompts}", hint="--prompts expects a text file.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"Cannot read the prompts in {config.prompts} ({error}).") from None
    prompts = [tuple(turn.strip() for turn in line.split(TURN_SEPARATOR) if turn.strip()) for line in lines]
    prompts = [turns for turns in prompts if turns]
    if not prompts:
        raise UsageError("There is no prompt to reply to.", hint="Give one with --prompt, or a file with --prompts.")
    return prompts


def sweep_scores(
    model: Generator,
    views: Sequence[DialogueView],
    prompts: Sequence[tuple[str, ...]],
    decoding: DecodingConfig,
    samples: int,
    *,
    subject: str,
    times: int = 1,
    seed: int = 0,
) -> list[Score]:
    """Reply to each prompt several times, each time with the best of so many samples."""
    config = decoding.model_copy(update={"method": SAMPLING, "score": "mean", "samples": samples})
    repeated = [i for _ in range(times) for i in range(len(views))]
    seeds = [seed + SEED_STRIDE * number for number in range(len(repeated))]
    start = time.perf_counter()
    replies = decode(model, [views[i] for i in repeated], config, seeds)
    seconds = time.perf_counter() - start
    best = [_best(some) for some in replies]
    return _scores(best, [prompts[i] for i in repeated], subject=subject, setting=f"best of {samples}", seconds=seconds)


def _scores(
    replies: Sequence[Generation],
    prompts: Sequence[tuple[str, ...]],
    *,
    subject: str,
    setting: str,
    seconds: float | None = None,
) -> list[Score]:
    """Scores of one reply per prompt; with the time it took, also those of the sweep."""
    names = [_name(turns) for turns in prompts]
    resources = {"logprobs": [_score(reply) for reply in replies], "seconds": seconds}
    return [
        metric_named(metric).score(
            [ReplyExample(reply.text, context=turns) for reply, turns in zip(replies, prompts, strict=True)],
            subject=subject,
            setting=setting,
            units=unique_ids(names),
            clusters=names,
            resources=resources,
        )
        for metric in (METRICS if seconds is None else SWEEP_METRICS)
    ]


def _items(
    replies: Sequence[Sequence[Generation]], prompts: Sequence[tuple[str, ...]], *, subject: str, setting: str
) -> Iterator[JudgedItem]:
    """Every reply to each prompt, best first; the best one is the unit of the score."""
    for unit, turns, some in zip(unique_ids(map(_name, prompts)), prompts, replies, strict=True):
        for rank, reply in enumerate(some, 1):
            content = {
                "prompt": unit,
                "context": list(turns),
                "reply": reply.text,
                "score": _score(reply),
                "logprob": reply.logprob,
                "tokens": reply.count,
                "drawn": reply.drawn,
                "finished": reply.finished,
            }
            yield JudgedItem(unit if reply is _best(some) else f"{unit} [{rank}]", content, subject, setting)


def _decode_each(
    model: Generator, views: Sequence[DialogueView], config: DecodingConfig, seeds: Sequence[int], progress: Progress
) -> list[list[Generation]]:
    replies = []
    for view, seed in zip(views, seeds, strict=True):
        replies += decode(model, [view], config, [seed])
        progress.advance()
    return replies


def _view(turns: tuple[str, ...], persona: tuple[str, ...]) -> DialogueView:
    """The last turn is the partner's; before it the two speakers alternate."""
    own = tuple((len(turns) - i) % 2 == 0 for i in range(len(turns)))
    return DialogueView(turns, own, persona)


def _name(turns: Sequence[str]) -> str:
    return " / ".join(turns)


def _score(reply: Generation) -> float:
    """Log-probability per token."""
    return reply.logprob / max(1, reply.count)


def _best(replies: Sequence[Generation]) -> Generation:
    """The best reply that ended by itself; if all were truncated, the best."""
    return next((reply for reply in replies if reply.finished), replies[0])


def _notes(config: SamplesConfig, sampling: DecodingConfig, beam: DecodingConfig) -> tuple[str, ...]:
    top = f"the top {sampling.top_k} tokens" if sampling.top_k else "all tokens"
    return (
        "Scores are log-probabilities per token (natural logarithm) of the model's own distribution. Sample-and-rank:"
        f" {config.samples} samples from {top} at temperature {sampling.temperature:g}; beam search: {config.beams}"
        f" beams, length penalty {beam.length_penalty:g}. Equal replies are listed once; nothing is filtered; seed"
        f" {config.seed}.",
        f"Replies of more than {sampling.max_tokens} tokens are truncated; figures are of the best reply that ended by"
        " itself, if any did. 95 % intervals by bootstrap over prompts; times are of this machine, in one batch.",
    )
