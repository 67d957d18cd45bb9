"""Event files of TensorBoard, read back with the protocol buffers that wrote them."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tertulia.core.progress import Silent
from tertulia.train.loop import LoopConfig, Loss, TrainingTask, fit
from tertulia.train.record import RECORD, TENSORBOARD, TrainingRecord, read_record

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
START = 1
"""The status of a session log after which TensorBoard discards later steps of earlier files."""


def read(file: Path) -> list[Any]:
    """The events of a TFRecord file: a length and its checksum, the event and its checksum."""
    data, start, events = file.read_bytes(), 0, []
    while start < len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        events.append(event_pb2.Event.FromString(data[start + 12 : start + 12 + length]))
        start += 16 + length
    return events


def scalars(events: list[Any]) -> list[tuple[int, str, float]]:
    return [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]


def shown(folder: Path) -> list[tuple[int, str, float]]:
    """What TensorBoard shows: files in the order of their names, each start discarding later steps."""
    kept: list[tuple[int, str, float]] = []
    for file in sorted(folder.iterdir()):
        for event in read(file):
            if event.session_log.status == START:
                kept = [row for row in kept if row[0] < event.step]
            kept += scalars([event])
    return kept


def test_a_resumed_run_discards_the_steps_after_its_state(tmp_path: Path) -> None:
    record = TrainingRecord(tmp_path, tensorboard=True)
    record.start({})
    record.validation(3, {"error": 3.0}, epoch=0, seconds=1, cpu=1)
    record.validation(7, {"error": 2.0}, epoch=0, seconds=1, cpu=1)
    record.close()
    resumed = TrainingRecord(tmp_path, tensorboard=True)
    resumed.resume(5, [])
    resumed.validation(7, {"error": 1.0}, epoch=0, seconds=1, cpu=1)
    resumed.close()
    first, second = sorted((tmp_path / TENSORBOARD).iterdir())
    assert scalars(read(first)) == [(3, "valid/error", 3.0), (7, "valid/error", 2.0)]
    assert [event.step for event in read(second) if event.session_log.status == START] == [6]
    assert shown(tmp_path / TENSORBOARD) == [(3, "valid/error", 3.0), (7, "valid/error", 1.0)]


def test_a_new_run_removes_the_event_files_of_the_one_before(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        record = TrainingRecord(tmp_path, tensorboard=True)
        record.start({})
        record.validation(1, {"error": value}, epoch=0, seconds=1, cpu=1)
        record.close()
    assert shown(tmp_path / TENSORBOARD) == [(1, "valid/error", 2.0)]


class Points(TrainingTask):
    goal = "-error"

    def __init__(self) -> None:
        self.module = nn.Linear(1, 1)

    def batches(self, epoch: int) -> list[torch.Tensor]:
        return [torch.ones(2, 1)] * 25

    def loss(self, batch: torch.Tensor) -> Loss:
        return Loss(self.module(batch).square().mean(), 2)

    def validate(self) -> Mapping[str, float]:
        return {"error": float(self.module(torch.ones(1, 1)).square())}


def test_event_files_and_record_agree(tmp_path: Path) -> None:
    fit(Points(), LoopConfig(epochs=2, tensorboard=True), tmp_path, Silent(), resume=False, run_id="")
    (file,) = (tmp_path / TENSORBOARD).iterdir()
    events, lines = scalars(read(file)), read_record(tmp_path / RECORD)
    losses = [(line["step"], "loss", line["loss"]) for line in lines if "loss" in line]
    valid = [(line["step"], "valid/error", line["valid"]["error"]) for line in lines if "valid" in line]
    assert [row[:2] for row in losses] == [(20, "loss"), (40, "loss")]
    for expected, tag in ((losses, "loss"), (valid, "valid/error")):
        rows = [row for row in events if row[1] == tag]
        assert [row[0] for row in rows] == [row[0] for row in expected]
        assert [row[2] for row in rows] == pytest.approx([row[2] for row in expected])
    fit(Points(), LoopConfig(epochs=1), tmp_path / "without", Silent(), resume=False, run_id="")
    assert not (tmp_path / "without" / TENSORBOARD).exists()
