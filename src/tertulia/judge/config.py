"""Configs of all judge commands, and the persona settings they share. Nothing here needs torch.

Every judge reads some data, shows a model or bot some of the personas, and leaves a judged run in a folder; what is
common to them is in `JudgeConfig` and `PersonaJudgeConfig`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BeforeValidator, Field

from tertulia.artefacts.outputs import Force, Output, has_manifest_of
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Exchange, Persona, PersonaScope
from tertulia.core.reply import Ask
from tertulia.corpus.candidates import shown

Wording = Literal["original", "revised"]
RankTableName = Literal["personachat", "ubuntu"]
PerplexityTableName = Literal["personachat", "selfplay"]
T = TypeVar("T")
C = TypeVar("C", bound=Config)


def as_tuple(value: Any) -> Any:
    """A single string as a tuple of one, so that `persona = "own"` works in TOML too."""
    return (value,) if isinstance(value, str) else value


def comma_separated(value: Any) -> Any:
    """ "1,20" as well as ["1", "20"] and ["1,20"]."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return value
    return [p for part in parts for p in (part.split(",") if isinstance(part, str) else [part]) if str(p).strip()]


Strings = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


class PersonaSetting(NamedTuple):
    """Which personas a bot is shown, in which wording."""

    scope: PersonaScope = "none"
    wording: Wording = "original"

    def __str__(self) -> str:
        return self.scope if self.scope == "none" else f"{self.scope}, {self.wording}"

    def fits(self, exchange: Exchange) -> bool:
        """Whether the exchange has the personas to be shown, in that wording."""
        return all(_sentences(persona, self.wording) for persona in self.select(exchange.persona, exchange.partner))

    def select(self, own: T, their: T) -> tuple[T, ...]:
        """Which of the two are shown.

        >>> PersonaSetting("their").select(1, 2), PersonaSetting("both").select(1, 2), PersonaSetting().select(1, 2)
        ((2,), (1, 2), ())
        """
        return {"none": (), "own": (own,), "their": (their,), "both": (own, their)}[self.scope]

    def own_sentences(self, exchange: Exchange) -> tuple[str, ...]:
        """What the bot is shown about itself."""
        return _sentences(exchange.persona, self.wording) if self.scope in ("own", "both") else ()

    def ask(self, exchange: Exchange, *, seed: int) -> Ask:
        """The request to the bot."""
        visible = shown(exchange, self.scope, revised=self.wording == "revised")
        return Ask(visible.dialogue, visible.response.speaker, seed=seed)


def _sentences(persona: Persona | None, wording: Wording) -> tuple[str, ...]:
    if persona is None:
        return ()
    return persona.revised if wording == "revised" else persona.sentences


OWN = PersonaSetting("own")
WHERE = frozenset({"out", "report", "force"})
"""Fields that say where a judged run goes, not what it is."""


def is_same_run(folder: Path, config: Config) -> bool:
    """Whether a folder has the judged run of the same command, which may be judged and saved there again."""
    return has_manifest_of(folder, {"kind": RUN_KIND, "config": config.model_dump(mode="json", exclude=set(WHERE))})


RUN_KIND = "judged-run"
RUN_FOLDER = Output("folder", same=is_same_run)
"""A folder for a judged run."""


class JudgeConfig(Config):
    """What every judge has: data, and a folder for the judged run."""

    data: str = "sample"
    """A file or folder of dialogues, or `sample`."""
    split: str = "valid"
    """The split to use; empty for all. A single file has no splits. Tune on valid, and use test once."""
    seed: int = 0
    """Random seed."""
    out: Annotated[Path | None, RUN_FOLDER] = None
    """Folder to save the judged run in: every value, the texts it was computed from, and the report."""
    force: Force = False

    @property
    def selected_split(self) -> str | None:
        """The split to load; None for all, and for a single file unless a split was given."""
        if "split" not in self.model_fields_set and Path(self.data).is_file():
            return None
        return self.split or None

    @property
    def source(self) -> str:
        """Data and split in words."""
        return f"{self.data}, split {self.selected_split}" if self.selected_split else self.data


class TurnJudgeConfig(JudgeConfig):
    """What judges of turns have in common: whose turns, and which personas the bot sees."""

    persona: Annotated[tuple[PersonaScope, ...], BeforeValidator(as_tuple)] = ()
    """Whose persona the bot sees; repeat the option to compare several. By default own if the data has personas."""
    wording: Annotated[tuple[Wording, ...], BeforeValidator(as_tuple)] = ()
    """Wording of the personas; repeat the option to compare both. By default original."""
    speaker: str | None = None
    """Evaluate only turns of this speaker; all by default."""

    def settings(self, *, has_personas: bool) -> list[PersonaSetting]:
        """The settings to judge in, each once."""
        scopes: tuple[PersonaScope, ...] = self.persona or (("own",) if has_personas else ("none",))
        wordings: tuple[Wording, ...] = self.wording or ("original",)
        grid = (PersonaSetting(scope, wording) for scope in scopes for wording in wordings)
        return list(dict.fromkeys(PersonaSetting() if setting.scope == "none" else setting for setting in grid))


class PersonaJudgeConfig(TurnJudgeConfig):
    """A judge of turns that can do with fewer of them."""

    limit: int | None = Field(default=None, ge=1)
    """Evaluate at most this many replies, drawn at random; useful for slow bots."""


class RankSettings(PersonaJudgeConfig):
    """What is ranked, among how many candidates, and by which metrics."""

    data: str = "sample"
    """A file or folder of dialogues, a test set made by `corpus testset`, or `sample`."""
    candidates: int = Field(default=20, ge=2, le=1000)
    """Number of candidates, the true reply included; a test set has its own."""
    hard: Annotated[bool, Cli("--hard/--random")] = False
    """Use distractors that are similar to the true reply instead of random ones."""
    published: Annotated[bool, Cli("--published/--drawn")] = False
    """Rank the candidates that come with the data, as in ParlAI's Persona-Chat, instead of drawing distractors."""
    metrics: Annotated[Strings, Cli("--metric")] = Field(default=("hits@1", "hits@5", "mrr"), min_length=1)
    """Ranking metrics, one per option: hits@K, recall@K, 1inM (recall@1 among M candidates), mrr, or a plugin's."""


class RankConfig(RankSettings):
    """Which bots are ranked, and what is reported."""

    bots: Annotated[Strings, Cli(argument=True)] = Field(default=("tfidf", "generic"), min_length=1)
    """Bots to judge; the first is the baseline that the others are compared with."""
    by_length: Annotated[bool, Cli("--by-length/--together")] = False
    """Also break the results down by the number of turns before the reply."""
    table: RankTableName | None = None
    """Print the results beside those of a paper: personachat (tables 3 and 6) or ubuntu (table 4)."""
    report: Annotated[Path | None, Output("file")] = None
    """Also write the report to this HTML file."""


class PerplexityConfig(PersonaJudgeConfig):
    """Which models, on what, and what is measured beside perplexity."""

    runs: Annotated[Strings, Cli(argument=True)] = Field(min_length=1)
    """Generative models: folders of training runs, smollm2, hf:NAME_OR_FOLDER, each optionally followed by
    ?option=value; the first is the baseline."""
    speaker: str | None = None
    """Evaluate only turns of this speaker, or `all`. By default all; in Persona-Chat the second speaker, as in its
    paper."""
    limit: int | None = Field(default=None, ge=1)
    """Compute perplexity on at most this many dialogues, drawn at random."""
    replies: int = Field(default=0, ge=0)
    """Generate replies in this many contexts, drawn at random, and compare them with the human ones; 0 for none."""
    metrics: Annotated[Strings, Cli("--metric")] = ()
    """Metrics of generated replies, one per option: f1, distinct-N, or a plugin's. By default f1, and with --vectors
    also the embedding metrics."""
    preset: str | None = None
    """Preset for decoding replies: meena-base or meena-full."""
    method: str | None = None
    """Decoding method: sample, greedy, beam or sample-and-rank; greedy unless a preset is given."""
    ranked: int = Field(default=0, ge=0)
    """Also rank by likelihood, for this many replies, with the same distractors as `judge rank`; 0 for none."""
    candidates: int = Field(default=20, ge=2, le=1000)
    """Number of candidates to rank, the true reply included."""
    importance_samples: int = Field(default=20, ge=1)
    """Importance samples per likelihood, for models with latent variables."""
    vectors: Path | None = None
    """Word vectors (GloVe's text format, or .npz) for the embedding metrics: average, extrema and greedy."""
    table: Annotated[tuple[PerplexityTableName, ...], BeforeValidator(as_tuple)] = ()
    """Print the results beside those of a paper: personachat (tables 3 and 5) or selfplay (table A.1)."""


class RepliesConfig(TurnJudgeConfig):
    """Which bots reply where, or which replies are given, and by which metrics they are judged."""

    bots: Annotated[Strings, Cli(argument=True)] = ()
    """Bots to judge, of any kind; the first is the baseline that the others are compared with."""
    replies: int = Field(default=100, ge=1)
    """Generate replies in this many contexts, drawn at random; all bots get the same ones."""
    given: Path | None = None
    """Judge the replies of this file instead: JSON lines with `context` (a list of turns), `reply` and, if there are
    any, `reference`, `persona` (a list of sentences), `bot`, `dialogue` and `id`."""
    metrics: Annotated[Strings, Cli("--metric")] = ()
    """Metrics of replies, one per option; see docs/reply-scores.md. By default those that take seconds: F1 where there
    are references, relatedness, specificity, genericness, length and diversity."""
    resource: dict[str, str] = Field(default_factory=dict)
    """What metrics need, if not the default: language_model=hf:NAME_OR_FOLDER, ranker=RUN, entailment=hf:NAME_OR_FOLDER
    and so on."""


class SamplesConfig(Config):
    """Which model, which prompts, and how to decode."""

    run: Annotated[str, Cli(argument=True)]
    """The folder of a training run, optionally followed by ?option=value."""
    prompt: Strings = ()
    """A message to reply to; repeat the option for more. Tabs separate the turns of a longer conversation."""
    prompts: Path | None = None
    """A file with more prompts, one per line."""
    persona: Strings = ()
    """A sentence of the model's persona; repeat the option for more."""
    preset: Literal["meena-base", "meena-full"] = "meena-base"
    """Sample from all tokens at temperature 0.88 (base) or from the top 40 at 1 (full); options of RUN override it."""
    samples: int = Field(default=20, ge=1, le=10_000)
    """Number of samples per prompt."""
    beams: int = Field(default=10, ge=1, le=1000)
    """Number of beams in beam search."""
    best: int = Field(default=10, ge=1)
    """How many of the best replies to show."""
    sweep: bool = False
    """Also compare several numbers of samples."""
    sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=10_000)], ...], BeforeValidator(comma_separated)] = Field(
        default=(1, 20, 400), min_length=1
    )
    """With --sweep: the numbers of samples, separated by commas."""
    times: int = Field(default=1, ge=1)
    """With --sweep: how often to answer each prompt, each time with another seed."""
    seed: int = 0
    """Random seed."""
    out: Annotated[Path | None, RUN_FOLDER] = None
    """Folder to save the judged run in: every value, the texts it was computed from, and the report."""
    force: Force = False


class ProfileConfig(JudgeConfig):
    """Which profiles are predicted, and among how many."""

    data: str = "sample"
    """A file or folder of dialogues with personas, or `sample`."""
    candidates: int = Field(default=101, ge=2)
    """Number of candidate profiles, the true one included; all of them if the data has fewer."""
    wording: Wording = "original"
    """Wording of the personas."""
    utterances: int = Field(default=8, ge=1)
    """Maximum number of utterances: the error rate is computed for the first 1, 2, ... of them."""


def planned(config: C, plans: Iterable[Mapping[str, Any]]) -> C:
    """The config with what its tables need, unless it was given; earlier plans override later ones."""
    plan: dict[str, Any] = {}
    for one in plans:
        plan = {**one, **plan}
    return config.model_copy(update={k: v for k, v in plan.items() if k not in config.model_fields_set})
