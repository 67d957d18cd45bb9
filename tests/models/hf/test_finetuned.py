"""Fine-tuned models: how dialogues are laid out, and that a run's folder gives back the model that was trained."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from safetensors.torch import load_file  # noqa: E402

from tertulia.core.errors import DataError, UsageError  # noqa: E402
from tertulia.models.checkpoint import WEIGHTS, read_manifest, save_weights, seal  # noqa: E402
from tertulia.models.export import ExportConfig, export_run  # noqa: E402
from tertulia.models.generator import DialogueView, Generator  # noqa: E402
from tertulia.models.hf.chat_model import ChatModel  # noqa: E402
from tertulia.models.hf.finetuned import FinetunedGenerator  # noqa: E402
from tertulia.models.hf.generator import SHIFT, HuggingFaceGenerator  # noqa: E402
from tertulia.models.hf.layout import PLAIN_TEMPLATE, DialogueLayout  # noqa: E402
from tertulia.models.hf.lora import TuningConfig  # noqa: E402
from tertulia.models.loading import load_generator  # noqa: E402

VIEW = DialogueView(("hi", "yes ?", "so", "tea"), (False, True, False, True), ("I sail.",), ("I bake.",), ("A b c.",))
VIEWS = [
    VIEW,
    DialogueView(("hello", "who"), (True, False)),
    DialogueView(("a", "b", "c", "d"), (False, True, True, False), ("I.",)),
]
KINDS = {
    "chat": {},
    "dialogpt": {"template": None, "learned_positions": True},
    "endless": {"template": None, "end": None},
}


@pytest.fixture(params=KINDS)
def base(tiny_models: Any, request: pytest.FixtureRequest) -> str:
    return str(tiny_models.make(request.param, **KINDS[request.param]))


def changed(base: str, seed: int = 1, noise: float = 0.2, **config: Any) -> FinetunedGenerator:
    """A model as training would leave it: adapters that do something."""
    torch.manual_seed(seed)
    model = FinetunedGenerator.untrained(TuningConfig(rank=2, evidence_words=2, **config), base)
    model.load_state_dict({name: value + noise * torch.randn_like(value) for name, value in model.state_dict().items()})
    return model.eval()


def saved(model: FinetunedGenerator, folder: Path) -> Path:
    seal(folder, bot="finetune", model="finetune", files=model.save(folder), training={})
    return folder


@torch.no_grad()
def logits(model: Any, ids: list[int]) -> Any:
    return model(input_ids=torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("tune", ["lora", "full"])
def test_a_saved_run_is_the_model_that_was_trained(base: str, tune: str, tmp_path: Path) -> None:
    model = changed(base, tune=tune)
    run = saved(model, tmp_path / "run")
    (tmp_path / "merged").mkdir()  # an empty folder may exist
    export = export_run(ExportConfig(run=run, merged=tmp_path / "merged"))
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(export.files)
    loaded, manifest = load_generator(run)
    assert isinstance(loaded, Generator)
    assert manifest.model == "finetune"
    assert not any("lora" in name for name, _ in loaded.named_parameters())  # type: ignore[attr-defined]
    plain = transformers.AutoModelForCausalLM.from_pretrained(export.folder)
    ids = model.prompt(VIEW)
    expected = logits(model.model, ids)
    untouched = logits(ChatModel.load(base).model, ids)
    for other in (loaded.model, plain):  # type: ignore[attr-defined]
        assert float((logits(other, ids) - expected).abs().max()) < 1e-3 * float((expected - untouched).abs().max())
    tokenizer = transformers.AutoTokenizer.from_pretrained(export.folder)
    text = tokenizer.apply_chat_template(model.layout.messages(VIEW), add_generation_prompt=True, tokenize=False)
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids, "the template is part of the export"
    assert list(tmp_path.glob("*.unfinished")) == []
    again = HuggingFaceGenerator(ChatModel.load(str(export.folder)))
    view = DialogueView(VIEW.turns, VIEW.own, VIEW.persona)
    assert float(again.nll([view], target_turns="own").total) == pytest.approx(
        float(model.nll([view], target_turns="own").total), rel=1e-3
    )


def test_the_loss_covers_the_turns_of_the_chosen_speakers_and_their_ends(base: str) -> None:
    model = FinetunedGenerator.untrained(TuningConfig(), base)
    layout, decode = model.layout, model.chat.tokenizer.decode
    end = "\n" if layout.single_lines else "<|end|>"

    def targets(view: DialogueView, turns: Any) -> list[str]:
        ids, mask = layout.stream(view, turns)
        runs, text = [], []
        for token, is_target in [*zip(ids, mask, strict=True), (0, False)]:
            if is_target:
                text.append(token)
            elif text:
                runs.append(decode(text))
                text = []
        return runs

    assert targets(VIEW, "all") == [f"{text}{end}" for text in VIEW.turns]
    assert targets(VIEW, "own") == [f"yes ?{end}", f"tea{end}"]
    assert targets(VIEW, "last") == [f"tea{end}"]
    assert targets(VIEWS[1], "all") == [f"hello{end}", f"who{end}"]  # nothing is said before it
    middle = "b c" if layout.single_lines else "b\nc"
    assert targets(VIEWS[2], "own") == [f"{middle}{end}"]
    whole = decode(layout.stream(VIEW)[0])
    assert "I sail. About the other one: I bake." in whole
    if layout.single_lines:
        assert whole.endswith("you:\nhi\nme:\nyes ?\nyou:\nso\nme:\ntea\n")
    assert whole.index("I bake.") < whole.index("hi")


def test_a_stream_begins_with_the_prompt_of_each_of_its_turns(base: str) -> None:
    model = FinetunedGenerator.untrained(TuningConfig(), base)
    ids, _ = model.layout.stream(VIEW)
    for turn in (1, 3):
        prompt = model.prompt(VIEW.before(turn))
        words = [i - SHIFT for i in model.tokenizer.encode(VIEW.turns[turn])]
        assert list(ids[: len(prompt) + len(words)]) == prompt + words


def test_own_turns_have_the_same_likelihood_in_training_and_in_evaluation(base: str) -> None:
    model = changed(base)
    model.double()
    for view in VIEWS[:2]:
        total, count = model.loss([view], "own")
        nll = model.nll([view], target_turns="own")
        assert int(nll.tokens) == count
        if len(model.chat.end_tokens) == 1:
            assert float(total.detach()) == pytest.approx(float(nll.total), abs=1e-3)


def test_long_dialogues_become_several_streams(base: str) -> None:
    layout = DialogueLayout(ChatModel.load(base))
    turns = tuple(f"turn number {i}" for i in range(12))
    view = DialogueView(turns, tuple(i % 2 == 1 for i in range(12)), ("I sail.",))
    streams = list(layout.segments(view, "all", 150))
    assert len(streams) > 1
    texts = [layout.chat.tokenizer.decode(ids) for ids, _ in streams]
    assert all(len(ids) <= 150 and "I sail." in text for (ids, _), text in zip(streams, texts, strict=True))
    assert sum(text.count("turn number") for text in texts) == 12
    prompt = layout.chat.tokenizer.decode(layout.prompt(view, 150))
    assert "turn number 11" in prompt
    assert "turn number 0" not in prompt
    (cut,) = layout.segments(DialogueView(("x" * 400,), (True,)), "all", 100)
    assert len(cut.ids) == 100
    model = FinetunedGenerator.untrained(TuningConfig(max_length=20), base)
    total, count = model.loss([DialogueView(("hi",), (True,), ("x" * 100,))], "all")  # no room for any turn
    total.backward()
    assert (float(total.detach()), count) == (0, 0)


def test_tensors_are_created_on_the_device_of_the_weights(base: str) -> None:
    model = changed(base)
    expected = model.nll(VIEWS)
    with torch.device("meta"):
        again = model.nll(VIEWS)
    assert again.total.device == again.tokens.device == torch.device("cpu")
    torch.testing.assert_close(again.total, expected.total)


def test_plain_text_can_be_chosen_for_any_model(tiny_models: Any, tmp_path: Path) -> None:
    base = str(tiny_models.make("chat"))
    model = changed(base, format="plain")
    prompt = model.chat.tokenizer.decode(model.prompt(VIEW.before(2)))
    assert prompt.startswith("persona:\nI sail. About the other one: I bake.  Passages with facts")
    assert prompt.endswith(": - A b\nyou:\nhi\nme:\nyes ?\nme:\n")
    run = saved(model, tmp_path / "run")
    export_run(ExportConfig(run=run, merged=tmp_path / "merged"))
    merged = ChatModel.load(str(tmp_path / "merged"))
    assert merged.end_tokens == model.chat.end_tokens, "generation ends at the end of a line"
    assert merged.tokenizer.chat_template == PLAIN_TEMPLATE
    assert FinetunedGenerator.load(run).layout.single_lines


def test_evidence_is_shown_up_to_a_number_of_words(tiny_models: Any) -> None:
    chat = ChatModel.load(str(tiny_models.make("chat")))
    for words, expected in ((0, None), (2, "- A b<"), (9, "- A b c.<")):
        text = chat.tokenizer.decode(DialogueLayout(chat, evidence_words=words).stream(VIEW)[0])
        assert (expected in text) if expected else ("facts" not in text)


def test_another_base_is_refused(tiny_models: Any, tmp_path: Path) -> None:
    base = tiny_models.make("chat")
    run = saved(changed(str(base)), tmp_path / "run")
    moved = tmp_path / "moved"
    ChatModel.load(str(base)).save(moved)
    assert FinetunedGenerator.load(run, base=str(moved)).base.name == str(base), "files may differ, weights may not"
    other = ChatModel.load(str(base))
    next(other.model.parameters()).data[0, 0] += 1
    other.save(tmp_path / "other")
    with pytest.raises(UsageError, match="is not the base of the run") as caught:
        FinetunedGenerator.load(run, base=str(tmp_path / "other"))
    assert caught.value.exit_code == 2
    assert f"{run}?base=" in caught.value.hint
    with pytest.raises(UsageError, match="No chat model could be loaded") as caught:
        FinetunedGenerator.load(run, base=str(tmp_path / "nowhere"))
    assert f"{run}?base=" in caught.value.hint
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        export_run(ExportConfig(run=run, merged=full))
    with pytest.raises(UsageError, match="finished training run"):
        export_run(ExportConfig(run=base, merged=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_an_exported_adapter_is_the_run_at_half_precision(tiny_models: Any, tmp_path: Path) -> None:
    model = changed(str(tiny_models.make("chat")))
    run = saved(model, tmp_path / "run")
    export = export_run(ExportConfig(run=run, adapter=tmp_path / "adapter"))
    manifest = read_manifest(export.folder)
    assert set(export.files) == {*manifest.files, "manifest.json"}
    assert manifest.training["weights"] == "float16"
    assert manifest.fingerprint != read_manifest(run).fingerprint
    numbers = sum(value.numel() for value in model.state_dict().values())
    assert (run / WEIGHTS).stat().st_size - (export.folder / WEIGHTS).stat().st_size == pytest.approx(
        2 * numbers, abs=16
    )
    for name, value in load_file(export.folder / WEIGHTS).items():
        assert torch.equal(value, model.state_dict()[name].half())
    loaded, exact = FinetunedGenerator.load(export.folder), FinetunedGenerator.load(run)
    for one, other in zip(loaded.model.parameters(), exact.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


def test_what_half_precision_cannot_hold_is_refused(tiny_models: Any, tmp_path: Path) -> None:
    run = saved(changed(str(tiny_models.make("chat"))), tmp_path / "run")
    save_weights(run, torch.nn.Linear(2, 2).requires_grad_(False).apply(lambda m: m.weight.fill_(1e6)), {})
    seal(run, bot="finetune", model="finetune", training={})
    with pytest.raises(DataError, match="half precision cannot hold"):
        export_run(ExportConfig(run=run, adapter=tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_template_that_reorders_messages_is_refused(tiny_models: Any) -> None:
    chat = ChatModel.load(str(tiny_models.make("chat")))
    for template, message in (
        ("{% for m in messages[::-1] %}{{ m.content }}<|end|>{% endfor %}", "order"),
        ("{{ raise_exception('no') }}", "rejects a conversation"),
    ):
        chat.tokenizer.chat_template = template
        with pytest.raises(UsageError, match=message):
            DialogueLayout(chat)


@pytest.mark.parametrize("tune", ["lora", "full"])
def test_rounding_what_is_frozen_trains_the_same_and_is_undone(base: str, tune: str) -> None:
    model = changed(base, noise=0.02, tune=tune, frozen_layers=1)
    before = {name: value.clone() for name, value in model.model.state_dict().items()}

    def trained() -> tuple[float, float]:
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, _ = model.loss(VIEWS, "all")
        loss.backward()
        return loss.item(), sum(float(p.grad.norm()) for p in model.parameters() if p.grad is not None)

    plain = trained()
    model.round_frozen(True)
    assert trained() == pytest.approx(plain, rel=0.02)
    assert any(value.dtype == torch.bfloat16 for value in model.model.state_dict().values())
    model.round_frozen(False)
    assert all(torch.equal(value, before[name]) for name, value in model.model.state_dict().items())
    assert logits(model.model, [1, 2, 3]).dtype == torch.float32
