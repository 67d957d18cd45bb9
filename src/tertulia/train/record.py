"""The training record: one JSON object per line, a plot of it, and TensorBoard's event files on request.

Losses are averaged over some updates per line; validations have a line each. A resumed run drops the lines written
after the state it resumes from, so that the record reads as if there had been no interruption. In event files, which
cannot be rewritten, a marker tells TensorBoard to discard later steps (`purge_step` of tensorboardX).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tertulia.artefacts.files import atomic_write
from tertulia.core.dialogue import Json
from tertulia.metrics.plots import curve_plot

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

RECORD = "record.jsonl"
PLOT = "record.svg"
TENSORBOARD = "tensorboard"
"""The folder of the event files."""
UPDATES_PER_LINE = 20


class TrainingRecord:
    """Writes the record of a run's folder."""

    def __init__(self, folder: Path, *, tensorboard: bool = False) -> None:
        self.file, self._events_folder = folder / RECORD, folder / TENSORBOARD
        self._tensorboard = tensorboard
        self._events: SummaryWriter | None = None
        self._losses: list[tuple[float, int]] = []
        self._pending: list[str] = []

    def start(self, precision: Mapping[str, Json]) -> None:
        """Start an empty record with the precision that the run computes in."""
        self.file.write_text("", encoding="utf-8")
        for file in self._events_folder.glob("events.out.tfevents.*"):
            file.unlink()
        self._open_events()
        self._append({"step": 0, "precision": dict(precision)})

    @property
    def unwritten(self) -> list[tuple[float, int]]:
        """Losses that wait for their line: part of the state of a run."""
        return list(self._losses)

    def resume(self, step: int, unwritten: list[tuple[float, int]]) -> None:
        """Continue after an update; what was written about later ones is dropped."""
        self._losses = unwritten
        kept = [line for line in read_record(self.file) if line["step"] <= step]
        with atomic_write(self.file) as file:
            file.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        self._open_events(purge_step=step + 1)

    def step(self, step: int, *, loss: float, count: int, seconds: float) -> None:
        """Record an update: its mean loss over `count` units."""
        self._losses.append((loss, count))
        if step % UPDATES_PER_LINE == 0:
            counts = sum(count for _, count in self._losses)
            mean = sum(value * n for value, n in self._losses) / max(1, counts)
            self._append({"step": step, "loss": mean, "count": counts, "seconds": round(seconds, 2)})
            self._add_scalars(step, {"loss": mean, "seen": float(counts)})
            self._losses = []

    def validation(self, step: int, figures: Mapping[str, float], *, epoch: int, seconds: float, cpu: float) -> None:
        """Record a validation."""
        line = {"step": step, "epoch": epoch, "valid": dict(figures)}
        self._append(line | {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2)})
        self._add_scalars(step, {f"valid/{name}": value for name, value in figures.items()})
        self.flush()

    def flush(self) -> None:
        """Write pending lines and events."""
        with self.file.open("a", encoding="utf-8") as out:
            out.writelines(self._pending)
        self._pending = []
        if self._events is not None:
            self._events.flush()

    def close(self) -> None:
        """Close the event file; its writer is a thread."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _open_events(self, purge_step: int | None = None) -> None:
        if not self._tensorboard:
            return
        from tensorboardX import SummaryWriter  # takes a second to import, and few runs need it

        # The writer's own file name has the second it was opened in; the number keeps quick resumptions apart.
        number = len(list(self._events_folder.glob("*")))
        self._events = SummaryWriter(str(self._events_folder), purge_step=purge_step, filename_suffix=f".{number:04d}")

    def _add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._events is not None:
            for name, value in scalars.items():
                self._events.add_scalar(name, value, step)

    def _append(self, line: dict[str, Json]) -> None:
        self._pending.append(json.dumps(line) + "\n")


def read_record(file: Path) -> list[dict[str, Any]]:
    """The lines of a record; one that was cut off in the middle is skipped."""
    if not file.is_file():
        return []
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def plot_record(folder: Path, *, goal: str) -> None:
    """Plot a record: training loss, and the validation figure that decides."""
    lines, name = read_record(folder / RECORD), goal.removeprefix("-")
    loss = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    valid = [(line["step"], line["valid"][name]) for line in lines if "valid" in line]
    plot = curve_plot({"training loss": loss, f"validation {name}": valid}, x="updates")
    (folder / PLOT).write_text(plot, encoding="utf-8")
