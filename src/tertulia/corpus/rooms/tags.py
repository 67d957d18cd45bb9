"""Tags for what is never the same twice: `__url__`, `__path__` and `__user__` stand for addresses, files and nicks.

Lowe et al. (2015) tag names, places, organisations, URLs and paths before they learn words. URLs and paths are known by
their shape and people by the nicks of the room; places and organisations would need a model that recognises named
entities, and are NOT tagged here. Pure functions: `RoomsConfig(tags=True)` applies them to what was extracted.
"""

import re
from collections.abc import Collection
from dataclasses import replace

from tertulia.core.dialogue import Dialogue
from tertulia.corpus.rooms.address import is_common

URL, PATH, USER = "__url__", "__path__", "__user__"

_END = r"(?<![.,;:!?'\"\)\]>])"
"""What ends a sentence or a bracket is no part of the address before it."""
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
    """A text with its URLs, paths and nicks (given in lower case) as tags; short and common words are no nicks.

    >>> tag("ask kuja about www.ubuntu.com, then edit /etc/X11/xorg.conf and/or ~/.bashrc.", {"kuja", "edit"})
    'ask __user__ about __url__, then edit __path__ and/or __path__.'
    """
    return _without_nicks(_PATH.sub(PATH, _URL.sub(URL, text)), nicks)


def tag_dialogue(dialogue: Dialogue, nicks: Collection[str] = ()) -> Dialogue:
    """The dialogue with tags in its turns. Who speaks stays."""
    return replace(dialogue, turns=tuple(replace(turn, text=tag(turn.text, nicks)) for turn in dialogue.turns))


def _without_nicks(text: str, nicks: Collection[str]) -> str:
    def tagged(found: re.Match[str]) -> str:
        word = found.group()
        # A dash may end a nick, or only stand behind it.
        for nick in (word, word.rstrip("-")):
            if len(nick) > 2 and nick.lower() in nicks and not is_common(nick.lower()):
                return USER + word[len(nick) :]
        return word

    return _NICK.sub(tagged, text) if nicks else text
