"""A judged run: the scores of one `judge` command with every value behind them, saved as one folder.

The folder has a manifest (what was judged, on which data, how, with which versions), `scores.parquet` (one row per
subject, setting, metric and unit), `items.parquet` (the texts of the units) and the report. A report opened years later
needs nothing else: not the models, not the data, not even the plugin that a metric came from.
"""

import math
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tertulia import __version__
from tertulia.artefacts.files import atomic_write
from tertulia.artefacts.manifest import MANIFEST, is_complete, open_folder, read_about, read_manifest, seal
from tertulia.core.command_line import command_line
from tertulia.core.config import Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, MissingFile
from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.corpus.identity import DIGEST_LENGTH
from tertulia.corpus.identity import describe_data as describe_data
from tertulia.judge.config import RUN_KIND, WHERE
from tertulia.metrics.metric import MetricInfo
from tertulia.metrics.significance import Comparison, compare, crossed_estimate, estimates
from tertulia.talk.spec import parse_spec

KIND, FORMAT = RUN_KIND, 1
SCORES, ITEMS = "scores.parquet", "items.parquet"
_REMAKE = "Judge again, or copy the folder again."
_SCORE_SCHEMA = pa.schema(
    [
        *((name, pa.dictionary(pa.int32(), pa.string())) for name in ("subject", "setting", "metric")),
        ("unit", pa.string()),
        ("cluster", pa.string()),
        ("value", pa.float64()),
        ("weight", pa.float64()),
    ]
)
_ITEM_SCHEMA = pa.schema([(name, pa.string()) for name in ("unit", "subject", "setting", "content")])


@dataclass(frozen=True, slots=True)
class Subject:
    """What was judged: a bot or a model."""

    name: str
    """As in the scores; no two subjects of a run share it."""
    spec: str = ""
    """As it was given on the command line."""
    kind: str = ""
    """Name of the bot or of the model's architecture."""
    fingerprint: str = ""
    """Of its checkpoint or index, if it has one."""


@dataclass(frozen=True, slots=True)
class JudgedItem:
    """The texts behind a unit."""

    unit: str
    content: Mapping[str, Json]
    """Such as context, reply, reference and candidates."""
    subject: str = ""
    """Empty if the item is the same for all subjects."""
    setting: str = ""
    """Empty if the item is the same in all settings."""


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """Scores, the texts behind them, and what there is to know about them."""

    verb: str
    """The command: rank, perplexity, samples, profiles, curve, llm, ppi, grounding or study."""
    config: Mapping[str, Json]
    """The resolved config."""
    subjects: tuple[Subject, ...]
    """The first one is the baseline."""
    settings: tuple[str, ...]
    scores: tuple[Score, ...]
    metrics: Mapping[str, MetricInfo]
    """By name, those of the scores."""
    items: tuple[JudgedItem, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know to interpret the figures."""
    details: Mapping[str, Json] = field(default_factory=dict)
    """What else a command records, such as chance level, token counts and decoding options."""
    about: Mapping[str, Json] = field(default_factory=dict)
    """When it was created, with which versions, and on which data."""

    @property
    def seed(self) -> int:
        """The seed of the run, which also draws the intervals."""
        return int(self.config.get("seed") or 0)

    def score(self, subject: str, setting: str, metric: str) -> Score | None:
        """The score of a cell."""
        return next((s for s in self.scores if s.key == (subject, setting, metric)), None)

    @property
    def raters(self) -> dict[str, str]:
        """The rater of each unit that is a rating by a person."""
        return {item.unit: item.content["rater"] for item in self.items if "rater" in item.content}

    def estimates(self) -> dict[tuple[str, str, str], Estimate]:
        """The figure of every score by subject, setting and metric; intervals of ratings are over raters too.

        `details["bounds"]` has the ends of rating scales by setting; other ratings are shares. `details["estimates"]`
        has figures that are no reduction of their own values alone, such as prediction-powered ones.
        """
        if saved := self.details.get("estimates"):
            return {(row[0], row[1], row[2]): _saved_estimate(*row[3:]) for row in saved}
        bounds = {setting: (low, high) for setting, (low, high) in self.details.get("bounds", {}).items()}
        raters = self.raters
        if raters:
            return {
                score.key: crossed_estimate(
                    score, self.metrics[score.metric], raters, bounds=bounds.get(score.setting, (0, 1))
                )
                for score in self.scores
            }
        figures = estimates(self.scores, self.metrics, scales=bounds, seed=self.seed)
        return {score.key: figure for score, figure in zip(self.scores, figures, strict=True)}

    def comparisons(self, baseline: str | None = None) -> list[Comparison]:
        """Every other subject against the baseline (the first one by default), where both have units in common.

        `details["compared"]` may name the settings and subjects that are compared; by default all of them.
        """
        against = baseline or (self.subjects[0].name if self.subjects else "")
        only = self.details.get("compared") or {}
        settings, subjects = only.get("settings"), only.get("subjects")
        theirs = (
            s
            for s in self.scores
            if s.subject != against
            and (settings is None or s.setting in settings)
            and (subjects is None or s.subject in subjects)
        )
        pairs = ((s, self.score(against, s.setting, s.metric)) for s in theirs)
        compared = (compare(s, other, self.metrics[s.metric], seed=self.seed) for s, other in pairs if other)
        return [one for one in compared if one and one.estimate.n]

    def metric_names(self) -> list[str]:
        """The metrics of all scores, in the order in which they first occur."""
        return list(dict.fromkeys(score.metric for score in self.scores))


def _saved_estimate(value: float | None, low: float | None, high: float | None, n: int) -> Estimate:
    value, low, high = (math.nan if x is None else x for x in (value, low, high))
    return Estimate(value, low, high, n=n)


def describe_subject(name: str, spec: str, bot: object = None) -> Subject:
    """A subject with the digest of its checkpoint or index: that of its folder, or what the loaded bot has."""
    parsed = parse_spec(spec)
    folder = Path(parsed.target or parsed.name)
    about = read_about(folder) if is_complete(folder) else {}
    digest = str(about.get("fingerprint") or (checkpoint_digest(bot) if bot is not None else ""))
    return Subject(name, spec, str(about.get("model", parsed.name)), digest)


def checkpoint_digest(bot: object) -> str:
    """The digest of a loaded bot's weights or index; empty if it has none, or if they are elsewhere."""
    if own := getattr(bot, "fingerprint", None):
        return str(own)
    engine = getattr(bot, "engine", None)
    if isinstance(engine, Mapping) and engine.get("weights_sha256"):
        return str(engine["weights_sha256"])[:DIGEST_LENGTH]
    compute = getattr(bot, "weights_digest", None)  # of bots whose weights take a while to read
    return str(compute()) if compute else ""


def describe_config(config: Config) -> dict[str, Json]:
    """A config as it is saved with a run; where the run is saved does not belong to it."""
    return config.model_dump(mode="json", exclude=set(WHERE))


def unique_ids(ids: Iterable[str]) -> list[str]:
    """Ids of units, made different where they repeat.

    >>> unique_ids(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    seen: dict[str, int] = {}
    unique = []
    for name in ids:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique


def identified(run: JudgedRun, *, data: Mapping[str, Json] | None = None) -> JudgedRun:
    """The run with command line, time, versions and data, unless it has them."""
    if run.about:
        return run
    about: dict[str, Json] = {
        "command": command_line(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "data": dict(data) if data else None,
    }
    return replace(run, about=about)


def save_run(run: JudgedRun, folder: Path, *, data: Mapping[str, Json] | None = None) -> JudgedRun:
    """Write scores, items and manifest; the manifest comes last, so a folder with one is complete.

    Returns the run as `load_run` reads it: with the time, the versions and the data it was judged on.
    """
    open_folder(folder)
    about = dict(identified(run, data=data).about)
    with atomic_write(folder / SCORES) as file:
        pq.write_table(_score_table(run.scores), file, compression="zstd")
    with atomic_write(folder / ITEMS) as file:
        pq.write_table(_item_table(run.items), file, compression="zstd")
    record: dict[str, Json] = {
        "verb": run.verb,
        "config": dict(run.config),
        "subjects": [asdict(subject) for subject in run.subjects],
        "settings": list(run.settings),
        "metrics": [metric.as_json() for metric in run.metrics.values()],
        "scores": [list(score.key) for score in run.scores],
        "notes": list(run.notes),
        "details": dict(run.details),
        "about": about,
    }
    seal(folder, kind=KIND, format=FORMAT, files=[SCORES, ITEMS], about=record)
    return load_run(folder)


def load_run(folder: Path) -> JudgedRun:
    """Read a judged run; a folder that is incomplete, damaged or of a newer format is an error."""
    if not folder.is_dir():
        raise MissingFile(f"Folder not found: {folder}", hint="Give the --out folder of a `tertulia judge` command.")
    if not (folder / MANIFEST).exists():
        raise DataError(
            f"{folder} is not a complete judged run: {MANIFEST} is missing.",
            hint="Give the --out folder of a `tertulia judge` command.",
        )
    record = read_manifest(folder, kind=KIND, format=FORMAT, remake=_REMAKE).about
    try:
        return JudgedRun(
            verb=record["verb"],
            config=record["config"],
            subjects=tuple(Subject(**subject) for subject in record["subjects"]),
            settings=tuple(record["settings"]),
            scores=tuple(_read_scores(folder / SCORES, [tuple(key) for key in record["scores"]])),
            metrics={info["name"]: MetricInfo(**info) for info in record["metrics"]},
            items=tuple(_read_items(folder / ITEMS)),
            notes=tuple(record["notes"]),
            details=record["details"],
            about=record["about"],
        )
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{folder} is damaged ({error}).", hint=_REMAKE) from None


def _score_table(scores: Sequence[Score]) -> pa.Table:
    """One row per value. A score without units has no row; the manifest lists it."""
    columns: dict[str, list[object]] = {name: [] for name in _SCORE_SCHEMA.names}
    for score in scores:
        for name, text in zip(("subject", "setting", "metric"), score.key, strict=True):
            columns[name] += [text] * len(score.units)
        columns["unit"] += score.units
        columns["cluster"] += score.clusters
        columns["value"] += score.values
        columns["weight"] += score.weights or (None,) * len(score.units)
    arrays = [pa.array(columns[name], type=_SCORE_SCHEMA.field(name).type) for name in _SCORE_SCHEMA.names]
    return pa.table(arrays, schema=_SCORE_SCHEMA)


def _read_scores(file: Path, keys: Sequence[tuple[str, str, str]]) -> Iterable[Score]:
    columns = pq.read_table(file, schema=_SCORE_SCHEMA).to_pydict()
    rows: dict[tuple[str, str, str], list[int]] = {key: [] for key in keys}
    for i, key in enumerate(zip(columns["subject"], columns["setting"], columns["metric"], strict=True)):
        rows[key].append(i)
    for key, members in rows.items():
        weights = tuple(columns["weight"][i] for i in members)
        yield Score(
            *key,
            units=tuple(columns["unit"][i] for i in members),
            values=tuple(columns["value"][i] for i in members),
            clusters=tuple(columns["cluster"][i] for i in members),
            weights=() if None in weights else weights,
        )


def _item_table(items: Sequence[JudgedItem]) -> pa.Table:
    rows = [(item.unit, item.subject, item.setting, orjson.dumps(dict(item.content)).decode()) for item in items]
    columns = list(zip(*rows, strict=True)) or [()] * len(_ITEM_SCHEMA.names)
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=_ITEM_SCHEMA)


def _read_items(file: Path) -> Iterable[JudgedItem]:
    for row in pq.read_table(file, schema=_ITEM_SCHEMA).to_pylist():
        yield JudgedItem(row["unit"], orjson.loads(row["content"]), row["subject"], row["setting"])


def _versions() -> dict[str, Json]:
    """Of what the figures may depend on; torch only if it was used."""
    packages = ("numpy", *(("torch",) if "torch" in sys.modules else ()))
    return {
        "tertulia": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
