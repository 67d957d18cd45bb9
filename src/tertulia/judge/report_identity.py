"""What a verdict is about: command, time, versions, data with its digest, subjects with the digests of checkpoints."""

from collections.abc import Mapping
from pathlib import Path

import orjson

from tertulia.core.dialogue import Json
from tertulia.judge.document import Section
from tertulia.judge.runs import JudgedRun, Subject

MAX_NAMED = 4
"""Checkpoints that the head of a report names; the table has all of them."""
_NAMED = ("command", "created", "versions", "data", "contamination")
"""What the table has rows of its own for."""


def identity(run: JudgedRun) -> dict[str, Json]:
    """What identifies a run, for JSON."""
    versions = run.about.get("versions") or {}
    return {
        "command": run.about.get("command") or "",
        "verb": run.verb,
        "created": run.about.get("created") or "",
        "version": versions.get("tertulia", ""),
        "data": dict(run.about.get("data") or {}),
        "checkpoints": {subject.name: subject.fingerprint for subject in run.subjects if subject.fingerprint},
        "contamination": list(run.about.get("contamination") or ()),
        "seed": run.seed,
    }


def identity_facts(run: JudgedRun) -> tuple[tuple[str, str], ...]:
    """The same in a few lines to read; none for a run that was not identified."""
    known = identity(run)
    if not known["created"]:
        return ()
    data: Mapping[str, Json] = known["data"]
    split = f", split {data['split']}" if data.get("split") else ""
    digest = f", digest {str(data['digest'])[:16]}" if data.get("digest") else ""
    source = data.get("path") or data.get("study") or ""
    facts = [("command", known["command"] or _command(run)), ("date", known["created"])]
    facts += [("version", f"Tertulia {known['version']}")] if known["version"] else []
    facts += [("data", f"{source}{split}{digest}")] if data else []
    checkpoints = [f"{name} {digest}" for name, digest in known["checkpoints"].items()]
    more = [f"and {len(checkpoints) - MAX_NAMED} more"] if len(checkpoints) > MAX_NAMED else []
    facts += [("checkpoints", ", ".join(checkpoints[:MAX_NAMED] + more))] if checkpoints else []
    return tuple(facts)


def method_section(run: JudgedRun, folder: Path | None = None) -> Section:
    """Settings, subjects, versions and data as a table, with the notes of the run."""
    known = identity(run)
    rows = [("command", known["command"] or _command(run))]
    rows += [(name, known[name]) for name in ("created",) if known[name]]
    rows += [(f"version of {name}", str(version)) for name, version in (run.about.get("versions") or {}).items()]
    rows += [(f"data, {name}", _shown(value)) for name, value in known["data"].items() if value]
    rows += [(f"subject {subject.name}", _subject(subject)) for subject in run.subjects]
    rows += [(f"training data of {one['subject']}", _compared(one)) for one in known["contamination"]]
    rows += [(name, _shown(value)) for name, value in run.config.items() if value not in (None, [], "", {})]
    others = {name: value for name, value in run.about.items() if name not in _NAMED}
    rows += [(name, _shown(value)) for name, value in others.items() if value]
    rows += [(f"metric {info.name}", _described(info.summary, info.citation)) for info in run.metrics.values()]
    title = f"How {folder} was measured" if folder else "How it was measured"
    return Section(title, ("setting", "value"), tuple(rows), run.notes, detail=True)


def _subject(subject: Subject) -> str:
    """Its specification, its kind if that says more, and the digest of its checkpoint."""
    kind = subject.kind if subject.kind not in (subject.spec, subject.spec.partition(":")[0]) else ""
    parts = (subject.spec, kind, f"checkpoint {subject.fingerprint}" if subject.fingerprint else "")
    return ", ".join(filter(None, parts))


def _compared(record: Mapping[str, Json]) -> str:
    """What a subject was built from, and how much of what was judged is in it."""
    texts = f"{record['shared']} of {record['judged']} judged units are in it"
    files = f"; it has the judged files {', '.join(record['files'])}" if record["files"] else ""
    return f"{record['training']}; {texts if record['judged'] else 'its texts could not be compared'}{files}"


def _described(summary: str, citation: str) -> str:
    return f"{summary} ({citation})" if citation else summary


def _command(run: JudgedRun) -> str:
    return run.verb if run.verb == "study" else f"judge {run.verb}"


def _shown(value: Json) -> str:
    """A setting as text: lists and tables of plain values in words, anything deeper as JSON.

    >>> _shown(["hits@1", "mrr"]), _shown({"a.jsonl": "f00d"}), _shown(True), _shown([[1, 2]])
    ('hits@1, mrr', 'a.jsonl: f00d', 'yes', '[[1,2]]')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Mapping) and all(isinstance(part, str | int | float) for part in value.values()):
        return ", ".join(f"{name}: {_shown(part)}" for name, part in value.items())
    if isinstance(value, list | tuple) and all(isinstance(part, str | int | float) for part in value):
        return ", ".join(map(_shown, value))
    return orjson.dumps(value).decode()
