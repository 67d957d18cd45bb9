"""Fine-tuning of tiny random models: what is trained, what is saved, and that a run can be resumed and loaded."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft")

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Evidence, Persona, Turn
from tertulia.core.errors import ConfigError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.load import save_dialogues
from tertulia.models.checkpoint import read_manifest
from tertulia.models.hf.finetuned import FinetunedGenerator
from tertulia.train.recipe import read_recipe
from tertulia.train.tasks.finetune import FinetuneConfig, FinetuneTask, read_data

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus in which everybody says the same few things: a tiny model learns it at once."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(1)
    for split, count in (("train", 24), ("valid", 4)):
        save_dialogues([chat(f"{split}-{i}", rng) for i in range(count)], folder / f"{split}.jsonl")
    return folder


def chat(name: str, rng: random.Random) -> Dialogue:
    turns = [Turn("ab"[i % 2], rng.choice(("aaaa", "baba", "bbbb"))) for i in range(4)]
    return Dialogue(name, tuple(turns), {"a": Persona(("aa",)), "b": Persona(("bb",))}, (Evidence("one two three"),))


def train(base: Path, data: Path, out: Path, progress: Progress | None = None, **more: Any) -> Mapping[str, Any]:
    settings: dict[str, Any] = {"base": str(base), "data": str(data), "out": out, "max_steps": 12, "epochs": 9}
    settings |= {"batch_tokens": 200, "accumulate": 2, "validate_every": 6, "warmup": 2, "save_seconds": 0}
    settings |= {"learning_rate": 0.02, "precision": "float32", "valid_dialogues": None, "valid_speaker": None}
    settings["model"] = {"rank": 4, "alpha": 8, "max_length": 128} | more.pop("model", {})
    recipe, config = read_recipe(CONFIGS / "sample-finetune.toml", settings | more)
    return recipe.train(config, progress or Silent()).figures()


def weights(folder: Path) -> str:
    return read_manifest(folder).files["model.safetensors"]


@pytest.mark.parametrize("tune", ["lora", "full"])
def test_it_learns_and_leaves_only_what_it_trained(tiny_models: Any, data: Path, tmp_path: Path, tune: str) -> None:
    base = tiny_models.make("chat")
    before = [file.read_bytes() for file in sorted(base.iterdir())]
    rate = 0.02 if tune == "lora" else 0.002
    figures = train(base, data, tmp_path, model={"tune": tune, "frozen_layers": 1}, learning_rate=rate)
    assert figures["steps"] == 12
    untrained = FinetunedGenerator.untrained(read_config(tmp_path).model, str(base))
    task = FinetuneTask(untrained, read_data(read_config(tmp_path)), read_config(tmp_path))
    assert figures["valid"]["perplexity per token"] < 0.5 * task.validate()["perplexity per token"]
    assert figures["parameters"] == sum(p.numel() for p in untrained.parameters() if p.requires_grad)
    assert all("layers.0." not in name for name in untrained.trained), "the first block is frozen"
    assert any("layers.1." in name for name in untrained.trained)
    assert all(("lora_" in name) == (tune == "lora") for name in untrained.trained)
    assert (figures["base"], len(figures["base_digest"])) == (str(base), 16)
    assert [file.read_bytes() for file in sorted(base.iterdir())] == before
    if tune == "lora":
        assert (tmp_path / "model.safetensors").stat().st_size < (base / "model.safetensors").stat().st_size / 2


def read_config(folder: Path) -> FinetuneConfig:
    config = read_recipe(folder / "config.toml")[1]
    assert isinstance(config, FinetuneConfig)
    return config


def test_a_resumed_run_ends_with_the_same_weights(
    tiny_models: Any, data: Path, tmp_path: Path, stops: Callable[[int], Progress]
) -> None:
    base = tiny_models.make("chat")
    more = {"model": {"dropout": 0.1}, "persona_dropout": 0.3}
    train(base, data, tmp_path / "complete", **more)
    with pytest.raises(KeyboardInterrupt):
        train(base, data, tmp_path / "interrupted", stops(7), **more)
    state = tmp_path / "interrupted" / "partial" / "state.pt"
    assert state.stat().st_size < (base / "model.safetensors").stat().st_size * 2, "the base is no part of the state"
    train(base, data, tmp_path / "interrupted", resume=True, **more)
    assert weights(tmp_path / "complete") == weights(tmp_path / "interrupted")


def task_of(base: Path, data: Path, **more: Any) -> FinetuneTask:
    config = FinetuneConfig(base=str(base), data=str(data), **more)
    return FinetuneTask(FinetunedGenerator.untrained(config.model, config.base), read_data(config), config)


def test_the_persona_is_in_front_of_most_dialogues(tiny_models: Any) -> None:
    task = task_of(tiny_models.make("chat"), Path("sample"))
    assert all(view.persona for view in task.data.views)
    epochs = [[bool(view.persona) for batch in task.batches(epoch) for view in batch] for epoch in (0, 0, 1)]
    assert epochs[0] == epochs[1] != epochs[2]
    assert 0.8 < sum(epochs[0]) / len(epochs[0]) < 0.9


def test_some_personas_are_reworded_by_similar_sentences_of_others(tiny_models: Any, tmp_path: Path) -> None:
    mine = ("I keep bees.", "I am a nurse.", "Quartz 77 zeppelin.")
    others = ("I am a beekeeper.", "I work as a nurse in a hospital.", "My car is red.")
    turns = tuple(Turn(who, "hm") for who in "aba")
    chats = [Dialogue(str(i), turns, {"a": Persona(mine), "b": Persona(others)}) for i in range(40)]
    for split in ("train", "valid"):
        save_dialogues(chats, tmp_path / f"{split}.jsonl")
    more: dict[str, Any] = {"speaker": "a", "persona_dropout": 0.0}
    task = task_of(tiny_models.make("chat"), tmp_path, persona="both", reworded_share=0.5, **more)
    epochs = [[view for batch in task.batches(epoch) for view in batch] for epoch in (0, 0, 1)]
    assert epochs[0] == epochs[1] != epochs[2]
    seen = Counter(view.persona for view in epochs[0])
    assert set(seen) == {mine, (others[0], others[1], mine[2])}, "nothing is similar to the third sentence"
    assert 8 < seen[mine] < 32
    assert {view.partner for view in epochs[0]} == {others, (mine[0], mine[1], others[2])}
    assert {view.persona for view in task.data.valid} == {mine, others}, "validation is on what people were given"


def test_data_without_revised_personas_is_refused_where_they_are_asked_for(data: Path) -> None:
    with pytest.raises(UsageError, match="has a revised wording"):
        read_data(FinetuneConfig(data=str(data), revised_share=0.4))


def test_corpora_are_mixed_by_weight(tiny_models: Any, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    save_dialogues([Dialogue(str(i), tuple(Turn(w, "hm") for w in "xyx")) for i in range(10)], other / "train.jsonl")
    task = task_of(tiny_models.make("chat"), data, mix={str(other): 0.5})
    epochs = [Counter(view.turns[0] == "hm" for batch in task.batches(epoch) for view in batch) for epoch in (0, 1)]
    assert epochs == [{False: 48, True: 24}] * 2  # 24 and 10 dialogues, each as either speaker sees it
    assert {len(view.turns) for view in task.data.valid} == {4}, "validation is on the main corpus alone"
    with pytest.raises(ConfigError, match="weight"):
        task_of(tiny_models.make("chat"), data, mix={str(other): 0.0})


def test_one_update_sees_the_same_in_batches_of_any_size(tiny_models: Any, data: Path) -> None:
    task = task_of(tiny_models.make("chat"), data)
    task.model.double()
    views = task.data.views[:5]
    together = task.loss(views)
    alone = [task.loss([view]) for view in views]
    assert together.count == sum(one.count for one in alone)
    mean = sum(float(one.value.detach()) * one.count for one in alone) / together.count
    assert float(together.value.detach()) == pytest.approx(mean, abs=1e-4)


def test_input_that_cannot_be_used(tiny_models: Any, data: Path, tmp_path: Path) -> None:
    """Each error says what is wrong, and nothing is written."""
    base, out = tiny_models.make("chat"), tmp_path / "out"
    pairs, empty, no_text = tmp_path / "pairs", tmp_path / "empty", tmp_path / "no_text"
    for folder, dialogues in (
        (pairs, [Dialogue("d", (Turn("a", "hi"), Turn("b", "hello")))]),
        (no_text, [Dialogue("d", (Turn("a", ""), Turn("b", ""), Turn("a", "")))]),
    ):
        folder.mkdir()
        for split in ("train", "valid"):
            save_dialogues(dialogues, folder / f"{split}.jsonl")
    empty.mkdir()
    (empty / "train.jsonl").write_text("")
    cases: list[tuple[Path, Path, dict[str, Any], str]] = [
        (base, pairs, {}, "nobody speaks twice"),
        (base, empty, {}, "is empty"),
        (base, no_text, {}, "no dialogue with a turn"),
        (base, tmp_path / "missing", {}, "not found"),
        (base, data, {"speaker": "nobody"}, "no dialogue with a turn"),
        (tiny_models.make_seq2seq("blenderbot"), data, {}, "not a causal model"),
        (tiny_models.make_classifier("classifier", ["x", "y"]), data, {}, "cannot generate text"),
        (tmp_path, data, {}, "No chat model could be loaded"),
        (base, data, {"model": {"layers": ["attention"]}}, "no linear layer 'attention'"),
        (base, data, {"model": {"frozen_layers": 2}}, "No layer is left"),
    ]
    for model, corpus, more, message in cases:
        with pytest.raises(UsageError, match=message) as caught:
            train(model, corpus, out, **more)
        assert caught.value.exit_code == 2
        assert caught.value.hint
    assert not out.exists()
    with pytest.raises(UsageError, match="fewer than the 2 of one update"):
        train(base, pairs, out, min_turns=2)
    assert train(base, pairs, out, min_turns=2, max_steps=2, accumulate=1)["steps"] == 2


def test_the_sample_has_what_the_config_needs() -> None:
    config = read_recipe(CONFIGS / "sample-finetune.toml")[1]
    assert isinstance(config, FinetuneConfig)
    assert (config.data, config.base, config.persona_dropout) == ("sample", "smollm2", 0.15)
    assert math.isclose(len(read_data(config).views), 2 * len(sample.dialogues("train")), rel_tol=0.1)
