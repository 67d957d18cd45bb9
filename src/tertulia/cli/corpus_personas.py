"""`tertulia corpus personas`: silver data for consistency, made from personas."""

from collections import Counter

from tertulia.cli.command import command
from tertulia.cli.output import Bars, out, print_json, print_problems, print_table
from tertulia.core.codec import Problems
from tertulia.core.errors import UsageError
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.silver.persona import PersonaSilverConfig, persona_pairs
from tertulia.corpus.write import check_target, save_exchanges


@command(PersonaSilverConfig)
def personas(settings: PersonaSilverConfig, *, as_json: bool) -> None:
    """Make labelled pairs for consistency classifiers from personas: what contradicts them, and what does not."""
    check_target(settings.out, format="exchanges")
    if settings.out.exists() and not settings.force:
        raise UsageError(f"{settings.out} exists.", hint="Name another file with --out, or replace it with --force.")
    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        skipped = None if settings.strict else problems
        dialogues = load_dialogues(settings.target, split=settings.split, format=settings.format, problems=skipped)
        exchanges = persona_pairs(dialogues, settings, progress=bars)
        save_exchanges(exchanges, settings.out)
    counts = Counter((str(e.label), str(e.response.meta["operation"])) for e in exchanges)
    rows = sorted((label, operation, count) for (label, operation), count in counts.items())
    if as_json:
        names = ("label", "operation", "examples")
        print_json({"out": str(settings.out), "made": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        print_table(("label", "operation", "examples"), rows)
        out.print(f"Wrote {len(exchanges)} examples to {settings.out}")
    print_problems(problems)
