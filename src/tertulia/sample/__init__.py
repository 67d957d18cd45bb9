"""The bundled corpus, written for this project and in the public domain (CC0), and its loader.

Everything that works without a download uses it: the demo, the retrieval bot, the tests. docs/sample.md describes its
parts; the files in data/ are plain JSON lines and text.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal, TypeVar

from tertulia.core.codec import message_from_json, persona_from_json, read_lines, turn_from_json
from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Json, Message, Persona, Turn

T = TypeVar("T")
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
LABELS = ("entailment", "hallucination", "off-topic", "generic", "contradiction")
"""BEGIN's five labels of a grounded reply."""


@dataclass(frozen=True, slots=True)
class RoomDay:
    """One day of the chat room: its lines, and for each the index of the line it answers (or its own)."""

    day: str
    lines: tuple[str, ...]
    answers: tuple[int, ...]


def personas(split: Split | None = None) -> list[Persona]:
    """The personas of the corpus; each belongs to exactly one split."""
    return [persona for persona, of in _personas().values() if split in (None, of)]


def dialogues(split: Split | None = None) -> list[Dialogue]:
    """Dialogues of two people getting to know each other; speakers "a" and "b", the split in `meta`."""
    return [d for d in _dialogues() if split in (None, d.meta["split"])]


def messages() -> list[Message]:
    """The forum's messages, thread by thread; rude ones are marked in `meta`."""
    return list(_read("threads.jsonl", message_from_json))


def room() -> list[RoomDay]:
    """The days of the chat room with their annotated threads."""
    folder = _data() / "room"
    days = sorted(f.name.removesuffix(".raw.txt") for f in folder.iterdir() if f.name.endswith(".raw.txt"))
    return [_room_day(folder, day) for day in days]


def grounded() -> list[Exchange]:
    """Replies to a previous turn given a passage, each with one of the five labels."""
    return list(_read("grounded.jsonl", _grounded_from_json))


def benchmark() -> list[Exchange]:
    """Contexts of one to three turns, each with one good reply; the kind (greeting, joke, ...) is the label."""
    return list(_read("benchmark.jsonl", _benchmark_from_json))


def _data() -> Traversable:
    return files("tertulia.sample") / "data"


def _read(name: str, decode: Callable[[Json], T]) -> Iterator[T]:
    with (_data() / name).open(encoding="utf-8") as lines:
        yield from read_lines(lines, decode, source=f"sample/{name}")


@cache
def _personas() -> dict[str, tuple[Persona, Split]]:
    def decode(value: Json) -> tuple[Persona, Split]:
        return persona_from_json({k: v for k, v in value.items() if k != "split"}), value["split"]

    return {persona.id: (persona, split) for persona, split in _read("personas.jsonl", decode)}


@cache
def _dialogues() -> tuple[Dialogue, ...]:
    people = _personas()

    def decode(value: Json) -> Dialogue:
        return Dialogue(
            id=value["id"],
            turns=tuple(turn_from_json(t) for t in value["turns"]),
            personas={speaker: people[name][0] for speaker, name in value["personas"].items()},
            meta={"split": value["split"]},
        )

    return tuple(_read("dialogues.jsonl", decode))


def _room_day(folder: Traversable, day: str) -> RoomDay:
    lines = (folder / f"{day}.raw.txt").read_text(encoding="utf-8").splitlines()
    answers = list(range(len(lines)))
    for link in (folder / f"{day}.annotation.txt").read_text(encoding="utf-8").splitlines():
        earlier, later, _ = link.split()
        answers[int(later)] = int(earlier)
    return RoomDay(day, tuple(lines), tuple(answers))


def _grounded_from_json(value: Json) -> Exchange:
    return Exchange(
        id=value["id"],
        context=(Turn("user", value["previous"]),),
        response=Turn("bot", value["response"]),
        evidence=(Evidence(value["evidence"], source=value.get("topic", "")),),
        label=value["label"],
    )


def _benchmark_from_json(value: Json) -> Exchange:
    sides = ("user", "bot") if len(value["turns"]) % 2 else ("bot", "user")
    context = tuple(Turn(sides[i % 2], text) for i, text in enumerate(value["turns"]))
    return Exchange(id=value["id"], context=context, response=Turn("bot", value["reply"]), label=value["kind"])
