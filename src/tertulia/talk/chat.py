"""A dialogue as the chat messages that language models read: system, user, assistant."""

from itertools import groupby

from tertulia.core.dialogue import Dialogue

OPENING = "Hi!"
"""What the other side is taken to have said when the bot opens: chat models need something to answer."""


def chat_messages(dialogue: Dialogue, speaker: str, instructions: str = "") -> list[dict[str, str]]:
    """The dialogue from the speaker's side: its turns are the assistant's, all others the user's, runs joined.

    A system text given verbatim (meta "system") is used as it is; else the personas that are there and the instructions
    make one: who asks decides what a bot may know of the other.

    >>> from tertulia.core.dialogue import Persona, Turn
    >>> turns = (Turn("ana", "hi"), Turn("ana", "there?"), Turn("bot", "yes"))
    >>> d = Dialogue("d", turns, {"bot": Persona(("I sail.",))})
    >>> [(m["role"], m["content"]) for m in chat_messages(d, "bot")]
    [('system', 'About you: I sail.'), ('user', 'hi\\nthere?'), ('assistant', 'yes')]
    """
    system = dialogue.meta.get("system") or _system(dialogue, speaker, instructions)
    messages = [{"role": "system", "content": str(system)}] if system else []
    sides = [(("assistant" if turn.speaker == speaker else "user"), turn.text) for turn in dialogue.turns]
    if (
        not sides or sides[0][0] == "assistant"
    ):  # many models' templates refuse a conversation without a user's turn first
        sides.insert(0, ("user", OPENING))
    for role, group in groupby(sides, key=lambda side: side[0]):
        messages.append({"role": role, "content": "\n".join(text for _, text in group)})
    return messages


def _system(dialogue: Dialogue, speaker: str, instructions: str) -> str:
    own = dialogue.persona_of(speaker)
    others = [sentence for who, known in dialogue.personas.items() if who != speaker for sentence in known.sentences]
    parts = [f"Your name is {own.name}."] if own and own.name else []
    parts += ["About you:", *own.sentences] if own else []
    parts += ["About the one you talk with:", *others] if others else []
    return " ".join((*parts, instructions)).strip()
