import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tertulia import sample
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.write import save_dialogues

Tertulia = Callable[..., Any]


def test_a_bot_talks_to_itself(tertulia: Tertulia, tmp_path: Path) -> None:
    out = tmp_path / "new" / "x.jsonl"
    result = tertulia("selfplay", "tfidf", "--out", out, "-n", 3, "--turns", 6, "--json")
    assert result.code == 0
    figures = json.loads(result.out)
    assert (figures["out"], figures["conversations"]) == (str(out), 3)
    assert figures["distinct2_A"]["n"] > 0
    assert 0 < figures["distinct2_B"]["value"] <= 1
    dialogues = list(load_dialogues(out))
    assert len(dialogues) == 3
    for dialogue in dialogues:
        assert [t.speaker for t in dialogue.turns] == ["A", "B"] * 3
        assert dialogue.turns[0].text == "Hi!"
        assert dialogue.turns[1].meta["provenance"]["bot"] == "tfidf:sample"
        assert dialogue.personas == {}


def test_two_bots_with_personas(tertulia: Tertulia, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    options = ("-n", 2, "--turns", 4, "--personas", "sample", "--opener", "", "--seed", 7)
    result = tertulia("selfplay", "tfidf", "generic", "--out", out, *options)
    assert result.code == 0
    assert "B: " in result.out
    assert f"2 conversations in {out}" in " ".join(result.out.split())
    dialogues = list(load_dialogues(out))
    personas = sample.personas("valid")
    assert [dialogue.personas for dialogue in dialogues] == [
        {"A": personas[0], "B": personas[1]},
        {"A": personas[2], "B": personas[3]},
    ]
    assert {t.text for dialogue in dialogues for t in dialogue.turns if t.speaker == "B"} <= {"ok", "I don't know."}
    assert all(dialogue.turns[0].text != "Hi!" for dialogue in dialogues)


def test_the_same_seed_gives_the_same_file(tertulia: Tertulia, tmp_path: Path) -> None:
    corpus = tmp_path / "x.parquet"
    save_dialogues(sample.dialogues("valid"), corpus)
    one, same, other = (tmp_path / f"{name}.jsonl" for name in ("one", "same", "other"))
    for file, seed in ((one, 1), (same, 1), (other, 2)):
        assert tertulia("selfplay", f"tfidf:{corpus}", "--out", file, "-n", 2, "--opener", "", "--seed", seed).code == 0
    assert one.read_text(encoding="utf-8") == same.read_text(encoding="utf-8")
    assert one.read_text(encoding="utf-8") != other.read_text(encoding="utf-8")


def test_a_wrong_output_format_is_reported_before_loading_bots(tertulia: Tertulia, tmp_path: Path) -> None:
    result = tertulia("selfplay", f"hf:{tmp_path / 'no-such-model'}", "--out", tmp_path / "x.docx")
    assert result.code == 2
    assert "Unrecognised file type" in result.stderr
