"""A fine-tuned run as a bot: it talks, streams and scores as the model that was trained."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tertulia.core.dialogue import Dialogue, Persona, Turn  # noqa: E402
from tertulia.core.errors import DataError, UsageError  # noqa: E402
from tertulia.core.reply import Ask  # noqa: E402
from tertulia.models.checkpoint import seal  # noqa: E402
from tertulia.models.hf.finetuned import FinetunedGenerator  # noqa: E402
from tertulia.models.hf.lora import TuningConfig  # noqa: E402
from tertulia.models.likelihood import view_as  # noqa: E402
from tertulia.talk.bot import StreamingBot  # noqa: E402
from tertulia.talk.bots.finetuned import FinetunedBot  # noqa: E402
from tertulia.talk.spec import make_bot  # noqa: E402

TURNS = (Turn("ana", "hi"), Turn("bot", "yes ?"), Turn("ana", "so"))
ASK = Ask(Dialogue("d", TURNS, {"bot": Persona(("I sail.",))}), "bot", seed=3)


@pytest.fixture(scope="module")
def run(tiny_models: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tuned"
    torch.manual_seed(1)
    model = FinetunedGenerator.untrained(TuningConfig(rank=2), str(tiny_models.make("chat")))
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()})
    seal(folder, bot="finetune", model="finetune", files=model.save(folder), training={})
    return folder


@pytest.fixture(scope="module")
def bot(run: Path) -> FinetunedBot:
    bot = make_bot(f"{run}?max_tokens=12")
    assert isinstance(bot, FinetunedBot)
    return bot


def test_it_reads_the_dialogue_as_in_training(bot: FinetunedBot) -> None:
    (view,) = [bot.view(ASK, bot.options)]
    assert view == view_as(ASK.dialogue, "bot")
    prompt = bot.generator.chat.tokenizer.decode(bot.generator.prompt(view))
    assert prompt == "<|system|>I sail.<|end|><|user|>hi<|end|><|assistant|>yes ?<|end|><|user|>so<|end|><|assistant|>"
    assert bot.prompt_tokens(view) == len(bot.generator.prompt(view))


def test_it_replies_and_streams_the_same(bot: FinetunedBot, run: Path) -> None:
    assert isinstance(bot, StreamingBot)
    (reply,) = bot.reply([ASK])
    assert reply.provenance.bot == f"finetune:{run}"
    assert reply.provenance.checkpoint
    assert bot.summary == "chat, fine-tuned on dialogues."
    pieces = list(bot.stream([ASK], alive=lambda _: True))
    assert "".join(piece.text for piece in pieces) == reply.text
    assert len(pieces) > 2


def test_scores_are_likelihoods_per_token(bot: FinetunedBot) -> None:
    (scores,) = bot.score([ASK], [["tea", "no tea for me", "hm"]])
    view = view_as(ASK.dialogue, "bot")
    nll = bot.generator.nll([view.with_turn("no tea for me")], target_turns="last")
    assert scores[1] == pytest.approx(-float(nll.total / nll.tokens), abs=1e-3)


def test_damage_and_wrong_bases_are_noticed(run: Path, tiny_models: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the base of the run"):
        make_bot(f"{run}?base={tiny_models.make('other', template=None)}")
    with pytest.raises(UsageError, match="not the folder of a finished training run"):
        make_bot(f"finetune:{tmp_path}")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in run.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    (damaged / "model.safetensors").write_bytes(b"x")
    with pytest.raises(DataError, match="damaged"):
        make_bot(str(damaged))


def test_it_talks_in_the_format_that_its_device_is_good_at(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tertulia.talk.bots.finetuned.dtype_for", lambda device: torch.bfloat16)
    bot = make_bot(f"{run}?max_tokens=4&engine=torch")
    assert isinstance(bot, FinetunedBot)
    assert {p.dtype for p in bot.model.parameters()} == {torch.bfloat16}
    assert bot.reply([Ask(Dialogue("d", (Turn("user", "hi"),)))])[0].finish in ("stop", "length")
