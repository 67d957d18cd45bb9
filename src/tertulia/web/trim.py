"""What OpenAI's clients may count on whatever the bot: no text from a stop sequence on, and no more than `max_tokens`.

Bots that write token by token obey both themselves; bots that choose a finished reply know neither. So the stop
sequences are looked for in everything, and the limit is held against replies whose bot counts no tokens: there, a word
or a mark is one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tertulia.core.reply import Finish, Reply
from tertulia.core.text import tokens


class Trimmer:
    """Lets a text through piece by piece up to the first stop sequence; what may be the beginning of one waits."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """As much as can be shown after this piece.

        >>> trimmer = Trimmer(["END"])
        >>> [trimmer.feed(piece) for piece in ("one E", "gg E", "N", "D two")], trimmer.stopped
        (['one ', 'Egg ', '', ''], True)
        """
        if self.stopped:
            return ""
        self._held += piece
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        keep = self._unsure()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def rest(self) -> str:
        """What was held back, when nothing more comes."""
        rest, self._held = self._held, ""
        return rest

    def _unsure(self) -> int:
        """Length of the longest end of the text that begins a stop sequence."""
        longest = min(max(map(len, self._stops), default=0) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._begins(self._held[-n:])), 0)

    def _begins(self, end: str) -> bool:
        return any(stop.startswith(end) for stop in self._stops)


class Limited(NamedTuple):
    """A text within its limit, and why it ended."""

    text: str
    finish: Finish


def within_limit(reply: Reply, max_tokens: int | None) -> Limited:
    """The reply's text, cut if its bot counts no tokens and it has more words and marks than were wished for."""
    if max_tokens is None or reply.usage is not None or reply.finish == "length":
        return Limited(reply.text, reply.finish)
    pieces = tokens(reply.text)
    if len(pieces) <= max_tokens:
        return Limited(reply.text, reply.finish)
    end, lower = 0, reply.text.lower().replace("’", "'")
    for piece in pieces[:max_tokens]:
        end = lower.index(piece, end) + len(piece)
    return Limited(reply.text[:end], "length")
