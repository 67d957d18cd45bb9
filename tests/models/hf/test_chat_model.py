import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.core.errors import BotError  # noqa: E402
from tertulia.models.decoding import DecodingConfig, decode  # noqa: E402
from tertulia.models.hf.chat_model import ChatModel  # noqa: E402
from tertulia.models.hf.generator import SHIFT, HuggingFaceGenerator, Prompt  # noqa: E402

GREEDY = DecodingConfig(method="greedy", max_tokens=20, min_tokens=0)
MESSAGES = ["how are you", "hi", "tell me of the sea, please, and of the wind 🙂"]


@pytest.fixture(scope="module")
def model(tiny_models: Any) -> ChatModel:
    return ChatModel.load(str(tiny_models.make("chat")))


def prompts(model: ChatModel) -> list[list[int]]:
    return [model.prompt([{"role": "user", "content": text}]) for text in MESSAGES]


def greedy(model: ChatModel, prompts: list[list[int]]) -> list[tuple[list[int], bool]]:
    """The most probable tokens after each prompt, and whether they ended."""
    views = [Prompt((), (), tokens=tuple(prompt)) for prompt in prompts]
    generations = decode(HuggingFaceGenerator(model), views, GREEDY, [0] * len(views))
    return [([i - SHIFT for i in best.tokens], best.finished) for (best,) in generations]


def test_the_prompt_follows_the_template(model: ChatModel) -> None:
    tokens = model.prompt([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}])
    text = model.tokenizer.decode(tokens, skip_special_tokens=False)
    assert text == "<|system|>Be kind.<|end|><|user|>hi<|end|><|assistant|>"
    assert model.decode(tokens) == "Be kind.hi"


def test_without_a_template_turns_are_joined_by_the_end_token(tiny_models: Any) -> None:
    plain = ChatModel.load(str(tiny_models.make("plain", template=None)))
    messages = [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
    ]
    assert plain.tokenizer.decode(plain.prompt(messages), skip_special_tokens=False) == "hi<|end|>ho<|end|>"


def test_without_template_and_end_token_turns_are_lines(tiny_models: Any) -> None:
    bare = ChatModel.load(str(tiny_models.make("bare", template=None, end=None)))
    assert bare.end_tokens == set()
    assert bare.decode(bare.prompt([{"role": "user", "content": "hi"}])) == "hi\n"
    ((tokens, finished),) = greedy(bare, [bare.prompt([{"role": "user", "content": "hi"}])])
    assert (len(tokens), finished) == (20, False)


@pytest.mark.parametrize("learned_positions", [False, True])
def test_greedy_decoding_agrees_with_generate(tiny_models: Any, learned_positions: bool) -> None:
    name = "learned" if learned_positions else "chat"
    model = ChatModel.load(str(tiny_models.make(name, learned_positions=learned_positions)))
    model.model.double()
    for prompt, (tokens, finished) in zip(prompts(model), greedy(model, prompts(model)), strict=True):
        expected = model.model.generate(
            input_ids=torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=20,
            pad_token_id=0,
            eos_token_id=sorted(model.end_tokens),
        )[0, len(prompt) :].tolist()
        assert tokens == [token for token in expected if token not in model.end_tokens]
        assert finished == (expected[-1] in model.end_tokens)


def test_any_of_several_end_tokens_ends_a_reply(model: ChatModel) -> None:
    ((tokens, _),) = greedy(model, prompts(model)[:1])
    end_tokens, model.end_tokens = model.end_tokens, {*model.end_tokens, tokens[2]}
    try:
        ((cut, finished),) = greedy(model, prompts(model)[:1])
    finally:
        model.end_tokens = end_tokens
    assert (cut, finished) == (tokens[: tokens.index(tokens[2])], True)


def test_a_saved_model_generates_the_same(model: ChatModel, tmp_path: Path) -> None:
    model.save(tmp_path / "again")
    again = ChatModel.load(str(tmp_path / "again"))
    assert greedy(again, prompts(again)) == greedy(model, prompts(model))
    assert (tmp_path / "again" / "model.safetensors").is_file()
    assert again.window == model.window == 512


def copy_without(source: Path, target: Path, *names: str) -> Path:
    shutil.copytree(source, target)
    for name in names:
        (target / name).unlink()
    return target


def load_error(name: str | Path) -> BotError:
    with pytest.raises(BotError, match="No chat model could be loaded") as caught:
        ChatModel.load(str(name))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


def test_a_wrong_path_or_name_is_a_clear_error(tmp_path: Path) -> None:
    assert "hub name or folder" in load_error("nobody/no-such-model").message
    assert "hub name or folder" in load_error(tmp_path / "gone").message
    assert "the folder" in load_error(tmp_path).message
    load_error("not a name at all!")


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_a_clear_error(tiny_models: Any, tmp_path: Path, missing: str) -> None:
    load_error(copy_without(tiny_models.make("chat"), tmp_path / "part", missing))


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_file_is_a_clear_error(tiny_models: Any, tmp_path: Path, damaged: str) -> None:
    folder = copy_without(tiny_models.make("chat"), tmp_path / "part")
    (folder / damaged).write_bytes((folder / damaged).read_bytes()[:40])
    load_error(folder)
