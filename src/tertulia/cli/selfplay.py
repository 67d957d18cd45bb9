"""`tertulia selfplay`: bots talk to each other, and the conversations are kept."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tertulia import sample
from tertulia.cli.output import AsJson, Bars, ConfigFile, argument, option, out, print_json
from tertulia.core.config import resolve
from tertulia.corpus.write import check_target, save_dialogues
from tertulia.metrics.diversity import distinct
from tertulia.talk.selfplay import Seat, SelfplayConfig
from tertulia.talk.selfplay import selfplay as play
from tertulia.talk.spec import make_bot


def selfplay(
    bots: Annotated[list[str] | None, argument(SelfplayConfig, "bots")] = None,
    out_file: Annotated[Path | None, option(SelfplayConfig, "out", "--out")] = None,
    conversations: Annotated[int | None, option(SelfplayConfig, "conversations", "--conversations", "-n")] = None,
    turns: Annotated[int | None, option(SelfplayConfig, "turns", "--turns")] = None,
    opener: Annotated[str | None, option(SelfplayConfig, "opener", "--opener")] = None,
    personas: Annotated[str | None, option(SelfplayConfig, "personas", "--personas")] = None,
    seed: Annotated[int | None, option(SelfplayConfig, "seed", "--seed")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Let one bot talk to itself, or two to each other."""
    given = {"bots": bots or None, "out": out_file, "conversations": conversations, "turns": turns}
    settings = resolve(SelfplayConfig, config, given | {"opener": opener, "personas": personas, "seed": seed})
    check_target(settings.out)
    with Bars() as bars:
        bars.step("Loading bots")
        made = {spec: make_bot(spec) for spec in dict.fromkeys(settings.bots)}
        first, second = (made[spec] for spec in (settings.bots * 2)[:2])
        bars.step("Talking", total=settings.conversations * settings.turns)
        seats = (Seat("A", first), Seat("B", second))
        people = sample.personas("valid") if settings.personas == "sample" else []
        talks = play(
            seats, settings, personas=list(zip(people[::2], people[1::2], strict=False)), progress=bars.advance
        )
        save_dialogues(talks, settings.out)
    said = {seat.name: [t.text for d in talks for t in d.turns if t.speaker == seat.name] for seat in seats}
    figures = {name: distinct(texts, 2) for name, texts in said.items()}
    if json:
        print_json(
            {"out": str(settings.out), "conversations": len(talks)}
            | {f"distinct2_{n}": e.as_json() for n, e in figures.items()}
        )
        return
    for turn in talks[0].turns:
        out.print(Text.assemble((f"{turn.speaker}: ", "bold"), turn.text))
    typer.echo(
        f"\n{len(talks)} conversations in {settings.out}; distinct-2: "
        + ", ".join(f"{n} {e}" for n, e in figures.items())
    )
