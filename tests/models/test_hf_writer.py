"""Hugging Face models behind our decoding: tiny real ones, checked against a plain pass over all tokens."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.core.errors import BotError  # noqa: E402
from tertulia.models import hf_branches  # noqa: E402
from tertulia.models.decoding import DecodingConfig, Written, decode  # noqa: E402
from tertulia.models.generator import Generator, Talk  # noqa: E402
from tertulia.models.hf_branches import Branches  # noqa: E402
from tertulia.models.hf_rows import Rows  # noqa: E402
from tertulia.models.hf_writer import SHIFT, HuggingFaceWriter, Prompt  # noqa: E402
from tertulia.models.huggingface import ChatModel  # noqa: E402
from tertulia.models.tokenizer import END, MARKS  # noqa: E402

KINDS = ("llama", "gpt2", "blenderbot", "bart")
TALKS = [
    Talk(("how are you",), (False,), ("I sail.",)),
    Talk(("hi", "hello", "and the sea? 🙂"), (False, True, False)),
    Talk(("hm",), (False,)),
]
RANKED = DecodingConfig(samples=20, top_k=40, max_tokens=8)


@pytest.fixture(scope="module")
def writers(tiny_models: Any) -> dict[str, HuggingFaceWriter]:
    folders = {
        "llama": tiny_models.make("chat"),
        "gpt2": tiny_models.make("dialogpt", template=None, learned_positions=True),
        "blenderbot": tiny_models.make_seq2seq("blenderbot"),
        "bart": tiny_models.make_seq2seq("bart", kind="Bart"),
    }
    return {name: HuggingFaceWriter(ChatModel.load(str(folder))) for name, folder in folders.items()}


@pytest.fixture(params=KINDS)
def writer(writers: dict[str, HuggingFaceWriter], request: pytest.FixtureRequest) -> HuggingFaceWriter:
    return writers[request.param]


def plain(writer: HuggingFaceWriter, prompt: list[int], tokens: list[int]) -> Any:
    """Log-probabilities of what comes after the prompt and after each token: one pass, no cache. (n + 1, vocabulary)"""
    chat = writer.chat
    with torch.inference_mode():
        if chat.seq2seq:
            said = torch.tensor([[*chat.network.opening, *tokens]])
            logits = chat.model(input_ids=torch.tensor([prompt]), decoder_input_ids=said).logits[0]
        else:
            logits = chat.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0]
    return logits[-len(tokens) - 1 :].double().log_softmax(-1)


def likelihood(writer: HuggingFaceWriter, prompt: list[int], tokens: list[int], finished: bool = True) -> float:
    found = plain(writer, prompt, tokens)
    ends = found[len(tokens), sorted(writer.chat.ends)].logsumexp(0) if finished else torch.tensor(0.0)
    return float(sum(found[i, token] for i, token in enumerate(tokens)) + ends)


class Counted:
    """Counts what a model reads: calls of its body, and tokens in each."""

    def __init__(self, model: Any) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.encoded: list[tuple[int, int]] = []
        self.hooks = [model.register_forward_pre_hook(self._count, with_kwargs=True)]
        if model.config.is_encoder_decoder:
            self.hooks.append(model.get_encoder().register_forward_pre_hook(self._encode, with_kwargs=True))

    def _count(self, module: Any, args: Any, kwargs: Any) -> None:
        ids = kwargs.get("decoder_input_ids", kwargs.get("input_ids"))
        self.sizes.append(tuple(ids.shape))

    def _encode(self, module: Any, args: Any, kwargs: Any) -> None:
        self.encoded.append(tuple(kwargs["input_ids"].shape))

    def __enter__(self) -> "Counted":
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()


def test_it_is_a_model_that_writes(writer: HuggingFaceWriter) -> None:
    assert isinstance(writer, Generator)
    assert len(writer.tokenizer) == writer.model.config.vocab_size + len(MARKS)
    ids = writer.tokenizer.encode("hé 🙂")
    assert min(ids) >= len(MARKS)
    assert writer.tokenizer.decode([END, *ids, END]) == "hé 🙂"


def test_which_models_share_their_prompts(writers: dict[str, HuggingFaceWriter]) -> None:
    assert {name: w.chat.network.shares for name, w in writers.items()} == {
        "llama": True,
        "gpt2": True,
        "blenderbot": False,  # its decoder counts places by itself
        "bart": False,
    }


def test_probabilities_are_the_models_own(writer: HuggingFaceWriter) -> None:
    """All ends together are END, other marks have nothing, and nothing is lost."""
    ends, writer._ends = writer._ends, torch.tensor([*sorted(writer.chat.ends), 7])
    try:
        with torch.inference_mode():
            logits, _ = writer.step(writer.start(TALKS), None)
    finally:
        writer._ends = ends
    found = logits.double().softmax(-1)
    assert torch.allclose(found.sum(-1), torch.ones(3, dtype=torch.float64))
    for row, talk in enumerate(TALKS):
        own = plain(writer, writer.prompt(talk), [])[0].exp()
        both = [*sorted(writer.chat.ends), 7]
        assert found[row, END] == pytest.approx(float(own[both].sum()), rel=1e-4)
        own[both] = 0
        assert torch.allclose(found[row, SHIFT:], own, atol=1e-6)
        assert [float(found[row, mark]) for mark in range(SHIFT) if mark != END] == [0.0] * 5


def test_rows_of_unlike_prompts_have_the_logits_they_have_alone(writer: HuggingFaceWriter) -> None:
    lengths = {len(writer.prompt(talk)) for talk in TALKS}
    assert len(lengths) == 3
    tokens = torch.tensor([[10, 11, 12], [20, 21, 22], [30, 31, 32]])
    with torch.inference_mode():
        state: Any = writer.start(TALKS)
        for step in range(3):
            logits, state = writer.step(state, None if step == 0 else tokens[:, step - 1])
            for row, talk in enumerate(TALKS):
                said = (tokens[row, :step] - SHIFT).tolist()
                alone = plain(writer, writer.prompt(talk), said)[-1]
                found = logits[row].double().log_softmax(-1)[SHIFT:]
                fit = torch.isfinite(found)
                assert torch.allclose(found[fit], alone[fit], atol=1e-4)


@pytest.mark.parametrize("method", ["sample-and-rank", "beam", "greedy"])
def test_the_log_probability_of_what_is_written_is_exact(writer: HuggingFaceWriter, method: Any) -> None:
    found = decode(writer, TALKS, RANKED.model_copy(update={"method": method}), [1, 2, 3])
    for talk, written in zip(TALKS, found, strict=True):
        assert written
        for one in written:
            tokens = [i - SHIFT for i in one.tokens]
            expected = likelihood(writer, writer.prompt(talk), tokens, one.finished)
            assert one.logprob == pytest.approx(expected, abs=1e-3)


def same(one: list[list[Written]], other: list[list[Written]]) -> bool:
    """The same turns, their scores up to rounding."""

    def scores(part: list[Written]) -> dict[tuple[str, bool, int], float]:
        return {(w.text, w.finished, w.drawn): w.score for w in part}

    return all(scores(a) == pytest.approx(scores(b), abs=1e-4) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("method", ["sample-and-rank", "beam"])
@pytest.mark.parametrize("together", [3, 32])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_to_share_a_prompt_changes_nothing(
    writers: dict[str, HuggingFaceWriter], kind: str, method: Any, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branches and copies write the same, in small groups and large, with rows that leave and rows that return."""
    writer, config = writers[kind], RANKED.model_copy(update={"method": method, "beams": 6})
    monkeypatch.setattr(hf_branches, "TOGETHER", together)
    assert writer.chat.network.shares
    shared = decode(writer, TALKS, config, [1, 2, 3])
    monkeypatch.setitem(writer.chat.network.__dict__, "shares", False)
    assert same(shared, decode(writer, TALKS, config, [1, 2, 3]))


def test_what_is_written_does_not_depend_on_the_batch(writer: HuggingFaceWriter) -> None:
    together = decode(writer, TALKS, RANKED, [1, 2, 3])
    alone = [decode(writer, [talk], RANKED, [seed])[0] for talk, seed in zip(TALKS, (1, 2, 3), strict=True)]
    assert same(together, alone)


def test_twenty_samples_read_the_prompt_once(writer: HuggingFaceWriter) -> None:
    assert writer.chat.network.shares is not None  # tried before we count
    config = RANKED.model_copy(update={"max_tokens": 5, "min_tokens": 4})
    with Counted(writer.model) as counted:
        (found,) = decode(writer, TALKS[:1], config, [1])
    assert sum(one.drawn for one in found) == 20
    prompt = len(writer.prompt(TALKS[0]))
    if writer.chat.seq2seq:
        assert counted.encoded == [(1, prompt)]
        assert counted.sizes == [(1, len(writer.chat.network.opening)), *[(20, 1)] * 4]
    else:
        assert counted.sizes == [(1, prompt), *[(1, 20)] * 4]


def test_the_prompt_is_kept_once_for_all_samples(writers: dict[str, HuggingFaceWriter]) -> None:
    """Twenty samples of a long prompt: its keys and values, and twenty tokens' a step; copies are twenty prompts."""
    writer = writers["llama"]
    prompt = Prompt((), (), tokens=tuple(i % 200 for i in range(300)))
    with torch.inference_mode():
        start = writer.chat.network.read([list(prompt.tokens)])
        state: Any = writer.start([prompt]).fan(20)
        assert isinstance(state.inner, Branches)
        shared = start.fan(20)
        assert shared.cache.layers[0].keys.data_ptr() == start.cache.layers[0].keys.data_ptr()
        state = writer.step(state, torch.arange(20) + SHIFT)[1]
        state = writer.step(state, torch.arange(20) + SHIFT)[1]
        copies = start.select(torch.zeros(20, dtype=torch.long))
        kept = state.keep(torch.arange(5))
    assert state.inner.cache.layers[0].keys.shape[::2] == (1, 300 + 40)
    assert copies.cache.layers[0].keys.shape[::2] == (20, 300)
    assert kept.inner.cache.layers[0].keys.shape[::2] == (1, 300 + 10)


def test_a_state_can_be_gone_on_from_twice(writer: HuggingFaceWriter) -> None:
    with torch.inference_mode():
        for state in (writer.start(TALKS), writer.start(TALKS).fan(2)):
            tokens = torch.arange(20, 20 + len(writer.step(state, None)[0]))
            first, after = writer.step(state, tokens)
            again, _ = writer.step(state, tokens)
            writer.step(state, tokens + 1)
            assert torch.equal(first, again)
            once, _ = writer.step(after, tokens)
            assert torch.equal(once, writer.step(after, tokens)[0])
    with pytest.raises(TypeError, match="another model"):
        writer.step("nothing", None)  # type: ignore[arg-type]


def test_given_replies_have_exact_likelihoods(writer: HuggingFaceWriter) -> None:
    replies = ["yes", "", "I like the wind 🙂", "yes"]
    talks = [talk.said(text) for talk in TALKS for text in replies]
    nll = writer.nll(talks, scored="last")
    for talk, total, count in zip(talks, nll.total.tolist(), nll.tokens.tolist(), strict=True):
        before = Talk(talk.turns[:-1], talk.own[:-1], talk.persona)
        tokens = [i - SHIFT for i in writer.tokenizer.encode(talk.turns[-1])]
        assert count == len(tokens) + 1
        assert -total == pytest.approx(likelihood(writer, writer.prompt(before), tokens), abs=2e-3)
    assert nll.total[0] == pytest.approx(float(nll.total[3]), abs=1e-4)
    assert writer.nll([]).total.shape == (0,)


def test_replies_to_one_prompt_read_it_once(writer: HuggingFaceWriter) -> None:
    assert writer.chat.network.shares is not None  # tried before we count
    talks = [TALKS[0].said(f"reply number {n}") for n in range(20)]
    with Counted(writer.model) as counted:
        found = writer.nll(talks, scored="last")
    assert len(counted.sizes) == 2
    assert counted.sizes[0][0] == 1
    if not writer.chat.seq2seq:
        assert sum(rows * places for rows, places in counted.sizes) == (
            len(writer.prompt(TALKS[0])) + 20 * len("reply number 10")
        )
    few = writer.nll(talks[:3], scored="last")
    assert torch.allclose(few.total, found.total[:3], atol=1e-3)


def test_little_room_for_logits_changes_nothing(writer: HuggingFaceWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    talks = [talk.said(text) for talk in TALKS for text in ("yes", "I like tea", "no")]
    whole = writer.nll(talks, scored="last")
    monkeypatch.setattr("tertulia.models.hf_writer.LOGITS_AT_ONCE", 30 * len(writer.tokenizer))
    assert torch.allclose(writer.nll(talks, scored="last").total, whole.total, atol=1e-3)


def test_which_turns_count(writer: HuggingFaceWriter) -> None:
    talk = Talk(("hi", "hello", "so?"), (False, True, False), ("I sail.",))
    own, every = writer.nll([talk], scored="own"), writer.nll([talk])
    as_other = [Talk(("hi",), (True,)), Talk(("hi", "hello", "so?"), (True, False, True))]
    others = writer.nll(as_other, scored="last")
    assert int(own.tokens[0]) == len("hello") + 1
    assert int(every.tokens[0]) == len("hihelloso?") + 3
    assert float(every.total[0]) == pytest.approx(float(own.total[0] + others.total.sum()), abs=5e-3)
    with pytest.raises(ValueError, match="only the last turn"):
        writer.nll([Prompt((), (), tokens=(1, 2)).said("hi")])


def test_a_turn_longer_than_the_window_is_refused(writer: HuggingFaceWriter) -> None:
    with pytest.raises(BotError, match="is longer than what"):
        writer.nll([TALKS[0].said("x" * 600)], scored="last")
    long = Talk(("y" * 2000,), (False,)).said("x" * 40)
    assert torch.isfinite(writer.nll([long], scored="last").total).all()


def test_a_model_without_an_end(tiny_models: Any) -> None:
    bare = HuggingFaceWriter(ChatModel.load(str(tiny_models.make("bare", template=None, end=None))))
    (found,) = decode(bare, TALKS[:1], RANKED, [1])
    assert not any(one.finished for one in found)
    nll = bare.nll([TALKS[0].said("hello")], scored="last")
    assert int(nll.tokens[0]) == 5
    expected = likelihood(bare, bare.prompt(TALKS[0]), bare.chat.tokenizer("hello")["input_ids"], finished=False)
    assert -float(nll.total[0]) == pytest.approx(expected, abs=1e-3)


def test_what_was_saved_writes_the_same(writer: HuggingFaceWriter, tmp_path: Path) -> None:
    files = writer.save(tmp_path)
    assert "tokenizer.json" in files
    assert all((tmp_path / name).is_file() for name in files)
    again = HuggingFaceWriter(ChatModel.load(str(tmp_path)))
    assert same(decode(again, TALKS, RANKED, [1, 2, 3]), decode(writer, TALKS, RANKED, [1, 2, 3]))
    assert writer.tokenizer.save(tmp_path / "tokenizer") in {f.name for f in (tmp_path / "tokenizer").iterdir()}


def test_layers_that_slide_are_copied(tmp_path: Path, tiny_models: Any) -> None:
    """Such a layer forgets what is far behind: a branch cannot share what it forgets at another time."""
    source = ChatModel.load(str(tiny_models.make("chat")))
    config = transformers.MistralConfig(
        vocab_size=len(source.tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
        max_position_embeddings=256,
        initializer_range=0.6,
        eos_token_id=source.tokenizer.eos_token_id,
    )
    torch.manual_seed(7)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    source.tokenizer.save_pretrained(tmp_path)
    writer = HuggingFaceWriter(ChatModel.load(str(tmp_path)))
    assert not writer.chat.network.shares
    assert isinstance(writer.chat.network.read([writer.prompt(TALKS[0])]).fan(2), Rows)
    (found,) = decode(writer, TALKS[:1], RANKED, [1])
    for one in found:
        tokens = [i - SHIFT for i in one.tokens]
        assert one.logprob == pytest.approx(likelihood(writer, writer.prompt(TALKS[0]), tokens, one.finished), abs=1e-3)
