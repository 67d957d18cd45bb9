"""What would another bot have said here? Through HTTP, as a researcher's browser asks."""

import re
from typing import Any

from tertulia.store import ConversationStore
from tertulia.store.study_base import study_owner


def transcript_path(study: Any, number: int = 0) -> str:
    return f"/admin/study/{study.id}/assignments/{study.assignments[number]}"


def last_turn(admin: Any) -> str:
    """The id in the last form of the chat's transcript."""
    page = admin.visit("researcher").http.get(transcript_path(admin.chat)).text
    return re.findall(r'name="turn" value="([^"]+)"', page)[-1]


def test_a_researcher_sees_what_a_served_bot_would_have_said(admin: Any) -> None:
    path, turn = transcript_path(admin.chat), last_turn(admin)
    conversations = ConversationStore(admin.database)
    owner = study_owner(admin.chat.id)
    before = [conversations.get(c.id, owner) for c in conversations.summaries(owner, limit=10)]
    labels = list(admin.studies.rows(admin.chat.id))
    answer = admin.visit("researcher").post(f"{path}/counterfactual", page=path, bot="generic", turn=turn)
    assert answer.status_code == 200
    said = re.search(r'id="counterfactual">([^<]*)<', answer.text)
    assert said is not None
    assert said[1]
    assert "I don&#39;t know." in answer.text  # the original
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text  # the history, harmless
    assert "<dt>Seed</dt><dd>7</dd>" in answer.text.split("would have said")[-1]  # that of the original reply
    assert [conversations.get(c.id, owner) for c in conversations.summaries(owner, limit=10)] == before
    assert list(admin.studies.rows(admin.chat.id)) == labels
    events = [event for event in admin.studies.events(admin.chat.id) if event.what == "asked another bot"]
    assert [(event.who, event.detail) for event in events] == [
        ("account:researcher", {"assignment": admin.chat.assignments[0], "bot": "generic", "turn": turn})
    ]


def test_a_response_to_a_fixed_context_can_be_asked_for_too(admin: Any) -> None:
    path = transcript_path(admin.pairwise, 4)  # its rater saw bob at side A
    answer = admin.visit("researcher").post(f"{path}/counterfactual", page=path, bot="generic", side="A")
    assert answer.status_code == 200
    assert "bob said" in answer.text
    assert "=HYPERLINK" in answer.text
    missing = admin.visit("researcher").post(f"{path}/counterfactual", page=path, bot="generic", side="C")
    assert missing.status_code == 422


def test_a_viewer_may_not_ask_and_does_not_see_the_form(admin: Any) -> None:
    path, turn = transcript_path(admin.chat), last_turn(admin)
    viewer = admin.visit("viewer")
    assert "counterfactual" not in viewer.http.get(path).text
    assert viewer.post(f"{path}/counterfactual", bot="generic", turn=turn).status_code == 403
    assert not [event for event in admin.studies.events(admin.chat.id) if event.what == "asked another bot"]


def test_unknown_bots_turns_and_foreign_assignments_are_refused(admin: Any) -> None:
    path, turn = transcript_path(admin.chat), last_turn(admin)
    researcher = admin.visit("researcher")
    assert researcher.post(f"{path}/counterfactual", bot="genric", turn=turn).status_code == 422
    assert researcher.post(f"{path}/counterfactual", bot="generic", turn="nowhere").status_code == 404
    other = f"/admin/study/{admin.pairwise.id}/assignments/{admin.chat.assignments[0]}/counterfactual"
    assert researcher.post(other, bot="generic", turn=turn).status_code == 404
    assert researcher.http.post(f"{path}/counterfactual", data={"bot": "generic", "turn": turn}).status_code == 403
