"""`judge perplexity` on Hugging Face models and fine-tuned runs, beside a model of our own."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tertulia import sample  # noqa: E402
from tertulia.core.errors import TertuliaError, UsageError  # noqa: E402
from tertulia.corpus.load import save_dialogues  # noqa: E402
from tertulia.judge.config import PerplexityConfig, PersonaSetting  # noqa: E402
from tertulia.judge.perplexity import run_perplexity, target_views  # noqa: E402
from tertulia.judge.replies import load_bot  # noqa: E402
from tertulia.judge.reply_resources import language_model  # noqa: E402
from tertulia.judge.runs import JudgedRun  # noqa: E402
from tertulia.metrics.metric import ReplyExample  # noqa: E402
from tertulia.metrics.registry import metric_named  # noqa: E402
from tertulia.models.checkpoint import seal  # noqa: E402
from tertulia.models.generator import DialogueView  # noqa: E402
from tertulia.models.generators.seq2seq import Seq2Seq, Seq2SeqConfig  # noqa: E402
from tertulia.models.hf.finetuned import FinetunedGenerator  # noqa: E402
from tertulia.models.hf.lora import TuningConfig  # noqa: E402
from tertulia.models.tokenizer import WordTokenizer, count_words  # noqa: E402

DIALOGUES = [replace(dialogue, turns=dialogue.turns[:6]) for dialogue in sample.dialogues("valid")[:4]]
WORDS = WordTokenizer.learn((t.text for d in sample.dialogues("train") for t in d.turns), size=200)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "few.jsonl"
    save_dialogues(DIALOGUES, file)
    return file


@pytest.fixture(scope="module")
def models(tiny_models: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    base = tiny_models.make("wide", window=4096)
    torch.manual_seed(1)
    tuned = FinetunedGenerator.untrained(TuningConfig(rank=2), str(base))
    tuned.load_state_dict({name: value + 0.05 for name, value in tuned.state_dict().items()})
    seal(folder / "tuned", bot="finetune", model="finetune", files=tuned.save(folder / "tuned"), training={})
    own = Seq2Seq.untrained(Seq2SeqConfig(dim=8, hidden=8, encoder=False), WORDS)
    seal(folder / "own", bot="seq2seq", model="seq2seq", files=own.save(folder / "own"), training={})
    return [f"hf:{base}", str(folder / "tuned"), str(folder / "own")]


@pytest.fixture(scope="module")
def judged(models: list[str], data: Path) -> JudgedRun:
    config = PerplexityConfig(
        runs=tuple(models),
        data=str(data),
        persona=("none", "own"),
        wording=("original", "revised"),
        ranked=6,
        candidates=5,
        replies=2,
    )
    return run_perplexity(config)


def test_models_of_all_kinds_stand_side_by_side(judged: JudgedRun) -> None:
    assert [(s.name, s.kind) for s in judged.subjects] == [("wide", "hf"), ("tuned", "finetune"), ("own", "seq2seq")]
    assert list(judged.settings) == ["none", "own, original", "own, revised"]
    figures = judged.estimates()
    for setting in judged.settings:
        for subject in ("wide", "tuned", "own"):
            assert figures[subject, setting, "perplexity per token"].value > 1
            assert figures[subject, setting, "hits@1"].n == figures["own", setting, "hits@1"].n > 0
            assert figures[subject, setting, "f1"].n > 0
        n = {figures[subject, setting, "perplexity"].n for subject in ("wide", "tuned", "own")}
        assert len(n) == 1, "the same dialogues"
        charged = figures["own", setting, "perplexity with spelling"].value
        assert charged > figures["own", setting, "perplexity"].value
        wide = [figures["wide", setting, f"perplexity{name}"].value for name in (" with spelling", "")]
        assert wide[0] == wide[1], "bytes can spell everything"
    personas = {figures["tuned", setting, "perplexity"].value for setting in judged.settings}
    assert len(personas) == 3, "personas matter"
    assert any("perplexity with spelling" in note and note.startswith("own") for note in judged.notes)


def test_likelihoods_are_those_of_one_plain_pass(models: list[str], data: Path, judged: JudgedRun) -> None:
    """Perplexity of the base by hand: each turn after its own prompt, without a cache, without batches."""
    model: Any = load_bot(models[0]).bot.model
    setting = PersonaSetting("own", "original")
    views = target_views(DIALOGUES, setting)
    nats, words = 0.0, 0
    for _, _, view in views[:3]:
        for turn, own in enumerate(view.own):
            if own:
                prompt = model.prompt(view.before(turn))
                reply = model.chat.tokenizer(view.turns[turn], add_special_tokens=False)["input_ids"]
                with torch.no_grad():
                    logits = model.model(input_ids=torch.tensor([[*prompt, *reply]])).logits[0].double()
                logprobs = logits.log_softmax(-1)[len(prompt) - 1 :]
                nats -= sum(float(logprobs[i, token]) for i, token in enumerate(reply))
                nats -= float(logprobs[len(reply), sorted(model.chat.end_tokens)].logsumexp(0))
                words += count_words(view.turns[turn])
    score = next(s for s in judged.scores if (s.subject, s.setting, s.metric) == ("wide", str(setting), "perplexity"))
    units = [view.unit for view in views[:3]]
    rows = [score.units.index(unit) for unit in units]
    assert sum(score.values[row] for row in rows) == pytest.approx(nats, rel=1e-4)
    assert sum(score.weights[row] for row in rows) == words
    assert math.isfinite(nats)


def test_what_is_no_generative_model_is_an_error(tiny_models: Any, data: Path) -> None:
    for spec, message in (
        ("tfidf:sample", "no generative model"),
        ("nonsense", "no generative model"),
        (f"hf:{tiny_models.make_classifier('classifier', ['x', 'y'])}", "cannot generate"),
    ):
        with pytest.raises(TertuliaError, match=message):
            run_perplexity(PerplexityConfig(runs=(spec,), data=str(data)))
    with pytest.raises(UsageError, match="no generative model"):
        load_bot("generic")


def test_decoding_options_reach_chat_models(models: list[str]) -> None:
    assert load_bot(models[0]).bot.decoding.method == "greedy"
    assert load_bot(models[1], preset="meena-base").bot.decoding.method == "sample-and-rank"
    assert load_bot(f"{models[1]}?method=beam").bot.decoding.method == "beam"


def test_a_fine_tuned_run_is_the_language_model_of_a_reply_metric(models: list[str]) -> None:
    batch, metric = [ReplyExample("i love cats", context=("hi", "you?"))], metric_named("reply likelihood")
    tuned, base = language_model(models[1]), language_model(models[0])
    (value,), (other,) = (metric.measure(batch, {"language_model": one})[0].tolist() for one in (tuned, base))
    nll = tuned.model.nll([DialogueView(("hi", "you?", "i love cats"), (True, False, True))], target_turns="last")
    assert value == pytest.approx(-float(nll.total[0]) / int(nll.tokens[0]), abs=1e-4)
    assert value != pytest.approx(other, abs=1e-3)
