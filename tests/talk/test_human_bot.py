"""The human bot, with text streams in place of the terminal."""

import io

import pytest

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import BotError, ConfigError, UsageError
from tertulia.core.reply import Ask
from tertulia.talk.bot import Bot, StreamingBot
from tertulia.talk.bots.human import HumanBot, HumanOptions
from tertulia.talk.spec import make_bot


def human(typed: str, options: HumanOptions | None = None) -> tuple[HumanBot, io.StringIO]:
    screen = io.StringIO()
    return HumanBot(options, source=io.StringIO(typed), output=screen), screen


SO_FAR = Dialogue("d", (Turn("ana", "hi"), Turn("ben", "hello"), Turn("ana", "who are you?")))


def test_a_line_is_a_reply() -> None:
    bot, _ = human("I am Ben.\n")
    [reply] = bot.reply([Ask(SO_FAR, "ben", seed=3)])
    assert reply.text == "I am Ben."
    assert (reply.provenance.bot, reply.provenance.seed) == ("human", 3)
    assert reply.seconds > 0


def test_persona_and_conversation_are_shown() -> None:
    bot, screen = human("yes\n")
    dialogue = Dialogue("d", SO_FAR.turns, {"ben": Persona(("I sail.", "I bake."), name="Ben"), "ana": Persona(("x",))})
    bot.reply([Ask(dialogue, "ben")])
    shown = screen.getvalue().splitlines()
    assert shown[1:] == [
        "You are ben, Ben:",
        "  I sail.",
        "  I bake.",
        "ana: hi",
        "ben: hello",
        "ana: who are you?",
        "ben> ",
    ]


def test_the_number_of_turns_shown_is_an_option() -> None:
    bot, screen = human("yes\n", HumanOptions(turns=1))
    bot.reply([Ask(SO_FAR, "ben")])
    assert "(2 earlier turns)\nana: who are you?\nben> " in screen.getvalue()
    bot, screen = human("yes\n", HumanOptions(turns=9))
    bot.reply([Ask(SO_FAR, "ben")])
    assert "earlier" not in screen.getvalue()


def test_the_person_may_open_the_conversation() -> None:
    bot, screen = human("hello?\n")
    assert bot.reply([Ask(Dialogue("d", ()))])[0].text == "hello?"
    assert "you open the conversation" in screen.getvalue()


def test_after_an_empty_line_the_prompt_is_repeated() -> None:
    bot, screen = human("\n   \n\0\nat last\n")
    assert bot.reply([Ask(SO_FAR, "ben")])[0].text == "at last"
    assert screen.getvalue().count("ben> ") == 4


def test_a_batch_is_answered_in_order() -> None:
    bot, _ = human("one\ntwo\n")
    assert [r.text for r in bot.reply([Ask(SO_FAR, "ben"), Ask(SO_FAR, "ana")])] == ["one", "two"]


@pytest.mark.parametrize("typed", ["", "\n\n"])
def test_the_end_of_the_input_is_an_error(typed: str) -> None:
    bot, _ = human(typed)
    with pytest.raises(BotError, match="The input ended") as caught:
        bot.reply([Ask(SO_FAR, "ben")])
    assert caught.value.hint


def test_the_last_line_may_lack_a_line_break() -> None:
    bot, _ = human("no line end")
    assert bot.reply([Ask(SO_FAR, "ben")])[0].text == "no line end"


def test_unusual_text_is_kept_and_cannot_control_the_terminal() -> None:
    long = "x" * 100_000
    bot, screen = human(f"שלום 👋 <b>\0</b> {long}\n")
    dialogue = Dialogue("d", (Turn("a\x1b[2J", "\x1b]0;title\x07 \x9b31m שלום [red]"),))
    assert bot.reply([Ask(dialogue)])[0].text == f"שלום 👋 <b></b> {long}"
    assert "a[2J: ]0;title 31m שלום [red]\n" in screen.getvalue()
    assert not {"\x1b", "\x07", "\x9b"} & set(screen.getvalue())


def test_from_a_specification_it_uses_the_standard_streams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bot = make_bot("human?turns=1")
    assert isinstance(bot, Bot)
    assert not isinstance(bot, StreamingBot)
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    assert bot.reply([Ask(SO_FAR, "ben")])[0].text == "hi"
    assert "ana: who are you?" in capsys.readouterr().out
    with pytest.raises(UsageError, match="nothing after the colon"):
        make_bot("human:ana")
    with pytest.raises(ConfigError, match="turns"):
        make_bot("human?turns=-1")
