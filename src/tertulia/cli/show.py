"""Print dialogues and the parts of the sample in a terminal. Text from data is never interpreted as markup."""

from collections import defaultdict
from collections.abc import Callable
from itertools import groupby, islice

from rich.text import Text
from rich.tree import Tree

from tertulia import sample
from tertulia.cli.output import out
from tertulia.core.dialogue import Dialogue, Exchange, Message, Persona
from tertulia.corpus.config import SamplePart, ShowConfig


def show_dialogue(dialogue: Dialogue) -> None:
    """Print a dialogue with its personas and evidence."""
    _print_heading(dialogue.id)
    for speaker, persona in dialogue.personas.items():
        out.print(Text(f"{speaker} = {persona.name or 'persona'}: {' '.join(persona.sentences)}", style="dim"))
    for evidence in dialogue.evidence:
        out.print(Text(f"evidence: {evidence.text}", style="dim"))
    for turn in dialogue.turns:
        _print_turn(turn.speaker, turn.text, first=turn.speaker == dialogue.speakers[0])


def show_exchange(exchange: Exchange) -> None:
    """Print an exchange with its evidence and label."""
    _print_heading(f"{exchange.id} {exchange.label or ''}".strip())
    for evidence in exchange.evidence:
        out.print(Text(f"evidence: {evidence.text}", style="dim"))
    for turn in exchange.context:
        _print_turn(turn.speaker, turn.text, first=True)
    _print_turn(exchange.response.speaker, exchange.response.text, first=False)


def show_sample(config: ShowConfig) -> None:
    """Print one part of the sample, or one item of each."""
    parts = [config.part] if config.part else list(_PARTS)
    for part in parts:
        limit = config.limit if config.part else 1
        out.print(Text(f"\n── {part} " + "─" * (60 - len(part)), style="bold yellow"))
        _PARTS[part](config.skip, config.skip + limit)
    if not config.part:
        out.print(Text("\nSee more of one part with: tertulia corpus show sample --part NAME -n 5", style="dim"))


def _show_personas(start: int, stop: int) -> None:
    for persona in sample.personas()[start:stop]:
        _print_persona(persona)


def _print_persona(persona: Persona) -> None:
    _print_heading(f"{persona.id} {persona.name}")
    for original, revised in zip(persona.sentences, persona.revised, strict=True):
        out.print(Text.assemble(original, ("  ~  " + revised, "dim")))


def _show_dialogues(start: int, stop: int) -> None:
    for dialogue in sample.dialogues()[start:stop]:
        show_dialogue(dialogue)


def _show_threads(start: int, stop: int) -> None:
    threads = groupby(sample.messages(), key=lambda message: message.thread)
    for _, messages in islice(threads, start, stop):
        out.print(_build_tree(list(messages)), soft_wrap=False)


def _build_tree(messages: list[Message]) -> Tree:
    replies: dict[str | None, list[Message]] = defaultdict(list)
    for message in messages:
        replies[message.parent].append(message)
    root = messages[0]
    top = Tree(Text(f"{root.thread} {root.meta.get('topic', '')}", style="bold underline"), guide_style="dim")
    stack = [(top, root)]
    while stack:
        branch, message = stack.pop()
        rude = " (rude)" if message.meta.get("rude") else ""
        leaf = branch.add(Text.assemble((f"{message.author}{rude}: ", "bold cyan"), message.text))
        stack += [(leaf, reply) for reply in reversed(replies[message.id])]
    return top


def _show_chatlog(start: int, stop: int) -> None:
    """Print the chat log, with the number and the colour of each line's conversation; one item is forty lines."""
    count = 0
    for day in sample.room():
        _print_heading(day.day)
        conversations: dict[int, int] = {}
        for number, (line, reply_to) in enumerate(zip(day.lines, day.answers, strict=True)):
            is_first = reply_to == number
            conversations[number] = len(set(conversations.values())) if is_first else conversations[reply_to]
            colour = _COLOURS[conversations[number] % len(_COLOURS)] if not line.startswith("===") else "dim"
            if start * _LINES_PER_ITEM <= count < stop * _LINES_PER_ITEM:
                out.print(Text.assemble((f"{conversations[number]:>4} ", "dim"), (line, colour)))
            count += 1
        if count >= stop * _LINES_PER_ITEM:
            return


def _show_benchmark(start: int, stop: int) -> None:
    items = sample.benchmark()
    for length in (1, 2, 3):
        for item in [i for i in items if len(i.context) == length][start:stop]:
            _print_heading(f"{item.id} {item.label}")
            for turn in (*item.context, item.response):
                _print_turn(turn.speaker, turn.text, first=turn.speaker == "user")


def _show_grounded(start: int, stop: int) -> None:
    triples = sample.grounded()
    for label in sample.LABELS:
        for triple in [t for t in triples if t.label == label][start:stop]:
            show_exchange(triple)


def _print_heading(text: str) -> None:
    out.print(Text(f"\n{text}", style="bold underline"))


def _print_turn(speaker: str, text: str, *, first: bool) -> None:
    out.print(Text.assemble((f"{speaker}: ", "bold cyan" if first else "bold magenta"), text))


_LINES_PER_ITEM = 40
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "white")
_PARTS: dict[SamplePart, Callable[[int, int], None]] = {
    "personas": _show_personas,
    "dialogues": _show_dialogues,
    "threads": _show_threads,
    "room": _show_chatlog,
    "benchmark": _show_benchmark,
    "grounded": _show_grounded,
}
