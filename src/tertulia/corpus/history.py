"""What was done to a corpus: each command that makes a folder from another adds one step to its `history.json`.

A dataset card is written from it: which counts went in and came out, what was removed and why.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from tertulia import __version__
from tertulia.artefacts.files import read_json, write_json
from tertulia.artefacts.folders import Folder, open_folder, read_json_from
from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.config import Config
from tertulia.core.dialogue import Json
from tertulia.corpus.load import SAMPLE
from tertulia.corpus.mining.pairs import FUNNEL, is_mined

HISTORY = "history.json"
_ERASED = "erased.json"
_NOT_SETTINGS = ("out", "engine", "address", "workers", "force", "ending")
"""Fields of configs that do not affect the result."""


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One command and what it did."""

    command: str
    source: str
    """Name of what was read, without the path."""
    settings: dict[str, Json]
    read: int
    """Dialogues or exchanges that were read."""
    kept: int
    removed: dict[str, int] = field(default_factory=dict)
    """How many were removed for each reason."""
    changed: dict[str, int] = field(default_factory=dict)
    """How much was replaced, of each kind."""
    damaged_lines: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """What is in which split, if there are any."""
    erasures: list[str] = field(default_factory=list)
    """When people or messages were erased from the result."""
    licence: str = ""
    """Of the source, as far as it is known."""
    version: str = __version__


def settings_of(config: Config) -> dict[str, Json]:
    """What a config sets that affects the result, other than by default; of a path, the name."""
    values = config.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    named = {name: value for name, value in values.items() if name not in _NOT_SETTINGS}
    return named | ({"target": Path(named["target"]).name} if "target" in named else {})


def read_history(target: str | Path) -> list[HistoryStep]:
    """The steps that made a corpus, mining included; none if it was not made by these commands."""
    if str(target) == SAMPLE:
        return []
    path = Path(target)
    folder = path if path.is_dir() else path.parent
    if is_mined(folder):
        return [mining_step(open_folder(folder))]
    file = folder / HISTORY
    return [HistoryStep(**step) for step in read_json(file)["steps"]] if file.is_file() else []


def mining_step(folder: Folder) -> HistoryStep:
    """What the funnel of a mined folder says; `read` and `removed` are messages, `kept` are pairs."""
    files = folder.sizes()
    funnel = read_json_from(folder, FUNNEL)
    manifest = read_json_from(folder, MANIFEST) if MANIFEST in files else {}
    names = [Path(str(source.get("path") or source.get("name") or "")).name for source in manifest.get("inputs", [])]
    erased = read_json_from(folder, _ERASED)["erasures"] if _ERASED in files else []
    return HistoryStep(
        "mine",
        ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
        dict(manifest.get("rules", {})),
        funnel["messages"],
        funnel["pairs"],
        {reason: n for reason, n in funnel["removed"].items() if n},
        funnel.get("replaced", {}),
        damaged_lines=funnel.get("damaged lines", 0),
        erasures=[str(erasure.get("when", "")) for erasure in erased],
        version=str(funnel.get("version", "")),
    )


def write_history(folder: Path, before: list[HistoryStep], step: HistoryStep) -> None:
    """Write the steps that made the corpus in a folder."""
    write_json(folder / HISTORY, {"format": 1, "steps": [asdict(one) for one in (*before, step)]}, durable=True)
