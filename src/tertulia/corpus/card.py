"""Dataset cards: a README.md with the YAML head that the Hugging Face hub reads, written from what a folder records.

It says what is in the folder, where that came from and under which licence, what each step removed and why, what was
replaced, and how many erasures there were; nothing that the folder does not know is made up. A card that somebody has
changed by hand is left alone.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow.compute as pc

from tertulia import __version__
from tertulia.artefacts.files import atomic_write, fingerprint, open_bytes, read_json
from tertulia.artefacts.folders import Folder
from tertulia.core.config import Cli, Config
from tertulia.corpus.catalog import RECORD
from tertulia.corpus.history import HISTORY, HistoryStep, mining_step, read_history
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.mining.pairs import PAIRS, is_mined, shards
from tertulia.corpus.shards import open_parquet

CARD = "README.md"
_SAMPLE_LICENCE = "CC0-1.0"
_UNKNOWN = "unknown"
SPLIT_NAMES = {"train": "train", "valid": "validation", "validation": "validation", "dev": "validation", "test": "test"}
"""What the hub calls a split, by how the name of its files begins."""
_DATA = (".jsonl", ".jsonl.gz", ".parquet")
_MARK = re.compile(r"<!-- written by Tertulia: ([0-9a-f]{16}) -->\n")
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
_SPDX = {
    "cc0-1.0",
    "cc-by-4.0",
    "cc-by-sa-4.0",
    "cc-by-nc-4.0",
    "cc-by-nc-sa-4.0",
    "mit",
    "apache-2.0",
    "odc-by",
    "pddl",
}
"""Licences that the hub knows by these names; others are `other`, with their name."""


class CardConfig(Config):
    """Which card to write."""

    folder: Annotated[Path, Cli(argument=True)]
    """Folder of a corpus that these commands made."""
    licence: str = ""
    """Licence to state, such as cc-by-4.0; by default what is recorded with the corpus."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card says."""

    name: str
    licence: str
    splits: dict[str, int]
    """Dialogues or exchanges by split."""
    files: dict[str, list[str]]
    """Paths of the data by split."""
    steps: Sequence[HistoryStep] = ()
    languages: tuple[str, ...] = ()


def write_card(folder: Path, *, licence: str = "") -> bool:
    """Write the card of a corpus folder; returns whether it did: one that was changed by hand is left alone."""
    path = folder / CARD
    if path.is_file() and not _is_own(path.read_text(encoding="utf-8", errors="replace")):
        return False
    facts = facts_of(folder, licence=licence)
    with atomic_write(path) as unfinished:
        unfinished.write_text(_marked(render(facts)), encoding="utf-8")
    return True


def write_card_to_store(mined: Folder) -> bool:
    """The same for what was mined into a store, by its funnel alone."""
    if CARD in mined.sizes() and not _is_own(mined.read(CARD).decode("utf-8", "replace")):
        return False
    place = mined.location()
    step = mining_step(mined)
    files = [f"{PAIRS}/{name}" for name in sorted(mined.subfolder(PAIRS).sizes()) if name.endswith(".parquet")]
    facts = CardFacts(place.rstrip("/").rpartition("/")[2], _UNKNOWN, {"train": step.kept}, {"train": files}, [step])
    with mined.write(CARD) as unfinished:
        unfinished.write_text(_marked(render(facts)), encoding="utf-8")
    return True


def _marked(text: str) -> str:
    return f"{text}\n<!-- written by Tertulia: {fingerprint([text])} -->\n"


def _is_own(text: str) -> bool:
    """Whether a card is as it was written."""
    match = _MARK.search(text)
    return match is not None and fingerprint([text[: match.start() - 1]]) == match[1] and match.end() == len(text)


def facts_of(folder: Path, *, licence: str = "") -> CardFacts:
    """What a folder knows about itself."""
    files: dict[str, list[str]] = {}
    for file in _data_files(folder):
        files.setdefault(_split_of(file), []).append(str(file.relative_to(folder)))
    splits = {split: sum(_count(folder / name) for name in names) for split, names in files.items()}
    steps = read_history(folder)
    return CardFacts(
        folder.resolve().name,
        licence or licence_of(folder, steps),
        splits,
        files,
        steps,
        _languages(folder, [name for names in files.values() for name in names]),
    )


def licence_of(target: str | Path, steps: Sequence[HistoryStep] = ()) -> str:
    """The licence of a corpus: as its history says, or the record that `corpus get` left beside it; else unknown."""
    if str(target) == SAMPLE:
        return _SAMPLE_LICENCE
    known = [step.licence for step in steps if step.licence]
    if known:
        return known[-1]
    path = Path(target).resolve()
    for folder in (path, *list(path.parents)[:3]):
        if (folder / RECORD).is_file():
            return str(read_json(folder / RECORD).get("licence") or _UNKNOWN)
        if (folder / HISTORY).is_file() and (known := [s.licence for s in read_history(folder) if s.licence]):
            return known[-1]
    return _UNKNOWN


def _data_files(folder: Path) -> list[Path]:
    if is_mined(folder):
        return shards(folder)
    files = [*folder.iterdir(), *(folder / "data").glob("*")]
    return sorted(file for file in files if file.is_file() and file.name.endswith(_DATA))


def _split_of(file: Path) -> str:
    name = re.split(r"[-_.\d]", file.name, maxsplit=1)[0].lower()
    return SPLIT_NAMES.get(name, "train")


def _count(file: Path) -> int:
    if file.name.endswith(".parquet"):
        with open_parquet(file) as parquet:
            return int(parquet.metadata.num_rows)
    with open_bytes(file) as lines:
        return sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 20), b""))


def _languages(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The languages of at least one in a hundred dialogues, if they are tagged in Parquet."""
    counts: Counter[str] = Counter()
    for name in names:
        if not name.endswith(".parquet"):
            return ()
        with open_parquet(folder / name) as file:
            if "tag_language" not in file.schema_arrow.names:
                return ()
            for batch in file.iter_batches(columns=["tag_language"]):
                for row in pc.value_counts(batch["tag_language"]).to_pylist():
                    counts[row["values"] or ""] += row["counts"]
    total = sum(counts.values())
    return tuple(language for language, n in counts.most_common() if language and n * 100 >= total)


def render(facts: CardFacts) -> str:
    """The card as text."""
    return "\n".join([*_head(facts), "", *_body(facts), ""])


def _head(facts: CardFacts) -> Iterator[str]:
    """YAML, of which JSON is a part: texts are written as JSON."""
    total = sum(facts.splits.values())
    name = facts.licence.lower()
    yield "---"
    if name in _SPDX:
        yield f"license: {name}"
    elif facts.licence == _UNKNOWN:
        yield "license: unknown"
    else:
        yield "license: other"
        yield f"license_name: {json.dumps(facts.licence)}"
    yield f"pretty_name: {json.dumps(facts.name)}"
    if facts.languages:
        yield "language:"
        yield from (f"- {json.dumps(language)}" for language in facts.languages)
    yield "task_categories:"
    yield "- text-generation"
    yield "tags:"
    yield "- dialogue"
    yield "- tertulia"
    yield "size_categories:"
    yield f"- {next((size for limit, size in _SIZES if total < limit), 'n>10M')}"
    yield "configs:"
    yield "- config_name: default"
    yield "  data_files:"
    for split, files in facts.files.items():
        yield f"  - split: {split}"
        yield "    path:"
        yield from (f"    - {json.dumps(pattern)}" for pattern in _patterns(files))
    yield "---"


def _patterns(files: Sequence[str]) -> list[str]:
    """The files; many of one name are one pattern."""
    if len(files) < 4:
        return list(files)
    return sorted({re.sub(r"\d{5,}(?:-of-\d{5,})?", "*", file) for file in files})


def _body(facts: CardFacts) -> Iterator[str]:
    yield f"# {facts.name}"
    yield f"Dialogues, made with Tertulia {__version__}."
    yield ""
    yield "## Counts"
    yield from _table(("split", "dialogues"), [*facts.splits.items(), ("all", sum(facts.splits.values()))])
    yield ""
    yield "## Licence"
    if facts.licence == _UNKNOWN:
        yield "Unknown: nothing beside the data says. Find out before you share it, and write it here."
    else:
        yield f"{facts.licence}, as recorded with the source. Whoever wrote the texts may have rights of their own."
    yield ""
    if facts.steps:
        yield from _steps(facts.steps)
    yield "## Erasures"
    erasures = [when for step in facts.steps for when in step.erasures]
    if erasures:
        yield f"People or messages were erased {len(erasures)} times, last on {max(erasures)[:10]}."
        yield "What was kept, and all later counts, are without them."
    else:
        yield "None are recorded in this folder. Erasures from the source are not known here."


def _steps(steps: Sequence[HistoryStep]) -> Iterator[str]:
    """What each command did."""
    yield "## Steps"
    for number, step in enumerate(steps, 1):
        settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in step.settings.items() if key != "target")
        yield f"{number}. `{step.command}` of {step.source}" + (f" ({settings})" if settings else "")
        yield ""
        unit = "messages, then pairs" if step.command == "mine" else "dialogues"
        rows: list[tuple[str, int]] = [("read", step.read)]
        rows += [(f"removed: {reason}", n) for reason, n in step.removed.items()]
        rows += [(f"replaced: {kind}", n) for kind, n in step.changed.items()]
        if step.damaged_lines:
            rows.append(("damaged lines, skipped", step.damaged_lines))
        rows.append(("kept", step.kept))
        rows += [(f"in {split}", n) for split, n in step.counts.items()]
        yield from _table(("", unit), rows)
        yield ""


def _table(head: tuple[str, str], rows: Sequence[tuple[str, int]]) -> Iterator[str]:
    yield f"| {head[0]} | {head[1]} |"
    yield "|---|---|"
    yield from (f"| {name.replace('|', '/')} | {count} |" for name, count in rows)
