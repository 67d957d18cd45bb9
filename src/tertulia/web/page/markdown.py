"""Markdown in replies, as a tree of a few harmless elements.

The server parses (markdown-it-py) and the page builds the elements, so no markup is ever passed on: HTML in a reply is
text like any other, images are not fetched, and links lead to http, https and mail only. The stored text stays what
the bot said. A long reply, or one without any Markdown, gives None and is shown as it is.
"""

import re
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_CHARS = 20_000
"""Longer texts are shown as they are. Parsing takes time in proportion to the length: half a second at the worst."""

_HINTS = re.compile(r"[*_`~#>|\[]|^ {0,3}(?:[-+]|\d{1,9}[.)]) |^ {0,3}-{3}", re.MULTILINE)
"""Without any of these a text cannot contain Markdown that we show."""
_LINK = re.compile(r"(?:https?://|mailto:)\S", re.IGNORECASE)
_TAGS = frozenset("p strong em s code pre ul ol li blockquote table thead tbody tr th td hr a".split())

_RULES = "emphasis strikethrough backticks escape newline link autolink fence heading hr list blockquote table".split()
_PARSER = MarkdownIt("zero", {"maxNesting": 20}).enable(_RULES)

Node = str | list[Any]
"""A text, or an element: its tag, its attributes, and its children."""


def markup(text: str) -> list[Node] | None:
    """The elements of a reply; None if it is to be shown as plain text.

    >>> markup("Just *one* word")
    [['p', {}, 'Just ', ['em', {}, 'one'], ' word']]
    >>> markup("Just one word") is None
    True
    """
    return _parse(text) if may_have_markup(text) else None


def may_have_markup(text: str) -> bool:
    """Whether it is worth parsing a text, at the cost of a glance."""
    return len(text) <= MAX_CHARS and _HINTS.search(text) is not None


@lru_cache(maxsize=256)
def _parse(text: str) -> list[Node]:
    root: list[Node] = []
    _build(_PARSER.parse(text), root)
    return root


def _build(tokens: list[Token], parent: list[Any]) -> None:
    """Turn a flat list of tokens into a tree under `parent`."""
    stack = [parent]
    for token in tokens:
        if token.type == "inline":
            _build(token.children or [], stack[-1])
        elif token.nesting == 1:
            children = stack[-1] if token.hidden else _element(token, stack[-1])
            stack.append(children)
        elif token.nesting == -1:
            stack.pop()
        else:
            _leaf(token, stack[-1])


def _element(token: Token, parent: list[Any]) -> list[Any]:
    """Add the element of an opening token, and return the list that takes its children."""
    if token.type == "heading_open":  # the outline of the page is ours, so a heading is a paragraph in bold
        inner: list[Any] = ["strong", {}]
        parent.append(["p", {"class": "heading"}, inner])
        return inner
    tag = token.tag if token.tag in _TAGS else "p"
    attributes: dict[str, Any] = {}
    if tag == "a":
        href = str(token.attrGet("href") or "")
        if not _LINK.match(href):
            tag = "span"
        else:
            attributes = {"href": href, "rel": "noopener noreferrer nofollow", "target": "_blank"}
    elif tag == "ol" and (start := token.attrGet("start")) is not None:
        attributes = {"start": int(start)}
    elif tag in ("th", "td") and (style := token.attrGet("style")):
        attributes = {"class": str(style).replace("text-align:", "align-")}
    parent.append([tag, attributes])
    element: list[Any] = parent[-1]
    return element


def _leaf(token: Token, parent: list[Any]) -> None:
    if token.type in ("fence", "code_block"):
        language = token.info.split()[0][:30] if token.info.strip() else ""
        parent.append(["pre", {"data-language": language} if language else {}, ["code", {}, token.content]])
    elif token.type == "code_inline":
        parent.append(["code", {}, token.content])
    elif token.type in ("softbreak", "hardbreak"):
        parent.append("\n")  # shown as a line break, as the bot wrote it
    elif token.type == "hr":
        parent.append(["hr", {}])
    elif token.content:
        parent.append(token.content)
