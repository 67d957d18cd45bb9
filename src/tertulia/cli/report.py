"""`tertulia report`: open judged runs, print their figures with intervals, and compare them paired."""

from tertulia.cli.command import command
from tertulia.cli.output import out, print_json, print_table
from tertulia.judge.report import ReportConfig, RunReport, compare_runs


@command(ReportConfig)
def report(settings: ReportConfig, *, as_json: bool) -> None:
    """Report judged runs of any `judge` command, and compare their subjects on the units they share."""
    result = compare_runs(settings)
    if settings.out:
        result.save(settings.out)
    print_report(result, as_json=as_json)


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
