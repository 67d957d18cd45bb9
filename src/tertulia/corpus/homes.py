"""Where the well-known corpora live, and `get`, which brings one home: download, check, unpack, leave a record.

None is part of Tertulia; each has its own licence, which is shown before anything is fetched and kept in the record. A
file whose SHA-256 was published is checked against it. Of the others the hash is recorded on first use, in
`sources.json` beside the data, and checked on every later one: that shows a change, not a forgery on the first day.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.fetch import fetch, sha256_of
from tertulia.corpus.unpack import unpack

RECORD = "sources.json"


class Remote(NamedTuple):
    """One file and the addresses it can be had from."""

    file: str
    urls: tuple[str, ...]
    sha256: str | None = None
    """As published; None where nobody did."""


@dataclass(frozen=True, slots=True)
class Home:
    """A corpus: what it is, under which licence, and where."""

    name: str
    what: str
    licence: str
    remotes: tuple[Remote, ...]
    format: str = ""
    """The format its files are in; empty where nothing here reads it as dialogues yet."""


class Got(NamedTuple):
    """What `get` left behind."""

    home: Home
    folder: Path
    files: list[str]
    """The data files, relative to the folder."""
    fresh: bool
    """Whether anything was downloaded."""
    unverified: list[str]
    """Files without a published hash that were seen for the first time."""


def _parlai(task: str, file: str, sha256: str) -> Remote:
    """ParlAI's downloads, whose hashes stand in its source."""
    return Remote(
        file,
        (f"https://dl.fbaipublicfiles.com/parlai/{task}/{file}", f"http://parl.ai/downloads/{task}/{file}"),
        sha256,
    )


_BEGIN = "https://raw.githubusercontent.com/google/BEGIN-dataset"
_BEGIN_1, _BEGIN_2 = "6f881995bca5405918f3138b04f29fdd2a1b73ae", "78e2215a158744b14d080e90c8135a2039f52eb8"
_DOG = "618a14f27546165859305649aa84e6ac8710bb63"
_TOPICAL = "8a485f76337a40dfab842426caeaa94fd8212db4"

_HOMES = (
    Home(
        "personachat",
        "Persona-Chat: 11k chats of two people who play personas",
        "none stated (carried by ParlAI, MIT)",
        (
            _parlai(
                "personachat", "personachat.tgz", "507cf8641d333240654798870ea584d854ab5261071c5e3521c20d8fa41d5622"
            ),
        ),
        "personachat-text",
    ),
    Home(
        "convai2",
        "ConvAI2: Persona-Chat as used in the competition of 2018",
        "none stated (carried by ParlAI, MIT)",
        (
            _parlai(
                "convai2", "convai2_fix_723.tgz", "d0ae89defe2fd0b0a4221eaa642a457d7d40cef475f54798119c7f3b8dd9361d"
            ),
        ),
        "personachat-text",
    ),
    Home(
        "dailydialog",
        "DailyDialog: 13k everyday dialogues with topic, acts, emotions (ParlAI's copy)",
        "CC BY-NC-SA 4.0",
        (
            _parlai(
                "dailydialog", "dailydialog.tar.gz", "c3adb09bd715b9fa5cd1ac41613b7de61eb5afbe477826a6146abefef573e6bb"
            ),
        ),
        "dailydialog",
    ),
    Home(
        "empathetic",
        "EmpatheticDialogues: 25k talks about situations that made someone feel",
        "CC BY-NC 4.0",
        (
            _parlai(
                "empatheticdialogues",
                "empatheticdialogues.tar.gz",
                "56f234d77b7dd1f005fd365bb17769cfe346c3c84295b69bc069c8ccb83be03d",
            ),
        ),
        "empathetic-csv",
    ),
    Home(
        "blended-skill-talk",
        "BlendedSkillTalk: 7k chats that mix personas, knowledge and empathy",
        "none stated (carried by ParlAI, MIT)",
        (
            _parlai(
                "blended_skill_talk",
                "blended_skill_talk.tar.gz",
                "5fbed0068ee89e2d43b93c3ecb341e784617033efa5e8e911a219d4eda6134a6",
            ),
        ),
        "blended-skill-talk",
    ),
    Home(
        "wizard",
        "Wizard of Wikipedia: 22k dialogues grounded in Wikipedia (data.json holds all splits again)",
        "none stated (carried by ParlAI, MIT)",
        (
            _parlai(
                "wizard_of_wikipedia",
                "wizard_of_wikipedia.tgz",
                "2a549627a83fea745efa2076a41d1c0078ad002ab2b54eae6a4e3d3d66ae24b7",
            ),
        ),
        "wizard",
    ),
    Home(
        "topical-chat",
        "Topical-Chat: 11k knowledge-grounded chats; reading sets hold references until built by their own script",
        "CDLA-Sharing-1.0",
        (Remote("topical-chat.zip", (f"https://github.com/alexa/Topical-Chat/archive/{_TOPICAL}.zip",)),),
        "topical-chat",
    ),
    Home(
        "cmu-dog",
        "CMU-DoG: 4k chats about films, with their documents",
        "none stated",
        (
            Remote(
                "cmu_dog.zip",
                (f"https://github.com/festvox/datasets-CMU_DoG/archive/{_DOG}.zip",),
                "f8ba8820cf86ee1c196b237b0cde80edba940e4ddea28c582830f6d098b3c769",
            ),
        ),
        "cmu-dog",
    ),
    Home(
        "begin-v1",
        "BEGIN, first release: replies of two models labelled for grounding, five labels",
        "CC BY 4.0",
        tuple(Remote(f"{split}.tsv", (f"{_BEGIN}/{_BEGIN_1}/{split}_05_24_21.tsv",)) for split in ("dev", "test")),
        "begin-v1",
    ),
    Home(
        "begin-v2",
        "BEGIN, second release: replies of four models on three corpora, three labels",
        "CC BY 4.0; the part on Topical-Chat CDLA-Sharing-1.0",
        tuple(
            Remote(f"{split}_{part}.tsv", (f"{_BEGIN}/{_BEGIN_2}/{folder}/begin_{split}_{part}.tsv",))
            for split, folder, part in (
                ("dev", "wow", "wow"),
                ("test", "wow", "wow"),
                ("dev", "cmu-dog", "cmu"),
                ("dev", "topicalchat", "tc"),
            )
        ),
        "begin-v2",
    ),
    Home(
        "ubuntu-v1",
        "Ubuntu Dialogue Corpus, first release: the one-to-one dialogues it was made from",
        "none stated",
        (
            Remote(
                "ubuntu_dialogs.tgz",
                (
                    "http://dataset.cs.mcgill.ca/ubuntu-corpus-1.0/ubuntu_dialogs.tgz",
                    "http://cs.mcgill.ca/~jpineau/datasets/ubuntu-corpus-1.0/ubuntu_dialogs.tgz",
                ),
            ),
        ),
        "ubuntu-tsv",
    ),
    Home(
        "ubuntu-v2",
        "Ubuntu Dialogue Corpus, second release: labelled pairs and candidates (ParlAI's copy)",
        "none stated",
        (_parlai("ubuntu", "ubuntu.tar.gz", "87caf297381287247cbff3aa7cc2f4609f3b12c40e8535688168d7413740e0d0"),),
        "ubuntu-pairs",
    ),
    Home(
        "irc-disentanglement",
        "Kummerfeld's #ubuntu days: 77k messages with who answers whom",
        "CC BY 4.0",
        (Remote("irc-disentanglement.zip", ("https://github.com/jkkummerfeld/irc-disentanglement/zipball/fd379e9",)),),
    ),
    Home(
        "reddit-small",
        "ConvoKit's small Reddit corpus: 100 threads from each of 100 subreddits",
        "none stated",
        (
            Remote(
                "reddit-corpus-small.corpus.zip",
                (
                    "https://zissou.infosci.cornell.edu/convokit/datasets/subreddit-corpus/"
                    "reddit-corpus-small.corpus.zip",
                ),
            ),
        ),
        "convokit",
    ),
)
HOMES: dict[str, Home] = {home.name: home for home in _HOMES}


def get(name: str, folder: Path, progress: Progress | None = None, *, homes: Mapping[str, Home] | None = None) -> Got:
    """Bring a corpus home. What is there already and unchanged is not fetched again; a changed file is refused."""
    known = HOMES if homes is None else homes
    if name not in known:
        raise UnknownName("corpus", name, known)
    home, told = known[name], progress or Silent()
    folder.mkdir(parents=True, exist_ok=True)
    before = _read_record(home, folder)
    entries: list[dict[str, Json]] = []
    fresh, unverified = False, []
    for remote in home.remotes:
        entry = before.get(remote.file, {})
        path = folder / remote.file
        if not path.is_file():
            entry = dict(entry) | {"url": fetch(remote.urls, path, told)}
            fresh = True
        told.step(f"Checking {remote.file}")
        digest = _check(path, remote.sha256, entry.get("sha256"))
        if remote.sha256 is None and "sha256" not in entry:
            unverified.append(remote.file)
        told.step(f"Unpacking {remote.file}")
        files = _unpacked(path, folder, entry, digest)
        entries.append(
            {
                "file": remote.file,
                "url": entry.get("url", remote.urls[0]),
                "sha256": digest,
                "bytes": path.stat().st_size,
                "checked": "published" if remote.sha256 else "first use",
                "fetched": entry.get("fetched") or datetime.now(UTC).isoformat(timespec="seconds"),
                "files": files,
            }
        )
    _write_record(home, folder, entries)
    return Got(home, folder, [name for entry in entries for name in entry["files"]], fresh, unverified)


def _check(path: Path, published: str | None, recorded: Json) -> str:
    """The file's hash, if it is the one published or the one seen before."""
    digest = sha256_of(path)
    for expected, what in ((published, "published"), (recorded, f"recorded in {RECORD}")):
        if expected and digest != expected:
            raise DataError(
                f"{path} is not the file it should be: its SHA-256 is {digest}, the one {what} is {expected}.",
                hint="Delete it and get it again; if it is the same again, the file at its home was changed.",
            )
    return digest


def _unpacked(path: Path, folder: Path, entry: Mapping[str, Json], digest: str) -> list[str]:
    """The files of an archive, unpacked unless they all lie there already; a plain file is its own."""
    files = entry.get("files")
    if entry.get("sha256") == digest and isinstance(files, list) and all((folder / str(f)).is_file() for f in files):
        return files
    return unpack(path, folder) or [path.name]


def _read_record(home: Home, folder: Path) -> dict[str, dict[str, Json]]:
    path = folder / RECORD
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        corpus, entries = record["corpus"], {entry["file"]: dict(entry) for entry in record["files"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}).", hint="Delete it; hashes are then recorded anew.") from None
    if corpus != home.name:
        raise UsageError(f"{folder} holds the corpus {corpus!r} already.", hint="Give each corpus its own folder.")
    return entries


def _write_record(home: Home, folder: Path, entries: list[dict[str, Json]]) -> None:
    record = {"corpus": home.name, "what": home.what, "licence": home.licence, "format": home.format, "files": entries}
    partial = folder / f"{RECORD}.partial"
    partial.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    partial.replace(folder / RECORD)
