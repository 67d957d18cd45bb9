"""DailyDialog (Li et al. 2017), with topic, acts and emotions: as JSON, and as the original text.

JSON has two layouts: ConvLab's (`turns` of user and system), which is also the one written, and ParlAI's (`dialogue`,
one record per line). The original text has one dialogue per line, `__eou__` after each utterance, and files of the same
length beside it with acts, emotions and topics as numbers; a line whose numbers do not match it is read without them.
"""

from collections.abc import Callable
from pathlib import Path

from tertulia.artefacts.files import UNREADABLE, open_text
from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.core.errors import DataError
from tertulia.corpus.readers.base import (
    Reader,
    TextReader,
    check_alternating,
    content_id,
    objects_of,
    one_line,
    text_lines,
    text_of,
)
from tertulia.corpus.readers.files import existing_file, unreadable_companion
from tertulia.corpus.readers.records import Record

EOU = "__eou__"
ACTS = ("", "inform", "question", "directive", "commissive")
EMOTIONS = ("no emotion", "anger", "disgust", "fear", "happiness", "sadness", "surprise")
TOPICS = (
    "",
    "Ordinary Life",
    "School Life",
    "Culture & Education",
    "Attitude & Emotion",
    "Relationship",
    "Tourism",
    "Health",
    "Work",
    "Politics",
    "Finance",
)


def decode(record: Json) -> Dialogue:
    """Decode a JSON record of either layout."""
    if "turns" not in record:
        return _decode_parlai(record)
    turns = []
    for turn in objects_of(record["turns"], "turns"):
        meta = {"act": act} if (act := _act(turn)) else {}
        if emotion := turn.get("emotion"):
            meta["emotion"] = text_of(emotion, "emotion")
        turns.append(Turn(text_of(turn["speaker"], "speaker"), text_of(turn["utterance"], "utterance"), meta=meta))
    meta = {"topic": topic} if (topic := next(iter(record.get("domains") or []), None)) else {}
    if split := record.get("data_split"):
        meta["split"] = text_of(split, "data_split")
    return Dialogue(text_of(record["dialogue_id"], "dialogue_id"), tuple(turns), meta=meta)


def _act(turn: dict[str, Json]) -> str:
    acts = objects_of((turn.get("dialogue_acts") or {}).get("binary") or [], "binary")
    return ", ".join(text_of(act["intent"], "intent") for act in acts)


def _decode_parlai(record: Json) -> Dialogue:
    entries = objects_of(record["dialogue"], "dialogue")
    texts = [text_of(turn["text"], "text") for turn in entries]
    turns = [
        Turn(("first", "second")[i % 2], text, meta={n: text_of(turn[n], n) for n in ("act", "emotion") if turn.get(n)})
        for i, (turn, text) in enumerate(zip(entries, texts, strict=True))
    ]
    meta = {name: text_of(record[field], field) for field, name in _PARLAI_META if record.get(field)}
    return Dialogue(content_id(*texts), tuple(turns), meta=meta)


_PARLAI_META = (("topic", "topic"), ("fold", "split"))


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode a dialogue in ConvLab's layout."""
    topic, split = dialogue.meta.get("topic"), dialogue.meta.get("split")
    return {
        "dataset": "dailydialog",
        "data_split": split if isinstance(split, str) else "",
        "dialogue_id": dialogue.id,
        "domains": [topic] if topic and isinstance(topic, str) else [],
        "turns": [_encode_turn(i, turn) for i, turn in enumerate(dialogue.turns)],
    }


def _encode_turn(number: int, turn: Turn) -> dict[str, Json]:
    act, emotion = turn.meta.get("act"), turn.meta.get("emotion")
    acts = [{"intent": act, "domain": "", "slot": ""}] if act and isinstance(act, str) else []
    return {
        "speaker": turn.speaker,
        "utterance": turn.text,
        "utt_idx": number,
        "dialogue_acts": {"binary": acts, "categorical": [], "non-categorical": []},
        "emotion": emotion if isinstance(emotion, str) else "",
    }


def recognises(record: dict[str, Json]) -> bool:
    """Whether a record has one of the two JSON layouts."""
    turns = record.get("dialogue")
    is_parlai = isinstance(turns, list) and "topic" in record and all(isinstance(turn, dict) for turn in turns)
    return is_parlai or ("dialogue_id" in record and "turns" in record)


class Labels:
    """The labels in the files beside a text file, by line number: acts, emotions and topic."""

    def __init__(self, file: Path) -> None:
        self._acts = _read_numbers(_label_file(file, "act"))
        self._emotions = _read_numbers(_label_file(file, "emotion"))
        self._topics = _read_numbers(_label_file(file, "topic"))

    def of_turns(self, line: int, n: int) -> list[dict[str, Json]]:
        """The `meta` of each of the line's n turns."""
        metas: list[dict[str, Json]] = [{} for _ in range(n)]
        for field, rows, names in (("act", self._acts, ACTS), ("emotion", self._emotions, EMOTIONS)):
            codes = rows.get(line, [])
            if len(codes) == n and all(0 <= code < len(names) for code in codes):
                for meta, code in zip(metas, codes, strict=True):
                    meta[field] = names[code]
        return metas

    def of_dialogue(self, line: int) -> dict[str, Json]:
        """The `meta` of the line's dialogue."""
        codes = self._topics.get(line, [])
        return {"topic": TOPICS[codes[0]]} if len(codes) == 1 and 0 < codes[0] < len(TOPICS) else {}


def _label_file(file: Path, label: str) -> Path:
    """`dialogues_text.txt` has `dialogues_act.txt`; `dialogues_train.txt` has `dialogues_act_train.txt`."""
    name = file.name.removesuffix(".gz")
    renamed = (
        name.replace("_text", f"_{label}") if "_text" in name else name.replace("dialogues", f"dialogues_{label}", 1)
    )
    return file.with_name(renamed if renamed != name else f"{name}.{label}")


def _read_numbers(path: Path) -> dict[int, list[int]]:
    file = existing_file(path)
    if file is None:
        return {}
    try:
        with open_text(file) as lines:
            return {number: [int(part) for part in line.split()] for number, line in enumerate(lines, 1)}
    except (*UNREADABLE, DataError, ValueError) as error:
        raise unreadable_companion(file, error) from None


def decode_text(record: Record, labels: Labels | None = None) -> Dialogue:
    """Decode a line of the original text."""
    utterances = [part.strip() for part in record.value.split(EOU)]
    if utterances[-1]:
        raise ValueError(f"expected {EOU} at the end of the line")
    utterances.pop()
    metas = labels.of_turns(record.line, len(utterances)) if labels else [{} for _ in utterances]
    turns = (
        Turn(("first", "second")[i % 2], t, meta=m) for i, (t, m) in enumerate(zip(utterances, metas, strict=True))
    )
    meta = labels.of_dialogue(record.line) if labels else {}
    return Dialogue(content_id(record.value), tuple(turns), meta=meta)


def beside(file: Path) -> Callable[[Record], Dialogue]:
    """A decoder with access to the labels beside the file."""
    labels = Labels(file)
    return lambda record: decode_text(record, labels)


def encode_text(dialogue: Dialogue) -> str:
    """Encode a dialogue as a line, without topic, acts and emotions."""
    check_alternating(dialogue, format="DailyDialog's text")
    return "".join(f"{one_line(turn.text)} {EOU} " for turn in dialogue.turns).strip() + "\n"


READER = Reader(name="dailydialog", recognises=recognises, decode=decode, encode=encode)
TEXT = TextReader(
    name="dailydialog-text",
    recognises=lambda head: EOU in (line := head.lstrip().partition("\n")[0]) and "__eot__" not in line,
    cut=lambda lines: (Record(r.line, r, r.damage) for r in text_lines(lines)),
    decode=decode_text,
    beside=beside,
    companions=("dialogues_act*", "dialogues_emotion*", "dialogues_topic*"),
    encode=encode_text,
    endings=(".txt", ".txt.gz"),
)
