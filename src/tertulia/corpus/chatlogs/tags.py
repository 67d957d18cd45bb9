"""Replace URLs, file paths and nicks, which are rarely seen twice, by the tags `__url__`, `__path__` and `__user__`.

Lowe et al. (2015) tag names, places, organisations, URLs and paths before training. Here patterns recognise URLs and
paths, and the nicks of the room are the names; places and organisations would need named entity recognition and are NOT
tagged. These are pure functions: `ChatlogConfig(tags=True)` applies them to extracted dialogues.
"""

import re
from collections.abc import Collection
from dataclasses import replace

from tertulia.core.dialogue import Dialogue
from tertulia.corpus.chatlogs.nicks import is_common

URL, PATH, USER = "__url__", "__path__", "__user__"

_END = r"(?<![.,;:!?'\"\)\]>])"
"""Punctuation that ends a sentence or a bracket is not part of a URL or path."""
_URL = re.compile(rf"\b(?:(?:https?|ftp|irc|ssh|git|svn|file)://|www\.)[^\s<>\"]+{_END}", re.IGNORECASE)
_ROOTS = "bin boot cdrom dev etc home initrd lib lib32 lib64 media mnt opt proc root run sbin snap srv sys tmp usr var"
_NAME = r"[\w.+\-*$?{}@%#=:,~]"
_PATH = re.compile(
    r"(?<![\w/.~:\\<])(?:"
    rf"(?:~\w*|\.{{1,2}})/(?:{_NAME}|/)*"  # ~/file, ./file, ../file
    rf"|/(?:{'|'.join(_ROOTS.split())})(?![\w\-])(?:{_NAME}|/)*"  # /etc alone is a folder, /join is a command
    rf"|/{_NAME}+/(?:{_NAME}|/)+"
    r"|[A-Za-z]:\\[^\s\"<>|]*"
    rf"){_END}"
)
_NICK = re.compile(r"(?<![\w\-\[\]\\^{}|`])[A-Za-z0-9_\-\[\]\\^{}|`]{3,}")


def tag(text: str, nicks: Collection[str] = ()) -> str:
    """Replace the URLs, paths and nicks (given in lower case) of a text; short and common words do not count as nicks.

    >>> tag("ask kuja about www.ubuntu.com, then edit /etc/X11/xorg.conf and/or ~/.bashrc.", {"kuja", "edit"})
    'ask __user__ about __url__, then edit __path__ and/or __path__.'
    """
    return _tag_nicks(_PATH.sub(PATH, _URL.sub(URL, text)), nicks)


def tag_dialogue(dialogue: Dialogue, nicks: Collection[str] = ()) -> Dialogue:
    """Tag the turns of a dialogue; speakers keep their names."""
    return replace(dialogue, turns=tuple(replace(turn, text=tag(turn.text, nicks)) for turn in dialogue.turns))


def _tag_nicks(text: str, nicks: Collection[str]) -> str:
    def replacement(match: re.Match[str]) -> str:
        word = match.group()
        # A dash may be the last character of a nick, or punctuation after it.
        for nick in (word, word.rstrip("-")):
            if len(nick) > 2 and nick.lower() in nicks and not is_common(nick.lower()):
                return USER + word[len(nick) :]
        return word

    return _NICK.sub(replacement, text) if nicks else text
