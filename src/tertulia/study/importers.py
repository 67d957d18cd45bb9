"""Published human ratings as finished studies, so that the same report reads them. Pure: text in, units and labels out.

`fed`: the FED dataset (Mehri and Eskenazi 2020, "Unsupervised Evaluation of Interactive Dialog with DialoGPT", file
fed_data.json). People rated conversations of Meena, of Mitsuku and between people (published with the Meena paper):
375 single responses on nine aspects, and 125 complete dialogues on eleven, by five raters each. Most aspects have
values from 0 to 2, "Understandable" and "Consistent" are 0 or 1, "Overall" is 0 to 4. Answers such as "N/A (no errors)"
are counted and left out. The file does not say who the raters are: every rating set is taken as a rater of its own, so
that intervals are over conversations. Responses from one conversation form a cluster with it.

These are not SSA labels: no public release holds those.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.study.config import Consent, StudyBot, StudyConfig
from tertulia.study.localised import Localised
from tertulia.study.questions import Question
from tertulia.study.units import Unit

FED = "fed"
FORMATS = {FED: "FED: people's ratings of Meena, Mitsuku and human conversations (fed_data.json)"}
"""Name and one line of help of every format."""
_SPEAKER = re.compile(r"(User|System):\s*")


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
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise DataError(f"{source} is not JSON ({error}).", hint="Give the file as it was published.") from None
    return import_fed(entries, source=source)


def import_fed(entries: Json, *, source: str = "fed_data.json") -> ImportedStudy:
    """The FED dataset as a study: systems are bots, aspects are questions, turns and dialogues are units."""
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{source} is not a list of rated responses.", hint="Give FED's fed_data.json.")
    units: dict[str, Unit] = {}
    ratings: list[ImportedRating] = []
    highest: dict[str, int] = {}
    skipped = 0
    for number, entry in enumerate(entries):
        try:
            unit = _fed_unit(entry, number, _conversation(entry, entries))
            answers, left_out = _fed_answers(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{source}: entry {number + 1} is damaged ({error}).", hint="Download it again.") from None
        skipped += left_out
        units[unit.id] = unit
        for position, given in enumerate(answers):
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
    return ImportedStudy(_fed_config(systems, highest), tuple(units.values()), tuple(ratings), skipped, notes)


def _conversation(entry: Mapping[str, Json], entries: Sequence[Mapping[str, Json]]) -> str:
    """The text of the dialogue that an entry belongs to: the one of its system of which one is the other's beginning.

    A rated dialogue may end before a rated response of the same conversation.
    """
    text = _full_text(entry)
    complete = [_full_text(e) for e in entries if "response" not in e and e["system"] == entry["system"]]
    return next((d for d in complete if d.startswith(text) or text.startswith(d)), text)


def _full_text(entry: Mapping[str, Json]) -> str:
    return "\n".join(str(entry[name]) for name in ("context", "response") if entry.get(name))


def _fed_unit(entry: Mapping[str, Json], number: int, conversation: str) -> Unit:
    system = str(entry["system"])
    source = hashlib.sha256(f"{system}\n{conversation}".encode()).hexdigest()[:12]
    turns = _turns(entry["context"])
    payload: dict[str, Json] = {"source": source}
    if "response" in entry:
        payload |= {"context": turns, "responses": [_SPEAKER.sub("", str(entry["response"]), count=1)]}
    else:
        payload["conversations"] = [{"turns": turns, "judged": "System"}]
    return Unit(f"fed-{number:04}", (system,), payload)


def _turns(text: str) -> list[Json]:
    """Turns of a dialogue in which every turn begins with "User:" or "System:"; other lines continue a turn."""
    turns: list[dict[str, str]] = []
    for line in text.split("\n"):
        match = _SPEAKER.match(line)
        if match:
            turns.append({"speaker": match[1], "text": line[match.end() :]})
        elif turns:
            turns[-1]["text"] += f"\n{line}"
    return [*turns]


def _fed_answers(entry: Mapping[str, Json]) -> tuple[list[dict[str, int]], int]:
    """The answers of each rater by question, and how many are no numbers."""
    level = "turn" if "response" in entry else "dialogue"
    answers: list[dict[str, int]] = []
    skipped = 0
    for aspect, values in entry["annotations"].items():
        question = f"{level}_{re.sub('[^a-z]+', '_', aspect.lower())}"
        for position, value in enumerate(values):
            while len(answers) <= position:
                answers.append({})
            if isinstance(value, int) and not isinstance(value, bool):
                answers[position][question] = value
            else:
                skipped += 1
    return answers, skipped


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
