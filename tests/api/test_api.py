"""The short functions of `import tertulia as tt`."""

import subprocess
import sys
from pathlib import Path

import pytest

import tertulia as tt
from tertulia import api
from tertulia.core.codec import dialogue_to_json
from tertulia.core.dialogue import Json


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, tertulia; print([m for m in sys.modules if m.startswith(('tertulia.', 'pydantic', 'numpy'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_all_names_of_the_stub_are_there() -> None:
    stub = (Path(tt.__file__).parent / "__init__.pyi").read_text(encoding="utf-8")
    names = {line.rpartition(" as ")[2] for line in stub.splitlines() if " as " in line}
    assert names | {"__version__"} == set(dir(tt))
    assert all(callable(getattr(tt, name)) for name in names)
    with pytest.raises(AttributeError):
        _ = tt.bto  # type: ignore[attr-defined]


def test_a_bot_chats_with_and_without_history() -> None:
    bot = tt.bot("generic")
    assert bot.chat("Hi.").text == "ok"
    assert bot.chat("Do you sing?").text == "I don't know."
    assert bot.chat("Why?", history=["Hi.", "Hello."]).provenance.bot == "generic"


class Recorder:
    """A bot that says what it was asked."""

    spec, summary = "recorder", "records"

    def reply(self, asks: "list[tt.Dialogue]") -> list[tt.Reply]:
        from tertulia.core.reply import Provenance

        (ask,) = asks
        self.ask: Json = ask
        return [tt.Reply(f"reply {len(ask.dialogue.turns)}", Provenance("recorder"))]  # type: ignore[attr-defined]


def test_what_a_bot_gets_to_see() -> None:
    recorder = Recorder()
    bot = tt.ChatBot(recorder, tt.Persona(("I keep bees.",)))  # type: ignore[arg-type]
    bot.chat("And you?", history=["Hi.", "Hello."], seed=3, temperature=0.5)
    turns = [(turn.speaker, turn.text) for turn in recorder.ask.dialogue.turns]
    assert turns == [("user", "Hi."), ("bot", "Hello."), ("user", "And you?")]
    assert (recorder.ask.speaker, recorder.ask.seed, recorder.ask.options) == ("bot", 3, {"temperature": 0.5})
    assert recorder.ask.dialogue.personas["bot"].sentences == ("I keep bees.",)
    talk = bot.conversation()
    assert [talk.say("a").text, talk.say("b").text] == ["reply 1", "reply 3"]
    assert [turn.speaker for turn in talk.dialogue.turns] == ["user", "bot", "user", "bot"]


def test_dialogues_of_the_sample_and_of_files(tmp_path: Path) -> None:
    import json

    valid = tt.load(split="valid")
    file = tmp_path / "valid.jsonl"
    file.write_text("\n".join(json.dumps(dialogue_to_json(d)) for d in valid), encoding="utf-8")
    assert tt.load(file) == valid
    assert tt.load("sample", split="valid", limit=2) == valid[:2]
    with pytest.raises(tt.TertuliaError, match="File not found"):
        tt.load(tmp_path / "nothing")


def test_a_verdict_has_figures_with_intervals(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    verdict = tt.judge("rank", "tfidf", "generic", limit=40, metrics=["hits@1", "mrr"])
    first = verdict["hits@1", "tfidf"]
    assert first.low <= first.value <= first.high
    assert first.n == 40
    assert {row["metric"] for row in verdict.rows()} == {"hits@1", "mrr"}
    assert "hits@1, generic" in str(verdict)
    assert verdict.comparisons()
    with pytest.raises(tt.TertuliaError, match="not one figure"):
        _ = verdict["hits@1"]
    with pytest.raises(tt.TertuliaError, match="not among the figures"):
        _ = verdict["hits@3"]
    assert (verdict.save(tmp_path / "verdict") / "manifest.json").is_file()
    assert capfd.readouterr() == ("", "")


def test_wrong_calls_are_errors_that_help() -> None:
    with pytest.raises(tt.TertuliaError, match="Did you mean 'rank'"):
        tt.judge("rnak")  # type: ignore[arg-type]
    with pytest.raises(tt.TertuliaError, match="did you mean 'limit'"):
        tt.judge("rank", "generic", limti=3)
    with pytest.raises(tt.TertuliaError, match="Did you mean 'ubuntu-rnn'"):
        tt.train("ubuntu-rn")


def test_judges_name_configs_and_functions_that_exist() -> None:
    assert set(api._JUDGES) == set(api.get_args(api.Judge))
    assert all(callable(api._import(target)) for pair in api._JUDGES.values() for target in pair)


def test_a_model_is_trained_and_talks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    settings = {"max_dialogues": 20, "valid_dialogues": 10, "epochs": 1, "model.hidden": 4, "model.dim": 4}
    trained = tt.train("ubuntu-rnn", out=tmp_path / "run", settings=settings)
    assert 0 <= trained.figures["valid"]["hits@1"] <= 1
    assert trained.bot().chat("Hello!").text
    with pytest.raises(tt.TertuliaError, match="finished run"):
        tt.train("ubuntu-rnn", out=tmp_path / "run")


def test_rooms_of_the_code_can_still_be_imported() -> None:
    import tertulia.judge.rank
    import tertulia.train as room

    assert tertulia.judge.rank.run_rank  # type: ignore[attr-defined]
    assert room.__name__ == "tertulia.train"
