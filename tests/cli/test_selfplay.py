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
    assert (figures["out"], figures["conversations"], figures["turns"]) == (str(out), 3, 18)
    (pairing,) = figures["pairings"]
    assert pairing["pairing"] == "tfidf"
    assert 0 < pairing["distinct2"]["tfidf"]["value"] <= 1
    assert pairing["distinct2"]["tfidf"]["n"] > 0
    dialogues = list(load_dialogues(out))
    assert len(dialogues) == 3
    for dialogue in dialogues:
        assert [t.speaker for t in dialogue.turns] == ["A", "B"] * 3
        assert dialogue.turns[0].text == "Hi!"
        assert dialogue.turns[1].meta["provenance"]["bot"] == "tfidf:sample"
        assert dialogue.personas == {}
    assert [file.name for file in out.parent.iterdir()] == [out.name]


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


def test_several_bots_with_themselves_and_with_each_other(tertulia: Tertulia, tmp_path: Path) -> None:
    openers = tmp_path / "openers.txt"
    openers.write_text("Good morning.\nHow are you?\n", encoding="utf-8")
    bots = ("anna=generic", "ben=generic?to_statements=fine", "tfidf")
    arguments = ("selfplay", *bots, "--with-itself", "--all-pairs", "-n", 4, "--turns", 3, "--openers", openers)
    result = tertulia(*arguments, "--out", tmp_path / "out")
    assert result.code == 0
    rows = [line.split() for line in result.out.splitlines()[1:7]]
    assert [row[0] for row in rows] == ["anna", "ben", "tfidf", "anna", "anna", "ben"]
    assert rows[3][:5] == ["anna", "+", "ben", "4", "12"]
    dialogues = list(load_dialogues(tmp_path / "out"))
    assert len(dialogues) == 24
    assert {d.turns[0].text for d in dialogues} == {"Good morning.", "How are you?"}
    pair = dialogues[12]
    assert (pair.meta["names"], pair.speakers) == (["anna", "ben"], ("anna", "ben"))
    again = tertulia(*arguments, "--out", tmp_path / "out")
    assert again.code == 0
    assert "An earlier run had finished all shards." in again.out


def test_the_same_seed_gives_the_same_file(tertulia: Tertulia, tmp_path: Path) -> None:
    corpus = tmp_path / "x.parquet"
    save_dialogues(sample.dialogues("valid"), corpus)
    one, same, other = (tmp_path / f"{name}.jsonl" for name in ("one", "same", "other"))
    for file, seed in ((one, 1), (same, 1), (other, 2)):
        assert tertulia("selfplay", f"tfidf:{corpus}", "--out", file, "-n", 2, "--opener", "", "--seed", seed).code == 0
    assert one.read_text(encoding="utf-8") == same.read_text(encoding="utf-8")
    assert one.read_text(encoding="utf-8") != other.read_text(encoding="utf-8")


def test_wrong_targets_are_reported_before_bots_are_loaded(tertulia: Tertulia, tmp_path: Path) -> None:
    bot = f"hf:{tmp_path / 'no-such-model'}"
    result = tertulia("selfplay", bot, "--out", tmp_path / "x.docx")
    assert result.code == 2
    assert "Unrecognised file type" in result.stderr
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    result = tertulia("selfplay", bot, "--out", tmp_path / "file")
    assert result.code == 2
    assert "is a file, not a folder" in result.stderr
    (tmp_path / "x.jsonl").write_text("mine", encoding="utf-8")
    result = tertulia("selfplay", "generic", "--out", tmp_path / "x.jsonl")
    assert result.code == 2
    assert "was not written by this command" in result.stderr
    assert (tmp_path / "x.jsonl").read_text(encoding="utf-8") == "mine"


def test_a_person_needs_this_process(tertulia: Tertulia, tmp_path: Path) -> None:
    result = tertulia("selfplay", "human", "generic", "--processes", 2, "--out", tmp_path / "x.jsonl")
    assert result.code == 2
    assert "A person at this terminal can only talk in one process." in result.stderr
