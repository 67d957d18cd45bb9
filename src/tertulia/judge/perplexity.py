"""How well models that write foresee what people say: what is asked, and what is found.

Perplexity is told per word, which compares models whatever their tokens, and per token. Beside it, where asked for: how
often the true reply is the likeliest of twenty, and how near the replies written come to it in words (F1) and in the
vectors of words. Every figure has an interval over dialogues. Nothing here needs a model; the counting is done in
`tertulia.judge.perplexity_count`, all of it together in `tertulia.judge.perplexity_run`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Json, Whose
from tertulia.core.estimate import Estimate
from tertulia.judge.rank import Figures, Setting, Wording, figures_as_json

EVERYBODY = "all"
PERSONACHAT_SPEAKERS = frozenset(("first", "second"))
"""As Persona-Chat's reader calls them; the paper's bots speak for the second."""
WORD, TOKEN = "perplexity", "perplexity per token"
Kind = Literal["exact", "importance", "bound"]
"""The likelihood itself, its estimate by importance sampling, or a bound by one draw of the latent variables."""
TableName = Literal["personachat", "selfplay"]


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class PerplexityConfig(Config):
    """Which models, on what, and what is measured beside perplexity."""

    runs: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(min_length=1)
    """Folders of training runs, with options behind a question mark as bots have them; the first is compared."""
    data: str = "sample"
    """A file or folder of dialogues, or `sample`."""
    split: str = "valid"
    """The split to take, empty for all; tune on valid, look at test once."""
    persona: Annotated[tuple[Whose, ...], BeforeValidator(_several)] = ()
    """Whose persona the model is shown: none, own, their, both, or several, one by one; own if there is any."""
    wording: Annotated[tuple[Wording, ...], BeforeValidator(_several)] = ()
    """Wording of the personas, original or revised, or both one by one; by default original."""
    speaker: str | None = None
    """Only turns of this speaker, or of `all`; by default all, but in Persona-Chat the second, as its paper has it."""
    limit: int | None = Field(None, ge=1)
    """Take perplexity over so many dialogues only, drawn by the seed."""
    replies: int = Field(0, ge=0)
    """Write replies in so many contexts, drawn by the seed, and compare them with the true ones; 0 for none."""
    preset: str | None = None
    """How replies are written: meena-base or meena-full."""
    method: str | None = None
    """How replies are written: sample, greedy, beam or sample-and-rank; by default greedy, where no preset is given."""
    ranked: int = Field(0, ge=0)
    """Rank so many true replies among others by likelihood, drawn by the seed as `judge rank` does; 0 for none."""
    candidates: int = Field(20, ge=2, le=1000)
    """The true reply and its distractors together."""
    importance_samples: int = Field(20, ge=1)
    """Draws of the latent variables for each likelihood, in models that have some."""
    vectors: Path | None = None
    """Vectors of words (GloVe's text, or .npz) to compare replies by: average, extrema and greedy matching."""
    table: Annotated[tuple[TableName, ...], BeforeValidator(_several)] = ()
    """Print the tables of a paper beside its figures: personachat (tables 3 and 5) or selfplay (table A.1)."""
    out: Path | None = None
    """Also leave a report in this folder: page, text, picture, figures as JSON, and the replies."""
    seed: int = 0
    """For whatever is drawn."""


PLANS: dict[TableName, dict[str, Any]] = {
    "personachat": {
        "persona": ("none", "own", "their", "both"),
        "wording": ("original", "revised"),
        "replies": 200,
        "ranked": 500,
    },
    "selfplay": {"persona": ("none",), "replies": 200},
}
"""What a table needs, where nothing else is asked for; of two tables the first decides."""


def planned(config: PerplexityConfig) -> PerplexityConfig:
    """The config with what its tables need, where it was not given."""
    plan: dict[str, Any] = {}
    for name in reversed(config.table):
        plan |= PLANS[name]
    return config.model_copy(update={k: v for k, v in plan.items() if k not in config.model_fields_set})


@dataclass(frozen=True, slots=True)
class Counts:
    """What perplexity was taken over."""

    dialogues: int = 0
    turns: int = 0
    words: int = 0
    """Punctuation marks and the ends of turns included."""
    tokens: int = 0
    """Of the model's own."""
    unknown: int = 0
    """How many of these stand for words the model does not know."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {name: getattr(self, name) for name in ("dialogues", "turns", "words", "tokens", "unknown")}


@dataclass(frozen=True, slots=True)
class Said:
    """A reply that was written, and the true one."""

    id: str
    """Of the exchange."""
    dialogue: str
    asked: str
    """The turn before."""
    reply: str
    reference: str

    def as_json(self) -> dict[str, Json]:
        """For the file of replies."""
        return {name: getattr(self, name) for name in ("id", "dialogue", "asked", "reply", "reference")}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found about one run in one setting."""

    run: str
    """A short name."""
    spec: str
    model: str
    """The architecture."""
    setting: Setting
    kind: Kind
    figures: Figures
    counts: Counts
    said: tuple[Said, ...] = ()
    decoding: dict[str, Json] = field(default_factory=dict)
    """How replies were written, where some were."""
    missing_vectors: float | None = None
    """Share of the words of replies and references that have no vector."""

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        told: dict[str, Json] = {"run": self.run, "spec": self.spec, "model": self.model, "likelihood": self.kind}
        told |= {"persona": self.setting.whose, "wording": self.setting.wording}
        told |= figures_as_json(self.figures) | {"counts": self.counts.as_json()}
        if self.missing_vectors is not None:
            told["missing_vectors"] = self.missing_vectors
        return told | ({"decoding": self.decoding} if self.decoding else {})


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times the first run's perplexity per word another one's is, on the same words."""

    run: str
    than: str
    setting: Setting
    times: Estimate

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        whose = {"persona": self.setting.whose, "wording": self.setting.wording}
        return {"run": self.run, "than": self.than} | whose | {"times": self.times.as_json()}


def speaker_of(config: PerplexityConfig, dialogues: Iterable[Dialogue]) -> str | None:
    """Whose turns count; None for everybody's."""
    if config.speaker is not None:
        return None if config.speaker == EVERYBODY else config.speaker
    names = {name for dialogue in dialogues for name in dialogue.speakers}
    return "second" if names == PERSONACHAT_SPEAKERS else None


def settings_of(config: PerplexityConfig, dialogues: Sequence[Dialogue]) -> list[Setting]:
    """The settings to judge in; where nobody said whose, own personas are shown if the data has any."""
    any_own = any(persona.sentences for dialogue in dialogues for persona in dialogue.personas.values())
    chosen: tuple[Whose, ...] = config.persona or (("own",) if any_own else ("none",))
    wordings: tuple[Wording, ...] = config.wording or ("original",)
    found = [Setting() if whose == "none" else Setting(whose, wording) for whose in chosen for wording in wordings]
    return list(dict.fromkeys(found))
