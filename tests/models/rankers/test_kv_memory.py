"""KV Profile Memory: the second hop against a plain loop, saving and loading."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tertulia.core.errors import DataError
from tertulia.models.checkpoint import read_manifest, seal
from tertulia.models.rankers.base import Query, TrainablePairModel, TrainingPair
from tertulia.models.rankers.kv_memory import KEYS, VALUES, Hop, KeyValueMemory, KVProfileMemory
from tertulia.models.rankers.profile_memory import ProfileMemory, ProfileMemoryConfig

WORDS = "bees honey boats paint dog rex morning hello coffee tea blue red".split()
PERSONA = ("i keep bees", "i paint boats", "my dog is called rex")


def pairs(count: int) -> list[TrainingPair]:
    rng = np.random.default_rng(3)
    made = []
    for group in range(count):
        said = [" ".join(rng.choice(WORDS, size=3)) for _ in range(3)]
        made.append(TrainingPair(Query(tuple(said[:2]), PERSONA[: group % 4]), said[2], group))
    return made


TRAINED, QUERIES = pairs(300), [pair.query for pair in pairs(340)[300:]]


def make(*, memory: bool = True, **options: object) -> KVProfileMemory:
    torch.manual_seed(1)
    config = ProfileMemoryConfig.model_validate({"dim": 8, "turns": 2, "min_count": 1} | options)
    model = KVProfileMemory.untrained(config, TRAINED).eval()
    with torch.no_grad():
        model.input_vectors.normal_()
    if memory:
        model.store(TRAINED)
    return model


@pytest.mark.parametrize("hop", [Hop(7, 12.0, 0.6), Hop(1, 3.0, 2.0), Hop(1000, 0.0, 1.0)])
def test_the_second_hop_against_a_loop(hop: Hop) -> None:
    model = make()
    model.hop = hop
    plain = ProfileMemory.queries(model, QUERIES).vectors
    keys = ProfileMemory.queries(model, [pair.query for pair in TRAINED]).vectors.astype(np.float16).astype(float)
    values = model.replies([pair.reply for pair in TRAINED]).astype(np.float16).astype(float)
    wanted = []
    for query in plain:
        near = sorted(((float(query @ key), j) for j, key in enumerate(keys)), reverse=True)[: hop.breadth]
        shares = np.exp([hop.sharpness * cosine for cosine, _ in near])
        read = sum(share / shares.sum() * values[j] for share, (_, j) in zip(shares, near, strict=True))
        more = query + hop.weight * read
        wanted.append(more / np.linalg.norm(more))
    result = model.queries(QUERIES).vectors
    np.testing.assert_allclose(result, wanted, atol=1e-4)
    assert not np.allclose(result, plain, atol=0.05), "otherwise the hop did nothing"


def test_without_a_memory_or_weight_it_is_profile_memory() -> None:
    model = make(memory=False)
    plain = ProfileMemory.queries(model, QUERIES).vectors
    np.testing.assert_array_equal(model.queries(QUERIES).vectors, plain)
    model.store(TRAINED)
    assert not np.allclose(model.queries(QUERIES).vectors, plain, atol=0.01)
    model.hop = Hop(weight=0.0)
    np.testing.assert_array_equal(model.queries(QUERIES).vectors, plain)
    assert isinstance(model, TrainablePairModel)


def test_the_second_hop_does_not_affect_training() -> None:
    model = make()
    before = model.loss(TRAINED[:20])
    model.hop = Hop(weight=9.0)
    assert torch.equal(model.loss(TRAINED[:20]), before)
    assert set(model.state_dict()) == set(ProfileMemory(model.config, model.vocabulary).state_dict())


def test_vectors_do_not_depend_on_the_batch() -> None:
    model = make()
    many = QUERIES * 4  # more than are looked up together
    alone = [model.queries([query]).vectors[0] for query in many]
    np.testing.assert_allclose(model.queries(many).vectors, alone, atol=1e-5)
    assert model.queries([]).vectors.shape == (0, 8)
    assert np.isfinite(model.queries([Query(()), Query(("zyx",))]).vectors).all()


def test_the_nearest_keys_come_first() -> None:
    keys = np.eye(4, dtype=np.float32)
    result = KeyValueMemory.of(keys, keys, torch.device("cpu")).nearest(torch.tensor([[0.1, 0.9, 0.0, 0.4]]), 3)
    assert result.indices.tolist() == [[1, 3, 0]]
    np.testing.assert_allclose(result.cosines, [[0.9, 0.4, 0.1]], atol=1e-6)


def test_a_loaded_model_equals_the_saved_one(tmp_path: Path) -> None:
    model = make()
    model.hop = Hop(5, 9.0, 0.3)
    files = model.save(tmp_path)
    assert {KEYS, VALUES} <= set(files)
    seal(tmp_path, bot="kv-memory", model="kv-memory", files=files, training={})
    assert set(read_manifest(tmp_path).files) > {KEYS, VALUES}
    again = KVProfileMemory.load(tmp_path)
    assert again.hop == model.hop
    np.testing.assert_array_equal(again.queries(QUERIES).vectors, model.queries(QUERIES).vectors)
    assert np.load(tmp_path / KEYS).dtype == np.float16


def test_a_model_without_memory_can_be_saved(tmp_path: Path) -> None:
    model = make(memory=False)
    assert model.save(tmp_path) == ["words.txt"]
    assert KVProfileMemory.load(tmp_path).memory is None


@pytest.mark.parametrize("damage", ["missing", "short", "text"])
def test_a_damaged_memory_is_refused(tmp_path: Path, damage: str) -> None:
    make().save(tmp_path)
    if damage == "missing":
        (tmp_path / VALUES).unlink()
    elif damage == "short":
        np.save(tmp_path / VALUES, np.zeros((3, 8), np.float16))
    else:
        (tmp_path / VALUES).write_text("no array", encoding="utf-8")
    with pytest.raises(DataError, match=r"memory in .* is missing or damaged"):
        KVProfileMemory.load(tmp_path)
