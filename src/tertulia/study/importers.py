"""Published human ratings as finished studies, so that the same report reads them. Pure: text in, units and labels out.

`fed`: the FED dataset (Mehri and Eskenazi 2020, "Unsupervised Evaluation of Interactive Dialog with DialoGPT", file
fed_data.json). People rated conversations of Meena, of Mitsuku and between people (published with the Meena paper):
375 single responses on nine aspects, and 125 complete dialogues on eleven, by five raters each. Most aspects have
values from 0 to 2, "Understandable" and "Consistent" are 0 or 1, "Overall" is 0 to 4. Answers such as "N/A (no errors)"
are counted and left out (`judge/human_ratings.py` reads the file). The file does not say who the raters are: every
rating set is taken as a rater of its own, so that intervals are over conversations. Responses from one conversation
form a cluster with it.

These are not SSA labels: no public release holds those.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tertulia.core.dialogue import Json, Turn
from tertulia.core.errors import DataError
from tertulia.judge.human_ratings import RatedReply, RatedUnit, parse_json, read_fed
from tertulia.study.config import Consent, StudyBot, StudyConfig
from tertulia.study.localised import Localised
from tertulia.study.questions import Question
from tertulia.study.units import Unit

FED = "fed"
FORMATS = {FED: "FED: people's ratings of Meena, Mitsuku and human conversations (fed_data.json)"}
"""Name and one line of help of every format."""


@dataclass(frozen=True, slots=True)
class ImportedRating:
    """All that one rater answered about one unit."""

    unit: str
    rater: str
    labels: tuple[tuple[str, str, Json], ...]
    """(target, question, value)."""


@dataclass(frozen=True, slots=True)
class ImportedStudy:
    """A study with its answers."""

    config: StudyConfig
    units: tuple[Unit, ...]
    ratings: tuple[ImportedRating, ...]
    skipped: int
    """Answers that are no numbers."""
    notes: tuple[str, ...]


def import_study(text: str, format_: str, *, source: str = "<file>") -> ImportedStudy:
    """A finished study from the text of a file in one of `FORMATS`."""
    if format_ != FED:
        raise DataError(f"Unknown format {format_!r}.", hint=f"Formats: {', '.join(FORMATS)}.")
    return import_fed(parse_json(text, source), source=source)


def import_fed(entries: Json, *, source: str = "fed_data.json") -> ImportedStudy:
    """The FED dataset as a study: systems are bots, aspects are questions, turns and dialogues are units."""
    fed = read_fed(entries, source)
    units: dict[str, Unit] = {}
    ratings: list[ImportedRating] = []
    highest: dict[str, int] = {}
    for rated in sorted(fed.units, key=lambda one: one.unit):
        units[rated.unit] = unit = _fed_unit(rated)
        for position, given in enumerate(_fed_answers(rated)):
            labels = tuple(("unit", question, value) for question, value in given.items())
            ratings.append(ImportedRating(unit.id, f"{unit.id}-{position + 1}", labels))
            for question, value in given.items():
                highest[question] = max(highest.get(question, 1), value)
    systems = list(dict.fromkeys(unit.bots[0] for unit in units.values()))
    notes = (
        "Imported from FED (Mehri and Eskenazi 2020). Raters are not identified in it: intervals are over"
        " conversations, and every set of answers counts as a rater of its own.",
        "FED is not SSA: no public release holds SSA labels.",
    )
    return ImportedStudy(_fed_config(systems, highest), tuple(units.values()), tuple(ratings), fed.skipped, notes)


def _fed_unit(rated: RatedUnit) -> Unit:
    payload: dict[str, Json] = {"source": rated.cluster}
    if isinstance(rated, RatedReply):
        payload |= {"context": _turns(rated.context), "responses": [rated.response]}
    else:
        payload["conversations"] = [{"turns": _turns(rated.turns), "judged": rated.judged}]
    return Unit(rated.unit, (rated.system,), payload)


def _turns(turns: Sequence[Turn]) -> list[Json]:
    return [{"speaker": turn.speaker, "text": turn.text} for turn in turns]


def _fed_answers(rated: RatedUnit) -> list[dict[str, int]]:
    """The answers of each rater by question; those that are no numbers are left out."""
    answers: list[dict[str, int]] = [{} for _ in range(max(map(len, rated.ratings.values()), default=0))]
    for aspect, values in rated.ratings.items():
        question = re.sub("[^a-z]+", "_", aspect)
        for answer, value in zip(answers, values, strict=False):
            if not math.isnan(value):
                answer[question] = int(value)
    return answers


def _fed_config(systems: Sequence[str], highest: Mapping[str, int]) -> StudyConfig:
    questions = [
        Question(id=name, kind="scale", low=0, high=high, optional=True, text=_text(name.replace("_", " ")))
        for name, high in sorted(highest.items(), key=lambda item: ("turn" in item[0], "overall" not in item[0]))
    ]
    return StudyConfig(
        preset="",
        title=_text("FED: people's ratings of Meena, Mitsuku and human conversations"),
        protocol="judge",
        bots=tuple(StudyBot(name=system) for system in systems),
        questions=tuple(questions),
        instructions=_text("Imported; nobody is asked anything."),
        consent=Consent(version="imported", text=_text("Imported from a published dataset.")),
        ratings_per_unit=5,
    )


def _text(text: str) -> Localised:
    return Localised.model_validate(text)
