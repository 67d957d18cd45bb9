from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tertulia.core.dialogue import Dialogue, Persona, Turn  # noqa: E402
from tertulia.core.errors import BotError, ConfigError, UsageError  # noqa: E402
from tertulia.core.reply import Ask, Piece, Reply  # noqa: E402
from tertulia.models.huggingface import ChatModel, Written  # noqa: E402
from tertulia.talk.bot import StreamingBot  # noqa: E402
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions, fitting_prompt  # noqa: E402
from tertulia.talk.spec import make_bot  # noqa: E402


@pytest.fixture(scope="module")
def bot(tiny_models: Any) -> HuggingFaceBot:
    options = HuggingFaceOptions(temperature=0.9, max_tokens=24, instructions="")
    return HuggingFaceBot(ChatModel.load(str(tiny_models.make("chat"))), options)


def ask(*said: str, seed: int = 0, persona: Persona | None = None, **options: Any) -> Ask:
    turns = tuple(Turn(("ana", "bot")[i % 2], text) for i, text in enumerate(said))
    return Ask(Dialogue("d", turns, {"bot": persona} if persona else {}), seed=seed, options=options)


ASKS = [ask("how are you", seed=1), ask("hi", seed=2), ask("hi", "hello", "and the sea? 🙂", seed=3), ask(seed=4)]


def pieces(bot: HuggingFaceBot, asks: list[Ask]) -> tuple[list[list[str]], list[Reply]]:
    texts: list[list[str]] = [[] for _ in asks]
    replies: dict[int, Reply] = {}
    for piece in bot.stream(asks, alive=lambda _: True):
        assert piece.index not in replies, "nothing comes after the whole reply"
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


class Scripted(ChatModel):
    """Writes what it is told to, token by token."""

    script = ""

    def write(self, prompts: Any, sampling: Any, alive: Any) -> Iterator[Written]:
        for token in self.tokenizer(self.script)["input_ids"]:
            if not alive(0):
                yield Written(0, None, "cancelled")
                return
            yield Written(0, token)
        yield Written(0, None, "stop")


@pytest.fixture
def scripted(bot: HuggingFaceBot) -> HuggingFaceBot:
    return HuggingFaceBot(Scripted(bot.model.model, bot.model.tokenizer, name="scripted"))


@pytest.mark.parametrize("script", ["añ🙂 é", "👩‍👩‍👧", "नमस्ते", "שָׁלוֹם"])
def test_characters_come_whole_though_their_bytes_come_one_by_one(scripted: HuggingFaceBot, script: str) -> None:
    scripted.model.script = script  # type: ignore[attr-defined]
    (texts,), (reply,) = pieces(scripted, [ask("hi")])
    assert "".join(texts) == reply.text == script
    assert not any("\ufffd" in text for text in texts)
    assert len(texts) > 2


@pytest.mark.parametrize(
    ("script", "text"), [("  hi \n", "hi"), ("\n\nso  be\nit  ", "so  be\nit"), (" ", ""), ("", "")]
)
def test_blanks_at_the_ends_are_not_part_of_a_reply(scripted: HuggingFaceBot, script: str, text: str) -> None:
    scripted.model.script = script  # type: ignore[attr-defined]
    (texts,), (reply,) = pieces(scripted, [ask("hi")])
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
def test_stop_words(scripted: HuggingFaceBot, script: str, stops: list[str], text: str) -> None:
    scripted.model.script = script  # type: ignore[attr-defined]
    (texts,), (reply,) = pieces(scripted, [ask("hi", stop=stops)])
    assert "".join(texts) == reply.text == text
    assert reply.finish == "stop"


def test_reply_is_the_stream_waited_for(bot: HuggingFaceBot) -> None:
    _, streamed = pieces(bot, ASKS)
    assert all(same(a, b) for a, b in zip(bot.reply(ASKS), streamed, strict=True))
    assert bot.reply([]) == []


def test_a_reply_does_not_depend_on_its_batch(bot: HuggingFaceBot) -> None:
    together = bot.reply(ASKS)
    assert all(same(together[i], bot.reply([one])[0]) for i, one in enumerate(ASKS))
    assert all(same(a, b) for a, b in zip(bot.reply(ASKS[::-1])[::-1], together, strict=True))


def test_the_seed_decides(bot: HuggingFaceBot) -> None:
    one, again, other = bot.reply([ask("hi", seed=1), ask("hi", seed=1), ask("hi", seed=2)])
    assert one.text == again.text != other.text


def test_greedy_is_what_generate_does(bot: HuggingFaceBot) -> None:
    wish = ask("how are you", temperature=0, repetition_penalty=1, max_tokens=20)
    (reply,) = bot.reply([wish])
    model = bot.model
    prompt = model.prompt([{"role": "user", "content": "how are you"}])
    whole = model.model.generate(
        input_ids=torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=20,
        pad_token_id=0,
        eos_token_id=sorted(model.ends),
    )[0, len(prompt) :]
    assert reply.text == model.decode(whole.tolist()).strip()
    assert reply.usage is not None
    assert reply.usage.prompt == len(prompt)


def test_max_tokens_ends_a_reply_as_length(bot: HuggingFaceBot) -> None:
    replies = [r for r in bot.reply([ask("hi", seed=s, max_tokens=3) for s in range(10)]) if r.finish == "length"]
    assert replies
    assert {r.usage.completion for r in replies if r.usage} == {3}
    assert replies[0].provenance.settings["max_tokens"] == 3


def test_stop_words_end_a_reply_and_are_never_shown(bot: HuggingFaceBot) -> None:
    plain = next(r.text for s in range(50) if len(set((r := bot.reply([ask("hi", seed=s)])[0]).text)) > 8)
    seed = next(s for s in range(50) if bot.reply([ask("hi", seed=s)])[0].text == plain)
    for width in (1, 2, 3):
        stop = plain[4 : 4 + width]
        for stops in (stop, [stop, "never written"], ["", stop]):
            texts, (reply,) = pieces(bot, [ask("hi", seed=seed, stop=stops)])
            assert reply.text == plain[: plain.index(stop)].rstrip()
            assert "".join(texts[0]) == reply.text
            assert reply.finish == "stop"


def test_a_stop_word_half_written_at_the_end_is_shown(bot: HuggingFaceBot) -> None:
    plain = next(r for s in range(50) if (r := bot.reply([ask("hi", seed=s)])[0]).finish == "length" and r.text)
    assert plain.provenance.seed is not None
    texts, (reply,) = pieces(bot, [ask("hi", seed=plain.provenance.seed, stop=[plain.text[-1] + "more"])])
    assert reply.text == "".join(texts[0]) == plain.text


def test_stopping_one_leaves_the_others_alone(bot: HuggingFaceBot) -> None:
    plain = bot.reply(ASKS)
    stop = plain[0].text[2]
    first, *others = bot.reply([ask("how are you", seed=1, stop=stop), *ASKS[1:]])
    assert first.text == plain[0].text[: plain[0].text.index(stop)].rstrip()
    assert [r.text for r in others] == [r.text for r in plain[1:]]


def test_a_reply_nobody_waits_for_is_cancelled(bot: HuggingFaceBot) -> None:
    wishes = [ask("how are you", seed=1, temperature=2, top_p=1), ask("hi", seed=2, temperature=2, top_p=1)]
    heard: list[Piece] = []
    for piece in bot.stream(wishes, alive=lambda i: i != 1 or len([p for p in heard if p.index == 1]) < 2):
        heard.append(piece)
    replies = {p.index: p.reply for p in heard if p.reply}
    assert replies[1].finish == "cancelled"
    assert replies[1].usage is not None
    assert replies[1].usage.completion < 24
    assert "".join(p.text for p in heard if p.index == 1) == replies[1].text
    assert same(replies[0], bot.reply(wishes[:1])[0])


def test_provenance(bot: HuggingFaceBot) -> None:
    (reply,) = bot.reply([ask("hi", seed=9, temperature=0.1, unknown="ignored", top_k=None)])
    assert reply.provenance.bot.startswith("hf:")
    assert reply.provenance.seed == 9
    assert reply.provenance.settings == bot.options.model_dump() | {"temperature": 0.1}
    assert reply.seconds > 0


def test_wishes_out_of_range_are_refused(bot: HuggingFaceBot) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        bot.reply([ask("hi", temperature=9)])


def shown(bot: HuggingFaceBot, wish: Ask, **options: Any) -> str:
    tokens = fitting_prompt(bot.model, wish, bot.options.model_copy(update=options))
    return str(bot.model.tokenizer.decode(tokens, skip_special_tokens=False))


def test_the_persona_goes_into_the_system_turn(bot: HuggingFaceBot) -> None:
    wish = ask("hi", persona=Persona(("I sail.",), name="Ana"))
    start = "<|system|>Your name is Ana. About you: I sail. Be brief.<|end|><|user|>hi<|end|>"
    assert shown(bot, wish, instructions="Be brief.") == start + "<|assistant|>"


def test_long_conversations_lose_their_oldest_turns(bot: HuggingFaceBot) -> None:
    said = [f"turn number {i}" for i in range(60)]
    text = shown(bot, ask(*said, persona=Persona(("I sail.",))), context_tokens=120)
    assert text.startswith("<|system|>About you: I sail.<|end|>")
    assert "turn number 0<" not in text
    assert text.endswith("turn number 59<|end|><|assistant|>")
    assert len(fitting_prompt(bot.model, ask(*said), bot.options)) <= 512 - 24


def test_one_turn_that_is_too_long_keeps_its_end(bot: HuggingFaceBot) -> None:
    text = shown(bot, ask("x" * 5000 + " the end"), context_tokens=64)
    assert text.endswith("x the end<|end|><|assistant|>")
    assert len(fitting_prompt(bot.model, ask("x" * 5000), bot.options)) <= 512 - 24


def test_long_conversations_are_answered(bot: HuggingFaceBot) -> None:
    replies = bot.reply([ask(*[f"turn number {i}" for i in range(200)]), ask("x" * 5000), ask("hi")])
    assert all(r.usage and r.usage.prompt <= 512 - 24 for r in replies)


def test_a_small_window_holds_prompt_and_reply(tiny_models: Any) -> None:
    """A model with learned positions cannot go a token past its window."""
    folder = tiny_models.make("small", template=None, window=32, learned_positions=True)
    small = HuggingFaceBot(ChatModel.load(str(folder)))
    for wish in (ask("hi"), ask("a good deal longer than the window is"), ask("hi", max_tokens=31)):
        (reply,) = small.reply([wish])
        assert reply.usage is not None
        assert reply.usage.prompt >= 1
        assert reply.usage.prompt + reply.usage.completion <= 32


def test_templates_that_insist_on_the_users_turn_first(tiny_models: Any) -> None:
    """Many models' templates refuse a conversation that the assistant opened."""
    strict = (
        "{% for m in messages if m.role != 'system' %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    )
    strict_bot = HuggingFaceBot(ChatModel.load(str(tiny_models.make("strict", template=strict))))
    opened = Ask(Dialogue("d", (Turn("bot", "hello"), Turn("ana", "hi"))), options={"max_tokens": 4})
    long = ask(*[f"turn number {i}" for i in range(31)], max_tokens=4, context_tokens=100)
    assert len(strict_bot.reply([opened, long])) == 2


def test_a_template_that_refuses_is_a_clear_error(tiny_models: Any) -> None:
    folder = tiny_models.make("refusing", template="{{ raise_exception('no system turn, please') }}")
    with pytest.raises(BotError, match="refuses this conversation: no system turn, please"):
        HuggingFaceBot(ChatModel.load(str(folder))).reply([ask("hi")])


def test_the_specification_names_a_folder(tiny_models: Any) -> None:
    folder = tiny_models.make("chat")
    bot = make_bot(f"hf:{folder}?temperature=0&max_tokens=4")
    assert bot.spec == f"hf:{folder}"
    assert str(folder) in bot.summary
    assert len(bot.reply([ask("hi")])) == 1


def test_a_wrong_specification_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a model"):
        make_bot("hf")
    with pytest.raises(BotError, match="No chat model could be loaded"):
        make_bot(f"hf:{tmp_path / 'gone'}")
    with pytest.raises(BotError, match="No chat model could be loaded"):
        make_bot("hf:nobody/no-such-model")
