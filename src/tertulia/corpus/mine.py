"""Mining as a job: messages in, a folder out with the pairs, the funnel, the subword model and the settings."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from tertulia import __version__, sample
from tertulia.core.codec import Problems, message_from_json
from tertulia.core.config import save
from tertulia.core.dialogue import Message
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.load import SAMPLE, files_of, read_file
from tertulia.corpus.rules import MiningRules
from tertulia.corpus.shards import write_parquet
from tertulia.corpus.subwords import train_subwords
from tertulia.corpus.trees import Funnel, mine_trees


class MineConfig(MiningRules):
    """What is mined, by which rules, and where it goes."""

    source: str = SAMPLE
    """A file or folder of messages (JSON lines), or `sample` for the bundled forum."""
    out: Path = Path("mined")
    """Folder for the results."""
    vocabulary: int = Field(8000, ge=300)
    """Most subwords to learn; a small corpus has fewer."""
    unsafe: Literal["marked", "none"] = "marked"
    """Which messages count as unsafe: those marked `rude` or `unsafe` in their meta, or none."""
    strict: bool = False
    """Refuse damaged lines instead of skipping and counting them."""


@dataclass(frozen=True, slots=True)
class MineOutcome:
    """What came of it."""

    funnel: Funnel
    problems: Problems
    subwords: int
    """Size of the subword vocabulary."""
    pairs: Path
    """The Parquet file with one dialogue per reply."""


def mine(config: MineConfig, progress: Progress | None = None) -> MineOutcome:
    """Mine a corpus that fits in memory."""
    progress = progress or Silent()
    problems = Problems()
    progress.step("Reading messages")
    messages = list(read_messages(config.source, None if config.strict else problems))
    if not messages:
        raise DataError(
            f"There are no messages in {config.source}.", hint="Messages are JSON lines with id, author and text."
        )
    progress.step(f"Learning subwords from {len(messages)} messages")
    counter = train_subwords((m.text for m in messages), vocabulary=config.vocabulary)
    progress.step("Mining", total=len(messages))
    mined = mine_trees(messages, config, subwords=counter, unsafe=marked if config.unsafe == "marked" else _none)
    progress.advance(len(messages))
    config.out.mkdir(parents=True, exist_ok=True)
    counter.save(config.out / "subwords.model")
    write_parquet(mined.pairs, config.out / "pairs.parquet")
    save(config, config.out / "config.toml")
    record = asdict(mined.funnel) | {
        "damaged lines": problems.count,
        "subwords": counter.vocabulary,
        "version": __version__,
    }
    (config.out / "funnel.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    return MineOutcome(mined.funnel, problems, counter.vocabulary, config.out / "pairs.parquet")


def read_messages(source: str, problems: Problems | None = None) -> Iterator[Message]:
    """The messages of the sample's forum, a file or a folder."""
    if source == SAMPLE:
        yield from sample.messages()
        return
    for file in files_of(Path(source)):
        yield from read_file(file, message_from_json, problems)


def marked(message: Message) -> bool:
    """Whether whoever prepared the data marked the message as rude or unsafe."""
    return bool(message.meta.get("rude") or message.meta.get("unsafe"))


def _none(message: Message) -> bool:
    return False
