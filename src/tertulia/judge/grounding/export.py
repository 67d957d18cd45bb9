"""People's BEGIN labels from the export of a study: CSV, JSON lines or Parquet, one row per answer.

A row is an answer to one question about one sentence. The answers about a sentence give its label, the sentences of a
response the label of the response, by the rules of the preset `begin` (`tertulia.metrics.begin_labels`).
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tertulia.artefacts.files import open_text
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.core.grounding import GroundingInput, GroundingLabel
from tertulia.metrics.begin_labels import QUESTIONS, begin_label, response_label

COLUMNS = frozenset(("study", "unit", "participant", "assignment", "target", "question", "value", "evidence"))
"""What an export has, among others."""
_HINT = "Give the file that `tertulia study export` wrote for a study of the preset begin."
_SENTENCE = "sentence:"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Before what an export puts a quote in CSV."""


class PersonLabel(NamedTuple):
    """The label that one person's answers give one response."""

    unit: str
    rater: str
    label: GroundingLabel
    bot: str
    input: GroundingInput


def is_export(path: Path) -> bool:
    """Whether a file is the export of a study, by its columns."""
    if not path.is_file():
        return False
    try:
        if path.suffix == ".parquet":
            return set(pq.read_schema(path).names) >= COLUMNS
        if path.suffix in (".csv", ".jsonl"):
            first = next(_rows(path), None)
            return first is not None and first.keys() >= COLUMNS
    except (OSError, DataError, csv.Error, pa.ArrowException):
        return False
    return False


def read_export(path: Path) -> list[PersonLabel]:
    """The labels of an export; answers that were replaced, and unfinished assignments, do not count."""
    answers: dict[str, dict[str, dict[str, Json]]] = {}
    about: dict[str, Mapping[str, Json]] = {}
    for row in _rows(path):
        if str(row.get("current", True)).lower() == "false" or not str(row["target"]).startswith(_SENTENCE):
            continue
        assignment, target = str(row["assignment"]), str(row["target"])
        about.setdefault(assignment, row)
        answers.setdefault(assignment, {}).setdefault(target, {})[str(row["question"])] = _value(row)
    labels = []
    for assignment, by_sentence in answers.items():
        try:
            sentences = [begin_label(by_sentence[name]) for name in sorted(by_sentence, key=_position)]
        except KeyError as missing:
            raise DataError(
                f"{path}: the assignment {assignment} has no answer to {missing.args[0]!r}.", hint=_HINT
            ) from None
        except TypeError:
            raise DataError(
                f"{path}: an answer of the assignment {assignment} is no number of a scale.", hint=_HINT
            ) from None
        shown = about[assignment]
        label = response_label(sentences)
        labels.append(
            PersonLabel(str(shown["unit"]), str(shown["participant"]), label, str(shown["bot"] or ""), _input(shown))
        )
    if not labels:
        raise DataError(f"{path} has no answers to BEGIN's questions ({', '.join(QUESTIONS)}).", hint=_HINT)
    return labels


def _rows(path: Path) -> Iterator[dict[str, Json]]:
    if path.suffix == ".parquet":
        for batch in pq.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
        return
    with open_text(path) as file:
        if path.suffix == ".csv":
            yield from ({name: _cell(cell) for name, cell in row.items()} for row in csv.DictReader(file))
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _object(line, f"{path}, line {number}")


def _object(line: str, where: str) -> dict[str, Json]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error}).", hint=_HINT) from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected an object.", hint=_HINT)
    return value


def _cell(text: str | None) -> str:
    """A cell of a spreadsheet without the quote that keeps it from being a formula.

    >>> _cell("'=1+1"), _cell("'tis"), _cell(None)
    ('=1+1', "'tis", '')
    """
    text = text or ""
    inner = text[1:]
    return inner if text[:1] == "'" and (inner.startswith(_FORMULA) or inner.lstrip().startswith(_FORMULA)) else text


def _value(row: Mapping[str, Json]) -> Json:
    """The answer: a number on a scale, or a word; CSV and Parquet have text."""
    value = row["value"]
    if isinstance(value, str) and (number := row.get("value_number")) not in (None, ""):
        return float(number)
    return value


def _position(target: str) -> tuple[int, str]:
    number = target.removeprefix(_SENTENCE)
    return (int(number) if number.isdigit() else 0, target)


def _input(row: Mapping[str, Json]) -> GroundingInput:
    context = row.get("context") or []
    if isinstance(context, str):
        context = json.loads(context)
    previous = str(context[-1]["text"]) if context else ""
    return GroundingInput(str(row["evidence"] or ""), previous, str(row.get("shown_a") or row.get("text") or ""))
