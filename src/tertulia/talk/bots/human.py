"""A person at this terminal as a bot: to see a conversation from the bot's side, or as the human half of self-play.

It is the only bot that reads from and writes to the terminal. It replies to the asks of a batch one after the other.
"""

import sys
import time
from collections.abc import Sequence
from typing import ClassVar, Self, TextIO

from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config
from tertulia.core.errors import BotError
from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.core.text import clean
from tertulia.talk.bot import BotTraits

RULE = "-" * 40


class HumanOptions(Config):
    """What the person is shown."""

    turns: int = Field(default=0, ge=0)
    """Show this many of the last turns; 0 for the full dialogue."""


class HumanBot:
    """Shows the dialogue and the persona to play, and reads one line as the reply."""

    Options: ClassVar[type[Config]] = HumanOptions
    target_help: ClassVar[str] = ""
    summary = "A person at this terminal."
    traits = BotTraits(max_batch=1, uses_terminal=True)

    def __init__(
        self, options: HumanOptions | None = None, *, source: TextIO | None = None, output: TextIO | None = None
    ) -> None:
        self.options = options or HumanOptions()
        self.spec = "human"
        self._source, self._output = source, output

    @classmethod
    def build(cls, target: str, options: HumanOptions, /) -> Self:
        """From a specification: the person at the standard input."""
        return cls(options)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """What the person types, one ask after the other."""
        return [self._reply(ask) for ask in asks]

    def _reply(self, ask: Ask) -> Reply:
        start = time.perf_counter()
        # Looked up now, not when the bot was created: either may have been redirected since.
        source, output = self._source or sys.stdin, self._output or sys.stdout
        output.write("\n".join(self._prompt_lines(ask)) + "\n")
        text = ""
        while not text:
            output.write(f"{clean(ask.speaker)}> ")
            output.flush()
            line = source.readline()
            if not line:
                raise BotError("The input ended before a reply was typed.", hint="Run the bot 'human' at a terminal.")
            text = clean(line).strip()
        provenance = Provenance(self.spec, None, self.options.model_dump(), ask.seed, __version__)
        return Reply(text, provenance, seconds=time.perf_counter() - start)

    def _prompt_lines(self, ask: Ask) -> list[str]:
        """The persona to play and the conversation so far."""
        lines = [RULE]
        persona = ask.dialogue.persona_of(ask.speaker)
        if persona is not None:
            name = f", {persona.name}" if persona.name else ""
            lines += [f"You are {ask.speaker}{name}:", *(f"  {sentence}" for sentence in persona.sentences)]
        turns = ask.dialogue.turns
        hidden = len(turns) - self.options.turns if self.options.turns else 0
        if hidden > 0:
            lines.append(f"({hidden} earlier turns)")
        lines += [f"{turn.speaker}: {turn.text}" for turn in turns[max(hidden, 0) :]]
        if not turns:
            lines.append("There are no turns yet: you open the conversation.")
        return [clean(line) for line in lines]
