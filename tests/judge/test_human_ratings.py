"""Readers of human ratings: tiny files always, the published ones where they are at hand."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.study.test_importers import entries

from tertulia.core.dialogue import Turn
from tertulia.core.errors import DataError
from tertulia.core.score import Score
from tertulia.judge.human_ratings import (
    RatedSet,
    mean_rating,
    rated_items,
    rating_scores,
    rating_table,
    read_dstc,
    read_fed,
    read_gupta,
    read_ratings,
    read_run,
    read_usr,
)
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject
from tertulia.metrics.human import RATING, SSA

USR = [
    {
        "context": "hi there\nhello , i sing\n",
        "fact": "your persona: i sing.\nyour persona: i have a dog.\n",
        "annotators": ["x", "y"],
        "responses": [
            {"response": "nice !\n", "model": "Original Ground Truth", "Overall": [4, 5], "Natural": [3, 3]},
            {"response": "i dog\n", "model": "Seq2Seq", "Overall": [1, 2], "Natural": [1, 2]},
        ],
    }
]
GUPTA = (
    "model,context_id,human_average_rating,response,prevgt,all_references,context\n"
    'human,7_1,4.8,"fine , you ?",good .,good .\tgreat !,hello .||||how are you ?\n'
    'hred,7_1,2.4,"i see .",good .,good .\tgreat !,hello .||||how are you ?\n'
)
DSTC = [
    {
        "dialogid": "d1",
        "model": "A",
        "context": "hi\nhow are you?",
        "response": "fine",
        "reference": "well",
        "persona": ["I sail."],
        "annotations": {"Overall": [3, "N/A", 5], "Fluent": 1},
    },
    {
        "dialogue_id": "d2",
        "system": "B",
        "dialogue": [{"speaker": "user", "text": "hi"}, {"speaker": "bot", "text": "yes"}],
        "annotations": {"Overall": [2, 2, 1]},
    },
]


def test_fed_has_replies_conversations_and_shared_clusters() -> None:
    ratings = read_fed(entries())
    first, later = ratings.replies
    assert (first.response, first.system, first.context[0]) == ("Fine,\nand you?", "Meena", Turn("User", "Hi!"))
    assert first.cluster == later.cluster == ratings.conversations[0].cluster
    assert ratings.conversations[0].judged == "System"
    assert mean_rating(first, "turn interesting") == 1
    assert mean_rating(first, "turn semantically appropriate") == 2
    assert ratings.skipped == 1
    assert rating_table(ratings.replies, "turn semantically appropriate").shape == (2, 3)


def test_usr_has_facts_and_the_original_reply_as_reference() -> None:
    truth, other = read_usr(USR).replies
    assert (truth.references, other.references) == ((), ("nice !",))
    assert other.persona == ("i sing.", "i have a dog.")
    assert [turn.speaker for turn in other.context] == ["A", "B"]
    assert other.ratings == {"overall": (1, 2), "natural": (1, 2)}
    assert truth.cluster == other.cluster


def test_gupta_has_several_references() -> None:
    human, hred = read_gupta(GUPTA).replies
    assert human.references == ("good .", "great !")
    assert (human.unit, human.cluster, human.response) == ("7_1/human", "7_1", "fine , you ?")
    assert hred.ratings == {"overall": (2.4,)}


def test_dstc_has_replies_and_conversations() -> None:
    ratings = read_dstc(DSTC)
    (reply,), (conversation,) = ratings.replies, ratings.conversations
    assert (reply.references, reply.persona, reply.system) == (("well",), ("I sail.",), "A")
    assert mean_rating(reply, "overall") == 4
    assert mean_rating(reply, "fluent") == 1
    assert (conversation.judged, conversation.system, conversation.unit) == ("bot", "B", "d2/B")
    assert (ratings.skipped, ratings.systems) == (1, ("A", "B"))


@pytest.mark.parametrize(
    ("read", "content", "reason"),
    [
        (read_usr, [{"context": "a"}], "entry 1 is damaged"),
        (read_usr, {}, "not a list"),
        (read_dstc, [DSTC[0], {"annotations": 3}], "entry 2 is damaged"),
        (read_gupta, "model,response\na,b\n", "entry 1 is damaged"),
        (read_gupta, "", "not a list"),
    ],
)
def test_damaged_files_are_refused(read: Callable[[object], RatedSet], content: object, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read(content)


def test_json_lines_are_read_and_missing_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "ratings.jsonl"
    file.write_text("\n".join(map(json.dumps, DSTC)))
    assert len(read_ratings(file, "dstc").units) == 2
    with pytest.raises(DataError, match=r"File not found: .*nothing\.json"):
        read_ratings(tmp_path / "nothing.json", "fed")


@pytest.mark.parametrize("ratings", [read_fed(entries()), read_usr(USR), read_dstc(DSTC), read_gupta(GUPTA)])
def test_a_saved_set_reads_back(ratings: RatedSet) -> None:
    scores = [*rating_scores(ratings.replies), *rating_scores(ratings.conversations)]
    subjects = tuple(Subject(system) for system in ratings.systems)
    run = JudgedRun("meta", {}, subjects, (), tuple(scores), {"rating": RATING.info}, tuple(rated_items(ratings.units)))
    again = read_run(run, name=ratings.name)
    assert sorted(map(repr, again.units)) == sorted(map(repr, ratings.units))


def test_the_ratings_of_a_study_are_gathered_by_what_was_rated() -> None:
    """Units of a study's run are single ratings; its items say by whom and of what."""
    said = {"turns": [{"speaker": "System", "text": "Hello."}], "judged": "System"}
    items = [
        JudgedItem(f"{rater}{unit}", {"rater": rater, "unit": unit, "target": target, "conversations": [said]})
        for unit, target in (("u1", "unit"), ("u2", "turn:5"))
        for rater in ("ann", "bob")
    ]
    scores = (
        Score("bot", "quality", "rating", ("annu1", "bobu1"), (3.0, 5.0), ("c1", "c1")),
        Score("bot", "", "SSA", ("annu2", "bobu2"), (1.0, 0.5), ("c2", "c2")),
        Score("bot", "x, against y", "wins", ("w",), (1.0,), ("c",)),
    )
    infos = {"rating": RATING.info, "SSA": SSA.info, "wins": SSA.info}
    run = JudgedRun("study", {}, (Subject("bot"),), (), scores, infos, tuple(items))
    whole, turn = read_run(run).conversations
    assert (whole.unit, whole.cluster, whole.ratings) == ("u1", "c1", {"quality": (3.0, 5.0)})
    assert (whole.turns, whole.judged) == ((Turn("System", "Hello."),), "System")
    assert (turn.unit, turn.ratings) == ("u2/turn:5", {"SSA": (1.0, 0.5)})
    with pytest.raises(DataError, match="no ratings by people"):
        read_run(JudgedRun("rank", {}, (), (), (), {}))


def test_the_published_files_have_their_published_sizes(shared_data: Path) -> None:
    folder = shared_data / "human_eval"
    fed = read_ratings(folder / "fed_data.json", "fed")
    usr = read_ratings(folder / "pc_usr_data.json", "usr")
    gupta = read_ratings(folder / "gupta_ratings.csv", "gupta")
    assert (len(fed.replies), len(fed.conversations), len(fed.systems)) == (375, 125, 3)
    assert (len(usr.replies), len(usr.systems), len({one.cluster for one in usr.replies})) == (300, 5, 60)
    assert (len(gupta.replies), len(gupta.systems)) == (500, 5)
    assert not any(math.isnan(mean_rating(one, "overall")) for one in (*usr.replies, *gupta.replies))
