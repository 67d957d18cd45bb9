"""Log-probabilities of generated tokens, each with the part of the text that it adds: joined, the parts are the text.

A token's text depends on its neighbours: a tokenizer may strip the first blank, and a character may take several
tokens. So a token's text is what it adds to the decoded text, and a character belongs to its last token.
"""

from collections.abc import Sequence

from tertulia.core.reply import TokenLogprob
from tertulia.models.sampling import TopTokens
from tertulia.models.tokenizer import SPECIAL_TOKENS, Tokenizer

INCOMPLETE_CHARACTER = "\ufffd"
"""What tokenizers decode the first bytes of a character to."""
CONTEXT = 4
"""Tokens before an alternative that it is decoded with."""


def token_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[int], logprobs: Sequence[float], top: Sequence[TopTokens]
) -> tuple[TokenLogprob, ...]:
    """Tokens (the end token may be one of them) with their texts and log-probabilities; `top` may be empty."""
    return tuple(
        TokenLogprob(text, logprob, _alternatives(tokenizer, tokens[max(0, i - CONTEXT) : i], top[i]) if top else ())
        for i, (text, logprob) in enumerate(zip(_texts(tokenizer, tokens), logprobs, strict=True))
    )


def _texts(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """What each token adds. Quadratic in their number, as streaming is: little next to generating them."""
    texts, length = [], 0
    for count in range(1, len(tokens) + 1):
        decoded = tokenizer.decode(tokens[:count])
        if decoded.endswith(INCOMPLETE_CHARACTER) and count < len(tokens):
            texts.append("")
            continue
        texts.append(decoded[length:])
        length = max(length, len(decoded))
    return texts


def _alternatives(tokenizer: Tokenizer, before: Sequence[int], top: TopTokens) -> tuple[TokenLogprob, ...]:
    context = tokenizer.decode(before)
    alternatives = []
    for token, logprob in top:
        if token < len(SPECIAL_TOKENS):
            text = SPECIAL_TOKENS[token]
        else:
            text = tokenizer.decode([*before, token])
            text = text[len(context) :] if text.startswith(context) else tokenizer.decode([token])
        alternatives.append(TokenLogprob(text, logprob))
    return tuple(alternatives)
