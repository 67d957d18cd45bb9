r"""Persona-Chat and ConvAI2 as ParlAI published them: numbered lines, personas first, then message TAB reply.

    1 your persona: i sail.
    2 partner's persona: i knit.
    3 hello , how are you ?<TAB>fine , back from the lake .<TAB><TAB>a candidate|another|fine , back from the lake .

The one with "your persona" is the one who replies, `second` here; `first` is the partner. The number 1 begins the next
dialogue; a line break is written `\n`. A reply's candidates stay with it (`meta`); in the published files the last of
them is always the true reply.
"""

import re
from collections.abc import Iterable, Iterator

from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.corpus.readers.base import TextReader, name_of, text_lines, two_sides
from tertulia.corpus.readers.records import Record

OWN, PARTNERS = "your persona:", "partner's persona:"
SILENCE = "__SILENCE__"
"""What ParlAI puts in the place of a message where the one who replies speaks first."""
_LINE = re.compile(r"(\d+)(?: (.*))?", re.DOTALL)


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Lines as dialogues: a number that does not grow begins the next one."""
    start, last, damage = 1, 0, ""
    found: list[str] = []
    for line in text_lines(lines):
        match = _LINE.fullmatch(line.value)
        number = int(match[1]) if match and len(match[1]) < 10 else None
        if number is not None and number <= last and (found or damage):
            yield Record(start, found, damage)
            start, found, damage = line.line, [], ""
        if match is None or number is None or line.damage:
            damage = damage or line.damage or f"line {line.line} does not begin with a number"
        else:
            found.append((match[2] or "").replace("\\n", "\n"))
        last = number if number is not None else last
    if found or damage:
        yield Record(start, found, damage)


def decode(lines: list[str]) -> Dialogue:
    """The lines of one dialogue, without their numbers."""
    personas: dict[str, list[str]] = {"second": [], "first": []}
    turns: list[Turn] = []
    for line in lines:
        if line.startswith(OWN):
            personas["second"].append(line.removeprefix(OWN).strip())
        elif line.startswith(PARTNERS):
            personas["first"].append(line.removeprefix(PARTNERS).strip())
        else:
            turns += _turns(line)
    return Dialogue(
        id=name_of(*lines),
        turns=tuple(turns),
        personas={speaker: Persona(tuple(said)) for speaker, said in sorted(personas.items()) if said},
    )


def _turns(line: str) -> Iterator[Turn]:
    message, *rest = line.split("\t")
    if len(rest) > 3:
        raise ValueError(f"a line has at most four columns, not {len(rest) + 1}")
    if message != SILENCE:
        yield Turn("first", message)
    if rest:
        meta: dict[str, Json] = {"reward": rest[1]} if len(rest) > 1 and rest[1] else {}
        if len(rest) > 2 and rest[2]:
            meta["candidates"] = rest[2].split("|")
        yield Turn("second", rest[0], meta=meta)


def encode(dialogue: Dialogue) -> str:
    """The dialogue as numbered lines."""
    sides = two_sides(dialogue, format="ParlAI's numbered text")
    lines = [
        f"{mark} {_on_one_line(sentence)}"
        for mark, speaker in ((OWN, sides.own), (PARTNERS, sides.partner))
        if (persona := dialogue.persona_of(speaker))
        for sentence in persona.sentences
    ]
    message: str | None = None
    for turn in dialogue.turns:
        if turn.speaker == sides.partner:
            message = _on_one_line(turn.text)
        else:
            lines.append("\t".join([SILENCE if message is None else message, *_columns(turn)]))
            message = None
    lines += [message] if message is not None else []
    return "".join(f"{number} {line}\n" for number, line in enumerate(lines, 1))


def _columns(turn: Turn) -> list[str]:
    reward, candidates = turn.meta.get("reward"), turn.meta.get("candidates")
    columns = [_on_one_line(turn.text)]
    if reward or candidates:
        columns.append(_on_one_line(str(reward or "")))
    if isinstance(candidates, list) and candidates:
        columns.append("|".join(_on_one_line(str(c)).replace("|", " ") for c in candidates))
    return columns


def _on_one_line(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    return text.strip().replace("\n", "\\n")


def recognises(head: str) -> bool:
    """Whether the first line is the first of a dialogue."""
    first = head.lstrip().partition("\n")[0]
    return first.startswith("1 ") and ("persona:" in first or "\t" in first)


READER = TextReader(
    name="personachat-text",
    recognises=recognises,
    cut=cut,
    decode=decode,
    encode=encode,
    endings=(".txt", ".txt.gz"),
)
