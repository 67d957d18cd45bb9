"""Judged runs as logs of Inspect AI, and its logs as judged runs.

Inspect AI (UK AI Security Institute) is a framework for evaluations with a viewer and analyses of its own. Its log is a
JSON document (.json), or a zip archive with a header and a file for each sample (.eval). Format version 2 has `eval`
(what was run), `results` (figures) and `samples` (each with messages, a target and scores by scorer). A unit of a
subject in a setting becomes a sample, a metric becomes a scorer. What Inspect has no place for is in metadata, so that
a log of ours reads back as the same run.

Logs of others read as runs too: the model is the subject, every scorer is a metric. Inspect's grades count as it counts
them: C is 1, P is 0.5, I and N are 0.
"""

import hashlib
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from tertulia.artefacts.outputs import write_output
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, MissingFile, UsageError
from tertulia.core.score import Score
from tertulia.judge.report_data import ItemIndex
from tertulia.judge.report_texts import ShownTurn, TextView, view
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, unique_ids
from tertulia.metrics.metric import MetricInfo

LOG_VERSION = 2
"""The format of Inspect's logs that is written."""
SUMMARY_CHARACTERS = 300
"""Of a text in the list of samples."""
ZSTANDARD = 93
"""The compression that Inspect's archives have, by its number in the zip format."""
OURS = "tertulia"
"""Where a log's metadata has what Inspect has no place for."""
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_HINT = "Give a judged run's folder, or a log of Inspect AI (`inspect log convert --to json` makes a .json of any log)."


def is_log(path: Path) -> bool:
    """Whether a path looks like a log rather than the folder of a run."""
    return path.suffix in (".json", ".eval") and not path.is_dir()


def write_log(run: JudgedRun, path: Path) -> None:
    """Write a run as a log that `inspect view` opens."""
    if path.suffix not in (".json", ".eval"):
        raise UsageError(
            f"{path} must end in .eval or .json.", hint="Inspect AI tells its formats apart by the ending."
        )
    log = log_of(run)
    with write_output(path) as file:
        if path.suffix == ".json":
            file.write_bytes(_encode(log))
        else:
            _write_archive(log, file)


def _encode(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str).encode("utf-8", "replace")


def _write_archive(log: Mapping[str, Json], file: Path) -> None:
    """The archive as Inspect writes it: samples, their summaries, and the header last."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for sample in log["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", _encode(sample))
        archive.writestr("summaries.json", _encode([_summary(sample) for sample in log["samples"]]))
        archive.writestr("header.json", _encode({name: value for name, value in log.items() if name != "samples"}))


def _summary(sample: Mapping[str, Json]) -> dict[str, Json]:
    """What the viewer lists of a sample before it opens it."""
    last = sample["input"][-1]["content"] if isinstance(sample["input"], list) else sample["input"]
    shown = {name: sample[name] for name in ("id", "epoch", "scores")}
    target = sample["target"][:SUMMARY_CHARACTERS]
    return shown | {"input": last[:SUMMARY_CHARACTERS], "target": target, "completed": True}


def log_of(run: JudgedRun) -> dict[str, Json]:
    """The log as JSON values; its fields are in the order in which Inspect wants them."""
    created = str(run.about.get("created") or "1970-01-01T00:00:00+00:00")
    samples = list(_samples(run))
    return {
        "version": LOG_VERSION,
        "status": "success",
        "eval": _spec(run, created, samples),
        "plan": {"name": "tertulia", "steps": [{"solver": f"judge {run.verb}", "params": {}}]},
        "results": _results(run, len(samples)),
        "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
        "samples": samples,
    }


def _spec(run: JudgedRun, created: str, samples: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    data = run.about.get("data") or {}
    name = f"tertulia/{run.verb}"
    digest = hashlib.sha256(json.dumps([created, run.verb, dict(run.config)], default=str).encode()).hexdigest()[:22]
    record = {
        "verb": run.verb,
        "config": dict(run.config),
        "subjects": [asdict(subject) for subject in run.subjects],
        "settings": list(run.settings),
        "metrics": [info.as_json() for info in run.metrics.values()],
        "scores": [list(score.key) for score in run.scores],
        "notes": list(run.notes),
        "details": dict(run.details),
        "about": dict(run.about),
    }
    return {
        "eval_id": digest,
        "run_id": digest,
        "created": created,
        "task": name,
        "task_id": digest,
        "task_version": 0,
        "task_args": {},
        "dataset": {
            "name": str(data.get("path") or data.get("study") or run.verb),
            "samples": len(samples),
            "sample_ids": [sample["id"] for sample in samples],
            "shuffled": False,
        },
        "model": ", ".join(subject.name for subject in run.subjects) or "none",
        "model_args": {},
        "config": {},
        "packages": {name: str(version) for name, version in (run.about.get("versions") or {}).items()},
        "metadata": {OURS: record},
    }


def _results(run: JudgedRun, samples: int) -> dict[str, Json]:
    scores = []
    for (subject, setting, metric), figure in run.estimates().items():
        if figure.n == 0:
            continue
        values = {"value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n}
        name = ", ".join(part for part in (metric, subject, setting) if part)
        shown = {key: {"name": key, "value": x, "params": {}} for key, x in values.items() if math.isfinite(x)}
        scores.append({"name": name, "scorer": metric, "params": {}, "metrics": shown})
    return {"total_samples": samples, "completed_samples": samples, "scores": scores}


def _samples(run: JudgedRun) -> Iterator[dict[str, Json]]:
    """A sample for each unit of each subject in each setting."""
    units: dict[tuple[str, str, str], dict[str, Json]] = {}
    for score in run.scores:
        weights = score.weights or (None,) * len(score.units)
        rows = zip(score.units, score.values, score.clusters, weights, strict=True)
        for unit, value, cluster, weight in rows:
            own = units.setdefault((score.subject, score.setting, unit), {"scores": {}, "clusters": {}, "missing": []})
            own["clusters"][score.metric] = cluster
            if math.isfinite(value):
                own["scores"][score.metric] = {"value": value} | ({"metadata": {"weight": weight}} if weight else {})
            else:
                own["missing"].append([score.metric, str(value), weight])
    index = ItemIndex(run)
    order = {id(item): i for i, item in enumerate(run.items)}
    several = len(run.subjects) > 1 or len(run.settings) > 1
    names = unique_ids(", ".join(filter(None, (unit, s, t))) if several else unit for s, t, unit in units)
    for name, ((subject, setting, unit), own) in zip(names, units.items(), strict=True):
        item = index.item(subject, setting, unit)
        shown = view(item.content) if item else TextView()
        metadata = {"unit": unit, "subject": subject, "setting": setting, "clusters": own["clusters"]}
        metadata |= {"missing": own["missing"]} if own["missing"] else {}
        if item:
            metadata |= {"item": dict(item.content), "item_of": [item.subject, item.setting, order[id(item)]]}
        yield _sample(name, shown, subject) | {"scores": own["scores"], "metadata": metadata}


def _sample(name: str, shown: TextView, subject: str) -> dict[str, Json]:
    spoken = [turn for turn in shown.turns if turn.role != "reference"]
    reference = next((turn.text for turn in shown.turns if turn.role == "reference"), "")
    reply = spoken[-1] if spoken and spoken[-1].role else None
    before = spoken[:-1] if reply else spoken
    output: dict[str, Json] = {"model": subject, "choices": []}
    if reply:
        message = {"role": "assistant", "content": reply.text, "source": "generate"}
        output["choices"] = [{"message": message, "stop_reason": "stop"}]
        output["completion"] = reply.text
    return {
        "id": name,
        "epoch": 1,
        "input": [_message(turn) for turn in before] or "",
        "target": reference,
        "messages": [_message(turn) for turn in spoken],
        "output": output,
    }


def _message(turn: ShownTurn) -> dict[str, Json]:
    role = "assistant" if turn.role in ("judged", "reply") else "user"
    about = {"speaker": turn.speaker} | ({"provenance": dict(turn.source)} if turn.source else {})
    return {"role": role, "content": turn.text, "metadata": about}


def read_log(path: Path) -> JudgedRun:
    """A log as a judged run; ours give the run they were made of."""
    log = _load(path)
    try:
        record = (log["eval"].get("metadata") or {}).get(OURS)
        samples = log.get("samples") or []
        return _our_run(record, samples) if record else _foreign_run(log, samples)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DataError(f"{path} is no log of Inspect AI, or damaged ({error!r}).", hint=_HINT) from None


def _load(path: Path) -> dict[str, Json]:
    if not path.is_file():
        raise MissingFile(f"File not found: {path}", hint=_HINT)
    try:
        log = _load_archive(path) if path.suffix == ".eval" else json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, OSError, NotImplementedError, struct.error, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as a log of Inspect AI ({error}).", hint=_HINT) from None
    if not isinstance(log, dict) or not isinstance(log.get("eval"), dict):
        raise DataError(f"{path} is no log of Inspect AI: it has no 'eval'.", hint=_HINT)
    return log


def _load_archive(path: Path) -> dict[str, Json]:
    """A log in Inspect's archive format; a member that was written twice counts as it was written last."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        log: dict[str, Json] = json.loads(_member(archive, path, members["header.json"]))
        names = [name for name in members if name.startswith("samples/") and name.endswith(".json")]
        log["samples"] = [json.loads(_member(archive, path, members[name])) for name in names]
    return log


def _member(archive: zipfile.ZipFile, path: Path, info: zipfile.ZipInfo) -> bytes:
    """A file of the archive. Python's zipfile does not know Zstandard before 3.14, but pyarrow does."""
    if info.compress_type != ZSTANDARD:
        return archive.read(info)
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<26x2H", file.read(30))
        file.seek(name_length + extra_length, 1)
        data = file.read(info.compress_size)
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        unpacked: bytes = stream.read()
    if zlib.crc32(unpacked) != info.CRC:
        raise zipfile.BadZipFile(f"{info.filename} is damaged")
    return unpacked


def _our_run(record: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> JudgedRun:
    rows: dict[tuple[str, str, str], list[tuple[str, float, str, float | None]]] = {
        (key[0], key[1], key[2]): [] for key in record["scores"]
    }
    items: dict[int, JudgedItem] = {}
    for sample in samples:
        about = sample["metadata"]
        subject, setting, unit = about["subject"], about["setting"], about["unit"]
        missing = {metric: (float(value), weight) for metric, value, weight in about.get("missing", ())}
        for metric, cluster in about["clusters"].items():
            if metric in missing:
                value, weight = missing[metric]
            else:
                score = sample["scores"][metric]
                value, weight = float(score["value"]), (score.get("metadata") or {}).get("weight")
            rows[subject, setting, metric].append((unit, value, cluster, weight))
        if "item" in about:
            item_subject, item_setting, row = about["item_of"]
            items[row] = JudgedItem(unit, about["item"], item_subject, item_setting)
    metrics = {info["name"]: MetricInfo(**info) for info in record["metrics"]}
    return JudgedRun(
        verb=record["verb"],
        config=record["config"],
        subjects=tuple(Subject(**subject) for subject in record["subjects"]),
        settings=tuple(record["settings"]),
        scores=tuple(_score(key, own, weighted=metrics[key[2]].reduction != "mean") for key, own in rows.items()),
        metrics=metrics,
        items=tuple(items[row] for row in sorted(items)),
        notes=tuple(record["notes"]),
        details=record["details"],
        about=record["about"],
    )


def _score(key: tuple[str, str, str], rows: Sequence[tuple[str, float, str, float | None]], *, weighted: bool) -> Score:
    units, values, clusters, weights = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Score(*key, units, values, clusters, tuple(w or 0.0 for w in weights) if weighted else ())


def _foreign_run(log: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> JudgedRun:
    """A log of another framework's run; epochs of a sample are one cluster."""
    spec = log["eval"]
    model, task = str(spec["model"]), str(spec["task"])
    repeated = any(int(sample.get("epoch", 1)) > 1 for sample in samples)
    rows: dict[str, list[tuple[str, float, str, float | None]]] = {}
    skipped: set[str] = set()
    numbers: set[str] = set()
    items = []
    for sample in samples:
        name = str(sample["id"])
        unit = f"{name}, epoch {sample.get('epoch', 1)}" if repeated else name
        for metric, given in (sample.get("scores") or {}).items():
            for part, grade in _values(metric, given["value"]):
                value = _number(grade)
                if not _is_grade(grade):
                    numbers.add(part)
                if value is None:
                    skipped.add(part)
                else:
                    rows.setdefault(part, []).append((unit, value, name, None))
        items.append(JudgedItem(unit, _content(sample)))
    if not rows:
        raise DataError("The log has no samples with scores.", hint="Log samples (`--log-samples`), and score them.")
    dataset = spec.get("dataset") or {}
    packages = {name: str(version) for name, version in (spec.get("packages") or {}).items()}
    return JudgedRun(
        verb=f"inspect {task}",
        config={"task": task, "task_args": spec.get("task_args") or {}, "seed": 0},
        subjects=(Subject(model, model),),
        settings=("",),
        scores=tuple(_score((model, "", metric), own, weighted=False) for metric, own in rows.items()),
        metrics={
            metric: MetricInfo(metric, "reply", summary=f"scorer of {task}", bounded=metric not in numbers)
            for metric in rows
        },
        items=tuple(items),
        notes=tuple(f"{name}: values that are no numbers are left out." for name in sorted(skipped)),
        about={
            "command": "",
            "created": str(spec.get("created", "")),
            "versions": packages,
            "data": {"path": dataset.get("location") or dataset.get("name") or task, "split": None, "digest": None},
        },
    )


def _values(metric: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The grades or numbers of a score: of a scorer with several values, each is a metric."""
    if isinstance(value, Mapping):
        for part, one in value.items():
            yield f"{metric}/{part}", one
    else:
        yield metric, value


def _is_grade(value: Any) -> bool:
    """Whether it counts from 0 to 1, whatever other samples have."""
    return isinstance(value, bool) or (isinstance(value, str) and bool({value, value.lower()} & _GRADES.keys()))


def _number(value: Any) -> float | None:
    """A grade or number as Inspect counts it.

    >>> _number("C"), _number(True), _number("0.25"), _number("Yes"), _number("so-so")
    (1.0, 1.0, 0.25, 1.0, None)
    """
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, str):
        grade = _GRADES.get(value, _GRADES.get(value.lower()))
        if grade is not None:
            return grade
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _content(sample: Mapping[str, Any]) -> dict[str, Json]:
    """Input, reply and target as an exchange; a target may be a list of acceptable replies."""
    given = sample.get("input", "")
    context = [{"speaker": "user", "text": given}] if isinstance(given, str) else [_spoken(m) for m in given]
    target = sample.get("target", "")
    output = sample.get("output") or {}
    choices = output.get("choices") or []
    reply = output.get("completion") or (_spoken(choices[0]["message"])["text"] if choices else "")
    facts = {k: v for k, v in (sample.get("metadata") or {}).items() if isinstance(v, str | int | float | bool)}
    reference = target if isinstance(target, str) else " / ".join(map(str, target))
    return {**facts, "context": context, "reply": reply, "reference": reference}


def _spoken(message: Mapping[str, Any]) -> dict[str, str]:
    content = message.get("content", "")
    if not isinstance(content, str):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return {"speaker": str(message.get("role", "user")), "text": content}
