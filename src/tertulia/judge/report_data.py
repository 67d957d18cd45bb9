"""What a report holds behind its cells: every unit with its value and its texts, compressed into the page itself.

A report is one file that works without a network, so the data of all cells is in it. It is cut into blocks, each a
gzip stream in base64 within a `script` element that no browser runs. The page unpacks a block when somebody opens a
cell that needs it; so 10,000 conversations take a few megabytes, and opening the page does not wait for them. Base64
has no character that HTML knows, whatever the texts are.
"""

import base64
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.judge.report_leaderboard import JudgedScore
from tertulia.judge.report_texts import TextView, view
from tertulia.judge.runs import JudgedItem, JudgedRun

BLOCK_BYTES = 400_000
"""Roughly how much JSON a block of texts has before compression: about a hundredth of a second to unpack."""


class ItemIndex:
    """Finds the item behind a unit: the subject's own one in the setting, or else one that is shared."""

    def __init__(self, run: JudgedRun) -> None:
        self.items = sorted(run.items, key=lambda item: (item.subject, item.setting))
        """Those of a subject together, so that a cell needs few blocks."""
        self._rows = {(item.subject, item.setting, item.unit): i for i, item in enumerate(self.items)}

    def row(self, subject: str, setting: str, unit: str) -> int | None:
        """The index of the item in `items`; None if there is none."""
        for key in ((subject, setting, unit), (subject, "", unit), ("", setting, unit), ("", "", unit)):
            if (row := self._rows.get(key)) is not None:
                return row
        return None

    def item(self, subject: str, setting: str, unit: str) -> JudgedItem | None:
        """The item itself."""
        row = self.row(subject, setting, unit)
        return None if row is None else self.items[row]

    def view(self, subject: str, setting: str, unit: str) -> TextView | None:
        """Its texts, as they are shown."""
        item = self.item(subject, setting, unit)
        return None if item is None else view(item.content)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The data of a page: an index to parse at once, and blocks to unpack on demand."""

    index: str
    """JSON in which every `<` is escaped."""
    blocks: list[str]
    """Base64 of gzip of JSON."""

    def html(self) -> str:
        """Script elements that hold the data and run nothing."""
        blocks = "".join(
            f'<script type="text/plain" class="block" id="block-{i}">{text}</script>'
            for i, text in enumerate(self.blocks)
        )
        return f'<script type="application/json" id="index">{self.index}</script>{blocks}'


def embed(
    scores: Sequence[JudgedScore], figures: Mapping[tuple[str, str, str], Estimate], *, title: str = ""
) -> Embedded:
    """The values and texts behind these scores, in the order in which the page numbers its cells."""
    blocks: list[str] = []
    runs = list({id(one.run): one.run for one in scores}.values())
    indexes = {id(run): ItemIndex(run) for run in runs}
    starts: list[list[int]] = []
    offsets: dict[int, int] = {}
    count = 0
    for run in runs:
        offsets[id(run)] = count
        for packed, items in _text_blocks(indexes[id(run)].items):
            starts.append([count, len(blocks)])
            blocks.append(packed)
            count += items
    units: dict[tuple[object, ...], int] = {}
    cells = []
    for one in scores:
        score, run = one.score, one.run
        key = (id(run), score.subject, score.setting, score.units)
        if key not in units:
            units[key] = len(blocks)
            index, offset = indexes[id(run)], offsets[id(run)]
            rows = [index.row(score.subject, score.setting, unit) for unit in score.units]
            positions = [-1 if row is None else row + offset for row in rows]
            blocks.append(_pack({"units": score.units, "clusters": score.clusters, "items": positions}))
        values = {"values": [_number(v) for v in score.values], "weights": [_number(w) for w in score.weights]}
        cells.append(_cell(one, figures[one.key]) | {"units": units[key], "block": len(blocks)})
        blocks.append(_pack(values))
    about = {"title": title, "cells": cells, "texts": starts, "items": count}
    return Embedded(_json(about), blocks)


def _cell(one: JudgedScore, figure: Estimate) -> dict[str, Json]:
    """What the page says about a cell before it opens a block."""
    subject = next((s for s in one.run.subjects if s.name == one.score.subject), None)
    info = one.info
    return {
        "subject": one.subject,
        "setting": one.score.setting,
        "metric": one.score.metric,
        "unit": info.unit,
        "reduction": info.reduction,
        "summary": info.summary,
        "citation": info.citation,
        "better": info.higher_is_better,
        **figure.as_json(),
        "count": len(one.score.units),
        "spec": subject.spec if subject else "",
        "kind": subject.kind if subject else "",
        "fingerprint": subject.fingerprint if subject else "",
    }


def _text_blocks(items: Sequence[JudgedItem]) -> Iterator[tuple[str, int]]:
    """The texts in blocks of about the same size, each with the number of its items."""
    lines: list[bytes] = []
    size = 0
    for item in items:
        line = orjson.dumps(view(item.content).as_json(), default=str)
        lines.append(line)
        size += len(line)
        if size >= BLOCK_BYTES:
            yield _compress(b"[" + b",".join(lines) + b"]"), len(lines)
            lines, size = [], 0
    if lines:
        yield _compress(b"[" + b",".join(lines) + b"]"), len(lines)


def _pack(value: Json) -> str:
    return _compress(orjson.dumps(value))


def _compress(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode()


def _number(value: float) -> float | None:
    """Six significant digits are more than a page shows, and take half the room of all of them."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _json(value: Json) -> str:
    """JSON for a script element: with no `<` there is no `</script>` and no `<!--` in it."""
    text = orjson.dumps(value, default=str).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
