"""How dialogues and the parts of the sample look in a terminal. Text from data is never markup."""

from collections import defaultdict
from collections.abc import Callable
from itertools import groupby, islice

from rich.text import Text
from rich.tree import Tree

from tertulia import sample
from tertulia.cli.output import out
from tertulia.core.dialogue import Dialogue, Exchange, Message, Persona
from tertulia.corpus.tasks import SamplePart, ShowConfig


def show_dialogue(dialogue: Dialogue) -> None:
    """A dialogue with its personas and evidence."""
    _heading(dialogue.id)
    for speaker, persona in dialogue.personas.items():
        out.print(Text(f"{speaker} = {persona.name or 'persona'}: {' '.join(persona.sentences)}", style="dim"))
    for evidence in dialogue.evidence:
        out.print(Text(f"evidence: {evidence.text}", style="dim"))
    for turn in dialogue.turns:
        _turn(turn.speaker, turn.text, first=turn.speaker == dialogue.speakers[0])


def show_exchange(exchange: Exchange) -> None:
    """An exchange with its evidence and label."""
    _heading(f"{exchange.id} {exchange.label or ''}".strip())
    for evidence in exchange.evidence:
        out.print(Text(f"evidence: {evidence.text}", style="dim"))
    for turn in exchange.context:
        _turn(turn.speaker, turn.text, first=True)
    _turn(exchange.response.speaker, exchange.response.text, first=False)


def show_sample(config: ShowConfig) -> None:
    """One part of the sample, or a taste of each."""
    parts = [config.part] if config.part else list(_PARTS)
    for part in parts:
        limit = config.limit if config.part else 1
        out.print(Text(f"\n── {part} " + "─" * (60 - len(part)), style="bold yellow"))
        _PARTS[part](config.skip, config.skip + limit)
    if not config.part:
        out.print(Text("\nMore of one part: tertulia corpus show sample --part NAME -n 5", style="dim"))


def _personas(start: int, stop: int) -> None:
    for persona in sample.personas()[start:stop]:
        _persona(persona)


def _persona(persona: Persona) -> None:
    _heading(f"{persona.id} {persona.name}")
    for original, revised in zip(persona.sentences, persona.revised, strict=True):
        out.print(Text.assemble(original, ("  ~  " + revised, "dim")))


def _dialogues(start: int, stop: int) -> None:
    for dialogue in sample.dialogues()[start:stop]:
        show_dialogue(dialogue)


def _threads(start: int, stop: int) -> None:
    threads = groupby(sample.messages(), key=lambda message: message.thread)
    for _, messages in islice(threads, start, stop):
        out.print(_tree(list(messages)), soft_wrap=False)


def _tree(messages: list[Message]) -> Tree:
    answers: dict[str | None, list[Message]] = defaultdict(list)
    for message in messages:
        answers[message.parent].append(message)
    root = messages[0]
    top = Tree(Text(f"{root.thread} {root.meta.get('topic', '')}", style="bold underline"), guide_style="dim")
    open_branches = [(top, root)]
    while open_branches:
        branch, message = open_branches.pop()
        rude = " (rude)" if message.meta.get("rude") else ""
        leaf = branch.add(Text.assemble((f"{message.author}{rude}: ", "bold cyan"), message.text))
        open_branches += [(leaf, answer) for answer in reversed(answers[message.id])]
    return top


def _room(start: int, stop: int) -> None:
    """Lines, forty for each item asked for, with the number and the colour of their thread."""
    shown = 0
    for day in sample.room():
        _heading(day.day)
        threads: dict[int, int] = {}
        for number, (line, answers) in enumerate(zip(day.lines, day.answers, strict=True)):
            threads[number] = threads[answers] if answers != number else len(set(threads.values()))
            colour = _COLOURS[threads[number] % len(_COLOURS)] if not line.startswith("===") else "dim"
            if start * 40 <= shown < stop * 40:
                out.print(Text.assemble((f"{threads[number]:>4} ", "dim"), (line, colour)))
            shown += 1
        if shown >= stop * 40:
            return


def _benchmark(start: int, stop: int) -> None:
    items = sample.benchmark()
    for length in (1, 2, 3):
        for item in [i for i in items if len(i.context) == length][start:stop]:
            _heading(f"{item.id} {item.label}")
            for turn in (*item.context, item.response):
                _turn(turn.speaker, turn.text, first=turn.speaker == "user")


def _grounded(start: int, stop: int) -> None:
    triples = sample.grounded()
    for label in sample.LABELS:
        for triple in [t for t in triples if t.label == label][start:stop]:
            show_exchange(triple)


def _heading(text: str) -> None:
    out.print(Text(f"\n{text}", style="bold underline"))


def _turn(speaker: str, text: str, *, first: bool) -> None:
    out.print(Text.assemble((f"{speaker}: ", "bold cyan" if first else "bold magenta"), text))


_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "white")
_PARTS: dict[SamplePart, Callable[[int, int], None]] = {
    "personas": _personas,
    "dialogues": _dialogues,
    "threads": _threads,
    "room": _room,
    "benchmark": _benchmark,
    "grounded": _grounded,
}
