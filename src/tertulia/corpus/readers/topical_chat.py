"""Topical-Chat (Gopalakrishnan et al. 2019): conversations by id, and the reading sets that the speakers saw.

Reading sets are looked up where the publication puts them (`conversations/NAME.json` has
`reading_sets/post-build/NAME.json`) or beside the file as `reading_sets_NAME.json`. Built ones become the evidence:
Wikipedia sections and fun facts of each agent, and the article. Unbuilt ones have references instead of texts; they are
kept in `meta` as they are.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from tertulia.core.dialogue import Dialogue, Evidence, Json, Turn
from tertulia.corpus.readers.base import Reader, misfit, objects_of, text_of
from tertulia.corpus.readers.files import base_name, existing_file, read_companion

KEY = "conversation_id"
AGENTS = ("agent_1", "agent_2")
_TURN_META = ("sentiment", "knowledge_source", "turn_rating")
_META = ("article_url", "config", "conversation_rating")


def decode(record: Json, reading_sets: dict[str, Json] | None = None) -> Dialogue:
    """Decode a conversation, with its reading set as evidence."""
    name = text_of(record[KEY], KEY)
    reading = (reading_sets or {}).get(name) or {}
    evidence = tuple(read_evidence(reading))
    meta = {field: record[field] for field in _META if record.get(field) is not None}
    if reading and not evidence:
        meta["reading_set"] = {agent: reading[agent] for agent in AGENTS if agent in reading}
    turns = (
        Turn(
            text_of(entry["agent"], "agent"),
            text_of(entry["message"], "message"),
            meta={field: entry[field] for field in _TURN_META if entry.get(field) is not None},
        )
        for entry in objects_of(record["content"], "content")
    )
    return Dialogue(name, tuple(turns), evidence=evidence, meta=meta)


def read_evidence(reading: dict[str, Json]) -> Iterator[Evidence]:
    """The texts of a built reading set; the ids say who saw them: `agent_1/FS2/fun_facts/0`, `article/AS1`."""
    for agent in AGENTS:
        for section, facts in (reading.get(agent) or {}).items():
            entity = str(facts.get("entity", ""))
            for kind in ("shortened_wiki_lead_section", "summarized_wiki_lead_section"):
                if isinstance(facts.get(kind), str) and facts[kind]:
                    yield Evidence(facts[kind], source=entity, id=f"{agent}/{section}/{kind}")
            for i, fact in enumerate(facts.get("fun_facts") or []):
                if isinstance(fact, str) and fact and not _is_reference(fact):
                    yield Evidence(fact, source=entity, id=f"{agent}/{section}/fun_facts/{i}")
    article = reading.get("article") or {}
    for section, text in article.items():
        if section != "url" and isinstance(text, str) and text:
            yield Evidence(text, source=str(article.get("url") or ""), id=f"article/{section}")


def _is_reference(fact: str) -> bool:
    """Whether a fun fact is the id of a Reddit post instead of its text."""
    return fact.startswith("t3_") and fact[3:].isalnum()


def beside(file: Path) -> Callable[[Json], Dialogue]:
    """A decoder with access to the reading sets of the file."""
    name = base_name(file)
    paths = [file.with_name(f"reading_sets_{name}.json")]
    paths += [file.parent.parent / "reading_sets" / built / f"{name}.json" for built in ("post-build", "pre-build")]
    candidates = [source for path in paths if (source := existing_file(path))]
    reading_sets = read_companion(candidates[0]) if candidates else {}
    return lambda record: decode(record, reading_sets)


def encode(dialogue: Dialogue) -> dict[str, Json]:
    """Encode the conversation; reading sets belong to another file, which is not written."""
    speakers = dialogue.speakers
    if len(speakers) > 2:
        raise misfit(dialogue.id, "Topical-Chat has two agents")
    order = speakers if set(speakers) - set(AGENTS) else AGENTS
    agents = dict(zip(order, AGENTS, strict=False))
    content = [
        {"message": turn.text, "agent": agents[turn.speaker]}
        | {field: turn.meta[field] for field in _TURN_META if field in turn.meta}
        for turn in dialogue.turns
    ]
    kept = {field: dialogue.meta[field] for field in _META if field in dialogue.meta}
    return {KEY: dialogue.id, "content": content} | kept


def recognises(record: dict[str, Json]) -> bool:
    """Whether the content is a list of messages of agents."""
    content = record.get("content")
    return isinstance(content, list) and (not content or (isinstance(content[0], dict) and "agent" in content[0]))


READER = Reader(
    name="topical-chat",
    recognises=recognises,
    decode=decode,
    encode=encode,
    key=KEY,
    beside=beside,
    companions=("reading_sets_*",),
)
