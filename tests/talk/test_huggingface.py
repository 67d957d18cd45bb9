from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.core.dialogue import Dialogue, Evidence, Persona, Turn  # noqa: E402
from tertulia.core.errors import BotError, ConfigError, UsageError  # noqa: E402
from tertulia.core.reply import Ask, Piece, Reply  # noqa: E402
from tertulia.models.generator import State  # noqa: E402
from tertulia.models.hf.chat_model import ChatModel  # noqa: E402
from tertulia.models.tokenizer import END  # noqa: E402
from tertulia.talk.bot import StreamingBot  # noqa: E402
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions, fit_prompt  # noqa: E402
from tertulia.talk.spec import make_bot  # noqa: E402


@pytest.fixture(scope="module")
def bot(tiny_models: Any) -> HuggingFaceBot:
    options = HuggingFaceOptions(temperature=0.9, max_tokens=24, instructions="")
    chat = ChatModel.load(str(tiny_models.make("chat")))
    chat.model.double()  # so that a batch and a single row give the same tokens
    return HuggingFaceBot(chat, options)


def ask(*texts: str, seed: int = 0, persona: Persona | None = None, **options: Any) -> Ask:
    turns = tuple(Turn(("ana", "bot")[i % 2], text) for i, text in enumerate(texts))
    return Ask(Dialogue("d", turns, {"bot": persona} if persona else {}), seed=seed, options=options)


ASKS = [ask("how are you", seed=1), ask("hi", seed=2), ask("hi", "hello", "and the sea? 🙂", seed=3), ask(seed=4)]


def pieces(bot: HuggingFaceBot, asks: list[Ask]) -> tuple[list[list[str]], list[Reply]]:
    texts: list[list[str]] = [[] for _ in asks]
    replies: dict[int, Reply] = {}
    for piece in bot.stream(asks, alive=lambda _: True):
        assert piece.index not in replies, "nothing comes after the complete reply"
        texts[piece.index].append(piece.text)
        if piece.reply:
            replies[piece.index] = piece.reply
    return texts, [replies[i] for i in range(len(asks))]


def same(one: Reply, other: Reply) -> bool:
    return (one.text, one.finish, one.usage, one.provenance) == (
        other.text,
        other.finish,
        other.usage,
        other.provenance,
    )


def test_it_is_a_streaming_bot(bot: HuggingFaceBot) -> None:
    assert isinstance(bot, StreamingBot)


def test_pieces_join_to_the_text_of_the_reply(bot: HuggingFaceBot) -> None:
    many = [ask("say something", seed=s) for s in range(40)]
    texts, replies = pieces(bot, many)
    assert ["".join(t) for t in texts] == [r.text for r in replies]
    assert any(len(t) > 5 for t in texts)
    assert len({r.text for r in replies}) > 10


@pytest.fixture
def scripted(bot: HuggingFaceBot, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes a bot that generates a given text, token by token, and then ends."""

    def make(script: str) -> HuggingFaceBot:
        scripted = HuggingFaceBot(bot.chat, HuggingFaceOptions(min_tokens=0))
        tokens = iter([*scripted.model.tokenizer.encode(script), END])
        step = scripted.generator.step

        def forced(state: State, last: Any) -> tuple[Any, State]:
            logits, state = step(state, last)
            logits[:, next(tokens)] = 1e6
            return logits, state

        monkeypatch.setattr(scripted.generator, "step", forced)
        return scripted

    return make


@pytest.mark.parametrize("script", ["añ🙂 é", "👩‍👩‍👧", "नमस्ते", "שָׁלוֹם"])
def test_no_incomplete_characters_are_streamed(scripted: Any, script: str) -> None:
    (texts,), (reply,) = pieces(scripted(script), [ask("hi")])
    assert "".join(texts) == reply.text == script
    assert not any("\ufffd" in text for text in texts)
    assert len(texts) > 2


@pytest.mark.parametrize(
    ("script", "text"), [("  hi \n", "hi"), ("\n\nso  be\nit  ", "so  be\nit"), (" ", ""), ("", "")]
)
def test_leading_and_trailing_blanks_are_stripped(scripted: Any, script: str, text: str) -> None:
    (texts,), (reply,) = pieces(scripted(script), [ask("hi")])
    assert "".join(texts) == reply.text == text


@pytest.mark.parametrize(
    ("script", "stops", "text"),
    [
        ("one two three", [" two"], "one"),
        ("one two three", ["three", "two"], "one"),
        ("one two thr", ["three"], "one two thr"),
        ("one two", ["one"], ""),
        ("aaab", ["aab"], "a"),
        ("ana\nben: hi", ["\nben:"], "ana"),
        ("so 🙂 it is", ["🙂"], "so"),
    ],
)
def test_stop_sequences(scripted: Any, script: str, stops: list[str], text: str) -> None:
    (texts,), (reply,) = pieces(scripted(script), [ask("hi", stop=stops)])
    assert "".join(texts) == reply.text == text
    assert reply.finish == "stop"


def test_a_reply_is_what_the_stream_gives(bot: HuggingFaceBot) -> None:
    _, streamed = pieces(bot, ASKS)
    assert all(same(a, b) for a, b in zip(bot.reply(ASKS), streamed, strict=True))
    assert bot.reply([]) == []


def test_a_reply_does_not_depend_on_the_batch(bot: HuggingFaceBot) -> None:
    together = bot.reply(ASKS)
    assert all(same(together[i], bot.reply([one])[0]) for i, one in enumerate(ASKS))
    assert all(same(a, b) for a, b in zip(bot.reply(ASKS[::-1])[::-1], together, strict=True))


def test_the_same_seed_gives_the_same_reply(bot: HuggingFaceBot) -> None:
    one, again, other = bot.reply([ask("hi", seed=1), ask("hi", seed=1), ask("hi", seed=2)])
    assert one.text == again.text != other.text


def test_temperature_zero_agrees_with_generate(bot: HuggingFaceBot) -> None:
    one = ask("how are you", temperature=0, repetition_penalty=1, max_tokens=20)
    (reply,) = bot.reply([one])
    chat = bot.chat
    prompt = chat.prompt([{"role": "user", "content": "how are you"}])
    expected = chat.model.generate(
        input_ids=torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=20,
        pad_token_id=0,
        eos_token_id=sorted(chat.end_tokens),
    )[0, len(prompt) :]
    assert reply.text == chat.decode(expected.tolist()).strip()
    assert reply.usage is not None
    assert reply.usage.prompt == len(prompt)


def test_max_tokens_ends_a_reply_as_length(bot: HuggingFaceBot) -> None:
    replies = [r for r in bot.reply([ask("hi", seed=s, max_tokens=3) for s in range(10)]) if r.finish == "length"]
    assert replies
    assert {r.usage.completion for r in replies if r.usage} == {3}
    assert replies[0].provenance.settings["max_tokens"] == 3


def test_a_stop_sequence_ends_a_reply_and_is_never_prompt_text(bot: HuggingFaceBot) -> None:
    plain = next(r.text for s in range(50) if len(set((r := bot.reply([ask("hi", seed=s)])[0]).text)) > 8)
    seed = next(s for s in range(50) if bot.reply([ask("hi", seed=s)])[0].text == plain)
    for width in (1, 2, 3):
        stop = plain[4 : 4 + width]
        for stops in (stop, [stop, "never written"], ["", stop]):
            texts, (reply,) = pieces(bot, [ask("hi", seed=seed, stop=stops)])
            assert reply.text == plain[: plain.index(stop)].rstrip()
            assert "".join(texts[0]) == reply.text
            assert reply.finish == "stop"


def test_a_partial_stop_sequence_at_the_end_is_prompt_text(bot: HuggingFaceBot) -> None:
    plain = next(r for s in range(50) if (r := bot.reply([ask("hi", seed=s)])[0]).finish == "length" and r.text)
    assert plain.provenance.seed is not None
    texts, (reply,) = pieces(bot, [ask("hi", seed=plain.provenance.seed, stop=[plain.text[-1] + "more"])])
    assert reply.text == "".join(texts[0]) == plain.text


def test_a_stop_sequence_does_not_affect_other_replies(bot: HuggingFaceBot) -> None:
    plain = bot.reply(ASKS)
    stop = plain[0].text[2]
    first, *others = bot.reply([ask("how are you", seed=1, stop=stop), *ASKS[1:]])
    assert first.text == plain[0].text[: plain[0].text.index(stop)].rstrip()
    assert [r.text for r in others] == [r.text for r in plain[1:]]


def test_a_reply_can_be_cancelled(bot: HuggingFaceBot) -> None:
    asks = [ask("how are you", seed=1, temperature=2, top_p=1), ask("hi", seed=2, temperature=2, top_p=1)]
    received: list[Piece] = []
    for piece in bot.stream(asks, alive=lambda i: i != 1 or len([p for p in received if p.index == 1]) < 2):
        received.append(piece)
    replies = {p.index: p.reply for p in received if p.reply}
    assert replies[1].finish == "cancelled"
    assert replies[1].usage is not None
    assert replies[1].usage.completion < 24
    assert "".join(p.text for p in received if p.index == 1) == replies[1].text
    assert same(replies[0], bot.reply(asks[:1])[0])


def test_provenance(bot: HuggingFaceBot) -> None:
    (reply,) = bot.reply([ask("hi", seed=9, temperature=0.1, unknown="ignored", top_k=None)])
    assert reply.provenance.bot.startswith("hf:")
    assert reply.provenance.seed == 9
    settings = reply.provenance.settings
    assert settings["temperature"] == 0.1
    expected = bot.options.model_dump(exclude={"temperature", "filters", "threads", "device", "prefix_cache_mb"})
    assert {name: settings[name] for name in expected} == expected
    assert settings["filters"] == "none"
    assert reply.seconds > 0


def test_the_repetition_penalty_reaches_the_decoder(bot: HuggingFaceBot) -> None:
    plain, penalised = (
        bot.reply([ask("hi", seed=seed, min_tokens=24, repetition_penalty=penalty) for seed in range(10)])
        for penalty in (1, 3)
    )
    assert [reply.text for reply in plain] != [reply.text for reply in penalised]
    assert penalised[0].provenance.settings["repetition_penalty"] == 3


def test_options_out_of_range_are_rejected(bot: HuggingFaceBot) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        bot.reply([ask("hi", temperature=9)])


def prompt_text(bot: HuggingFaceBot, one: Ask, **options: Any) -> str:
    tokens = fit_prompt(bot.chat, one, bot.options.model_copy(update=options))
    return str(bot.chat.tokenizer.decode(tokens, skip_special_tokens=False))


def test_the_persona_goes_into_the_system_turn(bot: HuggingFaceBot) -> None:
    one = ask("hi", persona=Persona(("I sail.",), name="Ana"))
    start = "<|system|>Your name is Ana. About you: I sail. Be brief.<|end|><|user|>hi<|end|>"
    assert prompt_text(bot, one, instructions="Be brief.") == start + "<|assistant|>"


def test_the_oldest_turns_of_long_conversations_are_dropped(bot: HuggingFaceBot) -> None:
    turns = [f"turn number {i}" for i in range(60)]
    text = prompt_text(bot, ask(*turns, persona=Persona(("I sail.",))), context_tokens=120)
    assert text.startswith("<|system|>About you: I sail.<|end|>")
    assert "turn number 0<" not in text
    assert text.endswith("turn number 59<|end|><|assistant|>")
    assert len(fit_prompt(bot.chat, ask(*turns), bot.options)) <= 512 - 24


def test_the_end_of_a_long_turn_is_kept(bot: HuggingFaceBot) -> None:
    text = prompt_text(bot, ask("x" * 5000 + " the end"), context_tokens=64)
    assert text.endswith("x the end<|end|><|assistant|>")
    assert len(fit_prompt(bot.chat, ask("x" * 5000), bot.options)) <= 512 - 24


def test_long_conversations_are_answered(bot: HuggingFaceBot) -> None:
    replies = bot.reply([ask(*[f"turn number {i}" for i in range(200)]), ask("x" * 5000), ask("hi")])
    assert all(r.usage and r.usage.prompt <= 512 - 24 for r in replies)


def test_a_small_window_holds_prompt_and_reply(tiny_models: Any) -> None:
    """A model with learned positions cannot go a token past its window."""
    folder = tiny_models.make("small", template=None, window=32, learned_positions=True)
    small = HuggingFaceBot(ChatModel.load(str(folder)))
    for one in (ask("hi"), ask("a good deal longer than the window is"), ask("hi", max_tokens=31)):
        (reply,) = small.reply([one])
        assert reply.usage is not None
        assert reply.usage.prompt >= 1
        assert reply.usage.prompt + reply.usage.completion <= 32


def test_templates_that_require_the_user_to_speak_first(tiny_models: Any) -> None:
    """Many models' templates reject a conversation that the assistant opened."""
    strict = (
        "{% for m in messages if m.role != 'system' %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    )
    strict_bot = HuggingFaceBot(ChatModel.load(str(tiny_models.make("strict", template=strict))))
    opened = Ask(Dialogue("d", (Turn("bot", "hello"), Turn("ana", "hi"))), options={"max_tokens": 4})
    long = ask(*[f"turn number {i}" for i in range(31)], max_tokens=4, context_tokens=100)
    assert len(strict_bot.reply([opened, long])) == 2


def test_a_template_that_raises_is_a_clear_error(tiny_models: Any) -> None:
    folder = tiny_models.make("refusing", template="{{ raise_exception('no system turn, please') }}")
    with pytest.raises(BotError, match="rejects this conversation: no system turn, please"):
        HuggingFaceBot(ChatModel.load(str(folder))).reply([ask("hi")])


def test_the_specification_names_a_folder(tiny_models: Any) -> None:
    folder = tiny_models.make("chat")
    bot = make_bot(f"hf:{folder}?temperature=0&max_tokens=4")
    assert bot.spec == f"hf:{folder}"
    assert bot.summary == f"The chat model {folder.name}."  # not where it is: visitors see this
    assert len(bot.reply([ask("hi")])) == 1


def test_a_wrong_specification_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a model"):
        make_bot("hf")
    with pytest.raises(BotError, match="No chat model could be loaded"):
        make_bot(f"hf:{tmp_path / 'gone'}")
    with pytest.raises(BotError, match="No chat model could be loaded"):
        make_bot("hf:nobody/no-such-model")


def test_evidence_is_in_the_prompt_and_leaves_room_for_the_conversation(bot: HuggingFaceBot) -> None:
    turns = tuple(Turn(("ana", "bot")[i % 2], f"turn {i}") for i in range(9))
    options = HuggingFaceOptions(context_tokens=400, max_tokens=24, instructions="")
    given = Ask(Dialogue("d", turns, evidence=(Evidence("The lamp is red."),)))
    prompt = bot.chat.decode(fit_prompt(bot.chat, given, options))
    assert "Passages with facts to base your answer on:\n- The lamp is red." in prompt
    assert "turn 8" in prompt
    silent = options.model_copy(update={"evidence_words": 0})
    assert "lamp" not in bot.chat.decode(fit_prompt(bot.chat, given, silent))
    endless = Ask(Dialogue("d", turns, evidence=(Evidence("灯台" * 5_000),)))
    tokens = fit_prompt(bot.chat, endless, options)
    assert len(tokens) <= 400
    assert bot.chat.decode(tokens).count("turn") >= 5
    assert bot.traits.reads_evidence
