"""Two bots in conversation: turns, seeds, personas, and what of the plan they depend on."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tertulia import sample
from tertulia.core.codec import dialogue_from_json, dialogue_to_json, dump_line
from tertulia.core.config import validate
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import ConfigError, DataError, UsageError
from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.corpus.write import save_dialogues
from tertulia.talk.bots.tfidf import TfidfBot, TfidfOptions
from tertulia.talk.selfplay import Scene, Seat, SelfplayConfig, converse, selfplay
from tertulia.talk.selfplay.plan import make_plan


class NameBot:
    """Says its name, its speaker, its seed and how many turns it was shown."""

    summary = "Describes its ask."

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.batches: list[list[Ask]] = []

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        self.batches.append(list(asks))
        return [
            Reply(f"{self.spec} {a.speaker} {a.seed} {len(a.dialogue.turns)}", Provenance(self.spec, seed=a.seed))
            for a in asks
        ]


def config(*bots: str, **values: object) -> SelfplayConfig:
    return validate(SelfplayConfig, {"bots": bots, **values}, where="the test")


def play(first: NameBot, second: NameBot, **values: object) -> list[Dialogue]:
    return selfplay((Seat("A", first), Seat("B", second)), config("x", "y", **values))


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
    turns = [t for dialogue in dialogues for t in dialogue.turns[1:]]
    assert len({t.meta["provenance"]["seed"] for t in turns}) == len(turns) == 20
    assert all(t.meta["provenance"]["bot"] == "xy"["AB".index(t.speaker)] for t in turns)
    assert dialogues[0].turns[0].meta == {}


def test_what_is_played_together_does_not_matter() -> None:
    bot = TfidfBot.build("", TfidfOptions())
    seats = (Seat("A", bot), Seat("B", bot))
    scenes = [Scene(f"c{i}") for i in range(5)]
    together = converse(seats, scenes, turns=4)
    alone = [dialogue for scene in reversed(scenes) for dialogue in converse(seats, [scene], turns=4)]
    assert [[t.text for t in d.turns] for d in together] == [[t.text for t in d.turns] for d in reversed(alone)]
    assert len({d.turns[0].text for d in together}) > 1


def test_no_bot_sees_the_other_persona() -> None:
    own, other = Persona(("I sail.",)), Persona(("I bake.",))
    first, second = NameBot("x"), NameBot("y")
    play_config = config("x", "y", conversations=2, turns=5)
    dialogues = selfplay((Seat("A", first), Seat("B", second)), play_config, personas=[(own, other)])
    assert [ask.dialogue.personas for batch in first.batches for ask in batch] == [{"A": own}] * 4
    assert [ask.dialogue.personas for batch in second.batches for ask in batch] == [{"B": other}] * 4
    assert all(dialogue.personas == {"A": own, "B": other} for dialogue in dialogues)


def test_progress_counts_turns() -> None:
    counts: list[int] = []
    seats = (Seat("A", NameBot("x")), Seat("B", NameBot("x")))
    selfplay(seats, config("x", conversations=2, turns=4), progress=counts.append)
    assert counts == [2, 2, 2]


def test_the_same_seed_gives_the_same_conversations_and_they_can_be_saved() -> None:
    bot = TfidfBot.build("", TfidfOptions())
    seats = (Seat("A", bot), Seat("B", bot))
    settings = config("tfidf", conversations=3, turns=6, opener="", seed=3)
    dialogues = selfplay(seats, settings)
    assert dialogues == selfplay(seats, settings)
    assert dialogues != selfplay(seats, settings.model_copy(update={"seed": 4}))
    for dialogue in dialogues:
        assert len({t.text for t in dialogue.turns}) == 6
        assert dialogue_from_json(json.loads(dump_line(dialogue_to_json(dialogue)))) == dialogue


@pytest.mark.parametrize(
    "values",
    [
        {"bots": ()},
        {"bots": ("a", "b", "c")},
        {"all_pairs": True, "bots": ("a",)},
        {"bots": ("a",), "turns": 1},
        {"bots": ("a",), "conversations": 0},
        {"bots": ("a",), "opener": "Hi!", "openers": "file"},
    ],
)
def test_values_out_of_range_are_errors(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=list(values)[-1]):
        validate(SelfplayConfig, values, where="x")


def test_pairings_and_speakers() -> None:
    bots = ("anna=generic", "tfidf", "tfidf?context=all")
    plan = make_plan(config(*bots, with_itself=True, all_pairs=True))
    assert [(pairing.name, pairing.speakers) for pairing in plan.pairings] == [
        ("anna", ("anna", "anna (2)")),
        ("tfidf", ("A", "B")),
        ("tfidf-2", ("A", "B")),
        ("anna + tfidf", ("anna", "B")),
        ("anna + tfidf-2", ("anna", "B")),
        ("tfidf + tfidf-2", ("A", "B")),
    ]
    assert [pairing.name for pairing in make_plan(config("generic", "tfidf")).pairings] == ["generic + tfidf"]
    with pytest.raises(UsageError, match="Two bots are called 'a'"):
        make_plan(config("a=generic", "a=tfidf"))


def test_shards_are_cut_by_the_plan_alone() -> None:
    plan = make_plan(config("generic", "tfidf", with_itself=True, conversations=5, shard=2))
    assert [len(shard.scenes) for shard in plan.shards] == [2, 2, 1] * 2
    assert [shard.new_turns for shard in plan.shards] == [18, 18, 9] * 2
    ids = [scene.id for shard in plan.shards for scene in shard.scenes]
    assert ids == [f"selfplay-0-{name}-{i}" for name in ("generic", "tfidf") for i in range(5)]
    same = {"processes": 3, "engine": "ray", "out": "elsewhere"}
    assert make_plan(config("generic", "tfidf", with_itself=True, conversations=5, shard=2, **same)).run == plan.run
    assert make_plan(config("generic", "tfidf", with_itself=True, conversations=5, shard=3)).run != plan.run


def test_openers_are_taken_in_an_order_drawn_by_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "openers.txt"
    file.write_text("one\n\n  two \nthree\nfour\n", encoding="utf-8")

    def openers(seed: int) -> list[tuple[str, int]]:
        plan = make_plan(config("generic", "tfidf", with_itself=True, openers=file, conversations=6, seed=seed))
        scenes = [scene for shard in plan.shards for scene in shard.scenes]
        taken = [(scene.opener, scene.meta["selfplay"]["opener"]) for scene in scenes]
        assert taken[:6] == taken[6:]  # the same for each pairing
        return taken[:6]

    taken = openers(0)
    assert sorted(taken[:4]) == [("four", 5), ("one", 1), ("three", 4), ("two", 3)]
    assert taken[4:] == taken[:2]
    assert openers(0) == taken
    assert any(openers(seed) != taken for seed in range(1, 5))
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(DataError, match="no openers"):
        openers(0)


def test_personas_of_the_sample_and_of_any_corpus(tmp_path: Path) -> None:
    people = [Persona((f"I am {i}.",)) for i in range(5)]
    turns = (Turn("a", "hi"),)
    dialogues = [Dialogue(f"d{i}", turns, {"a": people[i], "b": people[max(0, i - 1)]}) for i in range(5)]
    corpus = tmp_path / "corpus.jsonl"
    save_dialogues(dialogues, corpus)

    def pairs(source: str) -> list[tuple[Persona, ...]]:
        (shard,) = make_plan(config("generic", conversations=3, personas=source)).shards
        return [scene.personas for scene in shard.scenes]

    assert pairs(str(corpus)) == [(people[0], people[1]), (people[2], people[3]), (people[0], people[1])]
    assert pairs("sample")[0] == tuple(sample.personas("valid")[:2])
    assert pairs("none") == [()] * 3
    save_dialogues([Dialogue("d", turns)], corpus)
    with pytest.raises(DataError, match="fewer than two personas"):
        pairs(str(corpus))


def test_a_retrained_bot_is_another_plan(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    runs = set()
    for text in ("hi", "hello"):
        save_dialogues([Dialogue("d", (Turn("a", text), Turn("b", "bye")))], corpus)
        runs.add(make_plan(config(f"tfidf:{corpus}")).run)
    assert len(runs) == 2
