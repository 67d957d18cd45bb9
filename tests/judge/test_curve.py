import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tertulia import sample
from tertulia.core.config import resolve
from tertulia.core.errors import ConfigError, DataError, UsageError
from tertulia.judge.curve import CurveConfig, learning_curve, read_points
from tertulia.judge.rank import judge_rank, rank_tasks
from tertulia.talk.bot import Bot
from tertulia.talk.bots.tfidf import TfidfBot
from tertulia.talk.lexical import TfidfIndex

TRAIN = sample.dialogues("train")


class Trainer:
    """Indexes so many dialogues: the quickest training there is."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, size: int) -> Bot:
        self.sizes.append(size)
        return TfidfBot(TfidfIndex.from_dialogues(TRAIN[:size]))


@pytest.fixture
def config(tmp_path: Path) -> CurveConfig:
    return CurveConfig(sizes=(40, 5), out=tmp_path / "curve", candidates=10, metrics=("hits@1", "mrr"))


TASKS = rank_tasks(sample.dialogues("valid")[:8], CurveConfig(candidates=10))[:80]


def test_each_size_is_judged_as_if_alone(config: CurveConfig) -> None:
    train = Trainer()
    points = learning_curve(train, TASKS, config)
    assert train.sizes == [p.size for p in points] == [5, 40]
    for point in points:
        alone = judge_rank(TfidfBot(TfidfIndex.from_dialogues(TRAIN[: point.size])), TASKS, config)
        assert point.figures == alone.figures
    assert points[0].figures["mrr"].n == 80


def test_finished_sizes_are_not_trained_again(config: CurveConfig) -> None:
    first = learning_curve(Trainer(), TASKS, config)
    train = Trainer()
    assert [p.figures for p in learning_curve(train, TASKS, config)] == [p.figures for p in first]
    assert train.sizes == []
    more = learning_curve(train, TASKS, config.model_copy(update={"sizes": (5, 10)}))
    assert train.sizes == [10]
    assert [p.size for p in more] == [5, 10, 40]
    lines = [json.loads(line) for line in (config.out / "curve.jsonl").read_text().splitlines()]
    assert [line["size"] for line in lines] == [5, 40, 10]
    assert lines[0]["hits@1"]["n"] == 80


def test_a_size_that_fails_leaves_the_others(config: CurveConfig) -> None:
    def train(size: int) -> Bot:
        if size == 40:
            raise DataError("the disk is full")
        return TfidfBot(TfidfIndex.from_dialogues(TRAIN[:size]))

    with pytest.raises(DataError, match="full"):
        learning_curve(train, TASKS, config)
    again = Trainer()
    learning_curve(again, TASKS, config)
    assert again.sizes == [40]


def test_another_curve_is_refused(config: CurveConfig) -> None:
    learning_curve(Trainer(), TASKS, config, recipe={"rate": 0.1})
    with pytest.raises(UsageError, match="another curve: rate differ"):
        learning_curve(Trainer(), TASKS, config, recipe={"rate": 0.2})
    with pytest.raises(UsageError, match="another curve: candidates differ"):
        learning_curve(Trainer(), TASKS, config.model_copy(update={"candidates": 11}), recipe={"rate": 0.1})


def test_a_curve_has_one_setting(config: CurveConfig) -> None:
    train = Trainer()
    with pytest.raises(UsageError, match="one setting, not 2"):
        learning_curve(train, TASKS, config.model_copy(update={"persona": ("none", "own")}))
    assert train.sizes == []


def test_the_picture(config: CurveConfig) -> None:
    learning_curve(Trainer(), TASKS, config)
    root = ET.parse(config.out / "curve.svg").getroot()
    texts = {"".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"hits@1", "dialogues to learn from"} <= texts


def test_damaged_points_say_so(tmp_path: Path) -> None:
    assert read_points(tmp_path / "curve.jsonl") == []
    (tmp_path / "curve.jsonl").write_text('{"size": 3}\n')
    with pytest.raises(DataError, match="damaged"):
        read_points(tmp_path / "curve.jsonl")


def test_sizes_from_the_command_line() -> None:
    assert resolve(CurveConfig, None, {"sizes": "100, 1000,"}).sizes == (100, 1000)
    for wrong in ("", "ten", "1"):
        with pytest.raises(ConfigError, match="sizes"):
            resolve(CurveConfig, None, {"sizes": wrong})
