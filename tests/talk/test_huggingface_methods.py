"""The other decoding methods of a Hugging Face bot: sample-and-rank, greedy, beam search; filters; likelihoods."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.core.dialogue import Dialogue, Persona, Turn  # noqa: E402
from tertulia.core.errors import BotError, ConfigError, TertuliaError  # noqa: E402
from tertulia.core.reply import Ask, Provenance, Reply  # noqa: E402
from tertulia.models.decoding import DecodingConfig, Generation  # noqa: E402
from tertulia.models.hf.chat_model import ChatModel  # noqa: E402
from tertulia.models.hf.generator import Prompt  # noqa: E402
from tertulia.models.tokenizer import WordTokenizer  # noqa: E402
from tertulia.talk.bot import RankingBot  # noqa: E402
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions, fit_prompt  # noqa: E402
from tertulia.talk.bots.smollm2 import SmolLM2Options  # noqa: E402
from tertulia.talk.filters.base import ALL, make_filters  # noqa: E402
from tertulia.talk.generation import CUT, DrawnCandidates, FilterPolicy, GenerationRequest  # noqa: E402
from tertulia.talk.spec import make_bot  # noqa: E402


@pytest.fixture(scope="module")
def models(tiny_models: Any) -> dict[str, ChatModel]:
    folders = {
        "chat": tiny_models.make("chat"),
        "dialogpt": tiny_models.make("dialogpt", template=None, learned_positions=True),
        "blenderbot": tiny_models.make_seq2seq("blenderbot"),
    }
    models = {name: ChatModel.load(str(folder)) for name, folder in folders.items()}
    for chat in models.values():
        chat.model.double()  # so that a batch and a single row give the same tokens
    return models


@pytest.fixture(params=["chat", "dialogpt", "blenderbot"])
def model(models: dict[str, ChatModel], request: pytest.FixtureRequest) -> ChatModel:
    return models[request.param]


def ask(*texts: str, seed: int = 0, persona: Persona | None = None, attempt: int = 1, **options: Any) -> Ask:
    turns = tuple(Turn(("ana", "bot")[i % 2], text) for i, text in enumerate(texts))
    return Ask(Dialogue("d", turns, {"bot": persona} if persona else {}), "bot", seed, options, attempt)


ASKS = [ask("how are you", seed=1), ask("hi", "hello", "and the sea? 🙂", seed=3), ask(seed=4)]
RANKED = HuggingFaceOptions(method="sample-and-rank", max_tokens=8)


def without_scores(replies: list[Reply]) -> list[Reply]:
    return [
        replace(r, seconds=0, score=None, candidates=tuple(replace(c, score=None) for c in r.candidates))
        for r in replies
    ]


def test_sample_and_rank_lists_its_candidates(model: ChatModel) -> None:
    bot = HuggingFaceBot(model, RANKED)
    for one, reply in zip(ASKS, bot.reply(ASKS), strict=True):
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
        assert reply.usage.prompt == len(fit_prompt(model, one, RANKED))


@pytest.mark.parametrize("method", ["sample", "greedy", "beam", "sample-and-rank"])
def test_a_reply_does_not_depend_on_the_batch(model: ChatModel, method: Any) -> None:
    bot = HuggingFaceBot(model, RANKED.model_copy(update={"method": method}))
    assert without_scores(bot.reply(ASKS)) == without_scores([bot.reply([one])[0] for one in ASKS])
    assert bot.reply([]) == []


def test_given_options_override_the_preset() -> None:
    full, base = (
        HuggingFaceOptions(method="sample-and-rank", preset=p).decoding() for p in ("meena-full", "meena-base")
    )
    assert (full.temperature, full.top_k, full.top_p, full.samples, full.max_tokens) == (1.0, 40, 1.0, 20, 80)
    assert (base.temperature, base.top_k, base.top_p, base.samples, base.max_tokens) == (0.88, 0, 1.0, 20, 80)
    given = HuggingFaceOptions(method="sample-and-rank", temperature=0.5, samples=3, max_tokens=9).decoding()
    assert (given.temperature, given.samples, given.top_k, given.max_tokens) == (0.5, 3, 40, 9)
    small = SmolLM2Options(method="sample-and-rank")
    assert (small.decoding().temperature, small.decoding().max_tokens) == (1.0, 60)
    assert small.with_overrides({"method": "sample"}).decoding().temperature == 0.3
    assert small.with_overrides({"temperature": 0.9}).decoding().temperature == 0.9


def test_defaults_are_for_a_single_sample() -> None:
    plain = HuggingFaceOptions().decoding()
    assert (plain.method, plain.temperature, plain.top_p, plain.repetition_penalty) == ("sample", 0.7, 0.9, 1.1)
    assert HuggingFaceOptions(method="greedy").decoding().repetition_penalty == 1.0
    small = SmolLM2Options().decoding()
    assert (small.temperature, small.top_p, small.repetition_penalty, small.max_tokens) == (0.3, 0.9, 1.1, 60)
    filters = {method: HuggingFaceOptions().filter_spec(method) for method in ("sample", "greedy", "beam")}  # type: ignore[arg-type]
    assert filters == {"sample": "none", "greedy": "none", "beam": ALL}
    assert HuggingFaceOptions(filters="empty").filter_spec("beam") == "empty"


def test_an_ask_may_choose_the_method_but_not_the_filters(models: dict[str, ChatModel]) -> None:
    bot = HuggingFaceBot(models["chat"], HuggingFaceOptions(max_tokens=8))
    sampled, ranked, greedy = bot.reply(
        [ask("hi"), ask("hi", method="sample-and-rank", filters="none", candidates=1), ask("hi", method="greedy")]
    )
    assert len(sampled.candidates) == len(greedy.candidates) == 1
    assert len(ranked.candidates) > 1
    assert ranked.provenance.settings["filters"] != "none"
    with pytest.raises(ConfigError, match="method"):
        bot.reply([ask("hi", method="guess")])


def test_greedy_replies_are_streamed(model: ChatModel) -> None:
    bot = HuggingFaceBot(model, HuggingFaceOptions(method="greedy", max_tokens=12))
    pieces = list(bot.stream(ASKS, alive=lambda _: True))
    assert len(pieces) > len(ASKS)
    plain = HuggingFaceOptions(temperature=0, repetition_penalty=1, max_tokens=12)
    expected = [r.text.strip() for r in HuggingFaceBot(model, plain).reply(ASKS)]
    for i, text in enumerate(expected):
        (reply,) = (p.reply for p in pieces if p.index == i and p.reply)
        assert "".join(p.text for p in pieces if p.index == i) == reply.text == text


def test_ranked_replies_come_as_one_piece(models: dict[str, ChatModel]) -> None:
    bot = HuggingFaceBot(models["chat"], RANKED)
    pieces = list(bot.stream(ASKS, alive=lambda _: True))
    assert len(pieces) == len(ASKS)
    assert all(p.reply and p.text == p.reply.text for p in pieces)
    gone = list(bot.stream(ASKS[:1], alive=lambda _: False))
    assert [p.reply.finish for p in gone if p.reply] == ["cancelled"]


def test_a_sample_is_filtered_before_it_is_shown(models: dict[str, ChatModel]) -> None:
    plain = HuggingFaceBot(models["chat"], HuggingFaceOptions(max_tokens=20))
    bot = HuggingFaceBot(models["chat"], HuggingFaceOptions(filters="empty,too-long:max_words=30", max_tokens=20))
    texts = [r.text for r in plain.reply([ask("hi", seed=s) for s in range(4)])]
    asks = [ask("hi", seed=0, stop=texts[0][3:]), *(ask("hi", seed=s) for s in range(1, 4))]
    pieces = list(bot.stream(asks, alive=lambda _: True))
    assert len(pieces) == len(asks)
    replies = [p.reply for p in sorted(pieces, key=lambda p: p.index) if p.reply]
    assert [r.text for r in replies] == [
        texts[0][:3].rstrip(),
        *texts[1:],
    ]  # one that was cut is used if there is no other
    assert (replies[0].candidates[0].dropped, replies[0].finish, replies[0].note) == (None, "stop", None)
    assert CUT in {r.candidates[0].dropped for r in replies}
    assert all(r.note and CUT in r.note for r in replies if r.finish == "length")
    gone = list(bot.stream(asks[:1], alive=lambda _: False))
    assert [(p.text, p.reply.finish) for p in gone if p.reply] == [("", "cancelled")]
    with pytest.raises(TertuliaError, match="too-longg"):
        HuggingFaceBot(models["chat"], HuggingFaceOptions(filters="too-longg"))


def test_the_fallback_is_used_where_no_candidate_is_safe() -> None:
    request = GenerationRequest(ask("hi"), Prompt((), (), tokens=(1, 2, 3)), 3, Provenance("hf:x"))
    generation = Generation((7, 8, 9), "I will kill you", logprob=-4.0, count=4, score=-1.0, finished=True)
    policy = FilterPolicy(make_filters("safety"), "Well.", 5)
    drawn = DrawnCandidates(request, DecodingConfig(), policy, WordTokenizer(["well"]))
    drawn.add([generation])
    reply = drawn.choose_reply(0.1)
    assert (reply.text, reply.note) == ("Well.", "no candidate could be used: used the fallback text")
    assert [c.dropped for c in reply.candidates] == ["unsafe: threat"]


def test_another_attempt_is_another_reply(models: dict[str, ChatModel]) -> None:
    ranked = HuggingFaceBot(models["chat"], RANKED.model_copy(update={"filters": "none"}))
    first, second = (ranked.reply([ask("hi", attempt=n)])[0] for n in (1, 2))
    assert first.text != second.text
    sampled = HuggingFaceBot(models["chat"], HuggingFaceOptions(temperature=2, top_p=1, max_tokens=8))
    assert len({sampled.reply([ask("hi", attempt=n)])[0].text for n in range(1, 6)}) > 3


def test_given_replies_are_scored_by_likelihood(model: ChatModel) -> None:
    given = [["yes", "I like the sea", ""], [], ["no"]]
    for score in ("mean", "sum"):
        bot = HuggingFaceBot(model, HuggingFaceOptions(score=score))
        assert isinstance(bot, RankingBot)
        results = bot.score(ASKS, given)
        assert [len(part) for part in results] == [3, 0, 1]
        for one, texts, scores in zip(ASKS, given, results, strict=True):
            prompt = fit_prompt(model, one, bot.options)
            for text, value in zip(texts, scores, strict=True):
                assert value == pytest.approx(likelihood(model, prompt, text, mean=score == "mean"), abs=1e-4)


def likelihood(model: ChatModel, prompt: list[int], text: str, *, mean: bool) -> float:
    """In one pass without a cache."""
    tokens = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        if model.seq2seq:
            decoder_ids = torch.tensor([[*model.lm.decoder_prefix, *tokens]])
            logits = model.model(input_ids=torch.tensor([prompt]), decoder_input_ids=decoder_ids).logits[0]
        else:
            logits = model.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0]
    logprobs = logits[-len(tokens) - 1 :].log_softmax(-1)
    (end,) = model.end_tokens
    values = [float(logprobs[i, token]) for i, token in enumerate([*tokens, end])]
    return sum(values) / (len(values) if mean else 1)


def test_blenderbot_gets_persona_and_turns_in_one_line(models: dict[str, ChatModel]) -> None:
    there = ask("hi", "hello", "and you?", persona=Persona(("I sail.", "I cook."), name="Ana"))
    tokens = fit_prompt(models["blenderbot"], there, HuggingFaceOptions())
    assert models["blenderbot"].decode(tokens) == "your persona: I sail.  your persona: I cook.  hi  hello  and you?"
    theirs = replace(there, dialogue=replace(there.dialogue, personas={"ana": Persona(("I bake.",))}))
    tokens = fit_prompt(models["blenderbot"], theirs, RANKED)
    assert models["blenderbot"].decode(tokens) == "partner's persona: I bake.  hi  hello  and you?"


def test_a_long_conversation_fits_the_windows_of_encoder_and_decoder(tiny_models: Any) -> None:
    """An encoder's window is for the conversation alone, a decoder's for the reply."""
    long = ask(*[f"turn number {i}" for i in range(31)])
    model = ChatModel.load(str(tiny_models.make_seq2seq("narrow", window=64)))
    tokens = fit_prompt(model, long, HuggingFaceOptions(max_tokens=62))
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
    for one in (ask("hi"), ask("a good deal longer than the window is"), ask("hi", max_tokens=31)):
        (reply,) = bot.reply([one])
        assert reply.usage is not None
        assert reply.usage.prompt + reply.usage.completion <= 32


def test_the_specification_names_the_method(tiny_models: Any) -> None:
    for folder in (tiny_models.make("chat"), tiny_models.make_seq2seq("bart", kind="Bart")):
        bot = make_bot(f"hf:{folder}?method=sample-and-rank&samples=4&preset=meena-base&max_tokens=6&filters=empty")
        (reply,) = bot.reply([ask("hi")])
        assert 0 < len(reply.candidates) <= 4
        assert reply.provenance.settings["temperature"] == 0.88


def test_a_model_without_a_language_modelling_head_is_rejected(tiny_models: Any, tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    with pytest.raises(BotError, match="cannot generate text: it is a BertForMaskedLM"):
        make_bot(f"hf:{tmp_path}")


def test_a_model_without_a_kv_cache_is_rejected(tiny_models: Any, tmp_path: Path) -> None:
    tokenizer = ChatModel.load(str(tiny_models.make("chat"))).tokenizer
    config = transformers.MambaConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, state_size=4)
    transformers.MambaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(BotError, match="has no cache of keys and values"):
        make_bot(f"hf:{tmp_path}")
