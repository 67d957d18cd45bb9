"""Was a bot judged on what it was built from? Shared files, and judged replies that its training data has.

A retrieval bot finds the reply that it indexed, and a model remembers what it was trained on, so such figures say
nothing about new conversations. What a bot was built from follows from its specification: the data of an index, the
config and the training record of a run, and those of the run that it started from. Files are compared by their digests
(`tertulia.corpus.identity`). Texts are compared where the training data can still be read: a judged reply counts if it
follows the same message there, whatever case and white space. A few such pairs occur in any two parts of a corpus
("Hi!" "Hello!"), so a warning needs `SHARE` of them.

For models of others, whose data nobody here knows, there is nothing to compare.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path

from tertulia.artefacts.files import open_text
from tertulia.artefacts.manifest import is_complete, read_about
from tertulia.core.config import load_toml
from tertulia.core.dialogue import Json
from tertulia.core.errors import TertuliaError
from tertulia.core.text import squash
from tertulia.corpus.identity import describe_data, shared_files
from tertulia.corpus.load import SAMPLE, holds, load_dialogues, load_exchanges
from tertulia.judge.runs import JudgedItem, JudgedRun
from tertulia.talk.bots.tfidf import indexed_split
from tertulia.talk.spec import parse_spec
from tertulia.talk.tfidf_index import PAIRS

VERBS = ("rank", "perplexity", "replies", "replay", "curve", "grounding")
"""Commands that judge bots and models on data."""
SHARE = 0.01
"""Share of the judged replies in the training data from which on there is a warning."""
MAX_DIALOGUES = 200_000
"""Training dialogues that are read at most."""
CONFIG = "config.toml"

Pair = tuple[str, str]
"""A message and the reply to it."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What a bot was built from."""

    path: str
    split: str | None = None
    digest: str = ""
    """As recorded when the bot was built; empty if it was not."""
    files: Mapping[str, str] | None = None
    pairs: Path | None = None
    """The file of an index that has all its pairs, if the data itself is not named."""

    def as_json(self) -> dict[str, Json]:
        """Path, split and digests, as far as they are known."""
        return {"path": self.path, "split": self.split, "digest": self.digest, "files": dict(self.files or {})}


@dataclass(frozen=True, slots=True)
class Contamination:
    """How much of what was judged a subject was built from."""

    subject: str
    training: str
    """Path and split of its data."""
    files: tuple[str, ...]
    """Judged files that are among its data."""
    judged: int
    """Units whose texts could be compared; 0 if the data cannot be read any more."""
    shared: int
    """Of these, units whose texts are in its data."""
    complete: bool = True
    """Whether all of its data was read."""

    @property
    def is_serious(self) -> bool:
        """Whether the figures cannot be trusted."""
        return bool(self.files) or (self.judged > 0 and self.shared / self.judged >= SHARE)

    def as_json(self) -> dict[str, Json]:
        """As it is saved with a run."""
        return {
            "subject": self.subject,
            "training": self.training,
            "files": list(self.files),
            "judged": self.judged,
            "shared": self.shared,
            "complete": self.complete,
            "serious": self.is_serious,
        }

    def warning(self) -> str:
        """What a reader must know, and what to do about it."""
        share = f"{self.shared} of {self.judged} judged units ({self.shared / max(self.judged, 1):.0%})"
        read = "" if self.complete else ", as far as it was read"
        advice = "Judge it on held-out data (`tertulia corpus split`, --split)."
        if not self.files and 2 * self.shared < self.judged:
            return f"{share} are in the training data of {self.subject} ({self.training}){read}. {advice}"
        causes = [f"the same files ({', '.join(self.files)})"] if self.files else []
        causes += [f"{share}{read}"] if self.shared else []
        return (
            f"{self.subject} was judged on what it was built from: {self.training} has {' and '.join(causes)}. Its"
            f" figures say nothing about new conversations. {advice}"
        )


def with_contamination(run: JudgedRun) -> JudgedRun:
    """The run with what there is to say about shared data, for commands that judge on data."""
    if run.verb not in VERBS or "contamination" in run.about:
        return run
    return replace(run, about={**run.about, "contamination": [one.as_json() for one in contaminations(run)]})


def contamination_warnings(run: JudgedRun) -> list[str]:
    """The warnings that a run was saved with."""
    fields = ("subject", "training", "files", "judged", "shared", "complete")
    saved = (Contamination(*(record[name] for name in fields)) for record in run.about.get("contamination") or ())
    return [one.warning() for one in saved if one.is_serious]


def contaminations(run: JudgedRun) -> Iterator[Contamination]:
    """For each subject and each of its training sets, what it shares with the judged data."""
    judged: Mapping[str, Json] = run.about.get("data") or {}
    for subject in run.subjects:
        units = _judged_pairs(item for item in run.items if item.subject in ("", subject.name))
        for data in training_data(subject.spec) if subject.spec else ():
            if run.verb == "grounding" and data.path == SAMPLE:  # its dialogues teach, its labelled triples are judged
                continue
            shared, complete = _shared_units(data, units) if run.verb != "grounding" else (None, True)
            of = f", split {data.split}" if data.split else ""
            yield Contamination(
                subject.name,
                f"{data.path}{of}",
                tuple(shared_files(judged, data.as_json())),
                0 if shared is None else len(units),
                shared or 0,
                complete,
            )


def training_data(spec: str) -> list[TrainingData]:
    """What the bot of a specification was built from, as far as it says."""
    try:
        parsed = parse_spec(spec)
    except TertuliaError:  # the name of a subject that is no bot here
        return []
    folder = Path(parsed.target or parsed.name)
    pool = [_described(parsed.options["pool"], None)] if parsed.options.get("pool") else []
    if is_complete(folder):
        return [*_of_run(folder), *pool]
    if parsed.name == "tfidf":
        target = parsed.target or SAMPLE
        return [_described(target, indexed_split(target, parsed.options.get("split", "")))]
    return pool


def _of_run(folder: Path, depth: int = 0) -> list[TrainingData]:
    """Of a training run: the data of its record and config, and that of the runs it started from."""
    if (folder / PAIRS).is_file():
        return [TrainingData(str(folder), pairs=folder / PAIRS)]
    config = load_toml(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    recorded = (read_about(folder).get("training") or {}).get("data") or {}
    sets = []
    if recorded:
        sets.append(
            TrainingData(recorded["path"], recorded["split"], str(recorded["digest"]), recorded.get("files") or {})
        )
    elif config.get("data"):  # a run of an earlier version
        sets.append(_described(str(config["data"]), str(config.get("split") or "train")))
    starts = [Path(str(config[key])) for key in ("start", "base") if config.get(key)] if depth < 5 else []
    return [*sets, *(one for start in starts if is_complete(start) for one in _of_run(start, depth + 1))]


def _described(path: str, split: str | None) -> TrainingData:
    """Data as it is now; without digests if it cannot be read any more."""
    if path != SAMPLE and not Path(path).exists():
        return TrainingData(path, split)
    try:
        described = describe_data(path, split)
    except (TertuliaError, OSError):
        return TrainingData(path, split)
    return TrainingData(path, split, str(described["digest"]), described.get("files") or {})


def _judged_pairs(items: Iterable[JudgedItem]) -> dict[str, list[Pair]]:
    """By unit, the messages with the human replies to them: one for a reply, several for a dialogue."""
    units: dict[str, list[Pair]] = {}
    for item in items:
        context = [_text(turn) for turn in item.content.get("context") or ()]
        reference = item.content.get("reference")
        if "targets" in item.content:
            targets = set(map(_key, item.content["targets"]))
            pairs = [pair for pair in _adjacent(context) if pair[1] in targets]
        elif isinstance(reference, str) and reference:
            pairs = [(_key(context[-1]) if context else "", _key(reference))]
        else:
            pairs = _adjacent(context)[-1:]
        if pairs:
            units.setdefault(item.unit, pairs)
    return units


def _shared_units(data: TrainingData, units: Mapping[str, Sequence[Pair]]) -> tuple[int | None, bool]:
    """How many units have at least half of their pairs in the data (None if it cannot be read), and if all was read."""
    wanted = {pair for pairs in units.values() for pair in pairs}
    seen: set[Pair] = set()
    count = 0
    try:
        for pairs in islice(_training_pairs(data), MAX_DIALOGUES + 1):
            count += 1
            seen.update(wanted.intersection(pairs))
    except (TertuliaError, OSError, ValueError, KeyError):
        return None, False
    shared = sum(2 * sum(pair in seen for pair in pairs) >= len(pairs) for pairs in units.values())
    return shared, count <= MAX_DIALOGUES


def _training_pairs(data: TrainingData) -> Iterator[list[Pair]]:
    """The messages and replies of each dialogue, exchange or pair."""
    if data.pairs is not None:
        with open_text(data.pairs) as lines:
            for line in lines:
                message, reply, *_ = json.loads(line)
                yield [(_key(message), _key(reply))]
    elif holds(data.path, split=data.split) == "exchanges":
        for exchange in load_exchanges(data.path, split=data.split):
            yield _adjacent([*(turn.text for turn in exchange.context), exchange.response.text])
    else:
        for dialogue in load_dialogues(data.path, split=data.split):
            yield _adjacent([turn.text for turn in dialogue.turns])


def _adjacent(texts: Sequence[str]) -> list[Pair]:
    """Each text with the one before it; the first one opens the conversation."""
    return list(pairwise(["", *map(_key, texts)]))


def _key(text: str) -> str:
    return squash(text).casefold()


def _text(turn: Json) -> str:
    return str(turn.get("text", "")) if isinstance(turn, Mapping) else str(turn)
