"""Labelled pairs in the formats of natural language inference."""

import gzip
import json
from pathlib import Path

import pytest

from tertulia import sample
from tertulia.core.codec import Problems, exchange_to_json
from tertulia.core.errors import DamagedLine, DataError
from tertulia.corpus.readers.text_pairs import nli_labels, read_labelled_pairs

EXPECTED = [("A man rides.", "A man sits.", ("entailment",)), ("Dogs run.", "Cats run.", ("contradiction",))]
FILES = {
    "pairs.jsonl": '{"premise": "A man rides.", "hypothesis": "A man sits.", "label": "entailment"}\n'
    '{"premise": "Dogs run.", "hypothesis": "Cats run.", "label": "contradiction", "genre": "x"}\n',
    "snli.jsonl": '{"sentence1": "A man rides.", "sentence2": "A man sits.", "gold_label": "entailment"}\n'
    '{"sentence1": "?", "sentence2": "?", "gold_label": "-"}\n'
    '{"sentence1": "Dogs run.", "sentence2": "Cats run.", "gold_label": "contradiction"}\n',
    "dnli.json": '[{"sentence1": "A man rides.", "sentence2": "A man sits.", "label": "positive"},\n'
    ' {"sentence1": "Dogs run.", "sentence2": "Cats run.", "label": "negative"}]',
    "dnli.txt": "A man rides.</s>A man sits.</s>positive\nDogs run.</s>Cats run.</s>negative\n",
    "numbers.tsv": "premise\thypothesis\tlabel\nA man rides.\tA man sits.\t0\nDogs run.\tCats run.\t2\n",
    "glue.tsv": "index\tlabel\tsentence1\tsentence2\n0\tentailment\tA man rides.\tA man sits.\n"
    '1\tcontradiction\tDogs run.\tCats run.\n',
    "spoken.tsv": "A man rides.\tA man sits.\tEntailment\nDogs run.\tCats run.\tContradiction\n",
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_pairs(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(FILES[name].encode()))
    for file in (tmp_path / name, tmp_path / f"{name}.gz"):
        pairs = list(read_labelled_pairs(file))
        labels = nli_labels(pairs)
        assert [(p.first, p.second, label) for p, label in zip(pairs, labels, strict=True)] == EXPECTED


def test_labelled_replies_are_pairs_of_evidence_and_response(tmp_path: Path) -> None:
    exchanges = sample.grounded()[:10]
    lines = "".join(json.dumps(exchange_to_json(e)) + "\n" for e in exchanges)
    (tmp_path / "silver.jsonl").write_text(lines, encoding="utf-8")
    pairs = list(read_labelled_pairs(tmp_path / "silver.jsonl"))
    assert [(p.first, p.second, p.label) for p in pairs] == [
        (e.evidence[0].text, e.response.text, e.label) for e in exchanges
    ]
    assert set(nli_labels(pairs)) == {("entailment",), ("neutral",), ("contradiction",)}


def test_damage_is_counted_and_an_unknown_label_is_an_error_that_says_where(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("premise\thypothesis\tlabel\na\tb\n\nc\td\tmaybe\n", encoding="utf-8")
    problems = Problems()
    pairs = list(read_labelled_pairs(file, problems=problems))
    assert problems.count == 1
    assert "line 2: expected 3 columns, got 2" in problems.examples[0]
    with pytest.raises(DataError, match=r"pairs.tsv, line 4: unknown label 'maybe'") as error:
        nli_labels(pairs)
    assert "neutral" in error.value.hint
    with pytest.raises(DamagedLine, match="line 2"):
        list(read_labelled_pairs(file))
    (tmp_path / "bad.jsonl").write_text('{"premise": "a", "label": 1}\n[]\n{', encoding="utf-8")
    problems = Problems()
    assert list(read_labelled_pairs(tmp_path / "bad.jsonl", problems=problems)) == []
    assert problems.count == 3
    assert "hypothesis" in problems.examples[0]
