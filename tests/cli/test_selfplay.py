import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tertulia import sample
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.write import save_dialogues

Tertulia = Callable[..., Any]


def test_a_bot_talks_to_itself(tertulia: Tertulia, tmp_path: Path) -> None:
    out = tmp_path / "new" / "talks.jsonl"
    result = tertulia("selfplay", "tfidf", "--out", out, "-n", 3, "--turns", 6, "--json")
    assert result.code == 0
    figures = json.loads(result.out)
    assert (figures["out"], figures["conversations"]) == (str(out), 3)
    assert figures["distinct2_A"]["n"] > 0
    assert 0 < figures["distinct2_B"]["value"] <= 1
    talks = list(load_dialogues(out))
    assert len(talks) == 3
    for talk in talks:
        assert [t.speaker for t in talk.turns] == ["A", "B"] * 3
        assert talk.turns[0].text == "Hi!"
        assert talk.turns[1].meta["provenance"]["bot"] == "tfidf:sample"
        assert talk.personas == {}


def test_two_bots_with_personas_for_people(tertulia: Tertulia, tmp_path: Path) -> None:
    out = tmp_path / "talks.parquet"
    options = ("-n", 2, "--turns", 4, "--personas", "sample", "--opener", "", "--seed", 7)
    result = tertulia("selfplay", "tfidf", "generic", "--out", out, *options)
    assert result.code == 0
    assert "B: " in result.out
    assert f"2 conversations in {out}" in " ".join(result.out.split())
    talks = list(load_dialogues(out))
    people = sample.personas("valid")
    assert [talk.personas for talk in talks] == [
        {"A": people[0], "B": people[1]},
        {"A": people[2], "B": people[3]},
    ]
    assert {t.text for talk in talks for t in talk.turns if t.speaker == "B"} <= {"ok", "I don't know."}
    assert all(talk.turns[0].text != "Hi!" for talk in talks)


def test_the_same_seed_gives_the_same_file(tertulia: Tertulia, tmp_path: Path) -> None:
    talks = tmp_path / "talks.parquet"
    save_dialogues(sample.dialogues("valid"), talks)
    one, same, other = (tmp_path / f"{name}.jsonl" for name in ("one", "same", "other"))
    for file, seed in ((one, 1), (same, 1), (other, 2)):
        assert tertulia("selfplay", f"tfidf:{talks}", "--out", file, "-n", 2, "--opener", "", "--seed", seed).code == 0
    assert one.read_text(encoding="utf-8") == same.read_text(encoding="utf-8")
    assert one.read_text(encoding="utf-8") != other.read_text(encoding="utf-8")


def test_a_file_that_cannot_be_written_is_known_before_the_talk(tertulia: Tertulia, tmp_path: Path) -> None:
    result = tertulia("selfplay", f"hf:{tmp_path / 'no-such-model'}", "--out", tmp_path / "talks.docx")
    assert result.code == 2
    assert "Cannot tell the format" in result.told
