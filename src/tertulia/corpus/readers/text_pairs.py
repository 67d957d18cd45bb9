"""Labelled pairs of texts, in the formats of natural language inference: SNLI, MNLI, RTE, Dialogue NLI, or JSON lines.

- JSON lines, or a JSON list: `premise`, `hypothesis`, `label`, or `sentence1`, `sentence2`, `gold_label`
- tables with tabs and a row of column names, the same names (GLUE, the Hugging Face exports)
- tables of three columns without names: premise, hypothesis, label
- `premise</s>hypothesis</s>label`, one pair a line
- Tertulia's own exchanges, such as `corpus silver` writes: evidence, response and label

Pairs without a label ("-", as SNLI has where raters disagree) are left out.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tertulia.artefacts.files import UNREADABLE, open_text
from tertulia.core.codec import Problems, exchange_from_json
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.core.grounding import COARSE, COARSE_LABELS, CoarseLabel, parse_label
from tertulia.corpus.readers.base import JSON_LINES, read_records, text_lines, text_of
from tertulia.corpus.readers.records import Record, json_document, json_lines

_FIRST: Final = ("premise", "sentence1")
_SECOND: Final = ("hypothesis", "sentence2")
_LABEL: Final = ("label", "gold_label")
ENDINGS: Final = tuple(f"{e}{gz}" for e in (".jsonl", ".json", ".tsv", ".txt") for gz in ("", ".gz"))
_NLI: Final[dict[str, tuple[CoarseLabel, ...]]] = {
    "entailment": ("entailment",),
    "entails": ("entailment",),
    "positive": ("entailment",),
    "neutral": ("neutral",),
    "contradiction": ("contradiction",),
    "contradictory": ("contradiction",),
    "negative": ("contradiction",),
    "not entailment": ("neutral", "contradiction"),
    "not contradiction": ("entailment", "neutral"),
}
_NUMBERS: Final = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_TWO_NUMBERS: Final = {"0": "entailment", "1": "not entailment"}


class LabelledPair(NamedTuple):
    """Two texts and how they are related."""

    first: str
    second: str
    label: str
    """As the file has it."""
    source: str = ""
    """File and line, for messages."""


def read_labelled_pairs(file: Path, *, problems: Problems | None = None) -> Iterator[LabelledPair]:
    """The labelled pairs of a file. Damaged lines are added to `problems` if given; else the first one raises."""
    try:
        with open_text(file) as text:
            head = text.read(1 << 12)
            text.seek(0)
            if file.name.endswith(JSON_LINES):
                records = json_lines(text)
            elif head.lstrip()[:1] in ("[", "{"):
                records = json_document(text)
            else:
                records = _rows(text, head)
            yield from _decode(records, str(file), problems)
    except UNREADABLE as error:
        raise DataError(f"Cannot read {file} to its end: {error}.") from None


def _decode(records: Iterable[Record], source: str, problems: Problems | None) -> Iterator[LabelledPair]:
    numbered = (record._replace(value=(record.line, record.value)) for record in records)
    pairs = read_records(numbered, lambda both: (both[0], _pair(both[1])), source=source, problems=problems)
    for line, pair in pairs:
        if pair.label not in ("", "-"):
            yield pair._replace(source=f"{source}, line {line}")


def _pair(value: Json) -> LabelledPair:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    if "response" in value:
        exchange = exchange_from_json(value)
        evidence = " ".join(passage.text for passage in exchange.evidence)
        return LabelledPair(evidence, exchange.response.text, exchange.label or "")
    cells = []
    for names in (_FIRST, _SECOND, _LABEL):
        name = next((name for name in names if name in value), None)
        if name is None:
            raise KeyError(f"expected {' or '.join(names)}")
        cell = value[name]
        cells.append(str(cell) if names is _LABEL and isinstance(cell, int) else text_of(cell, name).strip())
    return LabelledPair(*cells)


def _rows(lines: Iterable[str], head: str) -> Iterator[Record]:
    """Rows as objects: by the names in the first row, if it has them, else by position."""
    separator = "</s>" if "</s>" in head.split("\n", 1)[0] else "\t"
    names = [name.strip().lower() for name in head.split("\n", 1)[0].split(separator)]
    named = any(name in _FIRST for name in names)
    if not named:
        names = [_FIRST[0], _SECOND[0], _LABEL[0]]
    for line in text_lines(lines):
        if named and line.line == 1:
            continue
        cells = line.value.split(separator)
        damage = line.damage
        if not damage and len(cells) != len(names):
            damage = f"expected {len(names)} columns, got {len(cells)}"
        yield Record(line.line, dict(zip(names, cells, strict=False)), damage)


def nli_labels(pairs: Iterable[LabelledPair]) -> list[tuple[CoarseLabel, ...]]:
    """For the pairs of one file, the labels of inference that each may have: usually one.

    "Not entailment" (RTE) and "not contradiction" allow two. Numbers are 0 entailment, 1 neutral, 2 contradiction, or,
    in a file that has only 0 and 1, 1 not entailment. BEGIN's labels are mapped to theirs.

    >>> nli_labels([LabelledPair("", "", label) for label in ("Positive", "not_entailment", "off-topic")])
    [('entailment',), ('neutral', 'contradiction'), ('neutral',)]
    >>> nli_labels([LabelledPair("", "", "not contradiction")])
    [('entailment', 'neutral')]
    >>> nli_labels([LabelledPair("", "", label) for label in "01"])
    [('entailment',), ('neutral', 'contradiction')]
    """
    pairs = list(pairs)
    numbers = _TWO_NUMBERS if {pair.label for pair in pairs} <= _TWO_NUMBERS.keys() else _NUMBERS
    return [_nli_label(pair, numbers) for pair in pairs]


def _nli_label(pair: LabelledPair, numbers: dict[str, str]) -> tuple[CoarseLabel, ...]:
    name = numbers.get(pair.label, pair.label).strip().lower().replace("_", " ")
    if name in _NLI:
        return _NLI[name]
    if (label := parse_label(name)) is not None:
        return (COARSE[label],)
    raise DataError(
        f"{pair.source}: unknown label {pair.label!r}.",
        hint=f"Expected {', '.join(COARSE_LABELS)}, not entailment, not contradiction, 0, 1 or 2, or a label of BEGIN.",
    )
