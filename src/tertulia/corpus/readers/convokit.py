"""A ConvoKit corpus: a folder of utterances.jsonl, conversations.json, speakers.json, corpus.json and index.json.

An utterance may stand anywhere in its file, so all are held in memory until the last is read. Conversations may be
trees: their turns are given in the order of time where all have one, else along the replies; a turn that does not
answer the one before it says what it answers (`reply_to` in `meta`). Personas and evidence, which ConvoKit has not, are
written into a conversation's meta under `tertulia` and found there again.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tertulia.core.codec import dialogue_from_json, dialogue_to_json, dump_line, loads
from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import UsageError
from tertulia.corpus.readers.base import TextReader, text_of
from tertulia.corpus.readers.opening import companion, either, open_text
from tertulia.corpus.readers.records import Record, json_lines

OURS = "tertulia"
_INDEX = ("utterances-index", "speakers-index", "conversations-index", "overall-index")


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Lines as conversations."""
    found: dict[str, list[Json]] = defaultdict(list)
    starts: dict[str, int] = {}
    for record in json_lines(lines):
        value = record.value
        name = _conversation(value) if isinstance(value, dict) else None
        if record.damage or name is None:
            yield record._replace(damage=record.damage or "an utterance needs a 'conversation_id'")
            continue
        starts.setdefault(name, record.line)
        found[name].append(value)
    for name, utterances in found.items():
        yield Record(starts[name], utterances)


def _conversation(utterance: dict[str, Json]) -> str | None:
    """Older corpora call it `root`."""
    name = utterance.get("conversation_id", utterance.get("root"))
    return name if isinstance(name, str) else None


def decode(
    utterances: list[Json], conversations: dict[str, Json] | None = None, speakers: dict[str, Json] | None = None
) -> Dialogue:
    """One conversation of its utterances, with what the other files know of it."""
    name = str(_conversation(utterances[0]))
    meta = dict(_meta_of((conversations or {}).get(name)))
    ours = meta.pop(OURS, None) or {}
    turns = _turns(_in_order(utterances))
    known = {s: m for s in dict.fromkeys(t.speaker for t in turns) if (m := _meta_of((speakers or {}).get(s)))}
    if known:
        meta["speakers"] = known
    ours = {part: ours[part] for part in ("personas", "evidence") if part in ours}
    extra = dialogue_from_json({"id": name, "turns": []} | ours)
    return Dialogue(name, tuple(turns), extra.personas, extra.evidence, meta)


def _meta_of(entry: Json) -> dict[str, Json]:
    """Since version 3 of the format `meta` stands beside `vectors`; before, the entry was the meta itself."""
    if not isinstance(entry, dict):
        return {}
    return entry["meta"] if isinstance(entry.get("meta"), dict) else {k: v for k, v in entry.items() if k != "vectors"}


def _in_order(utterances: list[Json]) -> list[Json]:
    times = [u.get("timestamp") for u in utterances]
    if all(_is_time(time) for time in times):
        return [
            u for _, _, u in sorted((float(t), i, u) for i, (t, u) in enumerate(zip(times, utterances, strict=True)))
        ]
    ids = {u["id"] for u in utterances}
    answers: dict[Json, list[Json]] = defaultdict(list)
    for utterance in utterances:
        parent = _parent(utterance)
        answers[parent if parent in ids else None].append(utterance)
    order: list[Json] = []
    waiting = list(reversed(answers[None]))
    while waiting:
        utterance = waiting.pop()
        order.append(utterance)
        waiting += reversed(answers.pop(utterance["id"], []))
    if len(order) < len(utterances):
        raise ValueError("the replies run in a circle")
    return order


def _is_time(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parent(utterance: dict[str, Json]) -> Json:
    return utterance.get("reply-to", utterance.get("reply_to"))


def _turns(utterances: list[Json]) -> list[Turn]:
    turns: list[Turn] = []
    before: str | None = None
    for utterance in utterances:
        name, meta = text_of(utterance["id"], "id"), dict(utterance.get("meta") or {})
        parent, time = _parent(utterance), utterance.get("timestamp")
        if parent != before and parent is not None:
            meta["reply_to"] = parent
        if time is not None:
            meta["timestamp"] = time
        speaker = text_of(utterance["speaker"] if "speaker" in utterance else utterance["user"], "speaker")
        turns.append(Turn(speaker, text_of(utterance["text"], "text"), (name,), meta))
        before = name
    return turns


def files(folder: Path, split: str | None) -> list[Path]:
    """The utterances, where the folder is a corpus of this kind."""
    found = either(folder / "utterances.jsonl")
    if found is None or not any(
        (folder / name).is_file() for name in ("conversations.json", "corpus.json", "index.json")
    ):
        return []
    if split is not None:
        raise UsageError(f"{folder} is a ConvoKit corpus, which has no splits.", hint="Leave --split out.")
    return [found]


def beside(file: Path) -> Callable[[list[Json]], Dialogue]:
    """A decoder that knows the conversations and speakers of the folder; older corpora call the latter users."""
    conversations, speakers, users = (
        either(file.with_name(f"{n}.json")) for n in ("conversations", "speakers", "users")
    )
    known = companion(conversations) if conversations else {}
    people = companion(found) if (found := speakers or users) else {}
    return lambda utterances: decode(utterances, known, people)


def write_folder(dialogues: Iterable[Dialogue], folder: Path) -> int:
    """The five files; ids of utterances are those the turns were made from, where each was made from one."""
    conversations: dict[str, Json] = {}
    speakers: dict[str, Json] = {}
    taken: set[str] = set()
    with open_text(folder / "utterances.jsonl", write=True) as out:
        for dialogue in dialogues:
            if dialogue.id in conversations:
                raise UsageError(f"There are two dialogues {dialogue.id!r}, and ConvoKit needs them told apart by id.")
            meta = dict(dialogue.meta)
            known = meta.pop("speakers") if isinstance(meta.get("speakers"), dict) else {}
            ours = {n: v for n, v in dialogue_to_json(dialogue).items() if n in ("personas", "evidence")}
            conversations[dialogue.id] = {"meta": meta | ({OURS: ours} if ours else {}), "vectors": []}
            for speaker in dialogue.speakers:
                speakers.setdefault(speaker, {"meta": known.get(speaker) or {}, "vectors": []})
            for utterance in _utterances(dialogue, taken):
                out.write(dump_line(utterance) + "\n")
    index: dict[str, Json] = {key: {} for key in _INDEX} | {"version": 1, "vectors": []}
    parts = {"conversations": conversations, "speakers": speakers, "corpus": {}, "index": index}
    for name, value in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return len(conversations)


def _utterances(dialogue: Dialogue, taken: set[str]) -> Iterator[dict[str, Json]]:
    before: str | None = None
    for number, turn in enumerate(dialogue.turns):
        name = turn.source[0] if len(turn.source) == 1 else dialogue.id if number == 0 else f"{dialogue.id}_{number}"
        while name in taken:
            name += "'"
        taken.add(name)
        meta = dict(turn.meta)
        parent = meta.pop("reply_to") if isinstance(meta.get("reply_to"), str) else before
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
        before = name


def recognises(head: str) -> bool:
    """Whether the first line is an utterance."""
    try:
        first = loads(head.lstrip().partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and _conversation(first) is not None and "text" in first and "id" in first


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
