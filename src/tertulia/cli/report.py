"""`tertulia report`: open judged runs, print their figures with intervals, and compare them paired."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.text import Text

from tertulia.cli.command import command
from tertulia.cli.output import Bars, err, out, print_json, print_problems, print_table, print_text
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Json
from tertulia.core.errors import TertuliaError, UsageError
from tertulia.judge.document import markdown_document
from tertulia.judge.inspect_log import write_log
from tertulia.judge.report import RunReport, identify, report_run, save_judged
from tertulia.judge.report_compare import ReportConfig, compare_runs, load_any
from tertulia.judge.runs import JudgedRun


@command(ReportConfig)
def report(settings: ReportConfig, *, as_json: bool) -> None:
    """Report judged runs of any `judge` command, and compare their subjects on the units they share."""
    if settings.inspect and len(settings.runs) > 1:
        raise UsageError("A log of Inspect AI holds one run.", hint="Give one RUN with --inspect.")
    result = compare_runs(settings)
    if settings.format == "html":
        _print_html(result)
    elif settings.format == "md":
        print_text(markdown_document(result.document))
    else:
        print_report(result, as_json=as_json or settings.format == "json")
    if settings.inspect:
        write_log(load_any(settings.runs[0]), settings.inspect)
    if settings.out:
        result.save_as(settings.out)


def _print_html(result: RunReport) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        result.save_html(page)
        print_text(page.read_text(encoding="utf-8"))


def conclude(
    run: JudgedRun,
    out: Path | None,
    *,
    as_json: bool,
    data: Callable[[], Mapping[str, Json]],
    problems: Problems | None = None,
    page: Path | None = None,
    save_more: Callable[[], None] | None = None,
) -> None:
    """Identify a judged run, save it, if a folder is given, and print its report.

    What was computed is printed whatever happens to the folder; then the error ends the command. `data` describes what
    was judged, `page` is a file for the report alone, `save_more` writes what else the command was asked for.
    """
    failure: Exception | None = None
    with Bars() as bars:
        bars.step("Reporting")
        try:
            run = identify(run, data=data())
            result = save_judged(run, out) if out else report_run(run, plots=page is not None)
            if page:
                result.save_html(page)
            if save_more:
                save_more()
        except (OSError, TertuliaError) as error:
            failure, result = error, report_run(run, plots=False)
    print_report(result, as_json=as_json)
    if problems:
        print_problems(problems)
    if failure:
        raise failure


def print_report(result: RunReport, *, as_json: bool) -> None:
    """Print a report as JSON, or its warnings, tables, notes and identity as text. Warnings are seen in any case."""
    for text in result.document.warnings:
        warned = Text.assemble(("WARNING: ", "bold red"), (text, "red"))
        err.print(warned, soft_wrap=True) if as_json else out.print(warned, end="\n\n")
    if as_json:
        print_json(result.json)
        return
    for section in result.document.sections:
        if section.rows and not section.detail:
            rows = [[_lines(str(cell)) for cell in row] for row in section.rows]
            print_table(section.head, rows, title=section.title)
            out.print()
    for note in dict.fromkeys(note for section in result.document.sections for note in section.notes):
        out.print(note, markup=False)
    for name, value in result.document.identity:
        out.print(Text(f"{name}: {value}", style="dim"))


def _lines(figure: str) -> str:
    """A figure, its interval and its n on a line each.

    >>> _lines("0.134 [0.032, 0.250] (n = 30) *").split("\\n")
    ['0.134', '[0.032, 0.250]', '(n = 30) *']
    """
    return figure.replace(" [", "\n[", 1).replace(" (n = ", "\n(n = ")
