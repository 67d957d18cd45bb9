"""What a verdict is about: command, time, versions, data with its digest, subjects with the digests of checkpoints."""

from collections.abc import Mapping
from pathlib import Path

import orjson

from tertulia.core.dialogue import Json
from tertulia.judge.document import Section
from tertulia.judge.runs import JudgedRun


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
        "seed": run.seed,
    }


def identity_line(run: JudgedRun) -> str:
    """The same in one line to read; empty for a run that was not saved."""
    known = identity(run)
    if not known["created"]:
        return ""
    data: Mapping[str, Json] = known["data"]
    split = f", split {data['split']}" if data.get("split") else ""
    digest = f", digest {str(data['digest'])[:16]}" if data.get("digest") else ""
    source = data.get("path") or data.get("study") or ""
    parts = [known["command"] or _command(run), known["created"], f"Tertulia {known['version']}"]
    parts += [f"data {source}{split}{digest}"] if data else []
    return "; ".join(part for part in parts if part) + "."


def method_section(run: JudgedRun, folder: Path | None = None) -> Section:
    """Settings, subjects, versions and data as a table, with the notes of the run."""
    known = identity(run)
    rows = [("command", known["command"] or _command(run))]
    rows += [(name, known[name]) for name in ("created",) if known[name]]
    rows += [(f"version of {name}", str(version)) for name, version in (run.about.get("versions") or {}).items()]
    rows += [(f"data, {name}", _shown(value)) for name, value in known["data"].items() if value]
    rows += [(f"subject {s.name}", " ".join(filter(None, (s.spec, s.kind, s.fingerprint)))) for s in run.subjects]
    rows += [(name, _shown(value)) for name, value in run.config.items() if value not in (None, [], "", {})]
    others = {
        name: value for name, value in run.about.items() if name not in ("command", "created", "versions", "data")
    }
    rows += [(name, _shown(value)) for name, value in others.items() if value]
    rows += [(f"metric {info.name}", _described(info.summary, info.citation)) for info in run.metrics.values()]
    title = f"How {folder} was measured" if folder else "How it was measured"
    return Section(title, ("setting", "value"), tuple(rows), run.notes, detail=True)


def _described(summary: str, citation: str) -> str:
    return f"{summary} ({citation})" if citation else summary


def _command(run: JudgedRun) -> str:
    return run.verb if run.verb == "study" else f"judge {run.verb}"


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
