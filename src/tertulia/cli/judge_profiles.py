"""`tertulia judge profiles`: how well a profile can be told from what its speaker said."""

from pathlib import Path
from typing import Annotated

from tertulia.cli.output import AsJson, Bars, ConfigFile, option, out, print_json, print_table, tell_problems
from tertulia.core.codec import Problems
from tertulia.core.config import resolve
from tertulia.corpus.load import load_dialogues
from tertulia.judge.profiles import LEVELS, PAPER, Cell, ProfileConfig, ProfileOutcome, predict_profiles
from tertulia.judge.rank_tables import short


def profiles(
    data: Annotated[str | None, option(ProfileConfig, "data", "--data")] = None,
    split: Annotated[str | None, option(ProfileConfig, "split", "--split")] = None,
    candidates: Annotated[int | None, option(ProfileConfig, "candidates", "--candidates")] = None,
    wording: Annotated[str | None, option(ProfileConfig, "wording", "--wording")] = None,
    utterances: Annotated[int | None, option(ProfileConfig, "utterances", "--utterances")] = None,
    seed: Annotated[int | None, option(ProfileConfig, "seed", "--seed")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """How often tf-idf mistakes whose profile it is, by what either speaker said (Persona-Chat, tables 13 and 14)."""
    given = {"data": data, "split": split, "candidates": candidates, "wording": wording, "utterances": utterances}
    if data and not split and Path(data).is_file():
        given["split"] = ""
    settings = resolve(ProfileConfig, config, given | {"seed": seed})
    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        dialogues = list(load_dialogues(settings.data, split=settings.split or None, problems=problems))
        bars.step("Ranking profiles")
        outcome = predict_profiles(dialogues, settings)
    if json:
        print_json({"settings": settings.model_dump(mode="json"), **outcome.as_json(), "paper": PAPER})
    else:
        _print(outcome, settings)
    tell_problems(problems)


def _print(outcome: ProfileOutcome, settings: ProfileConfig) -> None:
    rows = [
        (f"{level} level, speaker {speaker}", *(_cell(outcome, Cell(level, speaker, whose)) for whose in (0, 1)))
        for level in LEVELS
        for speaker in (0, 1)
    ]
    print_table(("said by", "profile 0", "profile 1"), rows, title="Error of predicting a profile (table 13)")
    columns = [Cell(level, who, who) for level in LEVELS for who in (0, 1)]
    counts = range(1, settings.utterances + 1)
    print_table(
        ("utterances", *(f"{cell.level}, speaker {cell.speaker}" for cell in columns)),
        [(count, *(_cell(outcome, cell._replace(utterances=count)) for cell in columns)) for count in counts],
        title="Error by the number of utterances, own profile (table 14)",
    )
    few = outcome.candidates < settings.candidates
    fewer = f" ({settings.candidates} were asked for, the set has no more that differ)" if few else ""
    out.print(
        f"{outcome.dialogues} dialogues; the true profile among {outcome.candidates}{fewer}; "
        f"{settings.wording} wording; seed {settings.seed}; chance error {outcome.chance:.3f}; "
        "95 % intervals by bootstrap over dialogues.",
        markup=False,
    )
    told = "; ".join(f"{name} {figure}" for name, figure in PAPER.items())
    out.print(f"The paper, people's own profiles among 101: {told}.", markup=False)


def _cell(outcome: ProfileOutcome, cell: Cell) -> str:
    """An error with its interval and n: not every dialogue has as many utterances, or both profiles."""
    found = outcome.errors.get(cell)
    return f"{short(found)} n = {found.n}" if found else "-"
