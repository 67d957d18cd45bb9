"""A dialogue as the chat messages that language models read: system, user, assistant."""

from collections.abc import Sequence
from itertools import groupby

from tertulia.core.dialogue import Dialogue, Evidence

OPENING = "Hi!"
"""The user message that precedes a conversation the bot opens: chat models need something to reply to."""


EVIDENCE = "Passages with facts to base your answer on:"
"""What precedes the evidence at the end of the system message."""
EVIDENCE_WORDS = 300
"""Words of evidence that a prompt has room for, if nothing else is said."""
WORD_CHARACTERS = 8
"""A passage is also cut off after so many characters for each of these words."""


def chat_messages(
    dialogue: Dialogue, speaker: str, instructions: str = "", *, evidence_words: int = EVIDENCE_WORDS
) -> list[dict[str, str]]:
    """The dialogue from one speaker's side: its turns are the assistant's, all others the user's; runs are joined.

    A system text in the dialogue's meta (key "system") is used verbatim. Otherwise the personas of the dialogue and the
    instructions make up the system message. The dialogue's evidence follows it, one passage per line, best first.

    >>> from tertulia.core.dialogue import Persona, Turn
    >>> turns = (Turn("ana", "hi"), Turn("ana", "there?"), Turn("bot", "yes"))
    >>> d = Dialogue("d", turns, {"bot": Persona(("I sail.",))})
    >>> [(m["role"], m["content"]) for m in chat_messages(d, "bot")]
    [('system', 'About you: I sail.'), ('user', 'hi\\nthere?'), ('assistant', 'yes')]
    """
    system = dialogue.meta.get("system") or _system(dialogue, speaker, instructions)
    system = "\n\n".join(part for part in (str(system), evidence_text(dialogue.evidence, evidence_words)) if part)
    messages = [{"role": "system", "content": system}] if system else []
    sides = [(("assistant" if turn.speaker == speaker else "user"), turn.text) for turn in dialogue.turns]
    # The chat templates of many models reject conversations that do not begin with the user.
    if not sides or sides[0][0] == "assistant":
        sides.insert(0, ("user", OPENING))
    for role, group in groupby(sides, key=lambda side: side[0]):
        messages.append({"role": role, "content": "\n".join(text for _, text in group)})
    return messages


def evidence_text(evidence: Sequence[Evidence], max_words: int) -> str:
    """Passages as a prompt has them: each on a line of its own, cut off after so many words; empty without any.

    >>> evidence_text([Evidence("The moon is\\nround."), Evidence("It has no air.")], 5)
    'Passages with facts to base your answer on:\\n- The moon is round.\\n- It'
    """
    lines, left = [], max_words
    for passage in evidence:
        words = passage.text.split()[:left]
        left -= len(words)
        if words:
            # Some scripts have no spaces: there, characters are what counts.
            lines.append(f"- {' '.join(words)[: max_words * WORD_CHARACTERS]}")
    return "\n".join([EVIDENCE, *lines]) if lines else ""


def _system(dialogue: Dialogue, speaker: str, instructions: str) -> str:
    own = dialogue.persona_of(speaker)
    others = [
        sentence for who, persona in dialogue.personas.items() if who != speaker for sentence in persona.sentences
    ]
    parts = [f"Your name is {own.name}."] if own and own.name else []
    parts += ["About you:", *own.sentences] if own else []
    parts += ["About the person you are talking to:", *others] if others else []
    return " ".join((*parts, instructions)).strip()
