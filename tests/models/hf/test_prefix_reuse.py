"""Prefixes of conversations are kept between turns: the same logits, fewer tokens through the model."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tertulia.models.generator import DialogueView  # noqa: E402
from tertulia.models.hf.chat_model import ChatModel  # noqa: E402
from tertulia.models.hf.generator import HuggingFaceGenerator  # noqa: E402

FIRST = DialogueView(("how are you today",), (False,), ("I sail.",))
NEXT = FIRST.with_turn("fine, and you?").with_turn("so so", own=False)
OTHER = DialogueView(("hm",), (False,), ("I bake bread.",))


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def model(tiny_models: Any, request: pytest.FixtureRequest) -> HuggingFaceGenerator:
    if request.param == "llama":
        folder = tiny_models.make("chat")
    else:
        folder = tiny_models.make("dialogpt", template=None, learned_positions=True)
    chat = ChatModel.load(str(folder))
    chat.model.double()
    return HuggingFaceGenerator(chat)


class CountedTokens:
    """How many tokens went through a model, padding included."""

    def __init__(self, model: Any) -> None:
        self.count = 0
        self._hook = model.register_forward_pre_hook(self._add, with_kwargs=True)

    def _add(self, module: Any, args: Any, kwargs: Any) -> None:
        self.count += kwargs["input_ids"].numel()

    def __enter__(self) -> "CountedTokens":
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()


@torch.inference_mode()
def logits_of(model: HuggingFaceGenerator, views: list[DialogueView], samples: int = 1) -> Any:
    """After the prompt, and after two more tokens."""
    first, state = model.step(model.start(views).expand(samples), None)
    tokens = torch.arange(20, 20 + len(first))
    second, _ = model.step(model.step(state, tokens)[1], tokens + 3)
    return torch.cat([first, second])


@pytest.mark.parametrize("samples", [1, 3])
def test_reuse_changes_nothing_but_the_work(model: HuggingFaceGenerator, samples: int) -> None:
    """In a batch of a known, a new and a half-known conversation."""
    batch = [OTHER, NEXT, FIRST.with_turn("no"), NEXT]
    model.chat.lm.keep_prefixes(0)
    with CountedTokens(model.model) as without:
        expected = logits_of(model, batch, samples)
    model.chat.lm.keep_prefixes(2**24)
    logits_of(model, [FIRST])
    with CountedTokens(model.model) as reused:
        logits = logits_of(model, batch, samples)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)
    assert reused.count < without.count
    with CountedTokens(model.model) as again:
        torch.testing.assert_close(logits_of(model, batch, samples), expected, rtol=0, atol=1e-6)
    assert again.count < reused.count


def test_memory_is_bounded(model: HuggingFaceGenerator) -> None:
    lm = model.chat.lm
    lm.keep_prefixes(2**24)
    logits_of(model, [NEXT])
    assert lm.prefixes is not None
    one = lm.prefixes.bytes
    config = model.model.config
    width = (
        config.hidden_size
        // config.num_attention_heads
        * getattr(config, "num_key_value_heads", config.num_attention_heads)
    )
    assert one == len(model.prompt(NEXT)) * config.num_hidden_layers * 2 * width * 8
    lm.keep_prefixes(one + one // 2)
    logits_of(model, [NEXT])
    logits_of(model, [OTHER.with_turn("so").with_turn("it is good bread", own=False)])
    assert lm.prefixes.bytes <= one + one // 2
    lm.keep_prefixes(0)
    assert lm.prefixes is None


def test_scoring_keeps_nothing(model: HuggingFaceGenerator) -> None:
    model.chat.lm.keep_prefixes(2**24)
    model.nll([NEXT.with_turn("good")], target_turns="last")
    assert model.chat.lm.prefixes is not None
    assert len(model.chat.lm.prefixes) == 0
    model.chat.lm.keep_prefixes(0)
