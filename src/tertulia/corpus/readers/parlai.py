r"""ParlAI's dialogue format: fields `name:value` between tabs, a message and its reply a line.

    text:your persona: i sail.\nhello<TAB>labels:hi , lovely wind today<TAB>episode_done:True

`text` is what the one who replies (`second`) is told, `labels` the reply; line breaks, tabs and bars are written `\n`,
`\t` and `__PIPE__`. Personas stand as lines of the first text. Other fields stay with the reply (`meta`).
"""

from collections.abc import Iterable, Iterator

from tertulia.core.dialogue import Dialogue, Json, Persona, Turn
from tertulia.corpus.readers.base import TextReader, name_of, text_lines, two_sides
from tertulia.corpus.readers.numbered import OWN, PARTNERS, SILENCE
from tertulia.corpus.readers.records import Record

_ESCAPES = (("\n", "\\n"), ("\t", "\\t"), ("|", "__PIPE__"))
_KNOWN = ("text", "labels", "eval_labels", "label_candidates", "episode_done")


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Lines as episodes, which end where `episode_done` is true."""
    start, damage = 0, ""
    found: list[dict[str, str]] = []
    for line in text_lines(lines):
        start = start or line.line
        fields = dict(part.partition(":")[::2] for part in line.value.split("\t") if part.strip())
        if "text" not in fields:
            damage = damage or line.damage or f"line {line.line} has no field 'text'"
        damage = damage or line.damage
        found.append(fields)
        if fields.get("episode_done", "").strip().lower() == "true":
            yield Record(start, found, damage)
            start, found, damage = 0, [], ""
    if found:
        yield Record(start, found, damage)


def decode(episode: list[dict[str, str]]) -> Dialogue:
    """The fields of the lines of one episode."""
    personas: dict[str, list[str]] = {"first": [], "second": []}
    turns: list[Turn] = []
    for fields in episode:
        text = _without_personas(_unescape(fields["text"]), personas)
        if text not in (None, SILENCE):
            turns.append(Turn("first", str(text)))
        labels = fields.get("labels", fields.get("eval_labels"))
        meta = _meta(fields)
        if labels is not None:
            reply, *others = [_unescape(label) for label in labels.split("|")]
            turns.append(Turn("second", reply, meta=meta | ({"labels": [reply, *others]} if others else {})))
        elif meta and turns:
            turns[-1] = Turn(turns[-1].speaker, turns[-1].text, meta=meta)
    return Dialogue(
        id=name_of(*(value for fields in episode for value in fields.values())),
        turns=tuple(turns),
        personas={speaker: Persona(tuple(said)) for speaker, said in personas.items() if said},
    )


def _without_personas(text: str, personas: dict[str, list[str]]) -> str | None:
    """The text without its lines about personas, which are added there; None where nothing else was said."""
    kept = []
    for line in text.split("\n"):
        for mark, speaker in ((OWN, "second"), (PARTNERS, "first")):
            if line.startswith(mark):
                personas[speaker].append(line.removeprefix(mark).strip())
                break
        else:
            kept.append(line)
    return "\n".join(kept) if kept else None


def _meta(fields: dict[str, str]) -> dict[str, Json]:
    meta: dict[str, Json] = {name: _unescape(value) for name, value in fields.items() if name not in _KNOWN}
    if fields.get("label_candidates"):
        meta["candidates"] = [_unescape(c) for c in fields["label_candidates"].split("|")]
    return meta


def encode(dialogue: Dialogue) -> str:
    """The dialogue as one episode."""
    sides = two_sides(dialogue, format="ParlAI's dialogue format")
    told = [
        f"{mark} {sentence}"
        for mark, speaker in ((OWN, sides.own), (PARTNERS, sides.partner))
        if (persona := dialogue.persona_of(speaker))
        for sentence in persona.sentences
    ]
    lines: list[dict[str, str]] = []
    for turn in dialogue.turns:
        if turn.speaker == sides.partner or not lines or "labels" in lines[-1]:
            own = turn.speaker == sides.own
            lines.append({"text": _escape("\n".join([*told, SILENCE if own else turn.text]))})
            told = []
        if turn.speaker == sides.own:
            lines[-1]["labels"] = _escape(turn.text)
            lines[-1] |= _fields(turn)
    if told and not lines:
        lines.append({"text": _escape("\n".join(told))})
    if not lines:
        lines.append({"text": SILENCE})
    lines[-1]["episode_done"] = "True"
    return "".join("\t".join(f"{name}:{value}" for name, value in line.items()) + "\n" for line in lines)


def _fields(turn: Turn) -> dict[str, str]:
    fields = {
        n: _escape(v) for n, v in turn.meta.items() if isinstance(v, str) and n.isidentifier() and n not in _KNOWN
    }
    candidates = turn.meta.get("candidates")
    if isinstance(candidates, list) and candidates:
        fields["label_candidates"] = "|".join(_escape(str(c)) for c in candidates)
    return fields


def _escape(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for plain, escaped in _ESCAPES:
        text = text.replace(plain, escaped)
    return text


def _unescape(text: str) -> str:
    for plain, escaped in _ESCAPES:
        text = text.replace(escaped, plain)
    return text


READER = TextReader(
    name="parlai",
    recognises=lambda head: head.lstrip().startswith("text:"),
    cut=cut,
    decode=decode,
    encode=encode,
    endings=(".txt", ".txt.gz"),
)
