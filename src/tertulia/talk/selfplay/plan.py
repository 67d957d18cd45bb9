"""Which conversations a command wants: pairings of bots, a scene for each conversation, cut into shards.

A shard is some conversations of one pairing, played side by side. Where to cut follows from the plan alone: rounding
may let a neural model's reply depend on the batch it is computed in, so batches must not depend on the number of
processes or on interruptions.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import NamedTuple

from tertulia import __version__, sample
from tertulia.artefacts.files import fingerprint, sha256_of
from tertulia.artefacts.manifest import is_complete, read_about
from tertulia.core.codec import dump_line, persona_to_json
from tertulia.core.dialogue import Json, Persona
from tertulia.core.errors import DataError, UsageError
from tertulia.corpus.load import load_dialogues
from tertulia.talk.selfplay.config import SelfplayConfig
from tertulia.talk.selfplay.conversation import Scene
from tertulia.talk.spec import NamedSpec, check_spec, name_specs, parse_spec

FORMAT = 1
"""Raised whenever self-play would produce different bytes from the same bots and settings."""
SPEAKERS = ("A", "B")
"""What speakers without a given name are called."""


class Pairing(NamedTuple):
    """Two bots that talk, or one that talks to itself."""

    first: NamedSpec
    second: NamedSpec

    @property
    def name(self) -> str:
        """The name of the bot that talks to itself, or of both."""
        return self.first.name if self.first == self.second else f"{self.first.name} + {self.second.name}"

    @property
    def speakers(self) -> tuple[str, str]:
        """The names of the two speakers: those given to the bots, else A and B; no two are the same."""
        one, two = (bot.name if bot.is_given else default for bot, default in zip(self, SPEAKERS, strict=True))
        return one, f"{two} (2)" if one == two else two


class Opener(NamedTuple):
    """A first turn."""

    text: str
    line: int | None
    """Its line in the file of openers; None if it was given as an option."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Conversations of one pairing that are played side by side."""

    number: int
    pairing: Pairing
    scenes: tuple[Scene, ...]
    turns: int

    @property
    def new_turns(self) -> int:
        """Turns that the bots generate."""
        return sum(self.turns - bool(scene.opener) for scene in self.scenes)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that determines the resulting bytes, and the work it means."""

    record: Mapping[str, Json]
    """What distinguishes this plan from others; the number of processes and the engine do not."""
    run: str
    """Fingerprint of the record; in every conversation, so that a file tells which command made it."""
    pairings: tuple[Pairing, ...]
    shards: tuple[Shard, ...]


def make_plan(config: SelfplayConfig) -> Plan:
    """The plan of a command; wrong specifications, files and options are errors now, not after hours of work."""
    bots = name_specs(config.bots)
    for bot in bots:
        check_spec(bot.spec)
    pairings = pairings_of(bots, with_itself=config.with_itself, all_pairs=config.all_pairs)
    if (config.processes > 1 or config.engine == "ray") and any(parse_spec(b.spec).name == "human" for b in bots):
        raise UsageError("A person at this terminal can only talk in one process.", hint="Leave out --processes.")
    openers, personas = read_openers(config), read_personas(config)
    record: dict[str, Json] = {
        "format": FORMAT,
        "version": __version__,
        "bots": [{"name": bot.name, "spec": bot.spec, "files": fingerprints_of(bot.spec)} for bot in bots],
        "pairings": [[bot.name for bot in pairing] for pairing in pairings],
        "speakers": [list(pairing.speakers) for pairing in pairings],
        "conversations": config.conversations,
        "turns": config.turns,
        "openers": fingerprint(f"{one.line} {one.text}" for one in openers),
        "personas": fingerprint(dump_line(persona_to_json(one)) for one in personas),
        "seed": config.seed,
        "shard": config.shard,
    }
    run = fingerprint([json.dumps(record, sort_keys=True)])
    shards = tuple(_shards(config, pairings, openers, personas, run))
    return Plan(record, run, tuple(pairings), shards)


def pairings_of(bots: list[NamedSpec], *, with_itself: bool, all_pairs: bool) -> list[Pairing]:
    """Who talks to whom: each with itself, then all pairs, as asked for; a single bot talks to itself, two together.

    >>> bots = name_specs(["generic", "tfidf", "human"])
    >>> [pairing.name for pairing in pairings_of(bots, with_itself=False, all_pairs=True)]
    ['generic + tfidf', 'generic + human', 'tfidf + human']
    """
    if len(bots) == 1:
        return [Pairing(bots[0], bots[0])]
    if not with_itself and not all_pairs:
        return [Pairing(bots[0], bots[1])]
    alone = [Pairing(bot, bot) for bot in bots] if with_itself else []
    return alone + ([Pairing(*pair) for pair in combinations(bots, 2)] if all_pairs else [])


def differences(before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    """What distinguishes two records, in words."""
    keys = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    short = [key for key in keys if all(isinstance(record.get(key), int | str) for record in (before, now))]
    digests = ("openers", "personas")
    named = [f"{k} was {before[k]!r}, now {now[k]!r}" for k in short if k not in digests]
    return "; ".join(named + [f"other {key}" for key in keys if key not in short or key in digests])


def read_openers(config: SelfplayConfig) -> list[Opener]:
    """The first turns in the order in which conversations take them; one of no text if the bots open."""
    if config.openers is None:
        return [Opener(config.opener, None)]
    try:
        lines = config.openers.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(
            f"Cannot read the openers {config.openers}: {reason}.", hint="--openers expects a text, one opener a line."
        ) from None
    openers = [Opener(line.strip(), number) for number, line in enumerate(lines, 1) if line.strip()]
    if not openers:
        raise DataError(f"There are no openers in {config.openers}.", hint="It needs one opener a line.")
    return random.Random(config.seed).sample(openers, len(openers))


def read_personas(config: SelfplayConfig) -> list[Persona]:
    """The personas that the conversations take in turn, two each: those of a corpus in the order of their dialogues."""
    if config.personas == "none":
        return []
    if config.personas == "sample":
        people = sample.personas("valid")
    elif Path(config.personas).exists():
        people = list(islice(_different_personas(config.personas), 2 * config.conversations))
    else:
        raise UsageError(
            f"There are no personas at {config.personas!r}.", hint="Give 'sample', 'none', or a file of dialogues."
        )
    if len(people) < 2:
        raise DataError(f"{config.personas} has fewer than two personas.", hint="Give dialogues with personas.")
    return people[: len(people) // 2 * 2]


def fingerprints_of(spec: str) -> dict[str, str]:
    """Digests of the files behind a bot, by path: its checkpoint, index or data, and those that its options name."""
    parsed = parse_spec(spec)
    paths = dict.fromkeys((parsed.target, *parsed.options.values()))
    return {path: digest for path in paths if path and (digest := _digest(Path(path)))}


def _digest(path: Path) -> str:
    """A complete folder has a fingerprint; of other folders (other people's models) names and sizes have to do."""
    try:
        if is_complete(path):
            return str(read_about(path).get("fingerprint", ""))
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            return fingerprint(f"{file.relative_to(path)} {file.stat().st_size}" for file in files)
        return sha256_of(path) if path.is_file() else ""
    except OSError:  # for example, a text too long for a path
        return ""


def _different_personas(corpus: str) -> Iterator[Persona]:
    seen: set[tuple[str, ...]] = set()
    for dialogue in load_dialogues(corpus):
        for persona in dialogue.personas.values():
            if persona.sentences and persona.sentences not in seen:
                seen.add(persona.sentences)
                yield persona


def _shards(
    config: SelfplayConfig, pairings: list[Pairing], openers: list[Opener], personas: list[Persona], run: str
) -> Iterator[Shard]:
    pairs = list(zip(personas[::2], personas[1::2], strict=True))
    number = 0
    for pairing in pairings:
        for start in range(0, config.conversations, config.shard):
            indices = range(start, min(start + config.shard, config.conversations))
            scenes = tuple(
                _scene(config, pairing, i, openers[i % len(openers)], pairs[i % len(pairs)] if pairs else (), run)
                for i in indices
            )
            yield Shard(number, pairing, scenes, config.turns)
            number += 1


def _scene(
    config: SelfplayConfig, pairing: Pairing, index: int, opener: Opener, personas: tuple[Persona, ...], run: str
) -> Scene:
    facts = {"pairing": pairing.name, "index": index, "seed": config.seed, "opener": opener.line, "run": run}
    meta = {"bots": [bot.spec for bot in pairing], "names": [bot.name for bot in pairing], "selfplay": facts}
    return Scene(f"selfplay-{config.seed}-{pairing.name}-{index}", opener.text, personas, meta)
