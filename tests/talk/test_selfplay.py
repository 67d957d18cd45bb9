import json
from collections.abc import Sequence

import pytest

from tertulia.core.codec import dialogue_from_json, dialogue_to_json, dump_line
from tertulia.core.config import validate
from tertulia.core.dialogue import Persona
from tertulia.core.errors import ConfigError
from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.talk.bots.tfidf import TfidfBot, TfidfOptions
from tertulia.talk.selfplay import Seat, SelfplayConfig, selfplay


class NameBot:
    """Says its name, its speaker, its seed and how many turns it was shown."""

    summary = "Describes its ask."

    def __init__(self, spec: str) -> None:
        self.spec, self.batches = spec, []

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        self.batches.append(list(asks))
        return [
            Reply(f"{self.spec} {a.speaker} {a.seed} {len(a.dialogue.turns)}", Provenance(self.spec, seed=a.seed))
            for a in asks
        ]


def play(first: NameBot, second: NameBot, **config: object):  # type: ignore[no-untyped-def]
    settings = validate(SelfplayConfig, {"bots": ("x", "y"), **config}, where="the test")
    return selfplay((Seat("A", first), Seat("B", second)), settings)


def test_bots_take_turns_after_the_opener() -> None:
    first, second = NameBot("x"), NameBot("y")
    dialogues = play(first, second, conversations=3, turns=5)
    assert [t.id for t in dialogues] == ["selfplay-0-0", "selfplay-0-1", "selfplay-0-2"]
    for dialogue in dialogues:
        assert [t.speaker for t in dialogue.turns] == ["A", "B", "A", "B", "A"]
        assert dialogue.turns[0].text == "Hi!"
        assert [t.text.split()[0] for t in dialogue.turns[1:]] == ["y", "x", "y", "x"]
        assert [t.text.split()[3] for t in dialogue.turns[1:]] == ["1", "2", "3", "4"]
        assert dialogue.meta["bots"] == ["x", "y"]
    assert [len(batch) for batch in first.batches + second.batches] == [3, 3, 3, 3]


def test_without_an_opener_the_first_bot_opens() -> None:
    (dialogue,) = play(NameBot("x"), NameBot("y"), conversations=1, turns=3, opener="")
    assert [t.text.split()[0] for t in dialogue.turns] == ["x", "y", "x"]


def test_each_turn_has_a_seed_of_its_own_and_its_provenance() -> None:
    dialogues = play(NameBot("x"), NameBot("y"), conversations=4, turns=6, seed=100)
    seeds = [t.meta["provenance"]["seed"] for dialogue in dialogues for t in dialogue.turns[1:]]
    assert len(set(seeds)) == len(seeds) == 20
    assert {t.meta["provenance"]["bot"] for dialogue in dialogues for t in dialogue.turns[1:]} == {"x", "y"}
    assert all(
        t.meta["provenance"]["bot"] == "xy"["AB".index(t.speaker)] for dialogue in dialogues for t in dialogue.turns[1:]
    )
    assert dialogues[0].turns[0].meta == {}


def test_pairs_of_personas_are_used_in_turn() -> None:
    people = [Persona((f"I am {i}.",)) for i in range(4)]
    config = SelfplayConfig(bots=("x",), conversations=3, turns=2)
    seats = (Seat("A", NameBot("x")), Seat("B", NameBot("y")))
    dialogues = selfplay(seats, config, personas=[(people[0], people[1]), (people[2], people[3])])
    assert [t.personas for t in dialogues] == [
        {"A": people[0], "B": people[1]},
        {"A": people[2], "B": people[3]},
        {"A": people[0], "B": people[1]},
    ]


def test_no_bot_sees_the_other_persona() -> None:
    own, other = Persona(("I sail.",)), Persona(("I bake.",))
    first, second = NameBot("x"), NameBot("y")
    config = SelfplayConfig(bots=("x", "y"), conversations=2, turns=5)
    dialogues = selfplay((Seat("A", first), Seat("B", second)), config, personas=[(own, other)])
    assert [ask.dialogue.personas for batch in first.batches for ask in batch] == [{"A": own}] * 4
    assert [ask.dialogue.personas for batch in second.batches for ask in batch] == [{"B": other}] * 4
    assert all(dialogue.personas == {"A": own, "B": other} for dialogue in dialogues)


def test_progress_counts_turns() -> None:
    counts: list[int] = []
    config = SelfplayConfig(bots=("x",), conversations=2, turns=4)
    selfplay((Seat("A", NameBot("x")), Seat("B", NameBot("x"))), config, progress=counts.append)
    assert counts == [2, 2, 2]


def test_the_same_seed_gives_the_same_conversations_and_they_can_be_saved() -> None:
    bot = TfidfBot.build("", TfidfOptions())
    seats = (Seat("A", bot), Seat("B", bot))
    config = SelfplayConfig(bots=("tfidf",), conversations=3, turns=6, opener="", seed=3)
    dialogues = selfplay(seats, config)
    assert dialogues == selfplay(seats, config)
    assert dialogues != selfplay(seats, config.model_copy(update={"seed": 4}))
    assert len({t.turns[0].text for t in dialogues}) > 1
    for dialogue in dialogues:
        assert len({t.text for t in dialogue.turns}) == 6
        assert dialogue_from_json(json.loads(dump_line(dialogue_to_json(dialogue)))) == dialogue


@pytest.mark.parametrize(
    "values",
    [{"bots": ()}, {"bots": ("a", "b", "c")}, {"bots": ("a",), "turns": 1}, {"bots": ("a",), "conversations": 0}],
)
def test_values_out_of_range_are_errors(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=list(values)[-1]):
        validate(SelfplayConfig, values, where="x")
