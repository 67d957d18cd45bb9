"""Reads preferences from files of any of the known formats, and leaves out those of people who withdrew.

`tertulia study export` never contains a participant who has withdrawn: their answers are deleted. A file that was
written before somebody withdrew still does. So everything by a person is left out whom a row of the file marks as
withdrawn (a true value under `withdrawn`, or "withdrawn" as the state of the assignment), or whose pseudonym is given;
how many judgements these were is counted.
"""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tertulia.artefacts.files import open_text
from tertulia.core.codec import DAMAGE, dialogue_from_json, loads, reason_of
from tertulia.core.dialogue import Json
from tertulia.core.errors import DamagedLine, UsageError
from tertulia.core.lazy import LazyModule
from tertulia.corpus.preferences import attempts, study_rows, trl
from tertulia.corpus.preferences.judgements import ReplyChoice, ReplyRating, preferences_of
from tertulia.corpus.preferences.values import LabelledReply, PreferencePair, PreferenceSet

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")  # a third of a second to import

PreferenceFormat = Literal["trl", "study", "attempts"]
_RECOGNISERS: Mapping[PreferenceFormat, Callable[[Json], bool]] = {
    "trl": trl.recognises,
    "study": study_rows.recognises,
    "attempts": attempts.recognises,
}
FORMATS = (
    "JSON lines with prompt, chosen and rejected, or with prompt, completion and label; what `tertulia study export`"
    " wrote (.csv, .jsonl, .parquet); or what `tertulia store export` wrote, for replies that were generated again"
)
Record = tuple[int, Mapping[str, Json]]
"""Number of the line or row, and what it holds."""


def read_preferences(
    files: Sequence[Path],
    *,
    questions: Iterable[str] = (),
    thresholds: Mapping[str, float] | None = None,
    withdrawn: Iterable[str] = (),
) -> PreferenceSet:
    """The preferences of some files; `questions` names the questions of a study that count, by default all."""
    left, wanted = set(withdrawn), set(questions)
    records = [(file, *record) for file in files for record in _records(file)]
    left |= {rater for _, _, row in records if _is_withdrawn(row) and (rater := _rater(row))}
    pairs: list[PreferencePair] = []
    replies: list[LabelledReply] = []
    judged: list[ReplyChoice | ReplyRating] = []
    counts: Counter[str] = Counter(read=len(records))
    raters: set[str] = set()
    formats = {file: _format(file, [row for name, _, row in records if name == file]) for file in files}
    asked: set[str] = set()
    for file, number, row in records:
        if _is_withdrawn(row) or _rater(row) in left:
            counts["withdrawn"] += 1
            continue
        try:
            one = _decode(formats[file], row, wanted, asked, counts)
        except DAMAGE as why:
            raise DamagedLine(str(file), number, reason_of(why)) from None
        if one and (rater := _rater(row)):
            raters.add(rater)
        pairs += (item for item in one if isinstance(item, PreferencePair))
        replies += (item for item in one if isinstance(item, LabelledReply))
        judged += (item for item in one if isinstance(item, ReplyChoice | ReplyRating))
    if missing := sorted(wanted - asked):
        raise UsageError(
            f"No answer is to the question {missing[0]!r}.",
            hint=f"The files have answers to: {', '.join(sorted(asked)) or 'no question of a study'}.",
        )
    choices = [one for one in judged if isinstance(one, ReplyChoice)]
    made = preferences_of(choices, [one for one in judged if isinstance(one, ReplyRating)], thresholds or {})
    counts.update(made.counts)
    complete = PreferenceSet((*pairs, *made.pairs), (*replies, *made.replies), {}, tuple(sorted(raters)))
    return replace(_without_identical(complete, counts), withdrawn=tuple(sorted(left)))


def _decode(
    kind: PreferenceFormat, row: Mapping[str, Json], wanted: set[str], asked: set[str], counts: Counter[str]
) -> list[PreferencePair | LabelledReply | ReplyChoice | ReplyRating]:
    """What one record says; why it says nothing is counted."""
    if kind == "trl":
        return [trl.decode(row)]
    if kind == "attempts":
        return list(attempts.choices_of(dialogue_from_json(row)))
    values = study_rows.parsed(row)
    asked.add(str(values.get("question")))
    if str(values.get("current", True)).lower() == "false":
        counts["superseded"] += 1
        return []
    if values.get("assignment_state", "submitted") != "submitted":
        counts["unfinished"] += 1
        return []
    if wanted and values.get("question") not in wanted:
        counts["other_question"] += 1
        return []
    judgements = list(study_rows.judgements(values))
    counts["not_about_a_reply"] += not judgements
    return [*judgements]


def _without_identical(preferences: PreferenceSet, counts: Counter[str]) -> PreferenceSet:
    """Without pairs whose two replies are the same text."""
    pairs = tuple(pair for pair in preferences.pairs if pair.chosen.strip() != pair.rejected.strip())
    counts["identical"] += len(preferences.pairs) - len(pairs)
    return replace(preferences, pairs=pairs, counts={name: count for name, count in counts.items() if count})


def _format(file: Path, rows: Sequence[Json]) -> PreferenceFormat:
    """The format of a file, by its first record that is more than the mark of somebody who withdrew."""
    if not rows:
        raise UsageError(f"{file} is empty: it has no preferences.", hint=f"Give {FORMATS}.")
    first = next((row for row in rows if not _is_withdrawn(row)), rows[0])
    for name, recognises in _RECOGNISERS.items():
        if recognises(first) or _is_withdrawn(first):
            return name
    fields = ", ".join(map(repr, first)) if isinstance(first, dict) else f"no fields, but is a {type(first).__name__}"
    raise UsageError(f"The format of {file} is unknown: its first record has {fields}.", hint=f"Give {FORMATS}.")


def _records(file: Path) -> Iterator[Record]:
    if not file.is_file():
        raise UsageError(f"File not found: {file}", hint=f"Give {FORMATS}.")
    if file.suffix == ".parquet":
        try:
            rows = pl.read_parquet(file).to_dicts()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UsageError(f"{file} cannot be read as Parquet ({error}).", hint="Export it again.") from None
        yield from enumerate(rows, 1)
        return
    with open_text(file) as lines:
        if file.suffix == ".csv":
            for number, row in enumerate(csv.DictReader(lines), 2):
                yield number, {name: _undefused(value) for name, value in row.items() if name is not None}
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, loads(line)
                except DAMAGE as why:
                    raise DamagedLine(str(file), number, reason_of(why)) from None


def _undefused(cell: Json) -> Json:
    """A cell without the apostrophe that keeps spreadsheets from running it as a formula."""
    starts = ("'=", "'+", "'-", "'@", "'\t", "'\r", "'\n", "' ", "'＝", "'＋", "'－", "'＠")
    return cell[1:] if isinstance(cell, str) and cell.startswith(starts) else cell


def _rater(row: Json) -> str:
    return str(row.get("participant") or row.get("rater") or "") if isinstance(row, dict) else ""


def _is_withdrawn(row: Json) -> bool:
    if not isinstance(row, dict):
        return False
    marker = row.get("withdrawn")
    return (marker not in (None, "", False) and str(marker).lower() != "false") or (
        row.get("assignment_state") == "withdrawn"
    )
