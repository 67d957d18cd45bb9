import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tertulia import sample
from tertulia.core.codec import Problems, dump_line
from tertulia.core.dialogue import Dialogue, Persona, Turn, exchanges
from tertulia.core.errors import DataError
from tertulia.core.text import words
from tertulia.corpus.load import save_dialogues, save_exchanges
from tertulia.corpus.testsets import TestSetConfig, item_to_json, make_test_set, write_ubuntu_csv
from tertulia.judge.config import RankConfig
from tertulia.judge.ranking_tasks import is_test_set, load_tasks, rank_tasks

DIALOGUES = sample.dialogues("valid")
ITEMS = make_test_set(DIALOGUES, TestSetConfig(distractors=9, seed=4))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def to_file(*records: object, name: str = "set.jsonl") -> Path:
        file = tmp_path / name
        file.write_text("".join(r if isinstance(r, str) else dump_line(r) + "\n" for r in records))  # type: ignore[arg-type]
        return file

    return to_file


def test_dialogues_give_every_reply_as_a_task() -> None:
    config = RankConfig(candidates=10, seed=2)
    tasks, published = load_tasks(config)
    assert tasks == rank_tasks(DIALOGUES, config)
    assert not published


def test_a_test_set_keeps_its_candidates_and_positions(write: Callable[..., Path]) -> None:
    file = write(*(item_to_json(item) for item in ITEMS))
    assert is_test_set(file)
    tasks, published = load_tasks(RankConfig(data=str(file)))
    assert published
    assert [(t.candidates, t.truth) for t in tasks] == [(item.candidates, item.truth) for item in ITEMS]
    assert [t.exchange.context for t in tasks] == [
        tuple(Turn(turn.speaker, turn.text) for turn in item.exchange.context) for item in ITEMS
    ]
    assert [t.dialogue for t in tasks] == [d.id for d in DIALOGUES]
    for task, item in zip(tasks, ITEMS, strict=True):
        assert task.exchange.response.speaker == item.exchange.response.speaker
        assert (task.exchange.persona, task.exchange.partner) == (item.exchange.persona, item.exchange.partner)


def test_a_line_may_have_a_speaker_and_personas(write: Callable[..., Path]) -> None:
    line = {"id": "x", "context": [{"speaker": "a", "text": "hi"}], "candidates": ["oh", "hm"], "truth": 0}
    more = {"speaker": "b", "persona": {"sentences": ["I sail."]}, "partner": {"sentences": ["I cook."]}}
    plain, full = load_tasks(RankConfig(data=str(write(line, line | more)))).tasks
    assert (plain.exchange.response.speaker, plain.exchange.persona, plain.dialogue) == ("bot", None, "x")
    assert full.exchange.response == Turn("b", "oh")
    assert (full.exchange.persona, full.exchange.partner) == (Persona(("I sail.",)), Persona(("I cook.",)))
    only = load_tasks(RankConfig(data=str(write(line, line | more)), speaker="b")).tasks
    assert only == [full]


def test_damaged_lines_of_a_test_set_are_counted(write: Callable[..., Path]) -> None:
    good = item_to_json(ITEMS[0])
    file = write("oops\n", good, good | {"truth": 10}, good | {"truth": "1"}, good | {"candidates": "x"}, {"id": "y"})
    problems = Problems()
    assert len(load_tasks(RankConfig(data=str(file)), problems).tasks) == 1
    assert problems.count == 5
    assert "index from 0 to 9" in " ".join(problems.examples)
    with pytest.raises(DataError, match="line 1"):
        load_tasks(RankConfig(data=str(file)))


def test_an_ubuntu_table_has_candidates_and_the_truth_gets_a_random_position(tmp_path: Path) -> None:
    file = tmp_path / "valid.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        write_ubuntu_csv(ITEMS, out)
    tasks, published = load_tasks(RankConfig(data=str(file), split=""))
    assert published
    assert len(tasks) == len(ITEMS)
    for task, item in zip(tasks, ITEMS, strict=True):
        assert task.candidates[task.truth] == task.exchange.response.text
        same = [" ".join(words(text)) for text in item.candidates]
        assert sorted(" ".join(words(text)) for text in task.candidates) == sorted(same)
    assert len({task.truth for task in tasks}) > 3


def test_single_replies_without_candidates_get_distractors_of_the_set(tmp_path: Path) -> None:
    file = tmp_path / "exchanges.jsonl"
    save_exchanges([e for d in DIALOGUES for e in exchanges(d)], file, format="exchanges")
    tasks, published = load_tasks(RankConfig(data=str(file), candidates=10))
    assert not published
    assert [(t.candidates, t.truth) for t in tasks] == [
        (t.candidates, t.truth) for t in rank_tasks(DIALOGUES, RankConfig(candidates=10))
    ]


def test_false_replies_are_not_ranked(tmp_path: Path) -> None:
    rows = [f"what is {i} ? __eou__ __eot__,it is number {i} __eou__,{i % 2}" for i in range(60)]
    file = tmp_path / "pairs.csv"
    file.write_text("Context,Utterance,Label\n" + "\n".join(rows) + "\n")
    tasks = load_tasks(RankConfig(data=str(file), split="", candidates=5)).tasks
    assert sorted(t.exchange.response.text for t in tasks) == sorted(f"it is number {i}" for i in range(1, 60, 2))


def test_published_candidates(tmp_path: Path) -> None:
    talk = Dialogue(
        "d",
        (
            Turn("a", "hi"),
            Turn("b", "hello", meta={"candidates": ["x", "y", "hello"]}),
            Turn("a", "so?"),
            Turn("b", "well", meta={"candidates": ["well", "z"]}),
        ),
    )
    file = tmp_path / "talks.jsonl"
    save_dialogues([talk], file)
    tasks, published = load_tasks(RankConfig(data=str(file), published=True))
    assert published
    assert [sorted(t.candidates) for t in tasks] == [["hello", "x", "y"], ["well", "z"]]
    assert [t.candidates[t.truth] for t in tasks] == ["hello", "well"]
    positions = {load_tasks(RankConfig(data=str(file), published=True, seed=s)).tasks[0].truth for s in range(20)}
    assert positions == {0, 1, 2}
    save_dialogues([Dialogue("d", (Turn("a", "hi"), Turn("b", "hm", meta={"candidates": ["x", "y"]})))], file)
    with pytest.raises(DataError, match="d#1 is not among its candidates"):
        load_tasks(RankConfig(data=str(file), published=True))
    with pytest.raises(DataError, match="No replies to rank"):
        load_tasks(RankConfig(published=True))


def test_a_limit_draws_at_random_and_keeps_the_order() -> None:
    everything = load_tasks(RankConfig(candidates=10)).tasks
    drawn = load_tasks(RankConfig(candidates=10, limit=40)).tasks
    assert len(drawn) == 40
    assert [t for t in everything if t in drawn] == drawn
    assert len({t.dialogue for t in drawn}) > 10
    assert load_tasks(RankConfig(candidates=10, limit=40)).tasks == drawn
    assert load_tasks(RankConfig(candidates=10, limit=10_000)).tasks == everything


def test_hard_distractors_resemble_the_truth_more() -> None:
    def shared(hard: bool) -> float:
        total = 0
        for task in load_tasks(RankConfig(candidates=10, hard=hard)).tasks:
            truth = set(words(task.candidates[task.truth]))
            others = [set(words(c)) for i, c in enumerate(task.candidates) if i != task.truth]
            assert len({" ".join(sorted(o)) for o in others} | {" ".join(sorted(truth))}) > 5
            total += sum(len(truth & other) for other in others)
        return total

    assert shared(hard=True) > 1.5 * shared(hard=False)


def test_hard_distractors_come_from_other_dialogues_and_have_other_words() -> None:
    talks = [
        Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", f"the {w} boat"), Turn("a", "hm"), Turn("b", f"{w} the boat!")))
        for i, w in enumerate("red blue green white black brown pink gold grey lime teal navy".split())
    ]
    for task in rank_tasks(talks, RankConfig(candidates=3, hard=True, speaker="b")):
        colour = task.exchange.response.text.replace("the ", "").split()[0]
        assert not any(colour in c.split() for i, c in enumerate(task.candidates) if i != task.truth)
    with pytest.raises(DataError, match="no words to compare"):
        rank_tasks(
            [Dialogue(f"d{i}", (Turn("a", "hi"), Turn("b", "!" * i + "?"))) for i in range(20)],
            RankConfig(candidates=3, hard=True),
        )


def test_other_json_is_not_a_test_set(write: Callable[..., Path]) -> None:
    assert not is_test_set(write(json.loads('{"id": "d", "turns": []}')))
    assert not is_test_set(write("nothing\n"))
    assert not is_test_set(write(name="empty.jsonl"))
    assert not is_test_set(Path("sample"))
