"""A conversation with a bot in a terminal, line by line: each line is a message or a command.

The terminal itself stays outside: lines come from a function and all output goes to a `Screen`, so the same
conversation runs in a test, in a pipe and in colour. Text is cleaned of control characters here, before any screen sees
it. A message takes five calls from the command to the bot: `chat`, `run`, `handle`, `_reply`, `Bot.reply`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from tertulia import __version__
from tertulia.artefacts.outputs import Output
from tertulia.core.config import Cli, Config
from tertulia.core.describe import as_json, shown
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError, TertuliaError, UnknownName, UsageError
from tertulia.core.reply import Ask, Reply
from tertulia.core.text import clean
from tertulia.talk.bot import Bot, StreamingBot, traits_of
from tertulia.talk.evidence import DocumentsBot, check_size, evidence_remark, read_evidence
from tertulia.talk.registry import BOTS
from tertulia.talk.spec import make_bot, parse_spec
from tertulia.talk.transcripts import SAMPLE, check_target, read_persona, rescue_dialogue, save_dialogue

USER, BOT = "user", "bot"


class ChatConfig(Config):
    """Options of `tertulia chat`."""

    bot: Annotated[str, Cli(argument=True)] = Field(min_length=1)
    """The bot to talk to: name[:path or model][?option=value&...]."""
    persona: tuple[str, ...] = ()
    """Who the bot is: a sentence (repeat the option for more), sample:ID, or a file with one sentence per line."""
    evidence: tuple[str, ...] = ()
    """What the bot's replies should rest on: a text, or a file with one (repeat the option for more). A blank line
    separates passages."""
    documents: Path | None = None
    """A folder of .txt, .md and .jsonl files: for each reply, the passages that fit best are retrieved as evidence."""
    seed: int = 0
    """Random seed: the same seed and the same messages give the same conversation."""
    save: Annotated[Path | None, Output("file", "own")] = None
    """Append the conversation to this file of dialogues (JSON lines) when it ends."""


class Screen(Protocol):
    """Where the conversation is shown. All text is literal, never markup."""

    def note(self, text: str) -> None:
        """A remark of the program."""
        ...

    def error(self, message: str, hint: str) -> None:
        """Something went wrong; the conversation continues."""
        ...

    def turn(self, speaker: str, text: str) -> None:
        """An earlier turn."""
        ...

    def bot_piece(self, text: str) -> None:
        """A piece of the turn that the bot is generating."""
        ...

    def bot_turn(self, text: str) -> None:
        """The bot's complete turn; its pieces may have been shown already."""
        ...

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table."""
        ...

    def busy(self, activity: str, stop: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Around anything that may take a while; `stop` is called if the user interrupts it."""
        ...


class _ChatTurn(NamedTuple):
    """A turn, and the bot's reply behind it; None for turns of the user."""

    turn: Turn
    reply: Reply | None = None


class _Command(NamedTuple):
    usage: str
    summary: str
    run: Callable[[str], None]


class TerminalChat:
    """One conversation, from the first line to the last. It loads its bot when created, so a wrong one fails early."""

    def __init__(self, config: ChatConfig, screen: Screen, read: Callable[[], str]) -> None:
        self.config, self.screen, self.read = config, screen, read
        self.over = False
        self.persona = read_persona(config.persona)
        self.evidence = read_evidence(config.evidence)
        if config.save is not None:
            check_target(config.save)
        self.started = datetime.now(UTC)
        self.id = f"chat-{self.started:%Y%m%dT%H%M%S}-{token_hex(4)}"
        self._turns: list[_ChatTurn] = []
        self._ask_count = 0
        self._attempt = 1
        self._saved: dict[Path, Dialogue] = {}
        self._stopping = self._leaving = False
        self.bot = self._load(config.bot)
        self._commands = {
            "help": _Command("/help", "show this list", self._help),
            "persona": _Command(
                "/persona [SENTENCE | clear | show]", "show or change the bot's persona", self._persona
            ),
            "evidence": _Command("/evidence [TEXT | FILE | clear]", "show the evidence, or add to it", self._evidence),
            "undo": _Command("/undo", "remove the last message and its reply", self._undo),
            "again": _Command("/again", "replace the last reply with another one", self._again),
            "why": _Command("/why", "show how the last reply was produced", self._why),
            "history": _Command("/history", "show the conversation so far", self._history),
            "save": _Command("/save [PATH]", "save the conversation to a file", self._save),
            "bot": _Command("/bot [SPEC]", "list the bots, or switch to another one", self._bot),
            "quit": _Command("/quit", "leave", self._quit),
        }

    def run(self) -> None:
        """Talk until the user leaves or the input ends; the conversation is saved however it ends."""
        self.screen.note(clean(f"{self.bot.summary} Type /help for commands, Ctrl-D to leave."))
        if self.persona:
            self._persona("show")
        if self.evidence:
            self._show_evidence()
        if (self.evidence or isinstance(self.bot, DocumentsBot)) and (remark := evidence_remark(self.bot)):
            self.screen.note(clean(remark))
        try:
            while not self.over:
                try:
                    line = self.read()
                except EOFError:
                    self.over = True
                except KeyboardInterrupt:
                    self.screen.note("Press Ctrl-D or type /quit to leave.")
                else:
                    self.handle(line)
        finally:
            self._save_at_the_end()
        self.screen.note("Goodbye.")

    def handle(self, line: str) -> None:
        """Run the command or send the message on one line. Errors are shown, and the conversation continues."""
        text = clean(line).strip()
        try:
            if text.startswith("/") and not text.startswith("//"):
                name, _, argument = text.removeprefix("/").partition(" ")
                if name.lower() not in self._commands:
                    raise UnknownName("command", f"/{name}", [f"/{command}" for command in self._commands])
                self._commands[name.lower()].run(argument.strip())
            elif text:
                self._turns.append(_ChatTurn(Turn(USER, text.removeprefix("/") if text.startswith("//") else text)))
                self._reply(self._turns)
        except TertuliaError as error:
            self.screen.error(clean(error.message), clean(error.hint))
            if not text.startswith("/"):
                self.screen.note("Type /again to ask the bot once more, /undo to remove your message.")
        except KeyboardInterrupt:
            self.screen.note("Stopped.")

    def stop(self) -> None:
        """The user pressed Ctrl-C: the first time, ask a streaming bot to end its reply; otherwise interrupt it."""
        if self._stopping or not isinstance(self.bot, StreamingBot):
            raise KeyboardInterrupt
        self._stopping = True

    def dialogue(self, turns: Sequence[_ChatTurn] | None = None) -> Dialogue:
        """The conversation so far, or with these turns."""
        meta = {"made_by": f"tertulia chat {__version__}", "bot": self.bot.spec, "started": self.started.isoformat()}
        return Dialogue(
            self.id,
            tuple(one.turn for one in (self._turns if turns is None else turns)),
            {BOT: self.persona} if self.persona else {},
            self.evidence,
            meta=meta,
        )

    def _reply(self, context: Sequence[_ChatTurn], attempt: int = 1) -> None:
        """Let the bot reply to these turns. The conversation changes only when the reply is complete."""
        ask = Ask(self.dialogue(context), speaker=BOT, seed=self.config.seed + self._ask_count, attempt=attempt)
        self._attempt = attempt
        self._ask_count += 1
        self._stopping = False
        own_terminal = traits_of(self.bot).uses_terminal
        with nullcontext() if own_terminal else self.screen.busy("thinking", self.stop):
            reply = self._stream(self.bot, ask) if isinstance(self.bot, StreamingBot) else self.bot.reply([ask])[0]
            if reply.text.strip():
                self.screen.bot_turn(clean(reply.text))
        if reply.text.strip():
            self._turns = [*context, _ChatTurn(_turn_from(reply), reply)]
        for remark in _remarks(reply):
            self.screen.note(clean(remark))

    def _stream(self, bot: StreamingBot, ask: Ask) -> Reply:
        """Show the pieces of a reply as they arrive."""
        for piece in bot.stream([ask], alive=lambda _: not self._stopping):
            if piece.text:
                self.screen.bot_piece(clean(piece.text))
            if piece.reply is not None:
                return piece.reply
        raise TertuliaError(
            f"The bot {bot.spec!r} stopped in the middle of its reply.", hint="Type /again to ask it once more."
        )

    def _help(self, _: str) -> None:
        rows = [(command.usage, command.summary) for command in self._commands.values()]
        more = [("Ctrl-C", "stop generating"), ("//text", "send a message that begins with a slash")]
        self.screen.table("Commands", ("type", "to"), [*rows, *more])

    def _persona(self, argument: str) -> None:
        if argument == "clear":
            self.persona = None
        elif argument.startswith(SAMPLE):
            self.persona = read_persona([argument])
        elif argument not in ("", "show"):
            self.persona = Persona((*(self.persona.sentences if self.persona else ()), argument))
        if self.persona is None:
            self.screen.note("The bot has no persona.")
        else:
            name = f"{self.persona.name}: " if self.persona.name else ""
            self.screen.note(clean(f"The bot's persona: {name}{' '.join(self.persona.sentences)}"))

    def _evidence(self, argument: str) -> None:
        if argument == "clear":
            self.evidence = ()
        elif argument:
            evidence = (*self.evidence, *read_evidence([argument]))
            check_size(evidence)
            self.evidence = evidence
            if remark := evidence_remark(self.bot):
                self.screen.note(clean(remark))
        self._show_evidence()

    def _show_evidence(self) -> None:
        if not self.evidence:
            self.screen.note("The conversation has no evidence.")
        for passage in self.evidence:
            source = f" ({passage.source})" if passage.source else ""
            self.screen.note(clean(f"Evidence{source}: {_shorten(passage.text)}"))

    def _undo(self, _: str) -> None:
        if not self._turns:
            raise UsageError("There is nothing to remove.")
        while self._turns.pop().turn.speaker != USER:
            pass
        last = f"The last turn is now: {_shorten(self._turns[-1].turn.text)}" if self._turns else ""
        self.screen.note(f"Removed. {last or 'The conversation is now empty.'}")

    def _again(self, _: str) -> None:
        if not self._turns:
            raise UsageError("There is nothing to reply to yet.", hint="Type a message first.")
        if self._turns[-1].reply:
            self._reply(self._turns[:-1], self._attempt + 1)
        else:
            self._reply(self._turns)

    def _why(self, _: str) -> None:
        reply = next((one.reply for one in reversed(self._turns) if one.reply), None)
        if reply is None:
            raise UsageError("The bot has not said anything yet.")
        if reply.candidates:
            self.screen.table("Candidates", ("score", "reply", "verdict", "source"), _candidate_rows(reply))
        if reply.evidence:
            rows = [(f"{one.score:.2f}", one.source, clean(one.text)) for one in reply.evidence]
            self.screen.table("Passages", ("score", "source", "text"), rows)
        self.screen.table("Details", ("what", "value"), _detail_rows(reply))

    def _history(self, _: str) -> None:
        if not self._turns:
            self.screen.note("The conversation is empty.")
        for one in self._turns:
            self.screen.turn(one.turn.speaker, clean(one.turn.text))

    def _save(self, argument: str) -> None:
        path = Path(argument) if argument else self.config.save
        if path is None:
            raise UsageError("No file to save to.", hint="Type /save PATH, or start with --save PATH.")
        if not self._turns:
            raise UsageError("There is nothing to save yet.")
        dialogue = self.dialogue()
        save_dialogue(dialogue, path)
        self._saved[path] = dialogue
        self.screen.note(clean(f"Saved to {path}."))

    def _save_if_requested(self) -> None:
        """Save to the file of `--save`, unless it holds the conversation as it is now."""
        path = self.config.save
        if path is not None and self._turns and self._saved.get(path) != self.dialogue():
            self._save("")

    def _save_at_the_end(self) -> None:
        """Save as requested; a conversation whose file cannot be written is saved elsewhere rather than lost."""
        try:
            self._save_if_requested()
        except DataError as error:
            try:
                path = rescue_dialogue(self.dialogue())
            except DataError:
                self._history("")  # what can still be copied
                raise error from None
            raise DataError(error.message, hint=f"The conversation was saved to {path} instead.") from None

    def _bot(self, argument: str) -> None:
        if argument:
            self.bot = self._load(argument)
            self.screen.note(clean(f"You are now talking to {self.bot.spec}: {self.bot.summary}"))
        else:
            self.screen.note(clean(f"You are talking to {self.bot.spec}: {self.bot.summary}"))
            self.screen.table("Bots", ("name", "description"), [(row.name, row.summary) for row in BOTS.rows()])

    def _quit(self, _: str) -> None:
        """Leave. If saving fails, stay once, so that the user can save elsewhere."""
        if not self._leaving:
            self._leaving = True
            self._save_if_requested()
        self.over = True

    def _load(self, spec: str) -> Bot:
        folder = self.config.documents
        with self.screen.busy("loading the bot" if folder is None else "loading the bot and its documents"):
            parsed = parse_spec(spec)
            if folder is not None and "documents" not in parsed.options:
                parsed = replace(parsed, options={**parsed.options, "documents": str(folder)})
            return make_bot(parsed)


def _turn_from(reply: Reply) -> Turn:
    """The reply as a turn, with its source and everything the bot reported about it."""
    details = {key: value for key, value in asdict(reply).items() if key != "text" and value not in (None, ())}
    source = next((c.source for c in reply.candidates if c.text == reply.text and c.source), None)
    return Turn(BOT, clean(reply.text), (source,) if source else (), json.loads(json.dumps(details, default=str)))


def _remarks(reply: Reply) -> Iterator[str]:
    if reply.finish == "cancelled":
        yield "Stopped. Type /again for another reply, /undo to remove it."
    elif not reply.text.strip():
        yield "The bot's reply was empty. Type /again to ask it once more."
    if reply.finish == "length":
        yield "The reply reached its maximum length."
    if reply.note:
        yield f"Note: {reply.note}."
    if reply.evidence:
        sources = ", ".join(passage.source for passage in reply.evidence)
        yield f"Looked up: {sources}. Type /why to read the passages."


def _candidate_rows(reply: Reply) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    chosen = False
    for candidate in reply.candidates:
        verdict = f"dropped: {candidate.dropped}" if candidate.dropped else "scored lower"
        if candidate.text == reply.text and not chosen:
            verdict, chosen = f"chosen ({candidate.dropped})" if candidate.dropped else "chosen", True
        verdict += f"; {candidate.note}" if candidate.note else ""
        score = "" if candidate.score is None else f"{candidate.score:.3f}"
        rows.append((score, _shorten(candidate.text), clean(verdict), clean(candidate.source or "")))
    return rows


def _detail_rows(reply: Reply) -> list[tuple[str, str]]:
    provenance, usage = reply.provenance, reply.usage
    settings = {key: shown(as_json(value)) for key, value in provenance.settings.items()}
    details = {
        "bot": provenance.bot,
        "checkpoint": provenance.checkpoint,
        "settings": ", ".join(f"{key} = {text}" for key, text in settings.items() if text),
        "seed": provenance.seed,
        "version": provenance.version,
        "time": f"{reply.seconds:.2f} s",
        "tokens": f"{usage.prompt} in the prompt, {usage.completion} generated" if usage else None,
        "score": f"{reply.score:.3f}" if reply.score is not None else None,
        "finish": reply.finish,
        "redraws": reply.redraws or None,
        "note": reply.note,
    }
    return [(name, clean(str(value))) for name, value in details.items() if value not in (None, "")]


def _shorten(text: str) -> str:
    line = " ".join(clean(text).split())
    return f"{line[:157]}…" if len(line) > 160 else line
