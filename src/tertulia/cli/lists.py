"""`tertulia bots | recipes | metrics | formats | presets`: what there is, with options and defaults."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from tertulia.cli.command import command
from tertulia.cli.output import out, print_json, print_table
from tertulia.core.config import Cli, Config
from tertulia.core.describe import FieldDescription, describe
from tertulia.core.dialogue import Json
from tertulia.core.errors import MissingExtra, UnknownName
from tertulia.core.registry import BrokenPlugin, Registry


class ListConfig(Config):
    """What to show in detail."""

    names: Annotated[tuple[str, ...], Cli(argument=True)] = ()
    """Show these in detail, with their options and defaults; by default the names of all, with a line each."""


@command(ListConfig, file=False)
def bots(settings: ListConfig, *, as_json: bool) -> None:
    """List the bots with their options and defaults.

    A bot is written NAME[:TARGET][?OPTION=VALUE&...]; the folder of a trained run is a bot, too.
    """
    from tertulia.talk.evidence import DocumentsConfig
    from tertulia.talk.registry import BOTS

    def details(name: str) -> dict[str, Json]:
        factory = BOTS.get(name)
        documents = (replace(option, required=False) for option in describe(DocumentsConfig))  # of any bot, if wanted
        options = [*describe(factory.Options), *documents]
        return {"target": factory.target_help, "options": options}

    _list(BOTS, settings, details, as_json=as_json, heading="bot")


@command(ListConfig, file=False)
def recipes(settings: ListConfig, *, as_json: bool) -> None:
    """List the recipes with their settings and defaults, and the ready-made files that `train` takes by name."""
    from tertulia.train.configs import shipped
    from tertulia.train.registry import RECIPES

    files = shipped()
    if settings.names or as_json:
        of_files = {name: {"name": name, **about._asdict()} for name, about in files.items()}
        in_detail = ListConfig(names=tuple(name for name in settings.names if name not in files or name in RECIPES))
        listed = _rows(RECIPES, in_detail, lambda name: {"options": list(describe(RECIPES.get(name).config))})
        listed = [] if settings.names and not in_detail.names else listed
        chosen = [of_files[name] for name in settings.names or files if name in files]
        if as_json:
            print_json({"recipes": [_plain(row) for row in listed], "files": chosen})
        else:
            _print_details(listed)
            for one in chosen:
                out.print(f"{one['name']}: {one['summary']}\nA file of the recipe {one['recipe']}.", markup=False)
                out.print(files[str(one["name"])].text, markup=False)
        return
    print_table(("recipe", "description"), [(row.name, row.summary) for row in RECIPES.rows()], left=True)
    out.print()
    print_table(("file", "recipe", "description"), [(n, f.recipe, f.summary) for n, f in files.items()], left=True)
    out.print("\nTrain one with: tertulia train NAME; its settings: tertulia recipes NAME", markup=False)


@command(ListConfig, file=False)
def metrics(settings: ListConfig, *, as_json: bool) -> None:
    """List the metrics: what each one measures, whether more is better, and the paper it comes from.

    K, M and N in a name stand for numbers: hits@K is hits@1, hits@2 and so on.
    """
    from tertulia.metrics.metric import MetricFamily
    from tertulia.metrics.registry import METRICS, example_name, metric_named

    def details(name: str) -> dict[str, Json]:
        metric = METRICS.get(name)
        metric = metric_named(example_name(name)) if isinstance(metric, MetricFamily) else metric
        better = {True: "higher", False: "lower", None: ""}[metric.higher_is_better]
        facts = {"unit": metric.unit, "reduction": metric.reduction, "better": better, "citation": metric.citation}
        return facts | {"needs": list(metric.needs)}

    _list(METRICS, settings, details, as_json=as_json, heading="metric", columns=("unit", "better"))


@command(ListConfig, file=False)
def formats(settings: ListConfig, *, as_json: bool) -> None:
    """List the formats that dialogues are read from, and those that are written, by the ending of the file."""
    from tertulia.corpus.registry import READERS
    from tertulia.corpus.write import written_as

    def details(name: str) -> dict[str, Json]:
        reader = READERS.get(name)
        return {"contains": reader.holds, "written": list(written_as(reader))}

    _list(READERS, settings, details, as_json=as_json, heading="format", columns=("contains", "written"))


@command(ListConfig, file=False)
def presets(settings: ListConfig, *, as_json: bool) -> None:
    """List the presets of studies (`study new NAME`) and of decoding (`judge samples RUN --preset NAME`)."""
    from tertulia.study.presets import PRESETS as STUDIES
    from tertulia.study.presets import preset_text

    decoding = _decoding_presets()
    if unknown := next((name for name in settings.names if name not in {*STUDIES, *decoding}), None):
        raise UnknownName("preset", unknown, {*STUDIES, *decoding})
    chosen = settings.names or (*STUDIES, *decoding)
    if as_json:
        studies = [{"name": n, "summary": STUDIES[n], "toml": preset_text(n)} for n in chosen if n in STUDIES]
        of_decoding = [{"name": n, "options": decoding[n]} for n in chosen if n in decoding]
        print_json({"studies": studies, "decoding": of_decoding})
        return
    if settings.names:
        for name in settings.names:
            out.print(f"{name}: {STUDIES.get(name, 'decoding')}", markup=False)
            text = preset_text(name) if name in STUDIES else _options(decoding[name])
            out.print(text, markup=False)
        return
    print_table(("preset of studies", "what people do"), STUDIES.items(), left=True)
    out.print()
    rows = [(name, _options(options)) for name, options in decoding.items()]
    print_table(("preset of decoding", "options"), rows or [("", "needs pip install 'tertulia[models]'")], left=True)


def _decoding_presets() -> dict[str, dict[str, Json]]:
    """Settings of decoding by name, only those that are not the defaults; none without torch."""
    try:
        from tertulia.models.decoding import PRESETS
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "tertulia":
            raise
        return {}
    return {name: preset.model_dump(exclude_defaults=True) for name, preset in PRESETS.items()}


def _options(values: dict[str, Json]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def _list(
    registry: Registry,
    settings: ListConfig,
    details: Callable[[str], dict[str, Json]],
    *,
    as_json: bool,
    heading: str,
    columns: Sequence[str] = (),
) -> None:
    """Print the rows of a registry: all in a table, or some in detail; as JSON always in detail."""
    if as_json or settings.names or columns:
        rows = _rows(registry, settings, details)
    else:
        rows = [{"name": row.name, "summary": row.summary} for row in registry.rows()]
    if as_json:
        print_json([_plain(row) for row in rows])
    elif settings.names:
        _print_details(rows)
    else:
        cells = [(row["name"], *(_cell(row.get(key)) for key in columns), row["summary"]) for row in rows]
        print_table((heading, *columns, "description"), cells, left=True)
        out.print(f"\nDetails and defaults: tertulia {heading}s NAME", markup=False)


def _rows(registry: Registry, settings: ListConfig, details: Callable[[str], dict[str, Json]]) -> list[dict[str, Any]]:
    """The rows that were asked for, with details; one whose package is not installed, or broken, says so instead."""
    known = {row.name: row for row in registry.rows()}
    rows: list[dict[str, Any]] = []
    for name in settings.names or known:
        if name not in known:
            raise UnknownName(registry.kind, name, known)
        row: dict[str, Any] = {"name": name, "summary": known[name].summary}
        try:
            row |= details(name)
        except (MissingExtra, BrokenPlugin) as missing:
            row["missing"] = f"{missing.message} {missing.hint}"
        rows.append(row)
    return rows


def _plain(row: dict[str, Any]) -> dict[str, Json]:
    options = row.get("options")
    return row | ({"options": [option.as_json() for option in options]} if options is not None else {})


def _print_details(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        out.print(f"{row['name']}: {row['summary']}", markup=False)
        for key, value in row.items():
            if key not in ("name", "summary", "options") and value:
                label = {"target": "after the colon", "missing": "not to be used"}.get(key, key)
                out.print(f"  {label}: {_cell(value)}", markup=False)
        options: Sequence[FieldDescription] = row.get("options") or ()
        if options:
            print_table(("option", "default", "description"), [_option_row(option) for option in options], left=True)
        out.print()


def _option_row(option: FieldDescription) -> tuple[str, str, str]:
    default = "required" if option.required else option.shown_default or "–"
    choices = f" One of: {', '.join(option.choices)}." if option.choices else ""
    return option.key, default, f"{option.help}{choices}"


def _cell(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "–")
