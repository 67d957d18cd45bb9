import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.core.errors import BotError  # noqa: E402
from tertulia.models.huggingface import ChatModel, Sampling, Written, _draw  # noqa: E402

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=20)
PROMPTS = ["how are you", "hi", "tell me of the sea, please, and of the wind 🙂"]


@pytest.fixture(scope="module")
def model(tiny_models: Any) -> ChatModel:
    return ChatModel.load(str(tiny_models.make("chat")))


def prompts(model: ChatModel) -> list[list[int]]:
    return [model.prompt([{"role": "user", "content": text}]) for text in PROMPTS]


def write(model: ChatModel, rows: list[list[int]], sampling: list[Sampling]) -> list[list[int | str]]:
    """The tokens of each row, and why it ended."""
    found: list[list[int | str]] = [[] for _ in rows]
    for step in model.write(rows, sampling, lambda _: True):
        found[step.row].append(step.token if step.token is not None else str(step.finish))
    return found


def test_the_prompt_follows_the_template(model: ChatModel) -> None:
    tokens = model.prompt([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}])
    written = model.tokenizer.decode(tokens, skip_special_tokens=False)
    assert written == "<|system|>Be kind.<|end|><|user|>hi<|end|><|assistant|>"
    assert model.decode(tokens) == "Be kind.hi"


def test_without_a_template_turns_are_joined_by_the_end_token(tiny_models: Any) -> None:
    plain = ChatModel.load(str(tiny_models.make("plain", template=None)))
    said = [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
    ]
    assert plain.tokenizer.decode(plain.prompt(said), skip_special_tokens=False) == "hi<|end|>ho<|end|>"


def test_without_template_and_end_token_turns_are_lines(tiny_models: Any) -> None:
    bare = ChatModel.load(str(tiny_models.make("bare", template=None, end=None)))
    assert bare.ends == set()
    assert bare.decode(bare.prompt([{"role": "user", "content": "hi"}])) == "hi\n"
    (row,) = write(bare, [bare.prompt([{"role": "user", "content": "hi"}])], [GREEDY])
    assert row[-1] == "length"


def test_greedy_is_what_generate_does(model: ChatModel) -> None:
    for prompt, row in zip(prompts(model), write(model, prompts(model), [GREEDY] * 3), strict=True):
        whole = model.model.generate(
            input_ids=torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=20,
            pad_token_id=0,
            eos_token_id=sorted(model.ends),
        )[0, len(prompt) :].tolist()
        assert row[:-1] == [t for t in whole if t not in model.ends]
        assert row[-1] == ("stop" if whole[-1] in model.ends else "length")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("learned_positions", [False, True])
def test_a_row_does_not_depend_on_its_neighbours(tiny_models: Any, temperature: float, learned_positions: bool) -> None:
    name = "learned" if learned_positions else "chat"
    model = ChatModel.load(str(tiny_models.make(name, learned_positions=learned_positions)))
    sampling = [Sampling(temperature=temperature, seed=i, max_tokens=15) for i in range(3)]
    together = write(model, prompts(model), sampling)
    alone = [write(model, [p], [s])[0] for p, s in zip(prompts(model), sampling, strict=True)]
    assert together == alone
    backwards = write(model, prompts(model)[::-1], sampling[::-1])
    assert backwards[::-1] == together


def test_rows_may_have_limits_of_their_own(model: ChatModel) -> None:
    sampling = [Sampling(temperature=0, max_tokens=n) for n in (1, 4, 9)]
    found = write(model, prompts(model), sampling)
    assert [len(row) - 1 for row in found if row[-1] == "length"] == [
        s.max_tokens for s, row in zip(sampling, found, strict=True) if row[-1] == "length"
    ]
    assert found[0][-1] in ("length", "stop")
    assert len(found[0]) <= 2


def test_the_seed_decides(model: ChatModel) -> None:
    prompt = prompts(model)[:1]
    first, same, other = (
        write(model, prompt, [Sampling(temperature=1.5, top_p=1, seed=s, max_tokens=12)]) for s in (1, 1, 2)
    )
    assert first == same
    assert first != other


def test_end_tokens_end_a_row(model: ChatModel) -> None:
    greedy = write(model, prompts(model)[:1], [GREEDY])[0]
    second = greedy[2]
    ends, model.ends = model.ends, {second}
    try:
        cut = write(model, prompts(model)[:1], [GREEDY])[0]
    finally:
        model.ends = ends
    place = greedy.index(second)
    assert cut == [*greedy[:place], "stop"]


def test_a_row_nobody_waits_for_is_cancelled(model: ChatModel) -> None:
    waiting = {0: 100, 1: 3}
    steps: list[Written] = []

    def alive(row: int) -> bool:
        waiting[row] -= 1
        return waiting[row] >= 0

    for step in model.write(prompts(model)[:2], [GREEDY] * 2, alive):
        steps.append(step)
    assert [s.finish for s in steps if s.row == 1 and s.finish] == ["cancelled"]
    assert sum(s.token is not None for s in steps if s.row == 1) == 3
    assert sum(s.token is not None for s in steps if s.row == 0) > 3


def test_nobody_waits_at_all(model: ChatModel) -> None:
    found = list(model.write(prompts(model), [GREEDY] * 3, lambda _: False))
    assert sorted(found, key=lambda w: w.row) == [Written(i, None, "cancelled") for i in range(3)]


LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0])
NONE_SEEN = torch.empty(0, dtype=torch.long)


def draws(sampling: Sampling, seen: Any = NONE_SEEN, count: int = 2000) -> Counter[int]:
    generator = torch.Generator().manual_seed(1)
    return Counter(_draw(LOGITS, seen, sampling, generator) for _ in range(count))


def test_drawing_follows_the_probabilities() -> None:
    found = draws(Sampling(temperature=1, top_p=1, repetition_penalty=1))
    for token, probability in enumerate(LOGITS.softmax(-1).tolist()):
        assert abs(found[token] / 2000 - probability) < 4 * (probability * (1 - probability) / 2000) ** 0.5


def test_top_k_and_top_p_cut_the_tail() -> None:
    assert set(draws(Sampling(temperature=1, top_p=1, top_k=2))) == {0, 1}
    assert set(draws(Sampling(temperature=1, top_p=0.6))) == {0}  # the first alone has 0.64
    assert set(draws(Sampling(temperature=1, top_p=0.7))) == {0, 1}
    assert set(draws(Sampling(temperature=1, top_p=1, top_k=99))) == {0, 1, 2, 3}


def test_temperature() -> None:
    assert set(draws(Sampling(temperature=0), count=5)) == {0}
    cold, warm = (draws(Sampling(temperature=t, top_p=1))[0] for t in (0.5, 2.0))
    assert cold > warm


def test_the_repetition_penalty_counts_what_was_drawn() -> None:
    penalty = Sampling(temperature=0, repetition_penalty=3)
    assert _draw(LOGITS, torch.tensor([0]), penalty, torch.Generator()) == 1
    assert _draw(LOGITS, NONE_SEEN, penalty, torch.Generator()) == 0
    negative = torch.tensor([-1.0, -1.5])
    assert _draw(negative, torch.tensor([0]), penalty, torch.Generator()) == 1
    assert LOGITS.tolist() == [2.0, 1.0, 0.0, -1.0]


def test_the_penalty_leaves_the_words_of_the_prompt_alone(model: ChatModel) -> None:
    (row,) = write(model, prompts(model)[:1], [Sampling(temperature=0, repetition_penalty=1, max_tokens=1)])
    (penalised,) = write(model, [[*prompts(model)[0]]], [Sampling(temperature=0, repetition_penalty=3, max_tokens=1)])
    assert row == penalised


def test_what_was_saved_writes_the_same(model: ChatModel, tmp_path: Path) -> None:
    model.save(tmp_path / "again")
    again = ChatModel.load(str(tmp_path / "again"))
    assert write(again, prompts(again), [GREEDY] * 3) == write(model, prompts(model), [GREEDY] * 3)
    assert (tmp_path / "again" / "model.safetensors").is_file()
    assert again.window == model.window == 512


def folder_without(source: Path, target: Path, *names: str) -> Path:
    shutil.copytree(source, target)
    for name in names:
        (target / name).unlink()
    return target


def refused(name: str | Path) -> BotError:
    with pytest.raises(BotError, match="No chat model could be loaded") as caught:
        ChatModel.load(str(name))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def test_a_wrong_path_or_name_is_a_clear_error(tmp_path: Path) -> None:
    assert "hub name or folder" in refused("nobody/no-such-model").message
    assert "hub name or folder" in refused(tmp_path / "gone").message
    assert "the folder" in refused(tmp_path).message
    refused("not a name at all!")


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_lacks_something_is_a_clear_error(tiny_models: Any, tmp_path: Path, missing: str) -> None:
    refused(folder_without(tiny_models.make("chat"), tmp_path / "part", missing))


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_with_a_damaged_file_is_a_clear_error(tiny_models: Any, tmp_path: Path, damaged: str) -> None:
    folder = folder_without(tiny_models.make("chat"), tmp_path / "part")
    (folder / damaged).write_bytes((folder / damaged).read_bytes()[:40])
    refused(folder)
