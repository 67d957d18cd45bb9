r"""Persona-Chat and ConvAI2 as ParlAI published them: numbered lines, personas first, then message TAB reply.

    1 your persona: i sail.
    2 partner's persona: i knit.
    3 hello , how are you ?<TAB>fine , back from the lake .<TAB><TAB>a candidate|another|fine , back from the lake .

"your persona" is that of the replier, who is `second` here; `first` is the partner. The number 1 begins the next
dialogue; a line break is written as `\n`. A reply keeps its candidates (`meta`); in the published files the last of
them is always the true reply.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.corpus.readers.base import Roles, TextReader, content_id, dialogue_roles, text_lines, unix_lines
from tertulia.corpus.readers.records import Record

YOUR_PERSONA, PARTNERS_PERSONA = "your persona:", "partner's persona:"
PERSONA_MARKERS = ((YOUR_PERSONA, "second"), (PARTNERS_PERSONA, "first"))
"""The markers of persona lines and whose persona they give."""
SILENCE = "__SILENCE__"
"""ParlAI's placeholder for the message before the first reply, if the replier speaks first."""
_LINE = re.compile(r"(\d+)(?: (.*))?", re.DOTALL)


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Split lines into dialogues: a number that does not increase begins the next one."""
    start, last, damage = 1, 0, ""
    texts: list[str] = []
    for line in text_lines(lines):
        match = _LINE.fullmatch(line.value)
        number = int(match[1]) if match and len(match[1]) < 10 else None
        if number is not None and number <= last and (texts or damage):
            yield Record(start, texts, damage)
            start, texts, damage = line.line, [], ""
        if match is None or number is None or line.damage:
            damage = damage or line.damage or f"expected a number at the beginning of line {line.line}"
        else:
            texts.append((match[2] or "").replace("\\n", "\n"))
        last = number if number is not None else last
    if texts or damage:
        yield Record(start, texts, damage)


def decode(lines: list[str]) -> Dialogue:
    """Decode the lines of one dialogue, without their numbers."""
    personas: dict[str, list[str]] = {"first": [], "second": []}
    turns: list[Turn] = []
    for line in lines:
        if not add_persona_line(line, personas):
            turns += _turns(line)
    return Dialogue(
        id=content_id(*lines),
        turns=tuple(turns),
        personas=as_personas(personas),
    )


def add_persona_line(line: str, personas: dict[str, list[str]]) -> bool:
    """Add the sentence of a persona line to its speaker's; returns False if it is another line."""
    for marker, speaker in PERSONA_MARKERS:
        if line.startswith(marker):
            personas[speaker].append(line.removeprefix(marker).strip())
            return True
    return False


def as_personas(sentences: dict[str, list[str]]) -> dict[str, Persona]:
    """Personas from their sentences by speaker; speakers without any are left out."""
    return {speaker: Persona(tuple(own)) for speaker, own in sentences.items() if own}


def persona_lines(dialogue: Dialogue, roles: Roles, escape: Callable[[str], str] = str) -> list[str]:
    """The personas of a dialogue as lines, the replier's first."""
    return [
        f"{marker} {escape(sentence)}"
        for marker, speaker in ((YOUR_PERSONA, roles.replier), (PARTNERS_PERSONA, roles.partner))
        if (persona := dialogue.persona_of(speaker))
        for sentence in persona.sentences
    ]


def _turns(line: str) -> Iterator[Turn]:
    message, *rest = line.split("\t")
    if len(rest) > 3:
        raise ValueError(f"expected at most 4 columns, got {len(rest) + 1}")
    if message != SILENCE:
        yield Turn("first", message)
    if rest:
        meta: dict[str, Json] = {"reward": rest[1]} if len(rest) > 1 and rest[1] else {}
        if len(rest) > 2 and rest[2]:
            meta["candidates"] = rest[2].split("|")
        yield Turn("second", rest[0], meta=meta)


def encode(dialogue: Dialogue) -> str:
    """Encode a dialogue as numbered lines."""
    roles = dialogue_roles(dialogue, format="ParlAI's numbered text")
    lines = persona_lines(dialogue, roles, _escape)
    message: str | None = None
    for turn in dialogue.turns:
        if turn.speaker == roles.partner:
            message = _escape(turn.text)
        else:
            lines.append("\t".join([SILENCE if message is None else message, *_columns(turn)]))
            message = None
    lines += [message] if message is not None else []
    return "".join(f"{number} {line}\n" for number, line in enumerate(lines, 1))


def _columns(turn: Turn) -> list[str]:
    reward, candidates = turn.meta.get("reward"), turn.meta.get("candidates")
    columns = [_escape(turn.text)]
    if reward or candidates:
        columns.append(_escape(str(reward or "")))
    if isinstance(candidates, list) and candidates:
        columns.append("|".join(_escape(str(c)).replace("|", " ") for c in candidates))
    return columns


def _escape(text: str) -> str:
    return unix_lines(text).replace("\t", " ").strip().replace("\n", "\\n")


def recognises(head: str) -> bool:
    """Whether the first line looks like the first line of a dialogue."""
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
