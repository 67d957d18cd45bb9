"""The record of a training: one JSON object a line for people and tools, and a picture of it.

Updates are recorded by the dozen or so (mean loss, speed), validations one by one. A run that goes on cuts off what was
written after the state it goes on from, so that the record reads as if it had never been interrupted. The same figures
go to TensorBoard's event files where they are asked for.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tertulia.core.dialogue import Json
from tertulia.metrics.plots import curve_plot
from tertulia.train.tensorboard import FOLDER, Events, clear

RECORD = "record.jsonl"
PICTURE = "record.svg"
TOGETHER = 20
"""Updates to a line."""


class Record:
    """Writes the record of a run's folder."""

    def __init__(self, folder: Path, *, tensorboard: bool = False) -> None:
        self.file, self._folder = folder / RECORD, folder
        self._tensorboard = tensorboard
        self._events: Events | None = None
        self._loss: list[tuple[float, int]] = []
        self._pending: list[str] = []

    def clear(self) -> None:
        """Begin anew."""
        self.file.write_text("", encoding="utf-8")
        clear(self._folder / FOLDER)

    def begin(self, precision: Mapping[str, Json]) -> None:
        """A run begins: what it computes in."""
        self._add({"step": 0, "precision": dict(precision)})

    @property
    def unwritten(self) -> list[tuple[float, int]]:
        """Losses that wait for their line: part of the state of a run."""
        return list(self._loss)

    def take_up(self, step: int, unwritten: list[tuple[float, int]]) -> None:
        """Go on after an update; what was written later is forgotten."""
        self._loss = unwritten
        kept = [line for line in read_record(self.file) if line["step"] <= step]
        self.file.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        if events := self._open():
            events.go_on(step)

    def step(self, step: int, *, loss: float, count: int, seconds: float) -> None:
        """An update was made."""
        self._loss.append((loss, count))
        if step % TOGETHER == 0:
            counts = sum(count for _, count in self._loss)
            mean = sum(value * n for value, n in self._loss) / max(1, counts)
            self._add({"step": step, "loss": mean, "count": counts, "seconds": round(seconds, 2)})
            if events := self._open():
                events.add(step, {"loss": mean, "seen": float(counts)})
            self._loss = []

    def validation(self, step: int, figures: Mapping[str, float], *, epoch: int, seconds: float, cpu: float) -> None:
        """A validation was made."""
        line = {"step": step, "epoch": epoch, "valid": dict(figures)}
        self._add(line | {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2)})
        if events := self._open():
            events.add(step, {f"valid/{name}": value for name, value in figures.items()})
        self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        with self.file.open("a", encoding="utf-8") as out:
            out.writelines(self._pending)
        self._pending = []
        if self._events:
            self._events.flush()

    def _open(self) -> Events | None:
        """The event file, where one is wanted; made when it is first needed."""
        if self._tensorboard and self._events is None:
            self._events = Events(self._folder / FOLDER)
        return self._events

    def _add(self, line: dict[str, Json]) -> None:
        self._pending.append(json.dumps(line) + "\n")


def read_record(file: Path) -> list[dict[str, Any]]:
    """The lines of a record; one that was being written when the power went is left out."""
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def draw_record(folder: Path, *, goal: str) -> None:
    """The picture of a record: training loss, and the validation figure that counted."""
    lines, name = read_record(folder / RECORD), goal.removeprefix("-")
    loss = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    valid = [(line["step"], line["valid"][name]) for line in lines if "valid" in line]
    picture = curve_plot({"training loss": loss, f"validation {name}": valid}, x="updates")
    (folder / PICTURE).write_text(picture, encoding="utf-8")
