"""`tertulia selfplay`: let bots talk to each other, and save the conversations."""

import typer
from rich.text import Text

from tertulia import sample
from tertulia.cli.command import command
from tertulia.cli.output import Bars, out, print_json
from tertulia.corpus.write import check_target, save_dialogues
from tertulia.metrics.diversity import distinct
from tertulia.talk.selfplay import Seat, SelfplayConfig
from tertulia.talk.selfplay import selfplay as play
from tertulia.talk.spec import make_bot


@command(SelfplayConfig)
def selfplay(settings: SelfplayConfig, *, as_json: bool) -> None:
    """Let one bot talk to itself, or two bots to each other."""
    check_target(settings.out)
    with Bars() as bars:
        bars.step("Loading bots")
        bots = {spec: make_bot(spec) for spec in dict.fromkeys(settings.bots)}
        first, second = (bots[spec] for spec in (settings.bots * 2)[:2])
        bars.step("Talking", total=settings.conversations * settings.turns)
        seats = (Seat("A", first), Seat("B", second))
        personas = sample.personas("valid") if settings.personas == "sample" else []
        pairs = list(zip(personas[::2], personas[1::2], strict=False))
        dialogues = play(seats, settings, personas=pairs, progress=bars.advance)
        save_dialogues(dialogues, settings.out)
    texts = {seat.name: [t.text for d in dialogues for t in d.turns if t.speaker == seat.name] for seat in seats}
    distinct2 = {name: distinct(own_texts, 2) for name, own_texts in texts.items()}
    if as_json:
        print_json(
            {"out": str(settings.out), "conversations": len(dialogues)}
            | {f"distinct2_{name}": estimate.as_json() for name, estimate in distinct2.items()}
        )
        return
    for turn in dialogues[0].turns:
        out.print(Text.assemble((f"{turn.speaker}: ", "bold"), turn.text))
    typer.echo(
        f"\n{len(dialogues)} conversations in {settings.out}; distinct-2: "
        + ", ".join(f"{name} {estimate}" for name, estimate in distinct2.items())
    )
