"""BEGIN (Dziri et al. 2021): one reply per row with its evidence and its human label, as TSV without quoting.

The first release (v1) has five labels (entailment, hallucination, off-topic, generic, contradiction), the second (v2)
three (fully attributable, not fully attributable, generic); they are kept as written. An exchange with a longer context
is written with its last turn only, one with several passages with the passages joined.
"""

from collections.abc import Callable, Iterable, Iterator

from tertulia.core.dialogue import Evidence, Exchange, Json, Turn
from tertulia.corpus.readers.base import TextReader, content_id, one_line, text_lines, wrong_columns
from tertulia.corpus.readers.records import Record

V1 = ("evidence", "previous turn", "response", "gold label", "coarse label", "full label set")
V2 = ("model_name", "data_source", "knowledge", "message", "response", "begin_label")


def cut(columns: tuple[str, ...]) -> Callable[[Iterable[str]], Iterator[Record]]:
    """Split lines into rows, as cells by column name; the header is skipped."""

    def rows(lines: Iterable[str]) -> Iterator[Record]:
        for line in text_lines(lines):
            cells = [cell.strip() for cell in line.value.split("\t")]
            if cells == list(columns):
                continue
            damage = line.damage or wrong_columns(cells, len(columns))
            yield Record(line.line, dict(zip(columns, cells, strict=False)), damage)

    return rows


def decode_v1(row: dict[str, str]) -> Exchange:
    """Decode a row of the first release; the label is the gold label, the others go into the response's `meta`."""
    labels = [label for label in row["full label set"].split(";") if label]
    meta = {"coarse": row["coarse label"], "labels": labels}
    return _exchange(row["evidence"], row["previous turn"], row["response"], row["gold label"], meta)


def decode_v2(row: dict[str, str]) -> Exchange:
    """Decode a row of the second release; the model and the corpus go into the response's `meta`."""
    meta = {"model": row["model_name"], "data": row["data_source"]}
    return _exchange(row["knowledge"], row["message"], row["response"], row["begin_label"], meta)


def _exchange(evidence: str, message: str, response: str, label: str, meta: dict[str, Json]) -> Exchange:
    if not label:
        raise ValueError("expected a label, got none")
    return Exchange(
        id=content_id(evidence, message, response, *(str(value) for value in meta.values())),
        context=(Turn("user", message),) if message else (),
        response=Turn("bot", response, meta={name: value for name, value in meta.items() if value}),
        evidence=(Evidence(evidence),) if evidence else (),
        label=label,
    )


def encode_v1(exchange: Exchange) -> str:
    """Encode an exchange as a row."""
    labels = exchange.response.meta.get("labels")
    full_set = ";".join(str(label) for label in labels) if isinstance(labels, list) else ""
    return _row(*_texts(exchange), exchange.label or "", str(exchange.response.meta.get("coarse", "")), full_set)


def encode_v2(exchange: Exchange) -> str:
    """Encode an exchange as a row."""
    meta = exchange.response.meta
    model, data = str(meta.get("model", "")), str(meta.get("data", ""))
    return _row(model, data, *_texts(exchange), exchange.label or "")


def _texts(exchange: Exchange) -> tuple[str, str, str]:
    message = exchange.context[-1].text if exchange.context else ""
    return " ".join(e.text for e in exchange.evidence), message, exchange.response.text


def _row(*cells: str) -> str:
    return "\t".join(one_line(cell) for cell in cells) + "\n"


def _reader(
    name: str, columns: tuple[str, ...], decode: Callable[[dict[str, str]], Exchange], encode: Callable[[Exchange], str]
) -> TextReader:
    head = "\t".join(columns)
    return TextReader(
        name=name,
        recognises=lambda text: text.startswith(head),
        cut=cut(columns),
        decode=decode,
        encode=encode,
        head=head + "\n",
        endings=(".tsv", ".tsv.gz"),
        holds="exchanges",
    )


READER_V1 = _reader("begin-v1", V1, decode_v1, encode_v1)
READER_V2 = _reader("begin-v2", V2, decode_v2, encode_v2)
