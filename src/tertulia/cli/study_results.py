"""`tertulia study import | export | report | simulate`: what comes out of a study, or of simulated raters."""

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from tertulia.artefacts.files import fingerprint
from tertulia.artefacts.manifest import read_about
from tertulia.artefacts.outputs import Force, Output, has_manifest_of, write_output
from tertulia.cli.command import command
from tertulia.cli.database import open_database
from tertulia.cli.output import Bars, out, print_json
from tertulia.cli.report import print_report
from tertulia.core.config import Cli, Config, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, MissingFile, TertuliaError, UsageError, keeping
from tertulia.core.text import plural
from tertulia.judge.report import RunReport
from tertulia.judge.runs import KIND, identified, save_run
from tertulia.store import Database, StudyStore
from tertulia.store.study_records import StudyRecord, UnitCandidate
from tertulia.study.config import HUMAN, StudyConfig
from tertulia.study.estimate import what_it_asks
from tertulia.study.export import EXPORT_WRITERS, export_rows
from tertulia.study.importers import ImportedRating, ImportedStudy, import_study
from tertulia.study.labels import LabelSet, read_labels
from tertulia.study.presets import study_from_toml
from tertulia.study.report import VERB, study_report, study_run, study_sections
from tertulia.study.simulate import RaterBias, bot_qualities, simulated_raters
from tertulia.study.units import StudyItem, Unit, bot_names, read_items

if TYPE_CHECKING:
    from fastapi import FastAPI

DB = "sqlite:///tertulia.db"
DB_HELP = "Database of the server, as for `tertulia serve`."
IMPORT_THREADS = 16


def load_study(file: Path, *, items: bool = True) -> tuple[StudyConfig, list[StudyItem]]:
    """A study and its items; the items' path is relative to the study's file."""
    if not file.is_file():
        raise MissingFile(f"File not found: {file}", hint="Start with `tertulia study new PRESET > study.toml`.")
    config = study_from_toml(file.read_text(encoding="utf-8"), str(file))
    if not items or config.items is None:
        return config, []
    path = file.parent / config.items
    if not path.is_file():
        raise MissingFile(f"File not found: {path}", hint=f"It is named by 'items' in {file}.")
    with path.open("rb") as lines:
        return config, read_items(lines, source=str(path))


def open_from_file(store: StudyStore, file: Path, *, name: str) -> StudyRecord:
    """Store a study and open it; its bots generate the responses that the items lack."""
    from tertulia.web.study.opening import open_study

    config, items = load_study(file)
    rng = random.Random(config.seed)
    with Bars() as bars:
        bars.step("Generating responses")
        text = file.read_text(encoding="utf-8")
        return open_study(
            store, text, str(file), items, {}, rng, name=name, on_progress=lambda done, of: bars.note(f"{done} of {of}")
        )


def find_study(store: StudyStore, study: str) -> StudyRecord:
    """A study by its name or id."""
    records = store.list()
    for record in records:
        if study in (record.id, record.name):
            return record
    names = ", ".join(record.name for record in records) or "none"
    raise UsageError(f"There is no study called {study!r}.", hint=f"Studies in this database: {names}.")


def stored_config(record: StudyRecord) -> StudyConfig:
    """The config of a study in the database."""
    return validate(StudyConfig, dict(record.config), where=f"the study {record.name}")


def labels_of(store: StudyStore, record: StudyRecord) -> LabelSet:
    """The labels of a study."""
    payloads = {unit.id: unit.payload for unit in store.units(record.id)}
    return read_labels(stored_config(record), store.rows(record.id), payloads, store.chats(record.id))


def _is_of_study(folder: Path, config: "ReportStudyConfig") -> bool:
    """Whether a folder has an earlier report of the study."""
    named = {"kind": KIND, "verb": VERB}
    return has_manifest_of(folder, named) and config.study in (
        read_about(folder)["config"]["study"],
        (read_about(folder)["about"]["data"] or {}).get("study"),
    )


class ReportStudyConfig(Config):
    """Which study to report."""

    study: Annotated[str, Cli(argument=True)]
    """Name or id of the study."""
    out: Annotated[Path | None, Output("folder", same=_is_of_study)] = None
    """Write the report into this folder: report.html, report.md, report.json, the plots and all scores."""
    force: Force = False
    db: str = Field(default=DB, description=DB_HELP)


@command(ReportStudyConfig, file=False)
def report(settings: ReportStudyConfig, *, as_json: bool) -> None:
    """Report a study: figures by bot with intervals, agreement, votes, comparisons. Also while it is still open.

    The folder of --out is a judged run, which `tertulia report` can open again, also beside others.
    """
    with open_database(settings.db) as database:
        store = StudyStore(database)
        record = find_study(store, settings.study)
        result, failure = make_report(store, record, settings.out)
    print_report(result, as_json=as_json)
    if failure:
        raise failure


def make_report(store: StudyStore, record: StudyRecord, folder: Path | None) -> tuple[RunReport, Exception | None]:
    """The report of a study in the database, which is saved if a folder is given; and why it could not be saved."""
    labels = labels_of(store, record)
    if not labels.labels:
        raise DataError(
            f"The study {record.name!r} has no answers yet.", hint="`tertulia study status` shows how far it is."
        )
    progress = store.progress(record.id)
    about = {"state": record.state, "ratings": progress.total._asdict(), "participants": dict(progress.by_step)}
    notes = [str(event.detail) for event in store.events(record.id) if event.what == "note"]
    sections = study_sections(labels, plots=folder is not None)
    run = study_run(labels, sections, name=record.name, notes=notes, about=about)
    answers = fingerprint(str(value) for score in run.scores for value in (*score.key, *score.units, *score.values))
    run = identified(
        run, data={"path": f"study {record.name}", "study": record.id, "design": record.digest, "digest": answers}
    )
    if folder is None:
        return study_report(run, labels, sections), None
    try:
        saved = save_run(run, folder)
        result = study_report(saved, labels, sections)
        result.save(folder)
    except (OSError, TertuliaError) as error:
        return study_report(run, labels, sections), error
    return result, None


class ExportStudyConfig(Config):
    """What to export, and where to."""

    study: Annotated[str, Cli(argument=True)]
    """Name or id of the study."""
    out: Annotated[Path, Cli("--out -o"), Output("file")]
    """File to write; its ending (.csv, .jsonl, .parquet) says the format."""
    force: Force = False
    history: bool = False
    """Also write answers that were changed or undone."""
    db: str = Field(default=DB, description=DB_HELP)


@command(ExportStudyConfig, file=False)
def export(settings: ExportStudyConfig, *, as_json: bool) -> None:
    """Export a study in long format: one row per judgement, with bot, texts as shown and settings. Pseudonyms only."""
    writers = {f".{name}": writer for name, writer in EXPORT_WRITERS.items()}
    writer = writers.get(settings.out.suffix)
    if writer is None:
        raise UsageError(f"Unknown format of {settings.out}.", hint=f"Name a file that ends in {', '.join(writers)}.")
    count = 0

    def counted() -> Iterator[dict[str, Json]]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    with open_database(settings.db) as database:
        store = StudyStore(database)
        record = find_study(store, settings.study)
        payloads = {unit.id: unit.payload for unit in store.units(record.id)}
        labels = store.rows(record.id, history=settings.history)
        chats = store.chats(record.id)
        rows = export_rows(stored_config(record), labels, payloads=payloads, chats=chats)
        with write_output(settings.out) as path, path.open("wb") as file:
            writer(counted(), file)
        store.record_event(record.id, "cli", "export", {"rows": count})
    if as_json:
        print_json({"out": str(settings.out), "rows": count})
    else:
        out.print(f"Wrote {plural(count, 'answer')} to {settings.out}", markup=False)


class ImportConfig(Config):
    """What to import, and where to."""

    file: Annotated[Path, Cli(argument=True)]
    """File with ratings that people gave elsewhere."""
    format_: Annotated[Literal["fed"], Cli("--format")] = "fed"
    """Format of the file: fed is FED's fed_data.json (Meena, Mitsuku and people, rated by five people each)."""
    name: str | None = None
    """Name of the study; the file's name by default."""
    db: str = Field(default=DB, description=DB_HELP)


@command(ImportConfig, file=False)
def import_ratings(settings: ImportConfig, *, as_json: bool) -> None:
    """Import people's published ratings as a closed study, so that `study report` can read them.

    FED has ratings of Meena's, Mitsuku's and people's conversations. It is not SSA: no public release holds SSA labels.
    """
    if not settings.file.is_file():
        raise MissingFile(f"File not found: {settings.file}", hint="Download fed_data.json from the FED dataset.")
    imported = import_study(settings.file.read_text(encoding="utf-8"), settings.format_, source=str(settings.file))
    name = settings.name or settings.file.stem
    with open_database(settings.db, create=True) as database, Bars() as bars:
        store = StudyStore(database)
        if any(study.name == name for study in store.list()):
            raise UsageError(f"There is a study called {name!r} already.", hint="Give another --name.")
        bars.step("Importing", len(imported.ratings))
        with keeping(
            f"The study {name!r} is in the database without some of its answers.",
            hint="Import it again with another --name.",
        ):
            record = store_imported(store, name, imported, bars.advance)
    answers = sum(len(rating.labels) for rating in imported.ratings)
    if as_json:
        print_json({"id": record.id, "name": name, "units": len(imported.units), "answers": answers})
        return
    skipped = f"; left out: {plural(imported.skipped, 'answer')} without a number" if imported.skipped else ""
    out.print(
        f"Imported {plural(answers, 'answer')} by {plural(len(imported.ratings), 'rater')} about"
        f" {plural(len(imported.units), 'unit')} as {name}{skipped}.",
        markup=False,
    )
    for note in imported.notes:
        out.print(note, markup=False)


def store_imported(
    store: StudyStore, name: str, imported: ImportedStudy, advance: Callable[[], None] = lambda: None
) -> StudyRecord:
    """Put a finished study into the database, and close it."""
    config = imported.config.model_dump(mode="json")
    record = store.create(name, config, f"imported-{name}"[:100], by="import")
    wanted = imported.config.ratings_per_unit
    store.add_units(record.id, [(unit.id, unit.bots, unit.payload, wanted) for unit in imported.units])
    store.set_state(record.id, "open", "import")

    def add(rating: ImportedRating) -> None:
        participant, _ = store.enroll(record.id, "import", rating.rater, first_step="done")

        def choose(candidates: list[UnitCandidate]) -> str | None:
            return rating.unit

        assignment = store.lease_unit(record.id, participant.id, choose, 3600)
        if assignment is None:
            raise DataError(f"The unit {rating.unit!r} has more ratings than expected.")
        store.add_labels(assignment.id, participant.id, rating.labels, "import")
        store.submit(assignment.id, participant.id)
        advance()

    with ThreadPoolExecutor(IMPORT_THREADS) as threads:  # writes that wait for the disk together share a commit
        list(threads.map(add, imported.ratings))
    for note in imported.notes:
        store.record_event(record.id, "import", "note", note)
    return store.set_state(record.id, "closed", "import")


class SimulateConfig(Config):
    """Which study to simulate, and with whom."""

    file: Annotated[Path, Cli(argument=True)]
    """The study's TOML."""
    raters: int = Field(default=10, ge=1, le=2000)
    """How many raters take part."""
    seed: int = 0
    """Seed of the raters."""
    bias: dict[str, str] = Field(default_factory=dict)
    """How raters err: leniency, noise (in logits), laziness, failed_attention (shares); and how items differ: items."""
    quality: dict[str, str] = Field(default_factory=dict)
    """How good a bot is, between 0 and 1, as BOT=NUMBER; by default from 0.8 for the first to 0.4 for the last."""
    out: Annotated[Path | None, Output("folder")] = None
    """Write the report into this folder, as `study report` does."""
    force: Force = False
    db: str | None = None
    """Keep the simulated study in this database; a temporary one by default."""


@command(SimulateConfig, file=False)
def simulate(settings: SimulateConfig, *, as_json: bool) -> None:
    """Let simulated raters walk the real study through the real server, and show the report and the cost.

    The server runs on this machine for as long as it takes. Raters do not read: what they answer follows from the
    quality of the bots and their own biases, so that the report can be compared with the truth.
    """
    from tertulia.cli.study_walk import walk_study  # a server and its client, which other commands do not need
    from tertulia.web.server import running

    config, items = load_study(settings.file)
    bots = bot_names(config, items)
    if any(bot.spec == HUMAN for bot in config.bots):
        raise UsageError("Simulated raters do not talk to each other.", hint="Simulate it without the bot 'human'.")
    bias = validate(RaterBias, _numbers("--bias", settings.bias), where="--bias")
    qualities = bot_qualities(bots, _numbers("--quality", settings.quality))
    raters = simulated_raters(settings.raters, bias, seed=settings.seed)
    with tempfile.TemporaryDirectory(prefix="tertulia-simulate-") as folder:
        url = settings.db or f"sqlite:///{folder}/simulated.db"
        with open_database(url, create=True) if settings.db else Database.open(url) as database:
            store = StudyStore(database)
            record = open_from_file(store, settings.file, name=f"{settings.file.stem}-simulated-{settings.seed}")
            with Bars() as bars, running(_app(database)) as address:
                bars.step("Simulated raters", len(raters))
                ends = walk_study(
                    address,
                    store,
                    record.id,
                    stored_config(record),
                    raters,
                    qualities,
                    bars.advance,
                    item_deviation=bias.items,
                )
            store.record_event(record.id, "simulate", "note", _describe(bias, qualities, ends))
            units = [Unit(unit.id, unit.bots, unit.payload) for unit in store.units(record.id)]
            result, failure = make_report(store, record, settings.out)
            done = store.progress(record.id).total.done
    estimate = what_it_asks(config, units)
    pay = config.pay
    minutes = len(raters) * pay.minutes_overhead + done * pay.minutes_per_unit
    cost = round(minutes / 60 * pay.per_hour, 2)
    if as_json:
        spent = {"minutes": minutes, "cost": cost, "currency": pay.currency, "ends": ends, "complete": estimate.cost}
        print_json({**result.json, "simulation": {"qualities": qualities, "bias": bias.model_dump(), **spent}})
    else:
        print_report(result, as_json=False)
        out.print(
            f"With people, these {done} of {estimate.ratings} ratings by {plural(len(raters), 'rater')} would take"
            f" {minutes / 60:.1f} hours and cost {cost:.2f} {pay.currency}; the complete study costs"
            f" {estimate.cost:.2f} {estimate.currency}.",
            markup=False,
        )
    if failure:
        raise failure


def _app(database: Database) -> "FastAPI":
    """A server without limits on how fast one address may be: all simulated raters come from this machine."""
    from tertulia.talk.bots.generic import GenericBot
    from tertulia.web.app import create_app
    from tertulia.web.config import ServeConfig

    return create_app({"generic": GenericBot()}, database, config=ServeConfig(messages_per_minute=0, max_in_flight=0))


def _describe(bias: RaterBias, qualities: Mapping[str, float], ends: Mapping[str, int]) -> str:
    true = ", ".join(f"{bot} {quality:g}" for bot, quality in qualities.items()) or "none"
    biases = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in bias.model_dump().items())
    ended = ", ".join(f"{count} {end.replace('_', ' ')}" for end, count in ends.items())
    return f"Simulated raters, no people. True qualities: {true}. Biases: {biases}. Raters: {ended}."


def _numbers(label: str, given: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for name, text in given.items():
        try:
            numbers[name] = float(text)
        except ValueError:
            raise UsageError(f"{label}: {name} must be a number, got {text!r}") from None
    return numbers
