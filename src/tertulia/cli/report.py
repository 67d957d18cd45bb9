"""`tertulia report`: open judged runs, print their figures with intervals, and compare them paired."""

import sys
import tempfile
from pathlib import Path

from tertulia.cli.command import command
from tertulia.cli.output import out, print_json, print_table
from tertulia.core.errors import UsageError
from tertulia.judge.document import markdown_document
from tertulia.judge.inspect_log import write_log
from tertulia.judge.report import RunReport
from tertulia.judge.report_compare import ReportConfig, compare_runs, load_any


@command(ReportConfig)
def report(settings: ReportConfig, *, as_json: bool) -> None:
    """Report judged runs of any `judge` command, and compare their subjects on the units they share."""
    if settings.inspect and len(settings.runs) > 1:
        raise UsageError("A log of Inspect AI holds one run.", hint="Give one RUN with --inspect.")
    result = compare_runs(settings)
    if settings.inspect:
        write_log(load_any(settings.runs[0]), settings.inspect)
    if settings.out:
        result.save_as(settings.out)
    if settings.format == "html":
        _print_html(result)
    elif settings.format == "md":
        sys.stdout.write(markdown_document(result.document))
    else:
        print_report(result, as_json=as_json or settings.format == "json")


def _print_html(result: RunReport) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        result.save_html(page)
        sys.stdout.write(page.read_text(encoding="utf-8"))


def print_report(result: RunReport, *, as_json: bool) -> None:
    """Print a report as JSON, or its tables and notes as text."""
    if as_json:
        print_json(result.json)
        return
    for section in result.document.sections:
        if section.rows and not section.detail:
            rows = [
                [str(cell).replace(" [", "\n[", 1).replace("] (n", "]\n(n") for cell in row] for row in section.rows
            ]
            print_table(section.head, rows, title=section.title)
            out.print()
    for note in dict.fromkeys(note for section in result.document.sections for note in section.notes):
        out.print(note, markup=False)
