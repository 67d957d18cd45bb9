from typing import Any

import pytest
import torch

from tertulia.core.errors import UsageError
from tertulia.models.device import dtype_for, resolve_device


def test_auto_prefers_cuda_then_mps_then_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for cuda, mps, expected in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert resolve_device("auto") == torch.device(expected)


def test_a_device_that_is_missing_or_unknown_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="'cuda' is not available") as caught:
        resolve_device("cuda")
    assert "cpu" in str(caught.value.hint)
    with pytest.raises(UsageError, match="Unknown device 'tpu'"):
        resolve_device("tpu")


def test_language_models_talk_in_the_format_that_the_device_is_good_at(
    monkeypatch: pytest.MonkeyPatch, tiny_models: Any
) -> None:
    """Without an accelerator, the choice is tested, and then a model in its format on the CPU."""
    from tertulia.models.decoding import DecodingConfig, decode
    from tertulia.models.generator import DialogueView
    from tertulia.models.hf import chat_model
    from tertulia.models.hf.generator import HuggingFaceGenerator

    for bf16, expected in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda bf16=bf16: bf16)
        assert dtype_for("cuda") == dtype_for(torch.device("cuda", 1)) == expected
    view, folder = DialogueView(("hi", "yes"), (False, True)), str(tiny_models.make("chat"))
    expected_nll = HuggingFaceGenerator(chat_model.ChatModel.load(folder)).nll([view], target_turns="last")
    monkeypatch.setattr(chat_model, "dtype_for", lambda _: torch.bfloat16)
    model = HuggingFaceGenerator(chat_model.ChatModel.load(folder))
    assert next(model.parameters()).dtype == torch.bfloat16
    nll = model.nll([view], target_turns="last")
    assert float(nll.total) == pytest.approx(float(expected_nll.total), rel=0.1)
    logits, _ = model.step(model.start([view.before(1)]), None)
    assert logits.dtype == torch.float32, "probabilities are computed in full precision"
    config = DecodingConfig(method="sample-and-rank", samples=3, max_tokens=4)
    assert len(decode(model, [view.before(1)] * 2, config, [1, 2])) == 2


def test_every_recipe_and_bot_with_a_neural_model_takes_a_device() -> None:
    from tertulia.talk.registry import BOTS
    from tertulia.train.registry import RECIPES

    without_torch = {"disentangler"}, {"blend", "generic", "human", "openai", "tfidf"}
    recipes = {name for name in RECIPES if "device" not in RECIPES.get(name).config.model_fields}
    bots = {row.name for row in BOTS.rows() if "device" not in BOTS.get(row.name).Options.model_fields}
    assert (recipes, bots) == without_torch
