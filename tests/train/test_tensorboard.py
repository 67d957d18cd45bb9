"""Event files, read back with Google's own protocol buffers, from a description of the fields that TensorBoard has."""

import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tertulia.core.progress import Silent
from tertulia.train.loop import LoopConfig, Loss, fit
from tertulia.train.record import RECORD, Record, read_record
from tertulia.train.tensorboard import FOLDER, Events, crc32c

pb = pytest.importorskip("google.protobuf.descriptor_pb2")
TYPES = {"double": 1, "float": 2, "int64": 3, "string": 9, "message": 11, "enum": 5}  # an enum is read as int32
MESSAGES: dict[str, list[tuple[str, int, str, str]]] = {
    "Value": [("tag", 1, "string", ""), ("simple_value", 2, "float", "")],
    "Summary": [("value", 1, "message", "Value")],
    "SessionLog": [("status", 1, "enum", "")],
    "Event": [
        ("wall_time", 1, "double", ""),
        ("step", 2, "int64", ""),
        ("file_version", 3, "string", ""),
        ("summary", 5, "message", "Summary"),
        ("session_log", 7, "message", "SessionLog"),
    ],
}


@pytest.fixture(scope="module")
def event_class() -> Any:
    from google.protobuf import descriptor_pool, message_factory

    file = pb.FileDescriptorProto(name="events.proto", package="t", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            label = 3 if field == "value" else 1
            made = message.field.add(name=field, number=number, type=TYPES[kind], label=label)
            if of:
                made.type_name = f".t.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Event"))


def read(file: Path, event_class: Any) -> list[Any]:
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        (length,), (head,) = struct.unpack_from("<Q", data, at), struct.unpack_from("<I", data, at + 8)
        record = data[at + 12 : at + 12 + length]
        (body,) = struct.unpack_from("<I", data, at + 12 + length)
        for crc, part in ((head, data[at : at + 8]), (body, record)):
            turned = (crc - 0xA282EAD8) & 0xFFFFFFFF
            assert (turned >> 17 | turned << 15) & 0xFFFFFFFF == crc32c(part)
        found.append(event_class.FromString(record))
        at += 16 + length
    return found


def scalars(events: list[Any]) -> list[tuple[int, str, float]]:
    return [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]


def test_figures_come_back(tmp_path: Path, event_class: Any) -> None:
    events = Events(tmp_path)
    events.add(20, {"loss": 1.5, "välid/x": -2.25})
    events.add(300, {"loss": 0.5})
    events.flush()
    events.flush()
    found = read(events.file, event_class)
    assert found[0].file_version == "brain.Event:2"
    assert found[0].wall_time > 1.6e9
    assert scalars(found) == [(20, "loss", 1.5), (20, "välid/x", -2.25), (300, "loss", 0.5)]


def test_a_run_that_goes_on_says_from_where(tmp_path: Path, event_class: Any) -> None:
    record = Record(tmp_path, tensorboard=True)
    record.clear()
    record.validation(7, {"error": 2.0}, epoch=0, seconds=1, cpu=1)
    again = Record(tmp_path, tensorboard=True)
    again.take_up(5, [])
    again.validation(7, {"error": 1.0}, epoch=0, seconds=1, cpu=1)
    first, second = sorted((tmp_path / FOLDER).iterdir())
    assert scalars(read(first, event_class)) == [(7, "valid/error", 2.0)]
    told = read(second, event_class)
    assert [event.step for event in told if event.session_log.status == 1] == [6]
    assert scalars(told) == [(7, "valid/error", 1.0)]
    Record(tmp_path, tensorboard=True).clear()
    assert not list((tmp_path / FOLDER).iterdir())


class Points:
    goal = "-error"

    def __init__(self) -> None:
        self.module = nn.Linear(1, 1)

    def batches(self, epoch: int) -> list[torch.Tensor]:
        return [torch.ones(2, 1)] * 25

    def loss(self, batch: torch.Tensor) -> Loss:
        return Loss(self.module(batch).square().mean(), 2)

    def validate(self) -> dict[str, float]:
        return {"error": float(self.module(torch.ones(1, 1)).square())}


def test_events_say_what_the_record_says(tmp_path: Path, event_class: Any) -> None:
    fit(Points(), LoopConfig(epochs=2, tensorboard=True), tmp_path, Silent(), resume=False, same="")
    (file,) = (tmp_path / FOLDER).iterdir()
    found, lines = scalars(read(file, event_class)), read_record(tmp_path / RECORD)
    losses = [(line["step"], "loss", line["loss"]) for line in lines if "loss" in line]
    valid = [(line["step"], "valid/error", line["valid"]["error"]) for line in lines if "valid" in line]
    assert [row[:2] for row in losses] == [(20, "loss"), (40, "loss")]
    for told, wanted in ((losses, "loss"), (valid, "valid/error")):
        mine = [row for row in found if row[1] == wanted]
        assert [row[0] for row in mine] == [row[0] for row in told]
        assert [row[2] for row in mine] == pytest.approx([row[2] for row in told])
    fit(Points(), LoopConfig(epochs=1), tmp_path / "without", Silent(), resume=False, same="")
    assert not (tmp_path / "without" / FOLDER).exists()
