"""What a model might say: its best samples beside beam search's, and what more samples change (Meena, tables 2 and 3).

For each prompt N turns are drawn and put in order by how probable the model itself finds them, log P a token; beam
search's turns stand beside them with theirs. The sweep asks what drawing 1, 20 or 400 does to the turn that is said:
its score, its length, how many different ones there are, and the time it takes. Nothing is filtered.

This is what is asked and what is found; `tertulia.judge.samples_run` has the model do it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.estimate import Estimate

TURNS = "\t"
"""Between the turns of one prompt."""


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _numbers(value: Any) -> Any:
    """ "1,20" as well as a list."""
    return [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class SamplesConfig(Config):
    """Which model, what it is asked, and how it answers."""

    run: str
    """The folder of a training run, with options behind a question mark as bots have them."""
    prompt: Annotated[tuple[str, ...], BeforeValidator(_several)] = ()
    """What the model answers; may be given several times. Tabs part the turns of a longer conversation."""
    prompts: Path | None = None
    """A file of more prompts, one a line."""
    persona: Annotated[tuple[str, ...], BeforeValidator(_several)] = ()
    """A sentence about the one the model speaks for; may be given several times."""
    preset: Literal["meena-base", "meena-full"] = "meena-base"
    """Sample from all tokens at temperature 0.88, or from the best 40 at 1; the run's own options win."""
    samples: int = Field(20, ge=1, le=10_000)
    """How many turns are drawn for each prompt."""
    beams: int = Field(10, ge=1, le=1000)
    """How many beginnings beam search follows."""
    best: int = Field(10, ge=1)
    """How many of the best are shown."""
    sweep: bool = False
    """Also try several numbers of samples."""
    sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=10_000)], ...], BeforeValidator(_numbers)] = Field(
        (1, 20, 400), min_length=1
    )
    """Numbers of samples to try, with commas between them."""
    times: int = Field(1, ge=1)
    """How often each prompt is answered in the sweep, each time by another seed."""
    out: Path | None = None
    """Also leave a report in this folder: page, text, picture, and all of it as JSON."""
    seed: int = 0
    """For the draws."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A turn that might be said."""

    text: str
    logprob: float
    """In nats, its end included."""
    tokens: int
    """Over how many tokens."""
    drawn: int
    """How many samples said the same."""
    finished: bool
    """Whether it ended by itself."""

    @property
    def score(self) -> float:
        """log P a token."""
        return self.logprob / max(1, self.tokens)

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        names = ("text", "score", "logprob", "tokens", "drawn", "finished")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return self.text if self.finished else f"{self.text} (cut)"


@dataclass(frozen=True, slots=True)
class Answers:
    """What might be said to a prompt, best first."""

    prompt: tuple[str, ...]
    """Its turns."""
    samples: tuple[Sampled, ...]
    beam: tuple[Sampled, ...]

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        found = {"samples": self.samples, "beam": self.beam}
        return {"prompt": list(self.prompt)} | {name: [s.as_json() for s in some] for name, some in found.items()}

    def rows(self, best: int) -> list[tuple[str, ...]]:
        """Samples and beam search side by side, so many of each."""
        most = min(best, max(len(self.samples), len(self.beam)))
        return [(*_cells(self.samples, i), *_cells(self.beam, i)) for i in range(most)]


HEAD = ("score", "sample-and-rank", "score", "beam search")


def _cells(found: tuple[Sampled, ...], place: int) -> tuple[str, str]:
    return (f"{found[place].score:.2f}", str(found[place])) if place < len(found) else ("", "")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What drawing so many samples comes to."""

    samples: int
    score: Estimate
    """log P a token of what is said; the interval is over prompts."""
    words: Estimate
    """Words of what is said."""
    distinct: Estimate
    """Share of different turns among those said; it has no interval."""
    seconds: float
    """A turn."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        figures = {name: getattr(self, name).as_json() for name in ("score", "words", "distinct")}
        return {"samples": self.samples} | figures | {"seconds": self.seconds}

    def row(self) -> tuple[object, ...]:
        """For a table."""
        return (self.samples, self.score, self.words, self.distinct, f"{self.seconds:.3f}")


SWEEP_HEAD = ("N", "log P a token", "words", "distinct", "seconds a turn")


def prompts_of(config: SamplesConfig) -> list[tuple[str, ...]]:
    """The prompts as turns, those of the file last."""
    lines = list(config.prompt)
    if config.prompts is not None:
        try:
            lines += config.prompts.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"The prompts in {config.prompts} cannot be read ({error}).") from None
    found = [tuple(turn.strip() for turn in line.split(TURNS) if turn.strip()) for line in lines]
    found = [turns for turns in found if turns]
    if not found:
        raise UsageError("There is no prompt to answer.", hint="Give one with --prompt, or a file with --prompts.")
    return found
