"""`tertulia judge samples`: what a model might say, by sample-and-rank and by beam search."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tertulia.cli.output import AsJson, Bars, ConfigFile, argument, option, out, print_json, print_table
from tertulia.core.config import resolve
from tertulia.judge.samples import HEAD, SWEEP_HEAD, SamplesConfig

if TYPE_CHECKING:
    from tertulia.judge.samples_run import SamplesOutcome


def samples(
    run: Annotated[str | None, argument(SamplesConfig, "run")] = None,
    prompt: Annotated[list[str] | None, option(SamplesConfig, "prompt", "--prompt")] = None,
    prompts: Annotated[Path | None, option(SamplesConfig, "prompts", "--prompts")] = None,
    persona: Annotated[list[str] | None, option(SamplesConfig, "persona", "--persona")] = None,
    preset: Annotated[str | None, option(SamplesConfig, "preset", "--preset")] = None,
    drawn: Annotated[int | None, option(SamplesConfig, "samples", "--samples")] = None,
    beams: Annotated[int | None, option(SamplesConfig, "beams", "--beams")] = None,
    best: Annotated[int | None, option(SamplesConfig, "best", "--best")] = None,
    sweep: Annotated[bool | None, option(SamplesConfig, "sweep", "--sweep/--no-sweep")] = None,
    sizes: Annotated[str | None, option(SamplesConfig, "sizes", "--sizes")] = None,
    times: Annotated[int | None, option(SamplesConfig, "times", "--times")] = None,
    out_folder: Annotated[Path | None, option(SamplesConfig, "out", "--out")] = None,
    seed: Annotated[int | None, option(SamplesConfig, "seed", "--seed")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """A model's best samples beside beam search's, with scores, and what more samples change (Meena, tables 2, 3)."""
    given: dict[str, Any] = {"run": run, "prompt": prompt or None, "prompts": prompts, "persona": persona or None}
    given |= {"preset": preset, "samples": drawn, "beams": beams, "best": best, "sweep": sweep, "sizes": sizes}
    settings = resolve(SamplesConfig, config, given | {"times": times, "out": out_folder, "seed": seed})
    # Here, not above: it brings torch along, which the other judges can do without.
    from tertulia.judge.samples_run import run_samples, write_samples_report

    with Bars() as bars:
        outcome = run_samples(settings, bars)
    if settings.out:
        write_samples_report(outcome, settings.out)
    if json:
        print_json(outcome.as_json())
    else:
        _print(outcome)


def _print(outcome: "SamplesOutcome") -> None:
    for answers in outcome.answers:
        print_table(HEAD, answers.rows(outcome.config.best), title=" / ".join(answers.prompt))
        out.print()
    if outcome.sweep:
        print_table(SWEEP_HEAD, [point.row() for point in outcome.sweep], title="How many samples")
    for note in outcome.notes:
        out.print(note, markup=False)
