"""Tags replace URLs, paths and nicks, and nothing that only looks like them."""

import time
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.corpus.chatlogs.mine import ChatlogConfig, mine_chatlogs
from tertulia.corpus.chatlogs.tags import tag, tag_dialogue
from tertulia.corpus.shards import read_parquet

NICKS = {"kuja", "bur[n]er", "_pm", "nick-", "the", "old", "me"}

CASES = [
    ("see http://a.b/c?d=e. and (https://x.org/y)!", "see __url__. and (__url__)!"),
    ("deb http://archive.ubuntu.com/ubuntu/ hoary main", "deb __url__ hoary main"),
    ("WWW.UBUNTU.COM: yes", "__url__: yes"),
    ("vim /etc/X11/xorg.conf.", "vim __path__."),
    ("~/ and ../x, ./configure; make", "__path__ and __path__, __path__; make"),
    ("'/etc/fstab' in /home?", "'__path__' in __path__?"),
    (r"C:\Windows\x.exe runs", "__path__ runs"),
    ("/opt-in /join #ubuntu and/or 1/2 w/o s/foo/bar/ </b> http:// rm -rf /", None),
    ("Kuja: ask bur[n]er, _pm or kuja's", "__user__: ask __user__, __user__ or __user__'s"),
    ("kuja-- nick- kuja-", "__user__-- __user__ __user__-"),
    ("the old kujax xkuja me", None),
]


@pytest.mark.parametrize(("text", "tagged"), CASES)
def test_tagged_texts(text: str, tagged: str | None) -> None:
    assert tag(text, NICKS) == (tagged or text)


@pytest.mark.parametrize("text", [text for text, _ in CASES])
def test_tagging_twice_changes_nothing(text: str) -> None:
    once = tag(text, NICKS)
    assert tag(once, NICKS | {"url", "path", "user"}) == once


@pytest.mark.parametrize("part", [".", "/", "./", "/a", "~", "-", "[", "a.", "http://"])
def test_tagging_takes_linear_time(part: str) -> None:
    start = time.process_time()
    for head in ("/etc/", "~/", "http://", ""):
        tag(head + part * 20_000 + "!", NICKS)
    assert time.process_time() - start < 2


def test_a_tagged_dialogue_keeps_its_speakers() -> None:
    plain = Dialogue("d", (Turn("kuja", "look at /tmp", ("log:1",)), Turn("old", "kuja: ok")))
    tagged = tag_dialogue(plain, NICKS)
    assert [(turn.speaker, turn.text) for turn in tagged.turns] == [
        ("kuja", "look at __path__"),
        ("old", "__user__: ok"),
    ]
    assert tagged.turns[0].source == ("log:1",)


def test_tags_are_an_option_of_mining(tmp_path: Path) -> None:
    lines = [
        "[10:00] <ann> anyone knows http://x.org/y ?",
        "[10:01] <bob_> ann: ask carlo, or look into /var/log/syslog",
        "[10:02] <ann> bob_: thanks",
        "[10:03] <carlo> morning",
    ]
    (tmp_path / "day.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts = {}
    for tags in (False, True):
        outcome = mine_chatlogs(ChatlogConfig(source=str(tmp_path / "day.log"), out=tmp_path / f"r{tags}", tags=tags))
        texts[tags] = [turn.text for dialogue in read_parquet(outcome.dialogues) for turn in dialogue.turns]
    assert texts[False] == ["anyone knows http://x.org/y ?", "ask carlo, or look into /var/log/syslog", "thanks"]
    assert texts[True] == ["anyone knows __url__ ?", "ask __user__, or look into __path__", "thanks"]
