"""A ConvoKit corpus: a folder of utterances.jsonl, conversations.json, speakers.json, corpus.json and index.json.

The utterances of a conversation may be anywhere in the file, so all are in memory until the last is read. Conversations
may be trees: their turns are sorted by time if all have one, otherwise depth first; a turn that does not reply to the
one before it records what it replies to (`reply_to` in `meta`). Personas and evidence, which ConvoKit does not have,
are written into a conversation's meta under `tertulia` and read from there.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tertulia.core.codec import dialogue_from_json, dialogue_to_json, dump_line, loads
from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import UsageError
from tertulia.corpus.readers.base import TextReader, text_of
from tertulia.corpus.readers.files import create_text, existing_file, read_companion
from tertulia.corpus.readers.records import Record, json_lines

OWN_KEY = "tertulia"
_INDEX = ("utterances-index", "speakers-index", "conversations-index", "overall-index")


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Group utterances into conversations."""
    conversations: dict[str, list[Json]] = defaultdict(list)
    starts: dict[str, int] = {}
    for record in json_lines(lines):
        value = record.value
        name = _conversation_id(value) if isinstance(value, dict) else None
        if record.damage or name is None:
            yield record._replace(damage=record.damage or "expected a 'conversation_id'")
            continue
        starts.setdefault(name, record.line)
        conversations[name].append(value)
    for name, utterances in conversations.items():
        yield Record(starts[name], utterances)


def _conversation_id(utterance: dict[str, Json]) -> str | None:
    """The id of an utterance's conversation; older corpora call it `root`."""
    name = utterance.get("conversation_id", utterance.get("root"))
    return name if isinstance(name, str) else None


def decode(
    utterances: list[Json], conversations: dict[str, Json] | None = None, speakers: dict[str, Json] | None = None
) -> Dialogue:
    """Decode a conversation from its utterances and the metadata in the other files."""
    name = str(_conversation_id(utterances[0]))
    meta = dict(_meta_of((conversations or {}).get(name)))
    own = meta.pop(OWN_KEY, None) or {}
    turns = _turns(_sort_utterances(utterances))
    speaker_meta = {s: m for s in dict.fromkeys(t.speaker for t in turns) if (m := _meta_of((speakers or {}).get(s)))}
    if speaker_meta:
        meta["speakers"] = speaker_meta
    own = {part: own[part] for part in ("personas", "evidence") if part in own}
    extra = dialogue_from_json({"id": name, "turns": []} | own)
    return Dialogue(name, tuple(turns), extra.personas, extra.evidence, meta)


def _meta_of(entry: Json) -> dict[str, Json]:
    """Since version 3 of the format an entry has `meta` and `vectors`; before, it was the meta itself."""
    if not isinstance(entry, dict):
        return {}
    return entry["meta"] if isinstance(entry.get("meta"), dict) else {k: v for k, v in entry.items() if k != "vectors"}


def _sort_utterances(utterances: list[Json]) -> list[Json]:
    times = [u.get("timestamp") for u in utterances]
    if all(_is_time(time) for time in times):
        return [
            u for _, _, u in sorted((float(t), i, u) for i, (t, u) in enumerate(zip(times, utterances, strict=True)))
        ]
    ids = {u["id"] for u in utterances}
    replies: dict[Json, list[Json]] = defaultdict(list)
    for utterance in utterances:
        parent = _parent(utterance)
        replies[parent if parent in ids else None].append(utterance)
    order: list[Json] = []
    stack = list(reversed(replies[None]))
    while stack:
        utterance = stack.pop()
        order.append(utterance)
        stack += reversed(replies.pop(utterance["id"], []))
    if len(order) < len(utterances):
        raise ValueError("the replies form a cycle")
    return order


def _is_time(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parent(utterance: dict[str, Json]) -> Json:
    return utterance.get("reply-to", utterance.get("reply_to"))


def _turns(utterances: list[Json]) -> list[Turn]:
    turns: list[Turn] = []
    previous: str | None = None
    for utterance in utterances:
        name, meta = text_of(utterance["id"], "id"), dict(utterance.get("meta") or {})
        parent, time = _parent(utterance), utterance.get("timestamp")
        if parent != previous and parent is not None:
            meta["reply_to"] = parent
        if time is not None:
            meta["timestamp"] = time
        speaker = text_of(utterance["speaker"] if "speaker" in utterance else utterance["user"], "speaker")
        turns.append(Turn(speaker, text_of(utterance["text"], "text"), (name,), meta))
        previous = name
    return turns


def files(folder: Path, split: str | None) -> list[Path]:
    """The file of utterances, if the folder is a ConvoKit corpus."""
    utterances = existing_file(folder / "utterances.jsonl")
    if utterances is None or not any(
        (folder / name).is_file() for name in ("conversations.json", "corpus.json", "index.json")
    ):
        return []
    if split is not None:
        raise UsageError(f"{folder} is a ConvoKit corpus, which has no splits.", hint="Omit --split.")
    return [utterances]


def beside(file: Path) -> Callable[[list[Json]], Dialogue]:
    """A decoder with access to the folder's conversations and speakers; older corpora call the latter users."""

    def entries(*names: str) -> dict[str, Json]:
        path = next((path for name in names if (path := existing_file(file.with_name(f"{name}.json")))), None)
        return read_companion(path) if path else {}

    conversations, speakers = entries("conversations"), entries("speakers", "users")
    return lambda utterances: decode(utterances, conversations, speakers)


def write_folder(dialogues: Iterable[Dialogue], folder: Path) -> int:
    """Write the five files; a turn with exactly one source has it as the id of its utterance."""
    conversations: dict[str, Json] = {}
    speakers: dict[str, Json] = {}
    used_ids: set[str] = set()
    index: dict[str, Json] = {key: {} for key in _INDEX}
    with create_text(folder / "utterances.jsonl") as out:
        for dialogue in dialogues:
            if dialogue.id in conversations:
                raise UsageError(f"There are two dialogues {dialogue.id!r}, but ConvoKit needs unique ids.")
            meta = dict(dialogue.meta)
            speaker_meta = meta.pop("speakers") if isinstance(meta.get("speakers"), dict) else {}
            own = {n: v for n, v in dialogue_to_json(dialogue).items() if n in ("personas", "evidence")}
            conversations[dialogue.id] = {"meta": meta | ({OWN_KEY: own} if own else {}), "vectors": []}
            for speaker in dialogue.speakers:
                speakers.setdefault(speaker, {"meta": speaker_meta.get(speaker) or {}, "vectors": []})
                _add_types(index["speakers-index"], speakers[speaker]["meta"])
            _add_types(index["conversations-index"], conversations[dialogue.id]["meta"])
            for utterance in _utterances(dialogue, used_ids):
                _add_types(index["utterances-index"], utterance["meta"])
                out.write(dump_line(utterance) + "\n")
    index |= {"version": 1, "vectors": []}
    parts = {"conversations": conversations, "speakers": speakers, "corpus": {}, "index": index}
    for name, value in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return len(conversations)


def _add_types(index: dict[str, list[str]], meta: Mapping[str, Json]) -> None:
    """Note the type of each field: what is not in the index, ConvoKit drops when it saves the corpus again."""
    for name, value in meta.items():
        types = index.setdefault(name, [])
        read_back = loads(dump_line({"": value}))[""]  # a tuple, for example, is read as a list
        if value is not None and (label := str(type(read_back))) not in types:
            types.append(label)


def _utterances(dialogue: Dialogue, used_ids: set[str]) -> Iterator[dict[str, Json]]:
    previous: str | None = None
    for number, turn in enumerate(dialogue.turns):
        name = turn.source[0] if len(turn.source) == 1 else dialogue.id if number == 0 else f"{dialogue.id}_{number}"
        while name in used_ids:
            name += "'"
        used_ids.add(name)
        meta = dict(turn.meta)
        parent = meta.pop("reply_to") if isinstance(meta.get("reply_to"), str) else previous
        time = meta.pop("timestamp") if _is_time(meta.get("timestamp")) else None
        yield {
            "id": name,
            "conversation_id": dialogue.id,
            "text": turn.text,
            "speaker": turn.speaker,
            "meta": meta,
            "reply-to": parent,
            "timestamp": time,
            "vectors": [],
        }
        previous = name


def recognises(head: str) -> bool:
    """Whether the first line is an utterance of ConvoKit."""
    try:
        first = loads(head.lstrip().partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and _conversation_id(first) is not None and "text" in first and "id" in first


READER = TextReader(
    name="convokit",
    recognises=recognises,
    cut=cut,
    decode=decode,
    beside=beside,
    companions=("conversations.json*", "speakers.json*", "users.json*", "corpus.json*", "index.json*"),
    files=files,
    write_folder=write_folder,
    endings=(),
)
