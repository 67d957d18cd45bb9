"""Continuous batching: turns join a running batch and leave it, and each is what it would be alone. In float64."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tertulia.core.config import validate
from tertulia.models.decoding import DecodingConfig, DecodingSession, Generation, decode
from tertulia.models.generator import DialogueView, Generator, JoinableState
from tertulia.models.generators.base import GeneratorModule
from tertulia.models.generators.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.generators.generative_profile_memory import GenerativeProfileMemory, GenerativeProfileMemoryConfig
from tertulia.models.generators.hred import HRED, HREDConfig
from tertulia.models.generators.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.generators.vhcr import VHCR
from tertulia.models.generators.vhred import VHRED, VHREDConfig
from tertulia.models.read_ahead import READ_AHEAD
from tertulia.models.tokenizer import END, WordTokenizer

WORDS = WordTokenizer("a b c d e f g h i j k l".split())
VIEWS = [
    DialogueView(("a b c", "d e", "f g h i"), (False, True, False), ("a d", "k")),
    DialogueView(("j",), (False,)),
    DialogueView(("a b c d e f g h i j a b c", "d", "l l"), (False, True, False)),
    DialogueView(("b",), (False,), ("e f", "g", "h h h")),
    DialogueView((), ()),
    DialogueView(("c d e", "a"), (False, True)),
]
HRED_SIZES: dict[str, Any] = {"dim": 12, "encoder": 10, "context": 14, "decoder": 11, "personas": True}
MODELS: dict[str, Callable[[], Any]] = {
    "transformer": lambda: Transformer.untrained(TransformerConfig(d_model=16, decoder_layers=2), WORDS),
    "transformer with encoder": lambda: Transformer.untrained(
        TransformerConfig(d_model=16, decoder_layers=2, encoder_layers=1), WORDS
    ),
    "evolved": lambda: EvolvedTransformer.untrained(EvolvedConfig(d_model=16, encoder_blocks=0), WORDS),
    "evolved with encoder": lambda: EvolvedTransformer.untrained(EvolvedConfig(d_model=16, encoder_blocks=1), WORDS),
    "seq2seq": lambda: Seq2Seq.untrained(Seq2SeqConfig(dim=12, hidden=14), WORDS),
    "seq2seq without attention": lambda: Seq2Seq.untrained(Seq2SeqConfig(dim=12, hidden=14, attention=False), WORDS),
    "seq2seq without encoder": lambda: Seq2Seq.untrained(Seq2SeqConfig(dim=12, hidden=14, encoder=False), WORDS),
    "profile memory": lambda: GenerativeProfileMemory.untrained(
        GenerativeProfileMemoryConfig(dim=12, hidden=14), WORDS
    ),
    "hred": lambda: HRED.untrained(HREDConfig(**HRED_SIZES), WORDS),
    "vhred": lambda: VHRED.untrained(VHREDConfig(**HRED_SIZES, latent=8), WORDS),
    "vhcr": lambda: VHCR.untrained(VHCR.config_type(**HRED_SIZES, latent=8), WORDS),
}
HUGGING_FACE = ("llama", "gpt2", "bart", "blenderbot")
TOLERANCE = 1e-4
"""For the log-probability of a turn: even in a float64 Hugging Face model, norms and rotations are float32."""


@pytest.fixture(params=[*MODELS, *HUGGING_FACE])
def model(request: pytest.FixtureRequest) -> Generator:
    if request.param in HUGGING_FACE:
        return hugging_face(request.getfixturevalue("tiny_models"), request.param)
    torch.manual_seed(1)
    built = MODELS[request.param]().double().eval()
    for weight in built.parameters():  # far from uniform, so that a mistake changes what is drawn
        weight.data *= 2
    return built  # type: ignore[no-any-return]


def hugging_face(tiny_models: Any, kind: str) -> Generator:
    pytest.importorskip("transformers")
    from tertulia.models.hf.chat_model import ChatModel
    from tertulia.models.hf.generator import HuggingFaceGenerator

    folder = {
        "llama": lambda: tiny_models.make("chat"),
        "gpt2": lambda: tiny_models.make("dialogpt", template=None, learned_positions=True),
        "bart": lambda: tiny_models.make_seq2seq("bart", kind="Bart"),
        "blenderbot": lambda: tiny_models.make_seq2seq("blenderbot"),
    }[kind]()
    chat = ChatModel.load(str(folder))
    chat.model.double()
    return HuggingFaceGenerator(chat)


def config(method: str = "sample", **options: Any) -> DecodingConfig:
    return validate(DecodingConfig, {"method": method, **options}, where="the test")


CONFIGS = [
    config(max_tokens=24, temperature=0.9, repetition_penalty=1.3),
    config("sample-and-rank", samples=5, max_tokens=9, top_k=8),
    config("greedy", max_tokens=14, min_tokens=5),
    config("sample-and-rank", samples=3, max_tokens=12, top_p=0.9, repetition_penalty=1.2),
    config(max_tokens=3),
    config("beam", beams=3, max_tokens=7),
]


class CountedSteps:
    """A generator that counts the steps and the rows that go through it."""

    def __init__(self, model: Any) -> None:
        self.model, self.tokenizer = model, model.tokenizer
        self.rows: list[int] = []
        self.start, self.nll, self.save = model.start, model.nll, model.save

    def step(self, state: Any, tokens: Any, /) -> Any:
        logits, after = self.model.step(state, tokens)
        self.rows.append(len(logits))
        return logits, after


def finish(session: DecodingSession, handles: Sequence[int]) -> dict[int, list[Generation]]:
    """Step until these turns have ended."""
    results: dict[int, list[Generation]] = {}
    for _ in range(1000):
        results |= {p.handle: p.generations for p in session.step() if p.generations is not None}
        if all(handle in results for handle in handles):
            return results
    raise AssertionError("turns without an end")


def assert_same(one: Sequence[Generation], other: Sequence[Generation]) -> None:
    def scores(part: Sequence[Generation]) -> dict[tuple[tuple[int, ...], bool, int], float]:
        return {(g.tokens, g.finished, g.drawn): g.logprob for g in part}

    assert scores(one) == pytest.approx(scores(other), abs=TOLERANCE)


def test_turns_that_join_a_running_batch_are_what_they_are_alone(model: Generator) -> None:
    """Every view with every kind of decoding: some at the same time, some a step or several steps after each other."""
    views = VIEWS if isinstance(model, GeneratorModule) else [view for view in VIEWS if view.turns]
    turns = [(views[i % len(views)], CONFIGS[(i + i // len(views)) % len(CONFIGS)], i) for i in range(12)]
    session = DecodingSession(model)
    handles, results = [], dict[int, list[Generation]]()
    for number, turn in enumerate(turns):
        handles.append(session.add(*turn))
        for _ in range((0, 0, 1, 4)[number % 4]):
            results |= {p.handle: p.generations for p in session.step() if p.generations is not None}
    results |= finish(session, [handle for handle in handles if handle not in results])
    for (view, options, seed), handle in zip(turns, handles, strict=True):
        assert_same(results[handle], decode(model, [view], options, [seed])[0])
    assert session.step() == []
    assert session.rows == 0


def test_which_models_join(model: Generator, request: pytest.FixtureRequest) -> None:
    """BART and BlenderBot count their decoder's positions by themselves: their turns run in batches of their own."""
    counted = CountedSteps(model)
    session = DecodingSession(counted)
    session.add(VIEWS[0], config(max_tokens=9, min_tokens=9), 1)
    session.step()
    session.add(VIEWS[1], config(max_tokens=9, min_tokens=9), 2)
    session.step()
    counted.rows.clear()
    session.step()
    joins = "bart" not in request.node.callspec.id and "blenderbot" not in request.node.callspec.id
    assert counted.rows == ([2] if joins else [1, 1])


def test_a_short_turn_does_not_wait_for_a_long_one(model: Generator) -> None:
    """Counted in steps of the model: a turn of two tokens takes two, also in the middle of one of eighty."""
    session = DecodingSession(model)
    long = session.add(VIEWS[0], config(max_tokens=80, min_tokens=80), 1)
    for _ in range(10):
        session.step()
    short = session.add(VIEWS[1], config(max_tokens=2, min_tokens=2), 2)
    assert [p.handle for p in session.step()] == [long, short]
    (still_running, ended) = session.step()
    assert (still_running.handle, still_running.generations) == (long, None)
    assert ended.handle == short
    assert ended.generations is not None
    assert [p.handle for p in session.step()] == [long]


def test_rows_of_ended_and_cancelled_turns_are_free_again(model: Generator) -> None:
    counted = CountedSteps(model)
    session = DecodingSession(counted)
    long = config("sample-and-rank", samples=4, max_tokens=60, min_tokens=60)
    kept = session.add(VIEWS[0], long, 1)
    for handle in [session.add(view, long, 2) for view in VIEWS[1:4]]:
        session.step()
        session.cancel(handle)
    session.step()
    assert session.rows == 4
    assert counted.rows[-1] == 4
    assert_same(finish(session, [kept])[kept], decode(counted, VIEWS[:1], long, [1])[0])


def test_a_long_session_holds_no_more_than_its_turns(model: Generator) -> None:
    """Turns come and go for a hundred steps; the state that is kept must not grow with them."""
    session = DecodingSession(model)
    handles, sizes = [session.add(VIEWS[0], config(max_tokens=12, min_tokens=12), 0)], []
    for seed in range(1, 20):
        for _ in range(6):  # half of a turn: there are always two of them, half a turn apart
            session.step()
        handles.append(session.add(VIEWS[seed % 3], config(max_tokens=12, min_tokens=12), seed))
        sizes.append(sum(numbers(batch.state) for batch in session._batches))
    assert max(sizes[10:]) <= max(sizes[:10])


def numbers(value: Any) -> int:
    """How many numbers are held in the tensors of a state, model weights aside."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, torch.nn.Module) or type(value).__name__ == "LanguageModel" or value is None:
        return 0
    if isinstance(value, list | tuple):
        return sum(map(numbers, value))
    names = getattr(value, "__slots__", None) or getattr(value, "__dict__", {})
    return sum(numbers(getattr(value, name)) for name in names)


def test_the_caps_on_rows_and_tokens_hold_turns_back() -> None:
    torch.manual_seed(1)
    counted = CountedSteps(MODELS["transformer"]().double().eval())
    ranked = config("sample-and-rank", samples=4, max_tokens=10, min_tokens=10)
    for limits in ({"max_rows": 10}, {"max_tokens": 2 * (20 + 4 * 10)}):
        counted.rows.clear()
        session = DecodingSession(counted, **limits)
        handles = [session.add(view, ranked, 3, prompt_tokens=20) for view in VIEWS[:5]]
        results = finish(session, handles)
        assert max(counted.rows) == 8  # two turns at a time
        assert list(results) == handles
        too_large = session.add(VIEWS[0], ranked.model_copy(update={"samples": 50}), 3)
        assert too_large in finish(session, [too_large])  # alone, it is decoded whatever its size


def test_a_turn_cancelled_in_the_queue_is_never_read() -> None:
    counted = CountedSteps(MODELS["hred"]().double().eval())
    session = DecodingSession(counted, max_rows=1)
    first, second, third = (session.add(VIEWS[1], config(max_tokens=2, min_tokens=2), seed) for seed in range(3))
    session.step()
    session.cancel(second)
    assert list(finish(session, [first, third])) == [first, third]
    assert set(counted.rows) == {1}


def test_states_say_whether_they_can_be_joined(model: Generator) -> None:
    assert isinstance(model.start(VIEWS[:1]), JoinableState)
    assert END not in CONFIGS[0].forbidden(1)


def test_first_tokens_come_before_all_prompts_are_read() -> None:
    """Where an engine reads prompts one by one; then all go on together, as they would have in one batch."""
    session, model, config = early_session(tokens_read=100)
    handles = [session.add(view, config, seed) for seed, view in enumerate(VIEWS[:3])]
    steps = [[result.handle for result in session.step()] for _ in range(4)]
    assert steps == [[handles[0]], [handles[1]], [handles[2]], handles]
    generated = {handle: one[0].tokens for handle, one in finish(session, handles).items()}
    expected = decode(model, VIEWS[:3], config, [0, 1, 2])
    assert generated == {handle: one[0].tokens for handle, one in zip(handles, expected, strict=True)}


def test_running_turns_wait_for_few_prompts_only() -> None:
    """One that joins while others are in the middle of a turn; and after long prompts the others go on first."""
    session, model, config = early_session(tokens_read=READ_AHEAD // 2)
    first = session.add(VIEWS[0], config, 0)
    session.step()
    session.step()
    late = [session.add(view, config, seed) for seed, view in enumerate(VIEWS[1:4], start=1)]
    steps = [[result.handle for result in session.step()] for _ in range(5)]
    assert steps == [late[:1], late[1:2], [first, *late[:2]], late[2:], [first, *late]]
    session.cancel(first)
    generated = {handle: one[0].tokens for handle, one in finish(session, late).items()}
    expected = decode(model, VIEWS[1:4], config, [1, 2, 3])
    assert generated == {handle: one[0].tokens for handle, one in zip(late, expected, strict=True)}


def early_session(*, tokens_read: int) -> tuple[DecodingSession, Generator, DecodingConfig]:
    """With an engine that reads prompts one by one, so many tokens each."""
    torch.manual_seed(1)
    model: Any = MODELS["transformer"]().double().eval()
    start = model.start

    def counted_start(views: Sequence[DialogueView]) -> Any:
        model.tokens_read += tokens_read * len(views)
        return start(views)

    model.max_rows, model.max_tokens, model.prompts_at_once, model.tokens_read = 256, 8192, 1, 10_000
    model.start = counted_start
    config = DecodingConfig(method="sample", max_tokens=6, min_tokens=6, repetition_penalty=1.3)
    return DecodingSession(model, early_tokens=True), model, config
