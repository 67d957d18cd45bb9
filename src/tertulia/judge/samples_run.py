"""`judge samples` as one call: sample, search, sweep, and the report."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.core.progress import Progress, Silent
from tertulia.core.text import squash, words
from tertulia.judge.perplexity_bots import Model, judged
from tertulia.judge.perplexity_pages import Part, Picture, write_pages
from tertulia.judge.samples import HEAD, SWEEP_HEAD, Answers, Sampled, SamplesConfig, SweepPoint, prompts_of
from tertulia.metrics.plots import curve_plot
from tertulia.metrics.significance import bootstrap_means
from tertulia.models.decoding import DecodingConfig, Written, decode
from tertulia.models.generator import Generator, Talk

FIGURES, PICTURE = "samples.json", "sweep.svg"
APART = 1_000_003
"""Between the seeds of a prompt's answers, so that no two prompts share one."""


@dataclass(frozen=True, slots=True)
class SamplesOutcome:
    """Everything there is to tell."""

    config: SamplesConfig
    answers: tuple[Answers, ...]
    sweep: tuple[SweepPoint, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Json]:
        """For `--json` and the report."""
        return {
            "settings": self.config.model_dump(mode="json"),
            "prompts": [answers.as_json() for answers in self.answers],
            "sweep": [point.as_json() for point in self.sweep],
            "notes": list(self.notes),
        }


def run_samples(
    config: SamplesConfig, progress: Progress | None = None, *, model: Model | None = None
) -> SamplesOutcome:
    """Answer all prompts in all ways. `model` stands for the run of the config where it is loaded already."""
    progress = progress or Silent()
    prompts = prompts_of(config)
    progress.step(f"Loading {config.run}")
    bot = judged(config.run if model is None else model, preset=config.preset).bot
    talks = [_talk(turns, config.persona) for turns in prompts]
    drawing = bot.decoding.model_copy(update={"method": "sample-and-rank", "score": "mean", "samples": config.samples})
    searching = bot.decoding.model_copy(update={"method": "beam", "beams": config.beams})
    seeds = [config.seed + APART * place for place in range(len(talks))]
    progress.step(f"Drawing {config.samples} samples", total=len(talks))
    drawn = _asked(bot.model, talks, drawing, seeds, progress)
    progress.step(f"Searching with {config.beams} beams", total=len(talks))
    searched = _asked(bot.model, talks, searching, seeds, progress)
    answers = tuple(Answers(*found) for found in zip(prompts, map(_told, drawn), map(_told, searched), strict=True))
    sweep = _sweep(bot.model, talks, drawing, config, progress) if config.sweep else []
    return SamplesOutcome(config, answers, tuple(sweep), _notes(config, drawing, searching))


def sweep_samples(
    model: Generator, talks: Sequence[Talk], decoding: DecodingConfig, samples: int, *, times: int = 1, seed: int = 0
) -> SweepPoint:
    """Say one turn in each talk, so many times, each the best of so many samples."""
    config = decoding.model_copy(update={"method": "sample-and-rank", "score": "mean", "samples": samples})
    asked = [(place, talk) for _ in range(times) for place, talk in enumerate(talks)]
    seeds = [seed + APART * number for number in range(len(asked))]
    start = time.perf_counter()
    found = decode(model, [talk for _, talk in asked], config, seeds)
    seconds = time.perf_counter() - start
    said = [_said(some) for some in found]
    values = np.array([(one.score, len(words(one.text))) for one in said], dtype=np.float64).reshape(-1, 2)
    score, length = bootstrap_means(values, [str(place) for place, _ in asked], seed=seed)
    different = len({squash(one.text).lower() for one in said})
    return SweepPoint(samples, score, length, Estimate(different / len(said), n=len(said)), seconds / len(said))


def _sweep(
    model: Generator, talks: Sequence[Talk], decoding: DecodingConfig, config: SamplesConfig, progress: Progress
) -> list[SweepPoint]:
    points = []
    for size in sorted(set(config.sizes)):
        progress.step(f"The best of {size}")
        points.append(sweep_samples(model, talks, decoding, size, times=config.times, seed=config.seed))
    return points


def _asked(
    model: Generator, talks: Sequence[Talk], config: DecodingConfig, seeds: Sequence[int], progress: Progress
) -> list[list[Written]]:
    found = []
    for talk, seed in zip(talks, seeds, strict=True):
        found += decode(model, [talk], config, [seed])
        progress.advance()
    return found


def _talk(turns: tuple[str, ...], persona: tuple[str, ...]) -> Talk:
    """The last turn is the partner's, and before it the two take turns."""
    own = tuple((len(turns) - place) % 2 == 0 for place in range(len(turns)))
    return Talk(turns, own, persona)


def _told(written: Sequence[Written]) -> tuple[Sampled, ...]:
    return tuple(Sampled(one.text, one.logprob, one.count, one.drawn, one.finished) for one in written)


def _said(written: Sequence[Written]) -> Sampled:
    """The best one that ended by itself; of turns that were all cut, the best."""
    told = _told(written)
    return next((one for one in told if one.finished), told[0])


def _notes(config: SamplesConfig, drawing: DecodingConfig, searching: DecodingConfig) -> tuple[str, ...]:
    top = f"the best {drawing.top_k} tokens" if drawing.top_k else "all tokens"
    return (
        "Scores are log P a token, natural logarithm, of the model's own distribution. Sample-and-rank:"
        f" {config.samples} samples of {top} at temperature {drawing.temperature:g}; beam search: {config.beams} beams,"
        f" length penalty {searching.length_penalty:g}. What says the same is listed once; nothing is filtered; seed"
        f" {config.seed}.",
        f"Turns of more than {drawing.max_tokens} tokens are cut; what is said in the sweep ended by itself, where any"
        " sample did. Intervals (95 %) are by bootstrap over prompts; the seconds are of this machine, all prompts at"
        " once.",
    )


def write_samples_report(outcome: SamplesOutcome, folder: Path) -> None:
    """Page, text, picture and figures in a folder."""
    config = outcome.config
    parts = [Part(" / ".join(answers.prompt), HEAD, tuple(answers.rows(config.best))) for answers in outcome.answers]
    if outcome.sweep:
        rows = tuple(point.row() for point in outcome.sweep)
        caption = "; ".join(f"N = {p.samples}: {p.score.value:.2f} a token" for p in outcome.sweep)
        parts.append(Part("How many samples", SWEEP_HEAD, rows, pictures=(Picture(PICTURE, draw(outcome), caption),)))
    parts.append(Part("How it was done", notes=outcome.notes))
    write_pages(
        folder, title="What the model might say", lead=f"{config.run}: {len(outcome.answers)} prompts.", parts=parts
    )
    told = json.dumps(outcome.as_json(), ensure_ascii=False, indent=2, allow_nan=False)
    (folder / FIGURES).write_text(told + "\n", encoding="utf-8")


def draw(outcome: SamplesOutcome) -> str:
    """The sweep as curves against the number of samples."""
    points = outcome.sweep
    curves = {
        "log P a token": [(float(p.samples), p.score.value) for p in points],
        "share of different turns": [(float(p.samples), p.distinct.value) for p in points],
        "words": [(float(p.samples), p.words.value) for p in points],
        "seconds a turn": [(float(p.samples), p.seconds) for p in points],
    }
    return curve_plot(curves, x="samples, N", log_x=True)
