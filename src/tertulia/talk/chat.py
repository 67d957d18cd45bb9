"""A dialogue as the chat messages that language models read: system, user, assistant."""

from itertools import groupby

from tertulia.core.dialogue import Dialogue, Persona

OPENING = "Hi!"
"""What the other side is taken to have said when the bot opens: chat models need something to answer."""


def chat_messages(dialogue: Dialogue, speaker: str, instructions: str = "") -> list[dict[str, str]]:
    """The dialogue from the speaker's side: its turns are the assistant's, all others the user's, runs joined.

    A system text given verbatim (meta "system") is used as it is; else the persona and the instructions make one.

    >>> from tertulia.core.dialogue import Turn
    >>> turns = (Turn("ana", "hi"), Turn("ana", "there?"), Turn("bot", "yes"))
    >>> d = Dialogue("d", turns, {"bot": Persona(("I sail.",))})
    >>> [(m["role"], m["content"]) for m in chat_messages(d, "bot")]
    [('system', 'About you: I sail.'), ('user', 'hi\\nthere?'), ('assistant', 'yes')]
    """
    system = dialogue.meta.get("system") or _system(dialogue.persona_of(speaker), instructions)
    messages = [{"role": "system", "content": str(system)}] if system else []
    sides = [(("assistant" if turn.speaker == speaker else "user"), turn.text) for turn in dialogue.turns]
    if (
        not sides or sides[0][0] == "assistant"
    ):  # many models' templates refuse a conversation without a user's turn first
        sides.insert(0, ("user", OPENING))
    for role, group in groupby(sides, key=lambda side: side[0]):
        messages.append({"role": role, "content": "\n".join(text for _, text in group)})
    return messages


def _system(persona: Persona | None, instructions: str) -> str:
    if persona is None:
        return instructions
    name = f"Your name is {persona.name}. " if persona.name else ""
    return f"{name}About you: {' '.join(persona.sentences)} {instructions}".strip()
