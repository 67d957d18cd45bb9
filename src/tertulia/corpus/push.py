"""Write a corpus in the layout of a hub: `data/train-00000-of-00003.parquet` and a card that lists the splits.

`datasets.load_dataset(FOLDER)` opens the folder offline, and `hf upload` puts it on the hub; nothing is uploaded here.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from tertulia.artefacts.outputs import Output
from tertulia.core.config import Cli
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.card import SPLIT_NAMES, licence_of, write_card
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.derived import DeriveCounts, collect_shards, run_steps
from tertulia.corpus.history import HistoryStep, read_history, settings_of, write_history
from tertulia.corpus.load import holds
from tertulia.corpus.origin import record_origin
from tertulia.corpus.parts import parts_of
from tertulia.corpus.scale import WORK, WorkerConfig, open_engine, working_folder

DATA = "data"


class PushConfig(ReadConfig, WorkerConfig):
    """What to write, in which layout."""

    out: Annotated[Path, Cli("--out"), Output("folder")]
    """Folder to write; it must be empty or not exist."""
    layout: Literal["huggingface"] = "huggingface"
    """Layout of the folder."""
    licence: str = ""
    """Licence to state in the card, such as cc-by-4.0; by default what is recorded with the corpus."""


def push_corpus(config: PushConfig, progress: Progress | None = None) -> DeriveCounts:
    """Write the folder; it appears complete or not at all."""
    if config.out.exists() and (not config.out.is_dir() or {f.name for f in config.out.iterdir()} - {WORK}):
        raise UsageError(f"{config.out} is not an empty folder.", hint="Name another one with --out.")
    kind = holds(config.target, split=config.split, format=config.format)
    parts = parts_of(config, wanted="dialogues" if kind == "dialogues" else None)
    ending: Literal[".jsonl", ".parquet"] = ".jsonl" if kind == "exchanges" else ".parquet"
    with working_folder(config.out) as work, open_engine(config, parts) as engine:
        counts = run_steps(parts, [], work, ending, engine, progress or Silent(), title=f"Writing {config.out}")
        (config.out / DATA).mkdir()
        for source, name in _names(collect_shards(work), ending).items():
            source.replace(config.out / DATA / name)
        steps = read_history(config.target)
        licence = config.licence or licence_of(config.target, steps)
        step = HistoryStep(
            "push", Path(config.target).name, settings_of(config), counts.read, counts.kept, licence=licence
        )
        write_history(config.out, steps, step)
        write_card(config.out, licence=licence)
        record_origin(config.out, command="push", source=config.target)
    return counts


def _names(shards: list[Path], ending: str) -> dict[Path, str]:
    """What the hub calls each shard; those of unknown splits are for training."""
    splits = {shard: SPLIT_NAMES.get(shard.name.rpartition("-")[0].lower(), "train") for shard in shards}
    totals, seen = Counter(splits.values()), Counter[str]()
    names: dict[Path, str] = {}
    for shard, split in splits.items():
        names[shard] = f"{split}-{seen[split]:05d}-of-{totals[split]:05d}{ending}"
        seen[split] += 1
    return names
