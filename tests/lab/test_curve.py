import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tertulia import sample
from tertulia.core.config import resolve
from tertulia.core.errors import ConfigError, DataError, UsageError
from tertulia.judge.rank import judge_rank
from tertulia.judge.ranking_tasks import rank_tasks
from tertulia.judge.report import save_judged
from tertulia.judge.runs import JudgedRun
from tertulia.lab.curve import CurveConfig, learning_curve, read_points
from tertulia.talk.bot import Bot
from tertulia.talk.bots.tfidf import TfidfBot
from tertulia.talk.tfidf_index import TfidfIndex

TRAIN = sample.dialogues("train")


class Trainer:
    """Indexes so many dialogues: the fastest training there is."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, size: int) -> Bot:
        self.sizes.append(size)
        return TfidfBot(TfidfIndex.from_dialogues(TRAIN[:size]))


@pytest.fixture
def config(tmp_path: Path) -> CurveConfig:
    return CurveConfig(
        recipe=Path("model.toml"), sizes=(40, 5), out=tmp_path / "curve", candidates=10, metrics=("hits@1", "mrr")
    )


RECIPE = Path("model.toml")
TASKS = rank_tasks(sample.dialogues("valid")[:8], CurveConfig(recipe=RECIPE, candidates=10))[:80]


def sizes_of(run: JudgedRun) -> list[str]:
    return [setting.removesuffix(" dialogues") for setting in run.settings]


def test_each_size_is_judged_as_if_alone(config: CurveConfig) -> None:
    train = Trainer()
    run = learning_curve(train, TASKS, config)
    assert train.sizes == [5, 40]
    assert sizes_of(run) == ["5", "40"]
    for size in (5, 40):
        alone = judge_rank(TfidfBot(TfidfIndex.from_dialogues(TRAIN[:size])), TASKS, config)
        scores = [score for score in run.scores if score.setting == f"{size} dialogues"]
        assert [(s.metric, s.units, s.values) for s in scores] == [(s.metric, s.units, s.values) for s in alone]
    assert {e.n for e in run.estimates().values()} == {80}


def test_finished_sizes_are_not_trained_again(config: CurveConfig) -> None:
    first = learning_curve(Trainer(), TASKS, config)
    train = Trainer()
    assert learning_curve(train, TASKS, config).scores == first.scores
    assert train.sizes == []
    more = learning_curve(train, TASKS, config.model_copy(update={"sizes": (5, 10)}))
    assert train.sizes == [10]
    assert sizes_of(more) == ["5", "10", "40"]
    assert list(read_points(config.out)) == [5, 10, 40]


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
    learning_curve(Trainer(), TASKS, config, recipe={"learning_rate": 0.1})
    with pytest.raises(UsageError, match="another curve: learning_rate differ"):
        learning_curve(Trainer(), TASKS, config, recipe={"learning_rate": 0.2})
    with pytest.raises(UsageError, match="another curve: candidates differ"):
        learning_curve(Trainer(), TASKS, config.model_copy(update={"candidates": 11}), recipe={"learning_rate": 0.1})


def test_a_curve_has_one_setting(config: CurveConfig) -> None:
    train = Trainer()
    with pytest.raises(UsageError, match="one setting, not 2"):
        learning_curve(train, TASKS, config.model_copy(update={"persona": ("none", "own")}))
    assert train.sizes == []


def test_the_plot(config: CurveConfig) -> None:
    save_judged(learning_curve(Trainer(), TASKS, config), config.out)
    root = ET.parse(config.out / "curve.svg").getroot()
    texts = {"".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"hits@1", "training dialogues"} <= texts


def test_a_damaged_point_is_an_error(config: CurveConfig) -> None:
    assert read_points(config.out) == {}
    learning_curve(Trainer(), TASKS, config)
    (config.out / "points" / "5" / "scores.parquet").write_bytes(b"oops")
    with pytest.raises(DataError, match="damaged"):
        read_points(config.out)


def test_sizes_from_the_command_line() -> None:
    assert resolve(CurveConfig, None, {"recipe": RECIPE, "sizes": "100, 1000,"}).sizes == (100, 1000)
    for wrong in ("", "ten", "1"):
        with pytest.raises(ConfigError, match="sizes"):
            resolve(CurveConfig, None, {"sizes": wrong})
