r"""ParlAI's dialogue format: each line is a message and its reply, as fields `name:value` separated by tabs.

    text:your persona: i sail.\nhello<TAB>labels:hi , lovely wind today<TAB>episode_done:True

`text` is what the replier (`second`) sees, `labels` the reply; line breaks, tabs and vertical bars are written as `\n`,
`\t` and `__PIPE__`. Personas are lines of the first text. Other fields are kept with the reply (`meta`).
"""

from collections.abc import Iterable, Iterator

from tertulia.core.dialogue import Dialogue, Json, Turn
from tertulia.corpus.readers.base import TextReader, content_id, dialogue_roles, text_lines, unix_lines
from tertulia.corpus.readers.numbered import SILENCE, add_persona_line, as_personas, persona_lines
from tertulia.corpus.readers.records import Record

_ESCAPES = (("\n", "\\n"), ("\t", "\\t"), ("|", "__PIPE__"))
_OWN_FIELDS = ("text", "labels", "eval_labels", "label_candidates", "episode_done")


def cut(lines: Iterable[str]) -> Iterator[Record]:
    """Split lines into episodes, which end where `episode_done` is true."""
    start, damage = 0, ""
    episode: list[dict[str, str]] = []
    for line in text_lines(lines):
        start = start or line.line
        fields = dict(part.partition(":")[::2] for part in line.value.split("\t") if part.strip())
        if "text" not in fields:
            damage = damage or line.damage or f"expected a field 'text' on line {line.line}"
        damage = damage or line.damage
        episode.append(fields)
        if fields.get("episode_done", "").strip().lower() == "true":
            yield Record(start, episode, damage)
            start, episode, damage = 0, [], ""
    if episode:
        yield Record(start, episode, damage)


def decode(episode: list[dict[str, str]]) -> Dialogue:
    """Decode one episode, given the fields of its lines."""
    personas: dict[str, list[str]] = {"first": [], "second": []}
    turns: list[Turn] = []
    for fields in episode:
        text = _extract_personas(_unescape(fields["text"]), personas)
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
        id=content_id(*(value for fields in episode for value in fields.values())),
        turns=tuple(turns),
        personas=as_personas(personas),
    )


def _extract_personas(text: str, personas: dict[str, list[str]]) -> str | None:
    """The text without its persona lines, which are added to `personas`; None if there are no other lines."""
    kept = [line for line in text.split("\n") if not add_persona_line(line, personas)]
    return "\n".join(kept) if kept else None


def _meta(fields: dict[str, str]) -> dict[str, Json]:
    meta: dict[str, Json] = {name: _unescape(value) for name, value in fields.items() if name not in _OWN_FIELDS}
    if fields.get("label_candidates"):
        meta["candidates"] = [_unescape(c) for c in fields["label_candidates"].split("|")]
    return meta


def encode(dialogue: Dialogue) -> str:
    """Encode a dialogue as one episode."""
    roles = dialogue_roles(dialogue, format="ParlAI's dialogue format")
    context = persona_lines(dialogue, roles)
    lines: list[dict[str, str]] = []
    for turn in dialogue.turns:
        if turn.speaker == roles.partner or not lines or "labels" in lines[-1]:
            message = SILENCE if turn.speaker == roles.replier else turn.text
            lines.append({"text": _escape("\n".join([*context, message]))})
            context = []
        if turn.speaker == roles.replier:
            lines[-1]["labels"] = _escape(turn.text)
            lines[-1] |= _fields(turn)
    if not lines:
        lines.append({"text": _escape("\n".join(context)) if context else SILENCE})
    lines[-1]["episode_done"] = "True"
    return "".join("\t".join(f"{name}:{value}" for name, value in line.items()) + "\n" for line in lines)


def _fields(turn: Turn) -> dict[str, str]:
    fields = {
        n: _escape(v) for n, v in turn.meta.items() if isinstance(v, str) and n.isidentifier() and n not in _OWN_FIELDS
    }
    candidates = turn.meta.get("candidates")
    if isinstance(candidates, list) and candidates:
        fields["label_candidates"] = "|".join(_escape(str(c)) for c in candidates)
    return fields


def _escape(text: str) -> str:
    text = unix_lines(text)
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
