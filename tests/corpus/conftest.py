import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.corpus import parts

WORDS = [f"w{i}" for i in range(300)]


def make_dialogues(n: int, *, seed: int = 0, threads: int | None = None) -> list[Dialogue]:
    """Dialogues of random words; every seventh is nearly a copy of an earlier one, every eleventh an exact one."""
    rng = random.Random(seed)
    dialogues: list[Dialogue] = []
    for i in range(n):
        turns = [
            Turn(f"u{rng.randrange(40)}", " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 25))))
            for _ in range(rng.randrange(1, 6))
        ]
        if i > 20 and i % 7 == 0:
            turns = [*dialogues[rng.randrange(i)].turns, Turn("u1", "and so on")]
        if i > 20 and i % 11 == 0:
            turns = list(dialogues[rng.randrange(i)].turns)
        meta = {"thread": f"t{rng.randrange(threads)}"} if threads else {}
        turns[0] = Turn(turns[0].speaker, turns[0].text, meta={"time": float(rng.randrange(10**9))})
        dialogues.append(Dialogue(f"d{i}", tuple(turns), meta=meta))
    return dialogues


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are cut into parts of a few dialogues."""
    monkeypatch.setattr(parts, "PART_BYTES", 5000)
    monkeypatch.setattr(parts, "PART_ROWS", 12)


@pytest.fixture
def same_files() -> Callable[[Path, Path], bool]:
    """Whether two folders hold the same bytes."""

    def same(a: Path, b: Path) -> bool:
        return {f.name: f.read_bytes() for f in a.iterdir()} == {f.name: f.read_bytes() for f in b.iterdir()}

    return same
