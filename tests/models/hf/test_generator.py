"""Hugging Face models as generators: tiny real ones, compared with one plain pass over all tokens."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.core.errors import BotError  # noqa: E402
from tertulia.models.decoding import DecodingConfig, Generation, decode  # noqa: E402
from tertulia.models.generator import DialogueView, Generator  # noqa: E402
from tertulia.models.hf import shared_prefix  # noqa: E402
from tertulia.models.hf.chat_model import ChatModel  # noqa: E402
from tertulia.models.hf.generator import SHIFT, HuggingFaceGenerator, Prompt  # noqa: E402
from tertulia.models.hf.shared_prefix import SharedPrefixState  # noqa: E402
from tertulia.models.hf.state import HFDecoderState  # noqa: E402
from tertulia.models.tokenizer import END, SPECIAL_TOKENS  # noqa: E402

KINDS = ("llama", "gpt2", "blenderbot", "bart")
VIEWS = [
    DialogueView(("how are you",), (False,), ("I sail.",)),
    DialogueView(("hi", "hello", "and the sea? 🙂"), (False, True, False)),
    DialogueView(("hm",), (False,)),
]
TOLERANCE = 1e-4
"""For the log-probability of about ten tokens: even in a float64 model, norms and rotations are float32."""
RANKED = DecodingConfig(samples=20, top_k=40, max_tokens=8)


@pytest.fixture(scope="module")
def generators(tiny_models: Any) -> dict[str, HuggingFaceGenerator]:
    folders = {
        "llama": tiny_models.make("chat"),
        "gpt2": tiny_models.make("dialogpt", template=None, learned_positions=True),
        "blenderbot": tiny_models.make_seq2seq("blenderbot"),
        "bart": tiny_models.make_seq2seq("bart", kind="Bart"),
    }
    return {name: double(folder) for name, folder in folders.items()}


def double(folder: Path) -> HuggingFaceGenerator:
    """In float64: a row in a batch and the same row alone then differ by far less than any mistake would make."""
    chat = ChatModel.load(str(folder))
    chat.model.double()
    return HuggingFaceGenerator(chat)


@pytest.fixture(params=KINDS)
def generator(generators: dict[str, HuggingFaceGenerator], request: pytest.FixtureRequest) -> HuggingFaceGenerator:
    return generators[request.param]


def logprobs_in_one_pass(generator: HuggingFaceGenerator, prompt: list[int], tokens: list[int]) -> Any:
    """Log-probabilities after the prompt and after each token, without a cache: (n + 1, vocabulary)."""
    chat = generator.chat
    with torch.inference_mode():
        if chat.seq2seq:
            decoder_ids = torch.tensor([[*chat.lm.decoder_prefix, *tokens]])
            logits = chat.model(input_ids=torch.tensor([prompt]), decoder_input_ids=decoder_ids).logits[0]
        else:
            logits = chat.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0]
    return logits[-len(tokens) - 1 :].double().log_softmax(-1)


def likelihood(generator: HuggingFaceGenerator, prompt: list[int], tokens: list[int], finished: bool = True) -> float:
    logprobs = logprobs_in_one_pass(generator, prompt, tokens)
    ends = logprobs[len(tokens), sorted(generator.chat.end_tokens)].logsumexp(0) if finished else torch.tensor(0.0)
    return float(sum(logprobs[i, token] for i, token in enumerate(tokens)) + ends)


class CountedTokens:
    """The shapes of the token ids that go through a model and its encoder."""

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

    def __enter__(self) -> "CountedTokens":
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()


def test_it_is_a_generator(generator: HuggingFaceGenerator) -> None:
    assert isinstance(generator, Generator)
    assert len(generator.tokenizer) == generator.model.config.vocab_size + len(SPECIAL_TOKENS)
    ids = generator.tokenizer.encode("hé 🙂")
    assert min(ids) >= len(SPECIAL_TOKENS)
    assert generator.tokenizer.decode([END, *ids, END]) == "hé 🙂"


def test_which_models_share_prefixes(generators: dict[str, HuggingFaceGenerator]) -> None:
    assert {name: g.chat.lm.capabilities.shared_prefix for name, g in generators.items()} == {
        "llama": True,
        "gpt2": True,
        "blenderbot": False,  # its decoder computes positions by itself
        "bart": False,
    }


def test_probabilities_are_the_models_own(generator: HuggingFaceGenerator) -> None:
    """END has the probability of all end tokens together, other special tokens have none, and nothing is lost."""
    ends, generator._ends = generator._ends, torch.tensor([*sorted(generator.chat.end_tokens), 7])
    try:
        with torch.inference_mode():
            logits, _ = generator.step(generator.start(VIEWS), None)
    finally:
        generator._ends = ends
    probabilities = logits.softmax(-1)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(3, dtype=torch.float64))
    for row, view in enumerate(VIEWS):
        own = logprobs_in_one_pass(generator, generator.prompt(view), [])[0].exp()
        both = [*sorted(generator.chat.end_tokens), 7]
        assert probabilities[row, END] == pytest.approx(float(own[both].sum()), rel=1e-5)
        own[both] = 0
        torch.testing.assert_close(probabilities[row, SHIFT:], own, rtol=0, atol=1e-6)
        assert [float(probabilities[row, token]) for token in range(SHIFT) if token != END] == [0.0] * 5


def test_prompts_of_different_length_have_the_logits_they_have_alone(generator: HuggingFaceGenerator) -> None:
    lengths = {len(generator.prompt(view)) for view in VIEWS}
    assert len(lengths) == 3
    tokens = torch.tensor([[10, 11, 12], [20, 21, 22], [30, 31, 32]])
    with torch.inference_mode():
        state: Any = generator.start(VIEWS)
        for step in range(3):
            logits, state = generator.step(state, None if step == 0 else tokens[:, step - 1])
            for row, view in enumerate(VIEWS):
                own_ids = (tokens[row, :step] - SHIFT).tolist()
                alone = logprobs_in_one_pass(generator, generator.prompt(view), own_ids)[-1]
                batched = logits[row].log_softmax(-1)[SHIFT:]
                finite = torch.isfinite(batched)
                torch.testing.assert_close(batched[finite], alone[finite], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("method", ["sample-and-rank", "beam", "greedy"])
def test_log_probabilities_of_generations_are_exact(generator: HuggingFaceGenerator, method: Any) -> None:
    config = RANKED.model_copy(update={"method": method, "repetition_penalty": 1.3})
    for view, generations in zip(VIEWS, decode(generator, VIEWS, config, [1, 2, 3]), strict=True):
        assert generations
        for one in generations:
            tokens = [i - SHIFT for i in one.tokens]
            expected = likelihood(generator, generator.prompt(view), tokens, one.finished)
            assert one.logprob == pytest.approx(expected, abs=TOLERANCE)


def same(one: list[list[Generation]], other: list[list[Generation]]) -> bool:
    """The same turns, their scores up to rounding."""

    def scores(part: list[Generation]) -> dict[tuple[str, bool, int], float]:
        return {(g.text, g.finished, g.drawn): g.score for g in part}

    return all(scores(a) == pytest.approx(scores(b), abs=TOLERANCE) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("method", ["sample-and-rank", "beam"])
@pytest.mark.parametrize("rows_per_line", [3, 32])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_sharing_a_prefix_changes_nothing(
    generators: dict[str, HuggingFaceGenerator],
    kind: str,
    method: Any,
    rows_per_line: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shared and copied prompts give the same, on short and long lines, while rows are dropped and repeated."""
    generator, config = generators[kind], RANKED.model_copy(update={"method": method, "beams": 6})
    monkeypatch.setattr(shared_prefix, "ROWS_PER_LINE", rows_per_line)
    lm = generator.chat.lm
    assert lm.capabilities.shared_prefix
    shared = decode(generator, VIEWS, config, [1, 2, 3])
    monkeypatch.setattr(lm, "capabilities", replace(lm.capabilities, shared_prefix=False))
    assert same(shared, decode(generator, VIEWS, config, [1, 2, 3]))


def test_generations_do_not_depend_on_the_batch(generator: HuggingFaceGenerator) -> None:
    together = decode(generator, VIEWS, RANKED, [1, 2, 3])
    alone = [decode(generator, [view], RANKED, [seed])[0] for view, seed in zip(VIEWS, (1, 2, 3), strict=True)]
    assert same(together, alone)


def test_a_prompt_is_encoded_once_for_twenty_samples(generator: HuggingFaceGenerator) -> None:
    config = RANKED.model_copy(update={"max_tokens": 5, "min_tokens": 4})
    with CountedTokens(generator.model) as counted:
        (generations,) = decode(generator, VIEWS[:1], config, [1])
    assert sum(one.drawn for one in generations) == 20
    prompt = len(generator.prompt(VIEWS[0]))
    if generator.chat.seq2seq:
        assert counted.encoded == [(1, prompt)]
        assert counted.sizes == [(1, len(generator.chat.lm.decoder_prefix)), *[(20, 1)] * 4]
    else:
        assert counted.sizes == [(1, prompt), *[(1, 20)] * 4]


def test_the_cache_holds_a_prompt_once_for_all_samples(generators: dict[str, HuggingFaceGenerator]) -> None:
    """Keys and values of one prompt, and of twenty tokens for each step; copies would hold twenty prompts."""
    generator = generators["llama"]
    prompt = Prompt((), (), tokens=tuple(i % 200 for i in range(300)))
    with torch.inference_mode():
        start = generator.chat.lm.encode([list(prompt.tokens)])
        state: Any = generator.start([prompt]).expand(20)
        assert isinstance(state, SharedPrefixState)
        shared = start.expand(20)
        assert shared.cache.layers[0].keys.data_ptr() == start.cache.layers[0].keys.data_ptr()
        state = generator.step(state, torch.arange(20) + SHIFT)[1]
        state = generator.step(state, torch.arange(20) + SHIFT)[1]
        copies = start.copy_rows(torch.zeros(20, dtype=torch.long))
        kept = state.select(torch.arange(5))
    assert state.cache.layers[0].keys.shape[::2] == (1, 300 + 40)
    assert copies.cache.layers[0].keys.shape[::2] == (20, 300)
    assert kept.cache.layers[0].keys.shape[::2] == (1, 300 + 10)


def test_a_state_can_be_continued_twice(generator: HuggingFaceGenerator) -> None:
    with torch.inference_mode():
        for state in (generator.start(VIEWS), generator.start(VIEWS).expand(2)):
            tokens = torch.arange(20, 20 + len(generator.step(state, None)[0]))
            first, after = generator.step(state, tokens)
            again, _ = generator.step(state, tokens)
            generator.step(state, tokens + 1)
            torch.testing.assert_close(first, again, rtol=0, atol=TOLERANCE)
            once, _ = generator.step(after, tokens)
            torch.testing.assert_close(once, generator.step(after, tokens)[0], rtol=0, atol=TOLERANCE)
    with pytest.raises(TypeError, match="not a state of this model"):
        generator.step("nothing", None)  # type: ignore[arg-type]


def test_likelihoods_of_given_replies_are_exact(generator: HuggingFaceGenerator) -> None:
    replies = ["yes", "", "I like the wind 🙂", "yes"]
    views = [view.with_turn(text) for view in VIEWS for text in replies]
    nll = generator.nll(views, target_turns="last")
    for view, total, count in zip(views, nll.total.tolist(), nll.tokens.tolist(), strict=True):
        before = DialogueView(view.turns[:-1], view.own[:-1], view.persona)
        tokens = [i - SHIFT for i in generator.tokenizer.encode(view.turns[-1])]
        assert count == len(tokens) + 1
        assert -total == pytest.approx(likelihood(generator, generator.prompt(before), tokens), abs=TOLERANCE)
    assert nll.total[0] == pytest.approx(float(nll.total[3]), abs=TOLERANCE)
    assert generator.nll([]).total.shape == (0,)


def test_what_replies_have_in_common_is_read_once(generator: HuggingFaceGenerator) -> None:
    views = [VIEWS[0].with_turn(f"reply number {n}") for n in range(20)]
    with CountedTokens(generator.model) as counted:
        nll = generator.nll(views, target_turns="last")
    if generator.chat.lm.capabilities.shared_prefix:  # "reply number ", and a tree of the digits of 0 to 19
        prompt = len(generator.prompt(VIEWS[0]))
        assert counted.sizes == [(1, prompt + len("reply number ") + 10 + 10)]
    else:
        assert len(counted.sizes) == 2
        assert counted.sizes[0][0] == 1
    few = generator.nll(views[:3], target_turns="last")
    torch.testing.assert_close(few.total, nll.total[:3], rtol=0, atol=TOLERANCE)


def test_scoring_in_small_parts_changes_nothing(
    generator: HuggingFaceGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = [view.with_turn(text) for view in VIEWS for text in ("yes", "I like tea", "no")]
    at_once = generator.nll(views, target_turns="last")
    monkeypatch.setattr("tertulia.models.hf.generator.LOGITS_AT_ONCE", 30 * len(generator.tokenizer))
    in_parts = generator.nll(views, target_turns="last")
    torch.testing.assert_close(in_parts.total, at_once.total, rtol=0, atol=TOLERANCE)


def test_target_turns(generator: HuggingFaceGenerator) -> None:
    view = DialogueView(("hi", "hello", "so?"), (False, True, False), ("I sail.",))
    own, every = generator.nll([view], target_turns="own"), generator.nll([view])
    as_other = [DialogueView(("hi",), (True,)), DialogueView(("hi", "hello", "so?"), (True, False, True))]
    others = generator.nll(as_other, target_turns="last")
    assert int(own.tokens[0]) == len("hello") + 1
    assert int(every.tokens[0]) == len("hihelloso?") + 3
    assert float(every.total[0]) == pytest.approx(float(own.total[0] + others.total.sum()), abs=TOLERANCE)
    with pytest.raises(ValueError, match="only the last turn"):
        generator.nll([Prompt((), (), tokens=(1, 2)).with_turn("hi")])


def test_a_turn_longer_than_the_window_is_rejected(generator: HuggingFaceGenerator) -> None:
    with pytest.raises(BotError, match="does not fit into the window"):
        generator.nll([VIEWS[0].with_turn("x" * 600)], target_turns="last")
    long = DialogueView(("y" * 2000,), (False,)).with_turn("x" * 40)
    assert torch.isfinite(generator.nll([long], target_turns="last").total).all()


def test_a_model_without_an_end_token(tiny_models: Any) -> None:
    bare = double(tiny_models.make("bare", template=None, end=None))
    (generations,) = decode(bare, VIEWS[:1], RANKED, [1])
    assert not any(one.finished for one in generations)
    nll = bare.nll([VIEWS[0].with_turn("hello")], target_turns="last")
    assert int(nll.tokens[0]) == 5
    expected = likelihood(bare, bare.prompt(VIEWS[0]), bare.chat.tokenizer("hello")["input_ids"], finished=False)
    assert -float(nll.total[0]) == pytest.approx(expected, abs=TOLERANCE)


def test_a_saved_model_generates_the_same(generator: HuggingFaceGenerator, tmp_path: Path) -> None:
    files = generator.save(tmp_path)
    assert "tokenizer.json" in files
    assert all((tmp_path / name).is_file() for name in files)
    again = double(tmp_path)
    assert same(decode(again, VIEWS, RANKED, [1, 2, 3]), decode(generator, VIEWS, RANKED, [1, 2, 3]))
    assert generator.tokenizer.save(tmp_path / "tokenizer") in {f.name for f in (tmp_path / "tokenizer").iterdir()}


def test_sliding_window_layers_are_copied(tmp_path: Path, tiny_models: Any) -> None:
    """Such a layer drops what is far behind, at different times for different rows."""
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
    generator = double(tmp_path)
    assert not generator.chat.lm.capabilities.shared_prefix
    assert isinstance(generator.chat.lm.encode([generator.prompt(VIEWS[0])]).expand(2), HFDecoderState)
    (generations,) = decode(generator, VIEWS[:1], RANKED, [1])
    for one in generations:
        tokens = [i - SHIFT for i in one.tokens]
        assert one.logprob == pytest.approx(
            likelihood(generator, generator.prompt(VIEWS[0]), tokens, one.finished), abs=TOLERANCE
        )
