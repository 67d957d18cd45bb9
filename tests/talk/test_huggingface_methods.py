"""The other ways in which a Hugging Face bot writes: ranked samples, greedy, beams; filters; likelihoods."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.core.dialogue import Dialogue, Persona, Turn  # noqa: E402
from tertulia.core.errors import BotError, ConfigError, TertuliaError  # noqa: E402
from tertulia.core.reply import Ask, Reply  # noqa: E402
from tertulia.models.huggingface import ChatModel  # noqa: E402
from tertulia.talk.bot import RankingBot  # noqa: E402
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions, fitting_prompt  # noqa: E402
from tertulia.talk.bots.smollm2 import SmolLM2Options  # noqa: E402
from tertulia.talk.bots.writing import CUT  # noqa: E402
from tertulia.talk.spec import make_bot  # noqa: E402


@pytest.fixture(scope="module")
def models(tiny_models: Any) -> dict[str, ChatModel]:
    return {
        "chat": ChatModel.load(str(tiny_models.make("chat"))),
        "dialogpt": ChatModel.load(str(tiny_models.make("dialogpt", template=None, learned_positions=True))),
        "blenderbot": ChatModel.load(str(tiny_models.make_seq2seq("blenderbot"))),
    }


@pytest.fixture(params=["chat", "dialogpt", "blenderbot"])
def model(models: dict[str, ChatModel], request: pytest.FixtureRequest) -> ChatModel:
    return models[request.param]


def ask(*said: str, seed: int = 0, persona: Persona | None = None, attempt: int = 1, **options: Any) -> Ask:
    turns = tuple(Turn(("ana", "bot")[i % 2], text) for i, text in enumerate(said))
    return Ask(Dialogue("d", turns, {"bot": persona} if persona else {}), "bot", seed, options, attempt)


ASKS = [ask("how are you", seed=1), ask("hi", "hello", "and the sea? 🙂", seed=3), ask(seed=4)]
RANKED = HuggingFaceOptions(method="sample-and-rank", max_tokens=8)


def timeless(replies: list[Reply]) -> list[Reply]:
    return [
        replace(r, seconds=0, score=None, candidates=tuple(replace(c, score=None) for c in r.candidates))
        for r in replies
    ]


def test_sample_and_rank_tells_how_a_reply_came_about(model: ChatModel) -> None:
    bot = HuggingFaceBot(model, RANKED)
    for there, reply in zip(ASKS, bot.reply(ASKS), strict=True):
        fit = [c for c in reply.candidates if c.dropped is None]
        if fit:
            assert (reply.text, reply.score, reply.note) == (fit[0].text, fit[0].score, None)
        else:
            assert "every candidate was dropped" in (reply.note or "")
        assert any(c.dropped for c in reply.candidates)
        assert 1 < len(reply.candidates) <= 20
        settings = reply.provenance.settings
        assert (settings["method"], settings["samples"], settings["top_k"]) == ("sample-and-rank", 20, 40)
        assert (settings["temperature"], settings["top_p"], settings["max_tokens"]) == (1.0, 1.0, 8)
        assert "cross-turn" in str(settings["filters"])
        assert reply.usage is not None
        assert reply.usage.prompt == len(fitting_prompt(model, there, RANKED))


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", "sample-and-rank"])
def test_a_reply_does_not_depend_on_its_batch(model: ChatModel, method: Any) -> None:
    bot = HuggingFaceBot(model, RANKED.model_copy(update={"method": method}))
    assert timeless(bot.reply(ASKS)) == timeless([bot.reply([one])[0] for one in ASKS])
    assert bot.reply([]) == []


def test_presets_and_what_is_given() -> None:
    full, base = (
        HuggingFaceOptions(method="sample-and-rank", preset=p).decoding() for p in ("meena-full", "meena-base")
    )
    assert (full.temperature, full.top_k, full.top_p, full.samples, full.max_tokens) == (1.0, 40, 1.0, 20, 80)
    assert (base.temperature, base.top_k, base.top_p, base.samples, base.max_tokens) == (0.88, 0, 1.0, 20, 80)
    given = HuggingFaceOptions(method="sample-and-rank", temperature=0.5, samples=3, max_tokens=9).decoding()
    assert (given.temperature, given.samples, given.top_k, given.max_tokens) == (0.5, 3, 40, 9)
    small = SmolLM2Options(method="sample-and-rank")
    assert (small.decoding().temperature, small.decoding().max_tokens) == (1.0, 60)
    assert small.wished(ask("hi", method="sample")).temperature == 0.3
    assert small.wished(ask("hi", temperature=0.9)).decoding().temperature == 0.9


def test_one_draw_stays_what_it_was() -> None:
    plain = HuggingFaceOptions()
    assert (plain.method, plain.temperature, plain.top_p, plain.repetition_penalty) == ("sample", 0.7, 0.9, 1.1)
    assert plain.filtering() == "none"
    assert HuggingFaceOptions(method="greedy").filtering() == "none"
    assert HuggingFaceOptions(method="beam").filtering() == RANKED.filtering() != "none"


def test_an_ask_may_wish_for_a_method_but_not_for_filters(models: dict[str, ChatModel]) -> None:
    bot = HuggingFaceBot(models["chat"], HuggingFaceOptions(max_tokens=8))
    drawn, ranked, greedy = bot.reply(
        [ask("hi"), ask("hi", method="sample-and-rank", filters="none", candidates=1), ask("hi", method="greedy")]
    )
    assert drawn.candidates == greedy.candidates or len(greedy.candidates) <= 1
    assert drawn.candidates == ()
    assert len(ranked.candidates) > 1
    assert ranked.provenance.settings["filters"] != "none"
    with pytest.raises(ConfigError, match="method"):
        bot.reply([ask("hi", method="guess")])


def test_greedy_comes_word_by_word_and_is_greedy(model: ChatModel) -> None:
    bot = HuggingFaceBot(model, HuggingFaceOptions(method="greedy", max_tokens=12))
    pieces = list(bot.stream(ASKS, alive=lambda _: True))
    assert len(pieces) > len(ASKS)
    plain = HuggingFaceOptions(temperature=0, repetition_penalty=1, max_tokens=12)
    expected = [r.text.strip() for r in HuggingFaceBot(model, plain).reply(ASKS)]
    for place, text in enumerate(expected):
        (reply,) = (p.reply for p in pieces if p.index == place and p.reply)
        assert "".join(p.text for p in pieces if p.index == place) == reply.text == text


def test_ranked_replies_are_whole_before_they_are_shown(models: dict[str, ChatModel]) -> None:
    bot = HuggingFaceBot(models["chat"], RANKED)
    pieces = list(bot.stream(ASKS, alive=lambda _: True))
    assert len(pieces) == len(ASKS)
    assert all(p.reply and p.text == p.reply.text for p in pieces)
    gone = list(bot.stream(ASKS[:1], alive=lambda _: False))
    assert [p.reply.finish for p in gone if p.reply] == ["cancelled"]


def test_one_draw_with_filters_is_judged_before_it_is_shown(models: dict[str, ChatModel]) -> None:
    plain = HuggingFaceBot(models["chat"], HuggingFaceOptions(max_tokens=20))
    bot = HuggingFaceBot(models["chat"], HuggingFaceOptions(filters="empty,too-long:max_words=30", max_tokens=20))
    texts = [r.text for r in plain.reply([ask("hi", seed=s) for s in range(4)])]
    asks = [ask("hi", seed=0, stop=texts[0][3:]), *(ask("hi", seed=s) for s in range(1, 4))]
    pieces = list(bot.stream(asks, alive=lambda _: True))
    assert len(pieces) == len(asks)
    replies = [p.reply for p in sorted(pieces, key=lambda p: p.index) if p.reply]
    assert [r.text for r in replies] == [texts[0][:3].rstrip(), *texts[1:]]  # where it is cut, the least bad of one
    assert (replies[0].candidates[0].dropped, replies[0].finish, replies[0].note) == (None, "stop", None)
    assert CUT in {r.candidates[0].dropped for r in replies}
    assert all(r.note and CUT in r.note for r in replies if r.finish == "length")
    gone = list(bot.stream(asks[:1], alive=lambda _: False))
    assert [(p.text, p.reply.finish) for p in gone if p.reply] == [("", "cancelled")]
    with pytest.raises(TertuliaError, match="too-longg"):
        HuggingFaceBot(models["chat"], HuggingFaceOptions(filters="too-longg"))


def test_where_nothing_may_be_said_the_fallback_is(models: dict[str, ChatModel]) -> None:
    from tertulia.core.reply import Provenance
    from tertulia.talk.bots.writing import Draft, Sieve, Task, settled
    from tertulia.talk.filters.table import make_filters

    task = Task(ask("hi"), HuggingFaceBot(models["chat"])._plan(ask("hi")).task.talk, 3, Provenance("hf:x"))
    reply = settled(task, [Draft("I will kill you", -1.0, True, 4)], Sieve(make_filters("safety"), "Well.", 5), 0.1)
    assert (reply.text, reply.note) == ("Well.", "no candidate could be said: used the fallback text")
    assert [c.dropped for c in reply.candidates] == ["unsafe: threat"]


def test_another_attempt_is_another_reply(models: dict[str, ChatModel]) -> None:
    ranked = HuggingFaceBot(models["chat"], RANKED.model_copy(update={"filters": "none"}))
    first, second = (ranked.reply([ask("hi", attempt=n)])[0] for n in (1, 2))
    assert first.text != second.text
    drawn = HuggingFaceBot(models["chat"], HuggingFaceOptions(temperature=2, top_p=1, max_tokens=8))
    assert len({drawn.reply([ask("hi", attempt=n)])[0].text for n in range(1, 6)}) > 3


def test_it_ranks_given_replies_by_their_likelihood(model: ChatModel) -> None:
    given = [["yes", "I like the sea", ""], [], ["no"]]
    for score in ("mean", "sum"):
        bot = HuggingFaceBot(model, HuggingFaceOptions(score=score))
        assert isinstance(bot, RankingBot)
        found = bot.score(ASKS, given)
        assert [len(part) for part in found] == [3, 0, 1]
        for there, texts, scores in zip(ASKS, given, found, strict=True):
            prompt = fitting_prompt(model, there, bot.options)
            for text, value in zip(texts, scores, strict=True):
                assert value == pytest.approx(likelihood(model, prompt, text, mean=score == "mean"), abs=1e-3)


def likelihood(model: ChatModel, prompt: list[int], text: str, *, mean: bool) -> float:
    """By one plain pass."""
    tokens = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        if model.seq2seq:
            said = torch.tensor([[*model.network.opening, *tokens]])
            logits = model.model(input_ids=torch.tensor([prompt]), decoder_input_ids=said).logits[0]
        else:
            logits = model.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0]
    found = logits[-len(tokens) - 1 :].double().log_softmax(-1)
    (end,) = model.ends
    values = [float(found[i, token]) for i, token in enumerate([*tokens, end])]
    return sum(values) / (len(values) if mean else 1)


def test_blenderbot_reads_persona_and_turns_in_one_line(models: dict[str, ChatModel]) -> None:
    there = ask("hi", "hello", "and you?", persona=Persona(("I sail.", "I cook."), name="Ana"))
    tokens = fitting_prompt(models["blenderbot"], there, HuggingFaceOptions())
    assert models["blenderbot"].decode(tokens) == "your persona: I sail.  your persona: I cook.  hi  hello  and you?"
    theirs = replace(there, dialogue=replace(there.dialogue, personas={"ana": Persona(("I bake.",))}))
    tokens = fitting_prompt(models["blenderbot"], theirs, RANKED)
    assert models["blenderbot"].decode(tokens) == "partner's persona: I bake.  hi  hello  and you?"


def test_a_long_conversation_keeps_to_both_windows(tiny_models: Any) -> None:
    """An encoder's window is for the conversation alone, a decoder's for the reply."""
    long = ask(*[f"turn number {i}" for i in range(31)])
    model = ChatModel.load(str(tiny_models.make_seq2seq("narrow", window=64)))
    tokens = fitting_prompt(model, long, HuggingFaceOptions(max_tokens=62))
    assert 40 < len(tokens) <= 64
    assert model.decode(tokens).endswith("turn number 30")
    for method in ("sample", "greedy"):
        options = HuggingFaceOptions(method=method, max_tokens=500)  # type: ignore[arg-type]
        (reply,) = HuggingFaceBot(model, options).reply([long])
        assert reply.usage is not None
        assert reply.usage.completion <= 64


def test_ranked_replies_fit_a_small_window(tiny_models: Any) -> None:
    folder = tiny_models.make("small", template=None, window=32, learned_positions=True)
    bot = HuggingFaceBot(ChatModel.load(str(folder)), HuggingFaceOptions(method="sample-and-rank", samples=3))
    for wish in (ask("hi"), ask("a good deal longer than the window is"), ask("hi", max_tokens=31)):
        (reply,) = bot.reply([wish])
        assert reply.usage is not None
        assert reply.usage.prompt + reply.usage.completion <= 32


def test_the_specification_names_the_method(tiny_models: Any) -> None:
    for folder in (tiny_models.make("chat"), tiny_models.make_seq2seq("bart", kind="Bart")):
        bot = make_bot(f"hf:{folder}?method=sample-and-rank&samples=4&preset=meena-base&max_tokens=6&filters=empty")
        (reply,) = bot.reply([ask("hi")])
        assert 0 < len(reply.candidates) <= 4
        assert reply.provenance.settings["temperature"] == 0.88


def test_a_model_of_another_trade_is_refused(tiny_models: Any, tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    with pytest.raises(BotError, match="does not write: it is a BertForMaskedLM"):
        make_bot(f"hf:{tmp_path}")


def test_a_model_that_keeps_nothing_is_refused(tiny_models: Any, tmp_path: Path) -> None:
    tokenizer = ChatModel.load(str(tiny_models.make("chat"))).tokenizer
    config = transformers.MambaConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, state_size=4)
    transformers.MambaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(BotError, match="keeps no keys and values"):
        make_bot(f"hf:{tmp_path}")
