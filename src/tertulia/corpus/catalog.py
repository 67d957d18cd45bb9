"""The catalog of well-known corpora, and `get_dataset`, which downloads, verifies and unpacks one and records it.

None is part of Tertulia; each has its own licence, which is shown before anything is downloaded and kept in the record.
A file with a published SHA-256 is verified against it. The hashes of other files are recorded on first use, in
`sources.json` beside the data, and verified on every later use: that detects changes, but not a file that was already
forged on first use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import orjson

from tertulia.artefacts.files import sha256_of, write_json
from tertulia.artefacts.outputs import Output
from tertulia.core.config import Cli, Config
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.fetch import fetch
from tertulia.corpus.unpack import unpack

RECORD = "sources.json"


class GetConfig(Config):
    """Which corpus to download, and where to."""

    name: Annotated[str, Cli(argument=True)]
    """Name of the corpus, as listed by `tertulia corpus list`."""
    out: Annotated[Path | None, Output("folder", "own")] = None
    """Folder for the corpus; `corpora/NAME` by default."""


class Download(NamedTuple):
    """One file and the URLs to try for it."""

    file: str
    urls: tuple[str, ...]
    sha256: str | None = None
    """As published; None if it was not."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A corpus: what it is, its licence, and its downloads."""

    name: str
    description: str
    licence: str
    downloads: tuple[Download, ...]
    format: str = ""
    """The format of its files; empty if no reader can read them as dialogues yet."""


class DownloadedDataset(NamedTuple):
    """A dataset on disk."""

    dataset: Dataset
    folder: Path
    files: list[str]
    """The data files, relative to the folder."""
    downloaded: bool
    """Whether anything was downloaded now."""
    unverified: list[str]
    """Files without a published hash, used for the first time."""


def _parlai(task: str, file: str, sha256: str) -> Download:
    """ParlAI's downloads, whose hashes are in its source code."""
    return Download(
        file,
        (f"https://dl.fbaipublicfiles.com/parlai/{task}/{file}", f"http://parl.ai/downloads/{task}/{file}"),
        sha256,
    )


_BEGIN = "https://raw.githubusercontent.com/google/BEGIN-dataset"
_BEGIN_1, _BEGIN_2 = "6f881995bca5405918f3138b04f29fdd2a1b73ae", "78e2215a158744b14d080e90c8135a2039f52eb8"
_DOG = "618a14f27546165859305649aa84e6ac8710bb63"
_TOPICAL = "8a485f76337a40dfab842426caeaa94fd8212db4"

_CATALOG = (
    Dataset(
        "personachat",
        "Persona-Chat: 11k chats of two people with assigned personas",
        "none stated (carried by ParlAI, MIT)",
        (
            _parlai(
                "personachat", "personachat.tgz", "507cf8641d333240654798870ea584d854ab5261071c5e3521c20d8fa41d5622"
            ),
        ),
        "personachat-text",
    ),
    Dataset(
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
    Dataset(
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
    Dataset(
        "empathetic",
        "EmpatheticDialogues: 25k conversations about emotional situations",
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
    Dataset(
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
    Dataset(
        "wizard",
        "Wizard of Wikipedia: 22k dialogues grounded in Wikipedia (data.json repeats all splits)",
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
    Dataset(
        "topical-chat",
        "Topical-Chat: 11k knowledge-grounded chats; reading sets are references until built with its own script",
        "CDLA-Sharing-1.0",
        (Download("topical-chat.zip", (f"https://github.com/alexa/Topical-Chat/archive/{_TOPICAL}.zip",)),),
        "topical-chat",
    ),
    Dataset(
        "cmu-dog",
        "CMU-DoG: 4k chats about films, with their documents",
        "none stated",
        (
            Download(
                "cmu_dog.zip",
                (f"https://github.com/festvox/datasets-CMU_DoG/archive/{_DOG}.zip",),
                "f8ba8820cf86ee1c196b237b0cde80edba940e4ddea28c582830f6d098b3c769",
            ),
        ),
        "cmu-dog",
    ),
    Dataset(
        "begin-v1",
        "BEGIN, first release: replies of two models labelled for grounding, five labels",
        "CC BY 4.0",
        tuple(Download(f"{split}.tsv", (f"{_BEGIN}/{_BEGIN_1}/{split}_05_24_21.tsv",)) for split in ("dev", "test")),
        "begin-v1",
    ),
    Dataset(
        "begin-v2",
        "BEGIN, second release: replies of four models on three corpora, three labels",
        "CC BY 4.0; the part on Topical-Chat CDLA-Sharing-1.0",
        tuple(
            Download(f"{split}_{part}.tsv", (f"{_BEGIN}/{_BEGIN_2}/{folder}/begin_{split}_{part}.tsv",))
            for split, folder, part in (
                ("dev", "wow", "wow"),
                ("test", "wow", "wow"),
                ("dev", "cmu-dog", "cmu"),
                ("dev", "topicalchat", "tc"),
            )
        ),
        "begin-v2",
    ),
    Dataset(
        "ubuntu-v1",
        "Ubuntu Dialogue Corpus, first release: the two-person dialogues it was built from",
        "none stated",
        (
            Download(
                "ubuntu_dialogs.tgz",
                (
                    "http://dataset.cs.mcgill.ca/ubuntu-corpus-1.0/ubuntu_dialogs.tgz",
                    "http://cs.mcgill.ca/~jpineau/datasets/ubuntu-corpus-1.0/ubuntu_dialogs.tgz",
                ),
            ),
        ),
        "ubuntu-tsv",
    ),
    Dataset(
        "ubuntu-v2",
        "Ubuntu Dialogue Corpus, second release: labelled pairs and candidates (ParlAI's copy)",
        "none stated",
        (_parlai("ubuntu", "ubuntu.tar.gz", "87caf297381287247cbff3aa7cc2f4609f3b12c40e8535688168d7413740e0d0"),),
        "ubuntu-pairs",
    ),
    Dataset(
        "irc-disentanglement",
        "Kummerfeld's #ubuntu logs: 77k messages annotated with reply links",
        "CC BY 4.0",
        (
            Download(
                "irc-disentanglement.zip", ("https://github.com/jkkummerfeld/irc-disentanglement/zipball/fd379e9",)
            ),
        ),
    ),
    Dataset(
        "reddit-small",
        "ConvoKit's small Reddit corpus: 100 threads from each of 100 subreddits",
        "none stated",
        (
            Download(
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
CATALOG: dict[str, Dataset] = {dataset.name: dataset for dataset in _CATALOG}


def get_dataset(
    name: str, folder: Path, progress: Progress | None = None, *, catalog: Mapping[str, Dataset] | None = None
) -> DownloadedDataset:
    """Download and unpack a corpus. Files that are there and unchanged are kept; a changed file is an error."""
    datasets = CATALOG if catalog is None else catalog
    if name not in datasets:
        raise UnknownName("corpus", name, datasets)
    dataset, progress = datasets[name], progress or Silent()
    folder.mkdir(parents=True, exist_ok=True)
    recorded = _read_record(dataset, folder)
    entries: list[dict[str, Json]] = []
    downloaded, unverified = False, []
    for download in dataset.downloads:
        entry = recorded.get(download.file, {})
        path = folder / download.file
        if not path.is_file():
            entry = dict(entry) | {"url": fetch(download.urls, path, progress)}
            downloaded = True
        progress.step(f"Verifying {download.file}")
        digest = _verify(path, download.sha256, entry.get("sha256"))
        if download.sha256 is None and "sha256" not in entry:
            unverified.append(download.file)
        progress.step(f"Unpacking {download.file}")
        files = _unpack(path, folder, entry, digest)
        entries.append(
            {
                "file": download.file,
                "url": entry.get("url", download.urls[0]),
                "sha256": digest,
                "bytes": path.stat().st_size,
                "checked": "published" if download.sha256 else "first use",
                "fetched": entry.get("fetched") or datetime.now(UTC).isoformat(timespec="seconds"),
                "files": files,
            }
        )
    _write_record(dataset, folder, entries)
    all_files = [file for entry in entries for file in entry["files"]]
    return DownloadedDataset(dataset, folder, all_files, downloaded, unverified)


def _verify(path: Path, published: str | None, recorded: Json) -> str:
    """The file's hash; an error if it differs from the published or the recorded one."""
    digest = sha256_of(path)
    for expected, origin in ((published, "published"), (recorded, f"recorded in {RECORD}")):
        if expected and digest != expected:
            raise DataError(
                f"{path} has the wrong content: its SHA-256 is {digest}, the one {origin} is {expected}.",
                hint="Delete it and run this again; if the error persists, the file on the server has changed.",
            )
    return digest


def _unpack(path: Path, folder: Path, entry: Mapping[str, Json], digest: str) -> list[str]:
    """The files of an archive, unpacked unless all are there already; for a plain file, the file itself."""
    files = entry.get("files")
    if entry.get("sha256") == digest and isinstance(files, list) and all((folder / str(f)).is_file() for f in files):
        return files
    return unpack(path, folder) or [path.name]


def _read_record(dataset: Dataset, folder: Path) -> dict[str, dict[str, Json]]:
    path = folder / RECORD
    if not path.is_file():
        return {}
    try:
        record = orjson.loads(path.read_bytes())
        corpus, entries = record["corpus"], {entry["file"]: dict(entry) for entry in record["files"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}).", hint="Delete it; the hashes will be recorded again.") from None
    if corpus != dataset.name:
        raise UsageError(f"{folder} already contains the corpus {corpus!r}.", hint="Use one folder per corpus.")
    return entries


def _write_record(dataset: Dataset, folder: Path, entries: list[dict[str, Json]]) -> None:
    about = {"corpus": dataset.name, "what": dataset.description, "licence": dataset.licence, "format": dataset.format}
    write_json(folder / RECORD, about | {"files": entries})
