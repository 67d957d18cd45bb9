"""Learning preferences with tiny random models: it learns, can be resumed, and says what is wrong with its input."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tertulia.core.errors import TertuliaError  # noqa: E402
from tertulia.core.progress import Progress, Silent  # noqa: E402
from tertulia.corpus.preferences.read import read_preferences  # noqa: E402
from tertulia.corpus.preferences.trl import decode  # noqa: E402
from tertulia.corpus.preferences.values import LabelledReply  # noqa: E402
from tertulia.models.checkpoint import read_manifest, seal  # noqa: E402
from tertulia.models.generator import DialogueView  # noqa: E402
from tertulia.models.hf.finetuned import FinetunedGenerator  # noqa: E402
from tertulia.models.hf.lora import TuningConfig  # noqa: E402
from tertulia.models.likelihood import view_as  # noqa: E402
from tertulia.talk.spec import make_bot  # noqa: E402
from tertulia.train.recipe import read_recipe  # noqa: E402
from tertulia.train.recipes.prefer import load_start, select  # noqa: E402
from tertulia.train.tasks.preference import PreferenceTask, prepare_examples  # noqa: E402

CONFIGS = Path(__file__).parents[2] / "configs"
GOOD, BAD = ("tea", "milk", "rice", "salt"), ("xxxx", "yyyy xx", "zz yy", "xyxy")


def write(file: Path, records: list[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def pairs(count: int = 24) -> list[Mapping[str, Any]]:
    return [
        {"prompt": f"what do you want , {n} ?", "chosen": GOOD[n % 4], "rejected": BAD[n % 4], "rater": f"p{n % 3}"}
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("preferences") / "pairs.jsonl", pairs())


@pytest.fixture(scope="module")
def run(tiny_models: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fine-tuned run."""
    folder = tmp_path_factory.mktemp("runs") / "tuned"
    torch.manual_seed(1)
    model = FinetunedGenerator.untrained(TuningConfig(rank=4, max_length=128), str(tiny_models.make("chat")))
    model.load_state_dict({name: value + 0.02 for name, value in model.state_dict().items()})
    seal(folder, bot="finetune", model="finetune", files=model.save(folder), training={})
    return folder


def settings_for(start: Path, data: Path, out: Path, **more: Any) -> tuple[Any, Any]:
    settings: dict[str, Any] = {"start": str(start), "data": str(data), "out": out, "precision": "float32", "warmup": 0}
    settings |= {"epochs": 9, "max_steps": 12, "validate_every": 4, "save_seconds": 0, "learning_rate": 0.01}
    settings |= {"batch_tokens": 600, "perplexity_dialogues": 1, "kl_samples": 2, "kl_tokens": 6}
    return read_recipe(CONFIGS / "prefer.toml", settings | more)


def train(start: Path, data: Path, out: Path, progress: Progress | None = None, **more: Any) -> Mapping[str, Any]:
    recipe, config = settings_for(start, data, out, **more)
    return recipe.train(config, progress or Silent()).figures()


def weights(folder: Path) -> str:
    return read_manifest(folder).files["model.safetensors"]


@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_it_learns_what_is_preferred_and_says_what_it_cost(run: Path, data: Path, tmp_path: Path, loss: str) -> None:
    more = {"withdrawn": ["p2"], "sft_weight": 0.1}
    figures = train(run, data, tmp_path / "out", loss=loss, **more)
    accuracy, margin = figures["held_out"]["accuracy"], figures["held_out"]["margin"]
    assert accuracy["value"] == 1.0
    assert accuracy["low"] < 1 == accuracy["high"]
    assert 0 < margin["low"] < margin["value"] < margin["high"]
    assert figures["held_out"]["measured on"] == "pairs"
    assert figures["kl_of_sampled_replies"]["value"] > 0
    assert figures["perplexity"]["ratio"] == pytest.approx(
        figures["perplexity"]["after"] / figures["perplexity"]["before"]
    )
    assert ("warning" in figures) == (figures["perplexity"]["ratio"] > 1.1)
    used = 16 if loss == "dpo" else 32
    assert figures["preferences"] == {"read": 24, "withdrawn": 8, "used": used}
    assert figures["examples"] + figures["valid_examples"] == used
    sources = json.loads((tmp_path / "out" / "preferences.json").read_text())
    assert sources["counts"]["withdrawn"] == 8
    assert (len(sources["raters"]), len(sources["withdrawn"])) == (2, 1)
    assert not set(sources["raters"]) & set(sources["withdrawn"])
    assert "preferences.json" in read_manifest(tmp_path / "out").files


def test_the_run_is_a_bot_on_the_original_base(run: Path, data: Path, tmp_path: Path, tiny_models: Any) -> None:
    train(run, data, tmp_path / "once")
    train(tmp_path / "once", data, tmp_path / "twice", max_steps=4)
    views = [DialogueView(("what do you want , 3 ?", text), (False, True)) for text in ("tea", "xxxx")]
    margins = []
    for folder in (run, tmp_path / "once", tmp_path / "twice"):
        bot: Any = make_bot(f"{folder}?max_tokens=8")
        assert bot.generator.base.name == str(tiny_models.make("chat"))
        good, bad = bot.generator.nll(views, target_turns="last").total.tolist()
        margins.append(bad - good)
    assert margins == sorted(margins), "each run goes on where the one before it ended"


def test_a_resumed_run_ends_with_the_same_weights(
    tiny_models: Any, data: Path, tmp_path: Path, stops: Callable[[int], Progress]
) -> None:
    base, more = tiny_models.make("chat"), {"model": {"rank": 2, "dropout": 0.1}, "loss": "kto", "max_steps": 6}
    more |= {"perplexity_dialogues": 0, "kl_samples": 0, "accumulate": 2, "batch_tokens": 300}
    train(base, data, tmp_path / "complete", **more)
    with pytest.raises(KeyboardInterrupt):
        train(base, data, tmp_path / "interrupted", stops(4), **more)
    train(base, data, tmp_path / "interrupted", resume=True, **more)
    assert weights(tmp_path / "complete") == weights(tmp_path / "interrupted")
    reference = [(tmp_path / name / "partial" / "reference.json").read_text() for name in ("complete", "interrupted")]
    assert reference[0] == reference[1]


def task_of(start: Path, data: Path, out: Path, **more: Any) -> PreferenceTask:
    _, config = settings_for(start, data, out, **more)
    model = load_start(config)
    examples = prepare_examples(select(read_preferences([data]), config), model, config)
    out.mkdir(exist_ok=True)
    return PreferenceTask(model, examples, config, run_id="x", folder=out, progress=Silent())


def test_log_probabilities_are_those_of_talking(run: Path, data: Path, tmp_path: Path) -> None:
    task = task_of(run, data, tmp_path)
    merged = FinetunedGenerator.load(run)
    views = [example.view.with_turn(text) for example in task.data.valid for text in GOOD[:1]]
    chains = [task.model.chains(view.before(len(view.turns) - 1), [view.turns[-1]])[0] for view in views]
    expected = -merged.nll(views, target_turns="last").total
    torch.testing.assert_close(task.model.log_probs(chains).detach(), expected, rtol=1e-4, atol=1e-3)


def test_the_reference_is_asked_once_and_is_the_model_before_training(run: Path, data: Path, tmp_path: Path) -> None:
    task = task_of(run, data, tmp_path)
    task.to(torch.device("cpu"))
    assert float(task.losses(task.held_out(), task.data.valid).mean()) == pytest.approx(math.log(2), abs=1e-4)
    first = task.log_probs(task.data.valid)
    changed = {name: value + 0.05 for name, value in task.model.state_dict().items()}
    task.model.load_state_dict(changed)
    assert not torch.allclose(task.log_probs(task.data.valid), first, atol=1e-2)
    with task.as_reference():
        torch.testing.assert_close(task.log_probs(task.data.valid), first)
    assert not torch.allclose(task.log_probs(task.data.valid), first, atol=1e-2), "the trained weights are back"
    task.to(torch.device("cpu"))  # as a resumed run does: what was saved counts, not the present weights
    torch.testing.assert_close(task.reference[len(task.data.train) :], first)


@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_tensors_are_created_on_the_device_of_the_weights(run: Path, data: Path, tmp_path: Path, loss: str) -> None:
    """A default device without data stands in for a wrong one: whatever is created there cannot be computed with."""
    task = task_of(run, data, tmp_path, loss=loss, sft_weight=0.1)
    task.to(torch.device("cpu"))
    figures, (batch, *_) = task.validate(), task.batches(0)
    with torch.device("meta"):
        task.loss(batch).value.backward()  # type: ignore[no-untyped-call]
        assert task.validate() == pytest.approx(figures, abs=1e-3)
    assert any(p.grad is not None and float(p.grad.abs().sum()) > 0 for p in task.model.parameters())


def test_nothing_of_a_context_is_on_both_sides(run: Path, tmp_path: Path) -> None:
    same = [{"prompt": f"question {n // 4} ?", "chosen": GOOD[n % 4], "rejected": BAD[n % 4]} for n in range(40)]
    task = task_of(run, write(tmp_path / "same.jsonl", same), tmp_path / "out")
    train_contexts, valid_contexts = ({one.view for one in part} for part in task.data[:2])
    assert (len(train_contexts), len(valid_contexts)) == (8, 2)
    assert not train_contexts & valid_contexts


def test_every_reply_of_kto_is_compared_with_the_reply_to_another_context(
    run: Path, data: Path, tmp_path: Path
) -> None:
    task = task_of(run, data, tmp_path, loss="kto")
    for example in task.data.train:
        own, other = (task.model.chat.decode(chain.first) for chain in example.chains)
        assert own in (GOOD if example.desirable else BAD)
        assert other in (*GOOD, *BAD)
        assert example.chains[0].prompt == example.chains[1].prompt
    assert {one.desirable for one in task.data.train} == {True, False}


def label(n: int, value: bool, text: str = "tea") -> Mapping[str, Any]:
    return {"prompt": f"hm {n}", "completion": text, "label": value}


def test_input_that_cannot_be_used(run: Path, data: Path, tiny_models: Any, tmp_path: Path) -> None:
    """Each error says what is wrong and what to do, and nothing is written."""
    out = tmp_path / "out"
    scale = {"question": "quality", "kind": "scale", "value": 4, "value_number": 4, "participant": "p", "text": "hm"}
    scale |= {"context": [{"speaker": "1", "text": "hi"}]}
    files = {
        "empty": [],
        "no pairs": [label(n, n % 2 == 0) for n in range(8)],
        "up": [label(n, True) for n in range(8)],
        "down": [label(n, False) for n in range(8)],
        "equal": [{"prompt": f"{n}", "chosen": "tea", "rejected": " tea"} for n in range(8)],
        "unknown": [{"question": "why?", "answer": "so"}],
        "long": [{"prompt": "x" * 200, "chosen": "tea", "rejected": f"{n}"} for n in range(2)]
        + [{"prompt": "y" * 200, "chosen": "tea", "rejected": f"{n}"} for n in range(2)],
        "one context": [{"prompt": "hi", "chosen": "tea", "rejected": f"{n}"} for n in range(8)],
        "no reply": [{"prompt": "hi", "chosen": "", "rejected": "hm"}],
        "other contexts": [{"chosen": [{"role": "assistant", "content": "a"}], "rejected": "Human: x\n\nAssistant: b"}],
        "scale": [scale],
        "withdrawn": [{**one, "withdrawn": True} for one in pairs(4)],
    }
    paths = {name: write(tmp_path / f"{name}.jsonl", records) for name, records in files.items()}
    (tmp_path / "damaged.jsonl").write_text('{"prompt": "hi", "chosen"\n')
    full = tmp_path / "full"
    model = FinetunedGenerator.untrained(TuningConfig(tune="full"), str(tiny_models.make("chat")))
    seal(full, bot="finetune", model="finetune", files=model.save(full), training={})
    (tmp_path / "half" / "partial").mkdir(parents=True)
    other = tmp_path / "other"
    seal(other, bot="hred", model="hred", files=model.save(other), training={})
    seq2seq = tiny_models.make_seq2seq("blenderbot")
    classifier = tiny_models.make_classifier("classifier", ["x", "y"])
    wrong_base = {"base": str(tiny_models.make("other", template=None))}
    cases: list[tuple[Path, Path, dict[str, Any], str, str]] = [
        (run, paths["empty"], {}, "is empty", "prompt, chosen and rejected"),
        (run, tmp_path / "nowhere.jsonl", {}, "not found", "study export"),
        (run, tmp_path / "half", {}, "no file of preferences", "study export"),
        (run, tmp_path / "damaged.jsonl", {}, "line 1: not valid JSON", "Repair"),
        (run, paths["no pairs"], {}, "no pairs: no context has both", 'loss = "kto"'),
        (run, paths["up"], {}, "all 8 votes are up", "both kinds"),
        (run, paths["down"], {}, "all 8 votes are down", "both kinds"),
        (run, paths["up"], {"loss": "kto"}, "All 8 replies .* are desirable", "both kinds"),
        (run, paths["down"], {"loss": "kto"}, "All 8 replies .* are undesirable", "both kinds"),
        (run, paths["equal"], {}, "no preferences that can be used .*8 identical", "Give"),
        (run, paths["unknown"], {}, "format of .* is unknown: .*'question', 'answer'", "completion and label"),
        (run, paths["long"], {}, "more than the 128 tokens", "max_length"),
        (run, paths["one context"], {}, "about one context", "several conversations"),
        (run, paths["no reply"], {}, "line 1: the reply in 'chosen' is empty", "Repair"),
        (run, paths["other contexts"], {}, "line 1: .*the same conversation", "Repair"),
        (run, paths["scale"], {"loss": "kto"}, "1 without threshold", "thresholds ="),
        (run, paths["scale"], {"questions": ["humour"]}, "No answer is to the question 'humour'", "quality"),
        (run, paths["withdrawn"], {}, "no preferences that can be used .*4 withdrawn", "Give"),
        (run, data, {"accumulate": 50}, "fewer than the 50 of one update", "accumulate"),
        (run, data, {"perplexity_data": str(tmp_path / "nowhere")}, "not found", ""),
        (seq2seq, data, {}, "not a causal model", "smollm2"),
        (classifier, data, {}, "cannot generate text", "causal"),
        (tmp_path / "nothing", data, {}, "No chat model could be loaded", "folder"),
        (tmp_path / "half", data, {}, "is not finished", "--resume"),
        (run, data, wrong_base, "is not the base of the run", 'base = "NAME_OR_FOLDER"'),
        (run, data, {"model": {"rank": 2}}, "differs from that of the run", "Omit"),
        (full, data, {}, "has no adapters", "tertulia export"),
        (other, data, {}, "kind 'hred'", "finetune or prefer"),
    ]
    for start, file, more, message, hint in cases:
        with pytest.raises(TertuliaError, match=message) as caught:
            train(start, file, out, **more)
        assert caught.value.exit_code == 2, message
        assert hint in caught.value.hint, message
        assert not out.exists(), message


def test_single_votes_are_enough_for_kto(run: Path, tmp_path: Path) -> None:
    votes = [label(n, n % 2 == 0, (GOOD if n % 2 == 0 else BAD)[n % 4]) for n in range(30)]
    figures = train(run, write(tmp_path / "votes.jsonl", votes), tmp_path / "out", loss="kto", kl_samples=0)
    assert figures["held_out"]["measured on"] == "labels"
    assert figures["held_out"]["accuracy"]["value"] > 0.8
    assert "kl_of_sampled_replies" not in figures


def test_the_view_of_a_preference_has_persona_and_evidence(run: Path, tmp_path: Path) -> None:
    record = {"prompt": [{"role": "system", "content": "I sail. I bake."}, {"role": "user", "content": "hi"}]}
    record |= {"completion": "yes", "label": True, "evidence": ["Boats float."]}
    one = decode(record)
    assert isinstance(one, LabelledReply)
    view = view_as(one.context, one.speaker)
    assert view == DialogueView(("hi",), (False,), ("I sail.", "I bake."), evidence=("Boats float.",))
    (chain,) = load_start(settings_for(run, tmp_path, tmp_path)[1]).chains(view, ["yes"])
    text = FinetunedGenerator.load(run).chat.tokenizer.decode(chain.ids)
    assert text.startswith("<|system|>I sail. I bake.")
    assert text.endswith("- Boats float.<|end|><|user|>hi<|end|><|assistant|>yes<|end|>")
