"""Stop sequences: a reply ends before the first of them, whether its text comes at once or piece by piece.

Of several stop sequences the one that is complete first counts. So the cut does not depend on how a text was split into
pieces, and a stream shows exactly what a complete reply would.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tertulia.core.reply import Ask


class StopSequences:
    """Lets a text through piece by piece up to the first stop sequence; what may be the start of one is held back.

    With `strip`, blanks at both ends of the text are dropped: trailing ones are held back until more text follows.

    Clients choose the stop sequences, and the time is linear in the length of the text and of each of them, however the
    text is split: matching is that of Knuth, Morris and Pratt, which never goes back in the text, and held-back text is
    not copied with each piece.
    """

    def __init__(self, stops: Sequence[str], *, strip: bool = False) -> None:
        self._matchers = [_Matcher(stop) for stop in dict.fromkeys(stops) if stop]
        self._strip = strip
        self._at_start = True
        self._blanks: list[str] = []
        """With `strip`: blanks that are no part of a stop sequence, but may be trailing."""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """Add a piece; returns what may be shown.

        >>> stops = StopSequences(["END"])
        >>> [stops.feed(piece) for piece in ("one E", "gg E", "N", "D two")], stops.stopped
        (['one ', 'Egg ', '', ''], True)
        """
        if self._strip and self._at_start:
            piece = piece.lstrip()
        if self.stopped or not piece:
            return ""
        self._at_start = False
        # Held back is what the matcher with the longest partial match has matched, so it need not be kept twice.
        before, held = self._longest_partial_stop()
        end, stop_length = self._first_stop(piece)
        if stop_length:
            self.stopped = True
            safe = held + end - stop_length
        else:
            safe = held + len(piece) - self._longest_partial_stop()[1]
        text = before[: min(held, safe)] + piece[: max(0, safe - held)]
        return self._without_trailing_blanks(text) if self._strip else text

    def rest(self) -> str:
        """What was held back; call it when the text is complete."""
        stop, held = ("", 0) if self.stopped else self._longest_partial_stop()
        text = stop[:held]
        for matcher in self._matchers:
            matcher.matched = 0
        if not self._strip:
            return text
        text = self._without_trailing_blanks(text)
        self._blanks.clear()
        return text

    def _without_trailing_blanks(self, text: str) -> str:
        """The blanks of before and the text, except for its trailing blanks, which are held back."""
        shown = text.rstrip()
        if shown:
            self._blanks, blanks = [text[len(shown) :]], "".join(self._blanks)
            return blanks + shown
        self._blanks.append(text)
        return ""

    def _first_stop(self, piece: str) -> tuple[int, int]:
        """End (in the piece) and length of the stop sequence that is complete first; length 0 if none is.

        Of two that end together, it is the longer one.
        """
        first_end, length = len(piece), 0
        for matcher in self._matchers:
            end = matcher.advance(piece, first_end)
            if end is not None:
                length = max(length, len(matcher.stop)) if end == first_end else len(matcher.stop)
                first_end = end
        return first_end, length

    def _longest_partial_stop(self) -> tuple[str, int]:
        """The stop sequence of which the text so far ends in the longest beginning, and that beginning's length."""
        longest = max(self._matchers, key=lambda matcher: matcher.matched, default=None)
        return (longest.stop, longest.matched) if longest else ("", 0)


class _Matcher:
    """Searches a stream for one stop sequence (Knuth, Morris and Pratt 1977)."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        """Length of the longest beginning of the stop sequence that the text so far ends in."""
        # For each length n: the longest beginning that stop[:n] also ends in, other than itself.
        self._fallback = [0, 0]
        border = 0
        for character in stop[1:]:
            while border and character != stop[border]:
                border = self._fallback[border]
            border += character == stop[border]
            self._fallback.append(border)

    def advance(self, piece: str, until: int) -> int | None:
        """Go on with piece[:until]; where the stop sequence ends, if it does."""
        stop, fallback, matched, i = self.stop, self._fallback, self.matched, 0
        while i < until:
            if not matched:  # skip to the next character that may begin a stop sequence
                i = piece.find(stop[0], i, until)
                if i < 0:
                    break
            character = piece[i]
            while matched and character != stop[matched]:
                matched = fallback[matched]
            matched += character == stop[matched]
            i += 1
            if matched == len(stop):
                return i
        self.matched = matched
        return None


class CutText(NamedTuple):
    """A text up to its first stop sequence."""

    text: str
    stopped: bool
    """Whether there was one."""


def cut_at_stop(text: str, stops: Sequence[str], *, strip: bool = False) -> CutText:
    """A complete text up to its first stop sequence.

    >>> cut_at_stop("yes. no. maybe", ["no", "may"], strip=True)
    CutText(text='yes.', stopped=True)
    """
    sequences = StopSequences(stops, strip=strip)
    return CutText(sequences.feed(text) + sequences.rest(), sequences.stopped)


def stops_of(ask: Ask) -> list[str]:
    """The stop sequences that an ask's options name."""
    value = ask.options.get("stop") or []
    return [stop for stop in ([value] if isinstance(value, str) else map(str, value)) if stop]
