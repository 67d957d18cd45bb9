"""A conversation with a bot, line by line: what a person types means a message or a command, and what comes of it.

The terminal itself stays outside: lines come from a function, everything shown goes to a `Screen`, so that the same
conversation runs under test, in a pipe and in colour. Text is made harmless here, before any screen sees it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, Protocol

from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import TertuliaError, UnknownName, UsageError
from tertulia.core.reply import Ask, Reply
from tertulia.core.text import clean
from tertulia.talk.bot import Bot, StreamingBot
from tertulia.talk.keeping import SAMPLE, check_place, read_persona, save_dialogue
from tertulia.talk.spec import make_bot
from tertulia.talk.table import BOTS

USER, BOT = "user", "bot"


class ChatConfig(Config):
    """What `tertulia chat` takes."""

    bot: str = Field(min_length=1)
    """The bot to talk with: name[:path or model][?option=value&...]."""
    persona: tuple[str, ...] = ()
    """Who the bot is: a sentence (repeat the option for more), sample:ID, or a file with one sentence a line."""
    seed: int = 0
    """The same seed and the same lines give the same conversation."""
    save: Path | None = None
    """Add the conversation to this file of dialogues (JSON lines) at the end; what is there stays."""


class Screen(Protocol):
    """Where the conversation is shown. All text is to be taken literally."""

    def note(self, text: str) -> None:
        """A remark of ours."""
        ...

    def error(self, message: str, hint: str) -> None:
        """Something went wrong; the conversation goes on."""
        ...

    def turn(self, speaker: str, text: str) -> None:
        """A turn said earlier."""
        ...

    def bot_piece(self, text: str) -> None:
        """A part of the turn that the bot is writing."""
        ...

    def bot_turn(self, text: str) -> None:
        """The bot's turn, now whole; its pieces may have been shown already."""
        ...

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Several things side by side."""
        ...

    def busy(self, what: str, stop: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Around anything that may take a while; a person who has had enough of it calls `stop`."""
        ...


class _Said(NamedTuple):
    turn: Turn
    reply: Reply | None = None


class _Command(NamedTuple):
    usage: str
    summary: str
    run: Callable[[str], None]


class TerminalChat:
    """One conversation, taking lines until it is over. It loads its bot when it is made: a wrong one fails at once."""

    def __init__(self, config: ChatConfig, screen: Screen, read: Callable[[], str]) -> None:
        self.config, self.screen, self.read = config, screen, read
        self.over = False
        self.persona = read_persona(config.persona)
        if config.save is not None:
            check_place(config.save)
        self.started = datetime.now(UTC)
        self.id = f"chat-{self.started:%Y%m%dT%H%M%S}-{token_hex(4)}"
        self._said: list[_Said] = []
        self._asked = 0
        self._attempt = 1
        self._saved: dict[Path, Dialogue] = {}
        self._stopping = self._leaving = False
        self.bot = self._load(config.bot)
        self._commands = {
            "help": _Command("/help", "show this list", self._help),
            "persona": _Command("/persona [SENTENCE | clear | show]", "show or change who the bot is", self._persona),
            "undo": _Command("/undo", "take back the last message and its reply", self._undo),
            "again": _Command("/again", "have the last reply written anew", self._again),
            "why": _Command("/why", "how the last reply came about", self._why),
            "history": _Command("/history", "show the conversation so far", self._history),
            "save": _Command("/save [PATH]", "write the conversation to a file", self._save),
            "bot": _Command("/bot [SPEC]", "show the bots, or go on with another one", self._bot),
            "quit": _Command("/quit", "leave", self._quit),
        }

    def run(self) -> None:
        """Talk until the person leaves or the input ends; the conversation is saved whatever ends it."""
        self.screen.note(clean(f"{self.bot.summary} /help lists the commands, Ctrl-D leaves."))
        if self.persona:
            self._persona("show")
        try:
            while not self.over:
                try:
                    line = self.read()
                except EOFError:
                    self.over = True
                except KeyboardInterrupt:
                    self.screen.note("Ctrl-D or /quit leaves.")
                else:
                    self.take(line)
        finally:
            self._save_if_asked()
        self.screen.note("Goodbye.")

    def take(self, line: str) -> None:
        """Act on one line. What goes wrong is shown, and the conversation goes on."""
        text = clean(line).strip()
        try:
            if text.startswith("/") and not text.startswith("//"):
                self._obey(text)
            elif text:
                self._said.append(_Said(Turn(USER, text.removeprefix("/") if text.startswith("//") else text)))
                self._answer(self._said)
        except TertuliaError as error:
            self.screen.error(clean(error.message), clean(error.hint))
            if not text.startswith("/"):
                self.screen.note("/again asks the bot once more, /undo takes your message back.")
        except KeyboardInterrupt:
            self.screen.note("Stopped.")

    def stop(self) -> None:
        """The person has had enough: a writing bot is asked to end here; one that does not listen is interrupted."""
        if self._stopping or not isinstance(self.bot, StreamingBot):
            raise KeyboardInterrupt
        self._stopping = True

    def dialogue(self, said: Sequence[_Said] | None = None) -> Dialogue:
        """The conversation as it stands."""
        turns = tuple(s.turn for s in (self._said if said is None else said))
        meta = {"made_by": f"tertulia chat {__version__}", "bot": self.bot.spec, "started": self.started.isoformat()}
        return Dialogue(self.id, turns, {BOT: self.persona} if self.persona else {}, meta=meta)

    def _answer(self, before: Sequence[_Said], attempt: int = 1) -> None:
        """Have the bot say something after these turns. Until it has, nothing is changed."""
        ask = Ask(self.dialogue(before), speaker=BOT, seed=self.config.seed + self._asked, attempt=attempt)
        self._attempt = attempt
        self._asked += 1
        self._stopping = False
        # A bot that is a person at this terminal needs it for itself.
        free = not getattr(self.bot, "uses_terminal", False)
        with self.screen.busy("thinking", self.stop) if free else nullcontext():
            reply = self._written(self.bot, ask)
            if reply.text.strip():
                self.screen.bot_turn(clean(reply.text))
        if reply.text.strip():
            self._said = [*before, _Said(_turn_of(reply), reply)]
        for remark in _remarks(reply):
            self.screen.note(clean(remark))

    def _written(self, bot: Bot, ask: Ask) -> Reply:
        if not isinstance(bot, StreamingBot):
            [reply] = bot.reply([ask])
            return reply
        for piece in bot.stream([ask], alive=lambda _: not self._stopping):
            if piece.text:
                self.screen.bot_piece(clean(piece.text))
            if piece.reply is not None:
                return piece.reply
        raise TertuliaError(
            f"The bot {bot.spec!r} stopped in the middle of its reply.", hint="/again asks it once more."
        )

    def _obey(self, text: str) -> None:
        name, _, rest = text.removeprefix("/").partition(" ")
        command = self._commands.get(name.lower())
        if command is None:
            raise UnknownName("command", f"/{name}", [f"/{known}" for known in self._commands])
        command.run(rest.strip())

    def _help(self, _: str) -> None:
        rows = [(c.usage, c.summary) for c in self._commands.values()]
        more = [("Ctrl-C", "stop a reply in the making"), ("//text", "say something that begins with a slash")]
        self.screen.table("Commands", ("type", "to"), [*rows, *more])

    def _persona(self, rest: str) -> None:
        if rest == "clear":
            self.persona = None
        elif rest.startswith(SAMPLE):
            self.persona = read_persona([rest])
        elif rest not in ("", "show"):
            self.persona = Persona((*(self.persona.sentences if self.persona else ()), rest))
        if self.persona is None:
            self.screen.note("The bot has no persona.")
        else:
            name = f"{self.persona.name}: " if self.persona.name else ""
            self.screen.note(clean(f"The bot's persona: {name}{' '.join(self.persona.sentences)}"))

    def _undo(self, _: str) -> None:
        if not self._said:
            raise UsageError("There is nothing to take back.")
        while self._said.pop().turn.speaker != USER:
            pass
        last = self._said[-1].turn.text if self._said else ""
        self.screen.note(f"Taken back. The last turn is now: {_brief(last)}" if last else "Taken back. We begin anew.")

    def _again(self, _: str) -> None:
        if not self._said:
            raise UsageError("There is nothing to answer yet.", hint="Say something first.")
        if self._said[-1].reply:
            self._answer(self._said[:-1], self._attempt + 1)
        else:
            self._answer(self._said)

    def _why(self, _: str) -> None:
        reply = next((s.reply for s in reversed(self._said) if s.reply), None)
        if reply is None:
            raise UsageError("The bot has not said anything yet.")
        if reply.candidates:
            self.screen.table("Considered", ("score", "reply", "verdict", "source"), _candidate_rows(reply))
        self.screen.table("How it was made", ("what", "value"), _fact_rows(reply))

    def _history(self, _: str) -> None:
        if not self._said:
            self.screen.note("Nothing has been said yet.")
        for said in self._said:
            self.screen.turn(said.turn.speaker, clean(said.turn.text))

    def _save(self, rest: str) -> None:
        path = Path(rest) if rest else self.config.save
        if path is None:
            raise UsageError("Where to?", hint="/save PATH, or start with --save PATH.")
        if not self._said:
            raise UsageError("There is nothing to save yet.")
        dialogue = self.dialogue()
        save_dialogue(dialogue, path)
        self._saved[path] = dialogue
        self.screen.note(clean(f"Saved to {path}."))

    def _save_if_asked(self) -> None:
        path = self.config.save
        if path is not None and self._said and self._saved.get(path) != self.dialogue():
            self._save("")

    def _bot(self, rest: str) -> None:
        if rest:
            self.bot = self._load(rest)
            self.screen.note(clean(f"Now you talk with {self.bot.spec}: {self.bot.summary}"))
        else:
            self.screen.note(clean(f"You talk with {self.bot.spec}: {self.bot.summary}"))
            self.screen.table("Bots", ("name", "what it is"), [(row.name, row.summary) for row in BOTS.rows()])

    def _quit(self, _: str) -> None:
        """Leave; if saving fails, stay once, so that the person can save it elsewhere."""
        if not self._leaving:
            self._leaving = True
            self._save_if_asked()
        self.over = True

    def _load(self, spec: str) -> Bot:
        with self.screen.busy("loading the bot"):
            return make_bot(spec)


def _turn_of(reply: Reply) -> Turn:
    """The reply as a turn that leads back to its source and carries all that the bot told of it."""
    told = {key: value for key, value in asdict(reply).items() if key != "text" and value not in (None, ())}
    source = next((c.source for c in reply.candidates if c.text == reply.text and c.source), None)
    return Turn(BOT, clean(reply.text), (source,) if source else (), json.loads(json.dumps(told, default=str)))


def _remarks(reply: Reply) -> Iterator[str]:
    if reply.finish == "cancelled":
        yield "Stopped. /again has it written anew, /undo takes it back."
    elif not reply.text.strip():
        yield "The bot said nothing. /again asks it once more."
    if reply.finish == "length":
        yield "It had reached its longest length."
    if reply.note:
        yield f"Note: {reply.note}."


def _candidate_rows(reply: Reply) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    chosen = False
    for candidate in reply.candidates:
        verdict = f"dropped: {candidate.dropped}" if candidate.dropped else "scored lower"
        if candidate.text == reply.text and not chosen:
            verdict, chosen = f"chosen ({candidate.dropped})" if candidate.dropped else "chosen", True
        score = "" if candidate.score is None else f"{candidate.score:.3f}"
        rows.append((score, _brief(candidate.text), clean(verdict), clean(candidate.source or "")))
    return rows


def _fact_rows(reply: Reply) -> list[tuple[str, str]]:
    source, usage = reply.provenance, reply.usage
    facts = {
        "bot": source.bot,
        "checkpoint": source.checkpoint,
        "settings": ", ".join(f"{key}={value}" for key, value in source.settings.items()),
        "seed": source.seed,
        "version": source.version,
        "time": f"{reply.seconds:.2f} s",
        "tokens": f"{usage.prompt} read, {usage.completion} written" if usage else None,
        "score": reply.score,
        "finish": reply.finish,
        "note": reply.note,
    }
    return [(name, clean(str(value))) for name, value in facts.items() if value not in (None, "")]


def _brief(text: str) -> str:
    flat = " ".join(clean(text).split())
    return f"{flat[:157]}…" if len(flat) > 160 else flat
