"""Log-probabilities of a reply's tokens after its text was trimmed, cut or cleaned: joined, they still are the text."""

from collections.abc import Sequence
from dataclasses import replace

from tertulia.core.reply import TokenLogprob


def align(tokens: Sequence[TokenLogprob], text: str, *, stopped: bool) -> tuple[TokenLogprob, ...]:
    """The tokens of a text that was cut out of what they add up to: leading and trailing blanks, or the rest, are gone.

    With `stopped`, the text ends before a stop sequence, and so do the tokens. Otherwise all tokens are kept, those of
    trimmed blanks with an empty text: their probabilities are part of the reply's.

    >>> tokens = [TokenLogprob(text, -1.0) for text in (" ", "one", " two", " STOP")]
    >>> [token.text for token in align(tokens, "one tw", stopped=True)]
    ['', 'one', ' tw']
    """
    joined = "".join(token.text for token in tokens)
    start = 0 if joined.startswith(text) else len(joined.lstrip()) - len(joined)  # where the next token is in the text
    aligned: list[TokenLogprob] = []
    for token in tokens:
        if stopped and start >= len(text):
            break
        end = start + len(token.text)
        aligned.append(replace(token, text=text[max(0, start) : max(0, end)]))
        start = end
    if aligned and start < len(text):  # cleaning may have changed lengths: nothing of the text may get lost
        aligned[-1] = replace(aligned[-1], text=aligned[-1].text + text[max(0, start) :])
    return tuple(aligned)
