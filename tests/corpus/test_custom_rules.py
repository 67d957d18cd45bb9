import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Message, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.custom_rules import RuleMaker, make_message_rules, message_reasons
from tertulia.corpus.derived import Removed
from tertulia.corpus.filter import FilterConfig, filter_corpus
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.write import save_dialogues

PLUGIN = '''
from tertulia.core.config import Config
from tertulia.corpus.derived import turns_of


class Shouting(Config):
    """Removes dialogues that shout."""

    share: float = 0.5
    """Share of capitals from which on a turn is shouted."""

    def __call__(self, item):
        return next((reason for turn in turns_of(item) if (reason := self._reason(turn.text))), None)

    def message(self, message):
        return self._reason(message.text)

    def _reason(self, text):
        letters = [c for c in text if c.isalpha()]
        return "shouts" if letters and sum(c.isupper() for c in letters) / len(letters) >= self.share else None
'''
INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: tertulia-shouting\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": "[tertulia.rules]\nshouting = tertulia_shouting:Shouting\n",
}
DIALOGUES = [
    Dialogue("calm", (Turn("a", "How are you?"), Turn("b", "I am fine."))),
    Dialogue("loud", (Turn("a", "HOW ARE YOU?"), Turn("b", "I am fine."))),
    Dialogue("three", (Turn("a", "hi"), Turn("b", "ho"), Turn("c", "Well, spam it is."))),
    Dialogue("alone", (Turn("a", "hi"), Turn("a", "anybody here?"))),
]


def make_wheel(folder: Path) -> Path:
    """A package as one downloads it; a real one is built by `pip wheel`, which needs a build backend."""
    wheel = folder / "tertulia_shouting-1.0-py3-none-any.whl"
    files = {"tertulia_shouting.py": PLUGIN} | {f"tertulia_shouting-1.0.dist-info/{k}": v for k, v in INFO.items()}
    record = "".join(f"{name},,\n" for name in (*files, "tertulia_shouting-1.0.dist-info/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (files | {"tertulia_shouting-1.0.dist-info/RECORD": record}).items():
            archive.writestr(name, text)
    return wheel


def test_a_plugin_that_pip_installed_is_a_rule(tmp_path: Path) -> None:
    site = tmp_path / "site"
    wheel = make_wheel(tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(site), str(wheel)], check=True)
    save_dialogues(DIALOGUES, tmp_path / "in.jsonl")
    command = [sys.executable, "-m", "tertulia", "corpus", "filter", str(tmp_path / "in.jsonl"), "--json"]
    command += [
        "--out",
        str(tmp_path / "out"),
        "--rule",
        "shouting:share=0.9",
        "--rule",
        "alternating",
        "--workers",
        "1",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(site), *filter(None, sys.path)))}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    removed = {"shouts": 1, "more than two speakers": 1, "speakers do not alternate": 1}
    assert json.loads(run.stdout)["removed"] == removed
    assert [d.id for d in load_dialogues(tmp_path / "out")] == ["calm"]


def test_the_first_reason_counts(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("spam it\nViagra\n\n", encoding="utf-8")
    save_dialogues(DIALOGUES, tmp_path / "in.jsonl")
    rules = (f"blocklist:file={tmp_path / 'words.txt'}", "alternating")
    counts = filter_corpus(FilterConfig(target=str(tmp_path / "in.jsonl"), out=tmp_path / "out", rules=rules))
    assert counts.removed == Counter({"blocklist": 1, "speakers do not alternate": 1})


def test_rules_of_messages_are_what_a_miner_asks(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("spam", encoding="utf-8")
    rules = make_message_rules([f"blocklist:file={tmp_path / 'words.txt'}"])
    messages = [Message("1", "a", "Spam!"), Message("2", "a", "spammer")]
    assert message_reasons(rules, messages) == ["blocklist", None]
    with pytest.raises(UsageError, match="looks at dialogues"):
        make_message_rules(["alternating"])


def test_errors_of_rules_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("...\n")
    with pytest.raises(UsageError, match="no rule called 'alternate'"):
        RuleMaker(("alternate",)).make()
    with pytest.raises(UsageError, match="'file' is required"):
        RuleMaker(("blocklist",)).make()
    with pytest.raises(UsageError, match="not of the form"):
        RuleMaker(("blocklist:words.txt",)).make()
    for name, why in (("nothing.txt", "No such file"), ("empty.txt", "is empty")):
        with pytest.raises(DataError, match=why):
            RuleMaker((f"blocklist:file={tmp_path / name}",)).make()(DIALOGUES)
    step = RuleMaker(()).make()
    step.rules = [lambda item: True]  # type: ignore[list-item,return-value]
    with pytest.raises(UsageError, match="returned True"):
        step(DIALOGUES)
    step.rules = [lambda item: "always"]
    assert step(DIALOGUES) == [Removed("always")] * 4
