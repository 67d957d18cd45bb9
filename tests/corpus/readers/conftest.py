"""A small hand-written example of every format, in the layout that its publishers use."""

import json
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

T = TypeVar("T")


def rows(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


BEGIN_V1 = rows(
    "evidence\tprevious turn\tresponse\tgold label\tcoarse label\tfull label set",
    'Otters hold hands.\tdo otters sleep?\tthey hold "hands" then\tentailment\tentailment\ton-topic;faithful',
    "Otters hold hands.\twhat do they eat?\ti like trains\toff-topic\tneutral\toff-topic",
)
BEGIN_V2 = rows(
    "model_name\tdata_source\tknowledge\tmessage\tresponse\tbegin_label",
    "t5\twow\tOtters hold hands.\tdo otters sleep?\tyes, hand in hand\tFully attributable",
    "gpt2\tcmu\tA film about otters.\tseen it?\tsure\tGeneric",
)
NUMBERED = rows(
    "1 your persona: i sail.",
    "2 your persona: i bake bread.",
    "3 partner's persona: i knit.",
    "4 hello there !\thi , just baked a loaf .\t\twho ?|hi , just baked a loaf .",
    "5 smells good\tit is rye",
    "1 your persona: i dive.",
    "2 __SILENCE__\thello , do you swim ?",
    "3 a little\tlovely",
    "4 bye now",
)
PARLAI = rows(
    "text:your persona: i sail.\\nyour persona: i bake.\\nhello\tlabels:hi , windy today\tcontext_dataset:convai2",
    "text:very\tlabels:a|b\tepisode_done:True\tlabel_candidates:yes__PIPE__no|maybe",
    "",
    "text:one\\ntwo\tlabels:three\tepisode_done:True",
)
DAILY_TEXT = rows(
    "How are you ? __eou__ Fine , and you ? __eou__", "Stop that ! __eou__ Sorry . __eou__ Good . __eou__"
)
EMPATHETIC_CSV = rows(
    "conv_id,utterance_idx,context,prompt,speaker_idx,utterance,selfeval,tags",
    "hit:0_conv:1,1,proud,My cat_comma_ Tom_comma_ won a prize,1,My cat won!,5|5|5_2|2|5,",
    "hit:0_conv:1,2,proud,My cat_comma_ Tom_comma_ won a prize,0,Well done_comma_ Tom,5|5|5_2|2|5,",
    "hit:0_conv:1,3,proud,My cat_comma_ Tom_comma_ won a prize,1,Thank you,5|5|5_2|2|5,",
    "hit:1_conv:2,1,afraid,A noise at night,7,I heard steps,4|4|4_4|4|4,",
    "hit:1_conv:2,2,afraid,A noise at night,8,Oh no,4|4|4_4|4|4,,one_comma_ two|a_pipe_b",
)
UBUNTU = rows(
    "folder,dialogueID,date,from,to,text",
    '3,17.tsv,2008-04-23T14:55:00.000Z,ann,,"hello, anybody?"',
    '3,17.tsv,2008-04-23T14:56:00.000Z,ann,,"my ""sound"" is gone',
    'since today"',
    '3,17.tsv,2008-04-23T14:57:00.000Z,bob,ann,"try alsamixer :\\"',
    '3,4.tsv,2009-01-01T00:00:00.000Z,cai,,""',
    '3,4.tsv,2009-01-01T00:01:00.000Z,dee,cai,"cai?"',
)
UBUNTU_PAIRS = rows(
    "Context,Utterance,Label",
    '"hi , all __eou__ any idea ? __eou__ __eot__ no __eou__ __eot__ ",oh well __eou__ bye __eou__,1.0',
    "hi __eou__ __eot__,__dialog_end__ __eou__,0",
)
UBUNTU_RANKING = rows(
    "Context,Ground Truth Utterance,Distractor_0,Distractor_1",
    '"hi , all __eou__ any idea ? __eou__ __eot__ no __eou__ __eot__ ",'
    'oh well __eou__,"no , sir __eou__",a __eou__ b __eou__',
)
UBUNTU_TSV = rows(
    '2004-11-23T11:49:00.000Z\tann\t\tany "ideas',
    "2004-11-23T11:49:00.000Z\tbob\tann\tyes:\ttabs",
)
TOPICAL = {
    "t_1": {
        "article_url": "https://example.org/a",
        "config": "A",
        "content": [
            {
                "message": "Do you read?",
                "agent": "agent_1",
                "sentiment": "Neutral",
                "knowledge_source": ["FS1"],
                "turn_rating": "Good",
            },
            {
                "message": "Poems.",
                "agent": "agent_2",
                "sentiment": "Happy",
                "knowledge_source": ["AS1"],
                "turn_rating": "Excellent",
            },
        ],
        "conversation_rating": {"agent_1": "Good", "agent_2": "Passable"},
    },
    "t_2": {"article_url": None, "config": "C", "content": [{"message": "Hm", "agent": "agent_2"}]},
}
READING = {
    "t_1": {
        "config": "A",
        "agent_1": {
            "FS1": {
                "entity": "Poetry",
                "shortened_wiki_lead_section": "Poetry is old.",
                "fun_facts": ["A poem rhymed."],
            }
        },
        "agent_2": {"FS1": {"entity": "Sea", "summarized_wiki_lead_section": "The sea.", "fun_facts": []}},
        "article": {"url": "https://example.org/a", "headline": "News", "AS1": "A poet wrote."},
    },
    "t_2": {
        "config": "C",
        "agent_1": {"FS1": {"entity": "Sea", "shortened_wiki_lead_section": 81356, "fun_facts": ["t3_42gqyk"]}},
        "agent_2": {},
    },
}
FILM = {
    "0": {"movieName": "The Otter", "year": "2001", "cast": ["Ann as Otter", "Bob as Fish"]},
    "1": "An otter swims.",
    "2": "It meets a fish.",
    "3": "The end.",
    "wikiDocumentIdx": 7,
}
CHAT = {
    "date": "2018-02-20T19:15:08.841Z",
    "history": [
        {"docIdx": 0, "text": "seen it?", "uid": "user1", "utcTimestamp": "2018-02-20T19:15:16.038Z"},
        {"docIdx": 1, "text": "yes, twice", "uid": "user2", "utcTimestamp": "2018-02-20T19:15:36.022Z"},
    ],
    "rating": 2,
    "whoSawDoc": ["user2"],
    "wikiDocumentIdx": 7,
}
WIZARD = [
    {
        "chosen_topic": "Otter",
        "persona": "i love animals.",
        "wizard_eval": 5,
        "chosen_topic_passage": ["Otters swim.", "They hold hands."],
        "dialog": [
            {
                "speaker": "0_Apprentice",
                "text": "Tell me of otters",
                "candidate_responses": ["a", "b"],
                "retrieved_passages": [{"Otter": ["Otters swim.", "They hold hands."]}, {"Sea": ["The sea is wet."]}],
                "retrieved_topics": ["Otter", "Sea"],
            },
            {
                "speaker": "1_Wizard",
                "text": "They hold hands",
                "checked_sentence": {"self_Otter_1": "They hold hands."},
                "checked_passage": {"self_Otter_0": "Otter"},
                "retrieved_passages": [{"Sea": ["The sea is wet."]}],
                "retrieved_topics": ["Sea"],
            },
        ],
    }
]
CONVOKIT = [
    {"id": "u2", "conversation_id": "u1", "text": "hello", "speaker": "bob", "meta": {"n": 1}, "reply-to": "u1"},
    {"id": "u1", "conversation_id": "u1", "text": "hi", "speaker": "ann", "meta": {}, "reply-to": None, "vectors": []},
    {"id": "v1", "root": "v1", "text": "late", "user": "bob", "reply_to": "v0", "timestamp": 20},
    {"id": "v0", "root": "v1", "text": "early", "user": "ann", "reply_to": None, "timestamp": 10},
]
BLENDED = [
    {"dialogue": ["Hi", "Hello", "Bye"], "speaker persona": ["i sail."], "listener persona": ["i bake.", "i dig."]},
    {
        "personas": [["i sail."], ["i bake."]],
        "context_dataset": "wizard_of_wikipedia",
        "additional_context": "Bread",
        "free_turker_utterance": "I like bread",
        "guided_turker_utterance": "So do I",
        "dialog": [[0, "White or brown?"], [1, "Rye"]],
    },
]
DAILY = [
    {
        "dataset": "dailydialog",
        "data_split": "train",
        "dialogue_id": "dailydialog-train-0",
        "original_id": "train-0",
        "domains": ["Work"],
        "turns": [
            {
                "speaker": "user",
                "utterance": "Coffee?",
                "utt_idx": 0,
                "dialogue_acts": {"binary": [{"intent": "directive", "domain": "", "slot": ""}], "categorical": []},
                "emotion": "happiness",
            },
            {"speaker": "system", "utterance": "Yes.", "utt_idx": 1, "dialogue_acts": {"binary": []}, "emotion": ""},
        ],
    }
]
EMPATHETIC = [
    {"conv_id": "hit:3_conv:6", "prompt": "I lost my keys", "label": "sad", "utterence": ["I lost my keys", "Oh dear"]}
]
SHAREGPT = [
    {
        "id": "s1",
        "conversations": [
            {"from": "system", "value": "I am brief."},
            {"from": "human", "value": "2+2?"},
            {"from": "gpt", "value": "4"},
            {"from": "tool", "value": "done"},
        ],
    }
]
NATIVE = {"id": "d", "turns": [{"speaker": "a", "text": "hi"}]}
EXCHANGE = {"id": "e", "context": [], "response": {"speaker": "bot", "text": "hi"}, "label": "generic"}

ORIGINALS: dict[str, dict[str, str]] = {
    "begin-v1": {"dev.tsv": BEGIN_V1},
    "begin-v2": {"dev.tsv": BEGIN_V2.replace("\n", "\r\n")},
    "blended-skill-talk": {"valid.json": json.dumps(BLENDED)},
    "cmu-dog": {"valid.jsonl": json.dumps(CHAT) + "\n", "documents.json": json.dumps({"Otter.json": FILM})},
    "convokit": {
        "utterances.jsonl": rows(*(json.dumps(u) for u in CONVOKIT)),
        "conversations.json": json.dumps({"u1": {"meta": {"title": "T"}, "vectors": []}, "v1": {"title": "old"}}),
        "speakers.json": json.dumps({"ann": {"meta": {"age": 3}, "vectors": []}, "bob": {"meta": {}, "vectors": []}}),
        "corpus.json": "{}",
    },
    "dailydialog": {"dialogues.json": json.dumps(DAILY, indent=2)},
    "dailydialog-text": {
        "dialogues_text.txt": DAILY_TEXT,
        "dialogues_act.txt": "2 2 \n3 1 1 \n",
        "dialogues_emotion.txt": "0 4\n1 5\n",
        "dialogues_topic.txt": "1\n5\n",
    },
    "empathetic": {"valid.json": json.dumps(EMPATHETIC)},
    "empathetic-csv": {"valid.csv": EMPATHETIC_CSV},
    "exchanges": {"x.jsonl": json.dumps(EXCHANGE) + "\n"},
    "messages": {"x.jsonl": json.dumps({"messages": [{"role": "user", "content": "hi"}]}) + "\n"},
    "parlai": {"train.txt": PARLAI},
    "personachat": {"x.jsonl": json.dumps({"id": "d", "utterances": ["hi", "hello"]}) + "\n"},
    "personachat-text": {"train_both_original.txt": NUMBERED},
    "sharegpt": {"x.json": json.dumps(SHAREGPT)},
    "tertulia": {"x.jsonl": json.dumps(NATIVE) + "\n"},
    "topical-chat": {
        "valid_freq.json": json.dumps(TOPICAL, indent=2),
        "reading_sets_valid_freq.json": json.dumps(READING),
    },
    "ubuntu": {"dialogueText.csv": UBUNTU},
    "ubuntu-pairs": {"train.csv": UBUNTU_PAIRS.replace("\n", "\r\n")},
    "ubuntu-ranking": {"valid.csv": UBUNTU_RANKING.replace("\n", "\r\n")},
    "ubuntu-tsv": {"17.tsv": UBUNTU_TSV},
    "wizard": {"train.json": json.dumps(WIZARD)},
}
"""By format: the main file first, then its companions."""


@pytest.fixture(scope="session")
def originals() -> dict[str, dict[str, str]]:
    return ORIGINALS


@pytest.fixture
def original(tmp_path: Path) -> Callable[..., Path]:
    """Writes the original of a format into a folder (by default tmp_path) and returns its main file."""

    def write(name: str, folder: Path = tmp_path) -> Path:
        folder.mkdir(exist_ok=True)
        for file, text in ORIGINALS[name].items():
            (folder / file).write_bytes(text.encode())
        return folder / next(iter(ORIGINALS[name]))

    return write


@pytest.fixture
def failures() -> Callable[[Callable[[T, st.DataObject], None], Iterable[T], int], list[str]]:
    """Runs a hypothesis check on each subject; returns the failures, with the examples that failed."""

    def failure(check: Callable[[T, st.DataObject], None], subject: T, examples: int) -> list[str]:
        @settings(max_examples=examples, deadline=None)
        @given(data=st.data())
        def run(data: st.DataObject) -> None:
            check(subject, data)

        try:
            run()
        except Exception as error:
            return [f"{subject}: {''.join(traceback.format_exception_only(error))}"]
        return []

    def all_failures(check: Callable[[T, st.DataObject], None], subjects: Iterable[T], examples: int) -> list[str]:
        return [text for subject in subjects for text in failure(check, subject, examples)]

    return all_failures
