"""Which engine computes: chosen by options, packages and what llama.cpp can serve."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tertulia.core.dialogue import Dialogue, Turn  # noqa: E402
from tertulia.core.errors import MissingExtra, UsageError  # noqa: E402
from tertulia.core.reply import Ask  # noqa: E402
from tertulia.models.checkpoint import seal  # noqa: E402
from tertulia.models.hf.finetuned import FinetunedGenerator  # noqa: E402
from tertulia.models.hf.lora import TuningConfig  # noqa: E402
from tertulia.models.llamacpp import library  # noqa: E402
from tertulia.talk.bots.engine import EngineOptions, use_llamacpp  # noqa: E402
from tertulia.talk.spec import make_bot  # noqa: E402

MANY = EngineOptions(engine="llamacpp", device="cpu", method="sample-and-rank", samples=300)


@pytest.fixture
def other_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The library is loaded once and kept; here it is looked for again."""
    library.load_library.cache_clear()
    yield monkeypatch
    library.load_library.cache_clear()


def test_without_the_package_torch_computes_or_it_says_how_to_install_it(other_library: pytest.MonkeyPatch) -> None:
    other_library.setattr(library, "PACKAGE", "no_such_package_of_llamas")
    assert not use_llamacpp(EngineOptions(engine="auto", device="cpu"))
    with pytest.raises(MissingExtra, match=r"pip install 'tertulia\[fast\]'"):
        use_llamacpp(EngineOptions(engine="llamacpp", device="cpu"))


def test_another_version_is_not_called(
    other_library: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "xllamacpp").mkdir()
    (tmp_path / "xllamacpp" / "__init__.py").write_text("")
    other_library.syspath_prepend(tmp_path)
    other_library.setattr(library, "VERSION", "1.2.3")
    assert not use_llamacpp(EngineOptions(engine="auto", device="cpu"))
    assert "torch is used instead of llama.cpp" in caplog.text
    with pytest.raises(library.UnusableLibrary, match="is installed") as error:
        use_llamacpp(EngineOptions(engine="llamacpp", device="cpu"))
    assert "xllamacpp==" in error.value.hint


def test_structs_that_are_laid_out_in_another_way_are_noticed() -> None:
    shifted = library.ContextParams(**library.DEFAULTS)
    library.check_layout(shifted)
    shifted.n_seq_max, shifted.n_rs_seq = shifted.n_rs_seq, shifted.n_seq_max
    with pytest.raises(library.UnusableLibrary, match="n_seq_max"):
        library.check_layout(shifted)


def test_what_it_has_no_room_for_is_left_to_torch_or_refused() -> None:
    pytest.importorskip("xllamacpp")
    assert not use_llamacpp(MANY.model_copy(update={"engine": "auto"}))
    with pytest.raises(UsageError, match="300 samples or beams") as error:
        use_llamacpp(MANY)
    assert "engine=torch" in error.value.hint


def test_a_run_on_another_base(tiny_models: Any, tmp_path: Path) -> None:
    """It has no GGUF file: torch computes, and the provenance says so."""
    pytest.importorskip("xllamacpp")
    model = FinetunedGenerator.untrained(TuningConfig(rank=2), str(tiny_models.make("chat")))
    folder = tmp_path / "run"
    seal(folder, bot="finetune", model="finetune", files=model.save(folder), training={})
    bot = make_bot(f"{folder}?max_tokens=2&device=cpu")
    (reply,) = bot.reply([Ask(Dialogue("d", (Turn("ana", "hi"),)))])
    assert reply.provenance.settings["engine"] == "torch"
    assert str(reply.provenance.settings["engine_version"]).startswith("torch ")
    with pytest.raises(UsageError, match="only runs on smollm2"):
        make_bot(f"{folder}?engine=llamacpp&device=cpu")
    with pytest.raises(UsageError, match="cannot be read"):
        make_bot(f"gguf:{tmp_path}/none.gguf")


def test_verdicts_are_based_on_torch_unless_an_engine_is_named(tiny_models: Any, tmp_path: Path) -> None:
    model = FinetunedGenerator.untrained(TuningConfig(rank=2), str(tiny_models.make("chat")))
    folder = tmp_path / "run"
    seal(folder, bot="finetune", model="finetune", files=model.save(folder), training={})
    bot: Any = make_bot(f"{folder}?device=cpu", reference=True)
    assert bot.options.engine == "torch"
    named: Any = make_bot(f"{folder}?device=cpu&engine=auto", reference=True)
    assert named.options.engine == "auto"
