"""The conversation in a terminal, with a list of lines as its input and a recorder as its screen."""

import io
import json
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tertulia import sample
from tertulia.core.codec import dialogue_from_json, read_lines
from tertulia.core.dialogue import Dialogue, Persona
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.reply import Ask, Candidate, Piece, Provenance, Reply
from tertulia.talk.spec import make_bot
from tertulia.talk.terminal import ChatConfig, TerminalChat
from tertulia.talk.transcripts import read_persona, save_dialogue

DOWN = "openai:tiny?base_url=http://127.0.0.1:1/v1&retries=0"


class Recorder:
    """A screen that records what it is shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, Any]] = []

    def note(self, text: str) -> None:
        self.shown.append(("note", text))

    def error(self, message: str, hint: str) -> None:
        self.shown.append(("error", f"{message} {hint}"))

    def turn(self, speaker: str, text: str) -> None:
        self.shown.append((speaker, text))

    def bot_piece(self, text: str) -> None:
        self.shown.append(("piece", text))

    def bot_turn(self, text: str) -> None:
        self.shown.append(("bot_turn", text))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        assert all(len(row) == len(columns) for row in rows)
        self.shown.append(("table", [tuple(row) for row in rows]))

    def busy(self, activity: str, stop: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        @contextmanager
        def around() -> Iterator[None]:
            yield

        return around()

    def all(self, kind: str) -> list[Any]:
        return [content for k, content in self.shown if k == kind]

    def last(self, kind: str) -> Any:
        return self.all(kind)[-1]


class CountingBot:
    """Reports how many turns it saw and its seed, or says a fixed text; has three candidates."""

    spec, summary = "counting", "Counts."

    def __init__(self, says: str | None = None) -> None:
        self.says = says

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [self._reply(ask) for ask in asks]

    def _reply(self, ask: Ask) -> Reply:
        text = self.says if self.says is not None else f"saw {len(ask.dialogue.turns)}, seed {ask.seed}"
        candidates = (
            Candidate("no \x1b[1m way", 0.9, "rude", "t1"),
            Candidate(text, 0.5, None, "t2"),
            Candidate("meh", 0.25),
        )
        provenance = Provenance(self.spec, "abc", {"k": 3}, ask.seed)
        return Reply(text, provenance, candidates=candidates, note="a fine day", redraws=ask.seed and 2)


class StreamBot:
    """Streams the words of a text; `during` is called before each, as Ctrl-C would be."""

    spec, summary = "words", "Says words."

    def __init__(self, text: str, during: Callable[[int], None] = lambda n: None, *, listens: bool = True) -> None:
        self.text, self.during, self.listens = text, during, listens

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        raise AssertionError("a bot that streams is to be streamed")

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        text = ""
        for n, word in enumerate(self.text.split(" ")):
            self.during(n)
            if self.listens and not alive(0):
                yield Piece(0, "", Reply(text.rstrip(), Provenance(self.spec), finish="cancelled"))
                return
            text += word + " "
            yield Piece(0, word + " ")
        yield Piece(0, "", Reply(text.rstrip(), Provenance(self.spec)))


def make_chat(*lines: str | type[BaseException], bot: Any = None, **config: Any) -> tuple[TerminalChat, Recorder]:
    screen, typed = Recorder(), iter(lines)

    def read() -> str:
        line = next(typed, EOFError)
        if isinstance(line, str):
            return line
        raise line

    chat = TerminalChat(ChatConfig(**({"bot": "generic"} | config)), screen, read)
    if bot is not None:
        chat.bot = bot
    return chat, screen


def run_chat(*lines: str | type[BaseException], bot: Any = None, **config: Any) -> tuple[TerminalChat, Recorder]:
    chat, screen = make_chat(*lines, bot=bot, **config)
    chat.run()
    return chat, screen


def texts(chat: TerminalChat) -> list[tuple[str, str]]:
    return [(turn.speaker, turn.text) for turn in chat.dialogue().turns]


def saved(path: Path) -> list[Dialogue]:
    with path.open(encoding="utf-8") as lines:
        return list(read_lines(lines, dialogue_from_json))


def test_a_conversation() -> None:
    chat, screen = run_chat("Hello there.", "How are you?", "/quit", "never read")
    assert texts(chat) == [
        ("user", "Hello there."),
        ("bot", "ok"),
        ("user", "How are you?"),
        ("bot", "I don't know."),
    ]
    assert screen.all("bot_turn") == ["ok", "I don't know."]
    assert screen.last("note") == "Goodbye."


def test_end_of_input_leaves_and_an_interrupt_at_the_prompt_does_not() -> None:
    chat, screen = run_chat(KeyboardInterrupt, "Hello.")
    assert "Press Ctrl-D or type /quit to leave." in screen.all("note")
    assert len(texts(chat)) == 2
    assert screen.last("note") == "Goodbye."


def test_empty_lines_are_ignored_and_unusual_ones_are_sent() -> None:
    odd = ["👩‍👩‍👧", "שלום עולם", "<script>alert(1)</script> [bold]", "x" * 100_000]
    chat, _ = run_chat("", "   ", "\0", *odd, "a\0b\x1b[31m", "//etc is a folder")
    assert [t for s, t in texts(chat) if s == "user"] == [*odd, "ab[31m", "/etc is a folder"]


def test_each_ask_has_its_own_seed_and_the_full_dialogue() -> None:
    _, screen = run_chat("a", "b", bot=CountingBot(), seed=40)
    assert screen.all("bot_turn") == ["saw 1, seed 40", "saw 3, seed 41"]
    assert "Note: a fine day." in screen.all("note")


def test_replies_cannot_control_the_terminal() -> None:
    _, screen = run_chat("hi", "/history", "/why", bot=CountingBot("\x1b[2J\x07[red] \x9b31m"))
    assert screen.last("bot_turn") == "[2J[red] 31m"
    assert not {"\x1b", "\x07", "\x9b"} & set(str(screen.shown))


def test_unknown_commands_suggest_the_close_one() -> None:
    chat, screen = run_chat("/hsitory", "/HELP", "/", "/ hi")
    assert "There is no command called '/hsitory'. Did you mean '/history'?" in screen.all("error")[0]
    assert len(screen.all("error")) == 3
    assert texts(chat) == []
    usages = [usage.split()[0] for usage, _ in screen.last("table")]
    commands = ["/help", "/persona", "/evidence", "/undo", "/again", "/why", "/history", "/save", "/bot", "/quit"]
    assert usages == [*commands, "Ctrl-C", "//text"]


def test_undo_removes_message_and_reply() -> None:
    chat, screen = run_chat("one", "two", "/undo", bot=CountingBot())
    assert texts(chat) == [("user", "one"), ("bot", "saw 1, seed 0")]
    assert screen.all("note")[-2] == "Removed. The last turn is now: saw 1, seed 0"
    chat, screen = run_chat("one", "/undo", "/undo", bot=CountingBot())
    assert texts(chat) == []
    assert "Removed. The conversation is now empty." in screen.all("note")
    assert "nothing to remove" in screen.last("error")


def test_again_replaces_the_reply() -> None:
    chat, screen = run_chat("/again", "one", "/again", bot=CountingBot())
    assert "nothing to reply to yet" in screen.last("error")
    assert texts(chat) == [("user", "one"), ("bot", "saw 1, seed 1")]


def test_a_failed_regeneration_keeps_the_previous_reply() -> None:
    chat, screen = run_chat("one", f"/bot {DOWN}", "/again")
    assert "127.0.0.1:1 cannot be reached" in screen.last("error")
    assert texts(chat) == [("user", "one"), ("bot", "ok")]


def test_a_bot_error_is_shown_with_its_hint_and_the_conversation_continues() -> None:
    chat, screen = run_chat(f"/bot {DOWN}", "one", "/bot generic", "/again", "two?")
    assert len(screen.all("error")) == 1
    assert "Start the server, or give its address" in screen.last("error")
    assert "Type /again to ask the bot once more, /undo to remove your message." in screen.all("note")
    assert texts(chat) == [("user", "one"), ("bot", "ok"), ("user", "two?"), ("bot", "I don't know.")]


def test_a_message_without_a_reply_can_be_removed() -> None:
    chat, _ = run_chat(f"/bot {DOWN}", "one", "/undo")
    assert texts(chat) == []


def test_the_pieces_of_a_streaming_bot_are_shown() -> None:
    chat, screen = run_chat("hi", bot=StreamBot("so it goes"))
    assert screen.all("piece") == ["so ", "it ", "goes "]
    assert screen.all("bot_turn") == ["so it goes"]
    assert texts(chat)[-1] == ("bot", "so it goes")


def test_a_reply_can_be_stopped_and_its_text_is_kept() -> None:
    chat, screen = make_chat("hi", "/why")
    chat.bot = StreamBot("one two three", lambda n: chat.stop() if n == 2 else None)
    chat.run()
    assert screen.all("piece") == ["one ", "two "]
    assert texts(chat)[-1] == ("bot", "one two")
    assert chat.dialogue().turns[-1].meta["finish"] == "cancelled"
    assert any(note.startswith("Stopped. Type /again") for note in screen.all("note"))
    assert ("finish", "cancelled") in screen.last("table")


def test_a_reply_stopped_before_its_first_word_is_not_kept() -> None:
    chat, _ = make_chat("hi")
    chat.bot = StreamBot("one two", lambda n: chat.stop())
    chat.run()
    assert texts(chat) == [("user", "hi")]


def test_a_bot_that_ignores_the_stop_is_interrupted_the_second_time() -> None:
    chat, screen = make_chat("hi", "/bot generic", "still here?")
    chat.bot = StreamBot("one two three", lambda n: chat.stop(), listens=False)
    chat.run()
    assert screen.all("piece") == ["one "]
    assert "Stopped." in screen.all("note")
    assert texts(chat) == [("user", "hi"), ("user", "still here?"), ("bot", "I don't know.")]


def test_a_bot_that_cannot_stream_is_interrupted_at_once() -> None:
    chat, _ = make_chat()
    with pytest.raises(KeyboardInterrupt):
        chat.stop()


def test_an_empty_reply_is_reported_and_not_kept() -> None:
    chat, screen = run_chat("hi", bot=CountingBot("  "))
    assert texts(chat) == [("user", "hi")]
    assert "The bot's reply was empty. Type /again to ask it once more." in screen.all("note")


def test_a_stream_without_an_end_is_an_error() -> None:
    class Unfinished(StreamBot):
        def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
            yield Piece(0, "well")

    _, screen = run_chat("hi", bot=Unfinished(""))
    assert "stopped in the middle of its reply" in screen.last("error")


def test_why_shows_candidates_and_details() -> None:
    _, screen = run_chat("/why", "hi", "/why", bot=CountingBot(), seed=7)
    assert "has not said anything yet" in screen.last("error")
    candidates, details = screen.all("table")
    assert candidates == [
        ("0.900", "no [1m way", "dropped: rude", "t1"),
        ("0.500", "saw 1, seed 7", "chosen", "t2"),
        ("0.250", "meh", "scored lower", ""),
    ]
    facts = dict(details)
    assert (facts["bot"], facts["checkpoint"], facts["settings"], facts["seed"]) == ("counting", "abc", "k = 3", "7")
    assert (facts["time"], facts["redraws"]) == ("0.00 s", "2")


def test_why_describes_the_current_last_reply() -> None:
    _, screen = run_chat("one", "two", "/undo", "/why", bot=CountingBot())
    assert dict(screen.last("table"))["seed"] == "0"
    assert "redraws" not in dict(screen.last("table"))


def test_history_shows_all_turns() -> None:
    _, screen = run_chat("/history", "hi", "/history")
    assert "The conversation is empty." in screen.all("note")
    assert (screen.all("user"), screen.all("bot")) == (["hi"], ["ok"])


def test_the_persona_can_be_shown_extended_and_cleared() -> None:
    chat, screen = run_chat("/persona", "/persona I bake.", "/persona show", persona=("I sail.",))
    assert chat.persona == Persona(("I sail.", "I bake."))
    assert screen.last("note") == "Goodbye."
    assert screen.all("note").count("The bot's persona: I sail. I bake.") == 2
    assert chat.dialogue().personas["bot"].sentences == ("I sail.", "I bake.")
    chat, screen = run_chat("/persona clear", persona=("I sail.",))
    assert chat.dialogue().personas == {}
    assert "The bot has no persona." in screen.all("note")


def test_personas_from_the_sample() -> None:
    someone, other = sample.personas()[:2]
    chat, screen = run_chat(f"/persona sample:{other.id}", "/persona sample:nobody", persona=(f"sample:{someone.id}",))
    assert chat.persona == other
    assert any(someone.sentences[0] in note for note in screen.all("note"))
    assert "There is no persona in the sample called 'nobody'." in screen.last("error")
    with pytest.raises(UnknownName):
        make_chat(persona=("sample:nobody",))


def test_personas_from_files(tmp_path: Path) -> None:
    file = tmp_path / "someone.txt"
    file.write_bytes("\ufeffI sail.\r\n\n  I bake. \n".encode() + b"I \xff.\n")
    assert read_persona([str(file)]) == Persona(("I sail.", "I bake.", "I \ufffd."))
    assert read_persona([]) is None
    assert read_persona(["  ", ""]) is None
    assert read_persona(["I sail.", " I bake."]) == Persona(("I sail.", "I bake."))
    for sentence in ("我喜欢航海。", "I sail", "Sailor.", "I like and/or", "x y" * 5000):
        assert read_persona([sentence]) == Persona((sentence,))
    for missing in ("someone.txt", "no/such/folder", "./x"):
        with pytest.raises(UsageError, match="File not found"):
            read_persona([missing])


def test_the_bot_can_be_switched_and_a_wrong_one_changes_nothing() -> None:
    chat, screen = run_chat("hi", "/bot", "/bot generik", "/bot generic?to_statements=fine", "hi")
    assert "Did you mean 'generic'?" in screen.last("error")
    assert [t for s, t in texts(chat) if s == "bot"] == ["ok", "fine"]
    assert "generic" in dict(screen.last("table"))


def test_a_wrong_bot_or_path_fails_before_the_first_line(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        TerminalChat(ChatConfig(bot="x"), Recorder(), input)
    for name in ("", "a.parquet", "a.jsonl.gz"):
        with pytest.raises(UsageError):
            make_chat(save=tmp_path / name)


def test_saving(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "chats.jsonl"
    chat, screen = run_chat("hi", "/save", "again", bot=CountingBot(), save=path, persona=("I sail.",))
    [dialogue] = saved(path)
    assert dialogue == chat.dialogue()
    assert [turn.text for turn in dialogue.turns][::2] == ["hi", "again"]
    assert dialogue.personas == {"bot": Persona(("I sail.",))}
    assert dialogue.turns[1].source == ("t2",)
    assert dialogue.turns[1].meta["provenance"]["seed"] == 0
    assert dialogue.turns[1].meta["candidates"][0]["dropped"] == "rude"
    assert [note for note in screen.all("note") if note.startswith("Saved")] == [f"Saved to {path}."] * 2
    assert [f.name for f in path.parent.iterdir()] == ["chats.jsonl"]


def test_saving_keeps_all_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    before = b'{"id": "other", "turns": []}\n\xff damaged\n\n"chat-"\nno line end'
    path.write_bytes(before)
    path.chmod(0o640)
    chat, _ = run_chat("hi", "/save", "/save", "ho", save=path)
    lines = path.read_bytes()
    assert lines.startswith(before + b"\n")
    assert lines.count(chat.id.encode()) == 1
    assert json.loads(lines.splitlines()[-1])["turns"][2]["text"] == "ho"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    run_chat("second conversation", save=path)
    assert path.read_bytes().startswith(lines)


def test_saving_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    run_chat("hi", save=tmp_path / "link.jsonl")
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len(saved(tmp_path / "real.jsonl")) == 1


def test_an_empty_conversation_is_not_saved(tmp_path: Path) -> None:
    _, screen = run_chat("/save", save=tmp_path / "a.jsonl")
    assert "nothing to save" in screen.last("error")
    assert list(tmp_path.iterdir()) == []
    _, screen = run_chat("hi", "/save")
    assert "/save PATH" in screen.last("error")


def test_a_failed_save_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    _, screen = run_chat("hi", f"/save {tmp_path}/file/chat.jsonl", f"/save {tmp_path}", "/history")
    assert "Cannot write " in screen.all("error")[0]
    assert "is not a file" in screen.all("error")[1]
    assert screen.all("bot") == ["ok"]
    assert (tmp_path / "file").read_text() == "precious"


def test_a_conversation_whose_file_cannot_be_written_at_the_end_is_saved_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    chat, _ = make_chat("hi", save=tmp_path / "file" / "chat.jsonl")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"chat\.jsonl.*\n.*was saved to .*elsewhere") as caught:
        chat.run()
    [file] = (tmp_path / "elsewhere").iterdir()
    assert str(file) in caught.value.hint
    assert [turn.text for turn in saved(file)[0].turns][:1] == ["hi"]


def test_a_file_of_something_else_is_not_added_to(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("dear diary\n")
    with pytest.raises(UsageError, match="not a file of dialogues"):
        make_chat(save=tmp_path / "notes.jsonl")


def test_quit_does_not_leave_the_first_time_if_the_conversation_cannot_be_saved(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    chat, screen = make_chat("hi", "/quit", "/save " + str(tmp_path / "b.jsonl"), "/quit", save=folder / "a.jsonl")
    folder.write_text("a file where a folder should be")
    with pytest.raises(DataError, match="Cannot write"):
        chat.run()
    assert "/save PATH" in screen.last("error")
    assert saved(tmp_path / "b.jsonl") == [chat.dialogue()]


def test_a_crash_still_saves(tmp_path: Path) -> None:
    class Broken(CountingBot):
        def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
            raise ZeroDivisionError

    path = tmp_path / "a.jsonl"
    with pytest.raises(ZeroDivisionError):
        run_chat("precious words", bot=Broken(), save=path)
    assert saved(path)[0].turns[0].text == "precious words"


def test_save_dialogue_replaces_lone_surrogates(tmp_path: Path) -> None:
    save_dialogue(Dialogue("d", (), meta={"odd": "\ud800"}), tmp_path / "a.jsonl")
    assert saved(tmp_path / "a.jsonl")[0].meta == {"odd": "?"}


def test_a_person_as_the_bot(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("it is me\n"))
    chat, screen = run_chat("/bot human", "who?", "and now?")
    assert texts(chat) == [("user", "who?"), ("bot", "it is me"), ("user", "and now?")]
    assert "user: who?" in capsys.readouterr().out
    assert "The input ended" in screen.last("error")


def test_evidence_is_shown_changed_and_saved(tmp_path: Path) -> None:
    file, out = tmp_path / "moon.txt", tmp_path / "chat.jsonl"
    file.write_text("The moon is round.")
    chat, screen = run_chat("hi", "/evidence It is \x1b[1mgrey.", f"/evidence {file}x", evidence=(str(file),), save=out)
    notes = screen.all("note")
    assert "Evidence (moon.txt): The moon is round." in notes
    assert "Evidence: It is [1mgrey." in notes
    assert any("This bot ignores evidence" in note for note in notes)
    assert "File not found" in screen.last("error")
    assert [passage.text for passage in saved(out)[0].evidence] == ["The moon is round.", "It is [1mgrey."]
    chat.handle("/evidence clear")
    assert screen.last("note") == "The conversation has no evidence."
    assert chat.dialogue().evidence == ()


def test_documents_are_looked_up_and_shown(tmp_path: Path) -> None:
    (tmp_path / "moon.txt").write_text("The moon is round.")
    (tmp_path / "photo.txt").write_bytes(b"\0")
    spec = f"tfidf:sample?evidence=true&documents={tmp_path}&search=words"
    chat, screen = make_chat("Is the moon round?", "/why")
    chat.bot = make_bot(spec)
    chat.run()
    assert any("Skipped: photo.txt (not a text but a binary file)." in note for note in screen.all("note"))
    assert "Looked up: moon.txt#1. Type /why to read the passages." in screen.all("note")
    assert [("1.00", "moon.txt#1", "The moon is round.")] in screen.all("table")
    reply = chat.dialogue().turns[-1].meta
    assert reply["evidence"] == [{"text": "The moon is round.", "source": "moon.txt#1", "score": 1.0}]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="has no texts"):
        make_chat(documents=empty)
