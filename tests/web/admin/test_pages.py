"""What researchers see: dashboards, transcripts, exports, the audit log."""

import csv
import io
import json
from typing import Any

import polars as pl
import pytest

PAGES = ("/admin/", "/admin/study/{s}", "/admin/study/{s}/live", "/admin/study/{s}/assignments")
PAGES += ("/admin/study/{s}/assignments/{a}", "/admin/study/{s}/adjudicate", "/admin/audit", "/admin/accounts")


def addresses(admin: Any) -> list[str]:
    return [page.format(s=study.id, a=study.assignments[0]) for study in (admin.pairwise, admin.chat) for page in PAGES]


def test_every_page_is_shown_to_every_role_and_stored_nowhere(shared_admin: Any) -> None:
    for role in ("owner", "researcher", "viewer"):
        http = shared_admin.visit(role).http
        for address in addresses(shared_admin):
            answer = http.get(address)
            assert answer.status_code == 200, (role, address, answer.text)
            assert answer.headers["cache-control"] == "no-store"
            assert "script-src" not in answer.headers["content-security-policy"]  # default-src 'self' covers it
            assert "<script>" not in answer.text
            assert "style=" not in answer.text
            assert "PROLIFIC" not in answer.text  # identities are never shown


def test_the_dashboard_shows_progress_agreement_flags_and_spend(shared_admin: Any) -> None:
    text = shared_admin.visit("viewer").http.get(f"/admin/study/{shared_admin.pairwise.id}").text
    squashed = " ".join(text.split())
    assert "8 of 8" in squashed  # ratings by bot
    assert "too-fast" in squashed  # four units within a second
    assert "Stop the study" not in squashed  # a viewer cannot
    # 2 people x (5 + 4 x 0.75 minutes) at 12 per hour
    assert "3.20" in squashed
    assert "75 %" in squashed  # quality: 3 of 4 units agree
    assert "100 %" in squashed
    assert "go on" in squashed  # 8 ratings are not enough for a half-width of 0.2


def test_a_transcript_has_texts_as_shown_labels_and_provenance(shared_admin: Any) -> None:
    http = shared_admin.visit("viewer").http
    pair = http.get(f"/admin/study/{shared_admin.pairwise.id}/assignments/{shared_admin.pairwise.assignments[4]}").text
    assert "Side A: bob" in pair  # the second rater saw them the other way round
    assert "Ann &amp; co" in pair  # without markup, as the participant saw it
    assert pair.count("superseded") == 1
    chat = http.get(f"/admin/study/{shared_admin.chat.id}/assignments/{shared_admin.chat.assignments[0]}").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in chat
    for word in ("ab12cd", "top_k", "0.125 s", "superseded", "undone", "I don&#39;t know."):
        assert word in chat, word


def test_an_assignment_of_another_study_is_not_found(shared_admin: Any) -> None:
    http = shared_admin.visit("owner").http
    assert (
        http.get(f"/admin/study/{shared_admin.chat.id}/assignments/{shared_admin.pairwise.assignments[0]}").status_code
        == 404
    )
    assert http.get("/admin/study/unknown").status_code == 404


def test_exports_hold_the_same_judgements_and_no_formula(shared_admin: Any) -> None:
    http = shared_admin.visit("viewer").http
    address = f"/admin/study/{shared_admin.pairwise.id}/export"
    answers = {kind: http.get(f"{address}.{kind}") for kind in ("csv", "jsonl", "parquet")}
    assert {answer.status_code for answer in answers.values()} == {200}
    assert answers["csv"].headers["content-disposition"] == 'attachment; filename="pilot.csv"'
    from_csv = list(csv.DictReader(io.StringIO(answers["csv"].text, newline="")))
    from_json = [json.loads(line) for line in answers["jsonl"].text.splitlines()]
    from_parquet = pl.read_parquet(io.BytesIO(answers["parquet"].content)).to_dicts()
    assert len(from_csv) == len(from_json) == len(from_parquet) == 2 * 4 * 4
    keys = [(row["assignment"], int(row["label"]), row["question"]) for row in from_csv]
    assert keys == [(row["assignment"], row["label"], row["question"]) for row in from_json]
    assert keys == [(row["assignment"], row["label"], row["question"]) for row in from_parquet]
    assert {row["shown_a"] for row in from_csv} == {"Ann & co", '\'=HYPERLINK("http://evil.example","click")'}
    assert not any(cell.startswith(tuple("=+-@\t\r")) for row in from_csv for cell in row.values())
    assert {row["participant"] for row in from_json} == set(shared_admin.pairwise.participants)
    assert "PROLIFIC" not in answers["jsonl"].text
    everything = http.get(f"{address}.jsonl?history=1").text.splitlines()
    assert len(everything) == 2 * 4 * 5
    assert http.get(f"{address}.xlsx").status_code == 422


def test_views_and_exports_are_in_the_audit_log(admin: Any) -> None:
    viewer = admin.visit("viewer")
    viewer.http.get(f"/admin/study/{admin.chat.id}/assignments/{admin.chat.assignments[0]}")
    viewer.http.get(f"/admin/study/{admin.chat.id}/export.parquet?unfinished=1")
    viewer.http.get(f"/admin/study/{admin.chat.id}/adjudicate")
    events = [event for event in admin.studies.events(admin.chat.id) if event.who == "account:viewer"]
    assert [event.what for event in events] == [
        "viewed a transcript",
        "exported labels",
        "viewed the adjudication queue",
    ]
    assert events[0].detail == {"assignment": admin.chat.assignments[0]}
    assert events[1].detail == {"format": "parquet", "history": False, "unfinished": True}
    log = viewer.http.get("/admin/audit").text
    for words in ("viewed a transcript", "exported labels"):
        assert words in log


def test_a_researcher_stops_a_study_and_lets_it_go_on(admin: Any) -> None:
    researcher, page = admin.visit("researcher"), f"/admin/study/{admin.pairwise.id}"
    assert researcher.post(f"{page}/state", page, state="closed").headers["location"].endswith(admin.pairwise.id)
    assert admin.studies.get(admin.pairwise.id).state == "closed"
    assert "Go on" in researcher.http.get(page).text
    researcher.post(f"{page}/state", page, state="open")
    assert admin.studies.get(admin.pairwise.id).state == "open"
    assert researcher.post(f"{page}/state", page, state="draft").status_code == 422
    events = admin.studies.events(admin.pairwise.id)
    changes = [event.detail for event in events if event.who == "account:researcher" and event.what == "state"]
    assert changes == [{"state": "closed"}, {"state": "open"}]


def test_a_decision_is_recorded_beside_the_labels(admin: Any) -> None:
    researcher, page = admin.visit("researcher"), f"/admin/study/{admin.pairwise.id}/adjudicate"
    before = list(admin.studies.rows(admin.pairwise.id, history=True))
    queue = researcher.http.get(page).text
    assert queue.count("<article") == 1  # the quality of the first unit
    assert "ambiguous" in queue
    fields = {"unit": "unit-0", "target": "unit", "question": "quality"}
    for value, note in (("ann", "Bob is spam."), ("tie", "On second thoughts.")):
        assert researcher.post(page, page, **fields, value=value, note=note).status_code == 303
    decided = researcher.http.get(page).text
    assert "<strong>tie</strong>" in decided
    assert "On second thoughts." in decided
    assert decided.count("(superseded)") == 1
    assert list(admin.studies.rows(admin.pairwise.id, history=True)) == before
    for wrong in ({"value": "A"}, {"value": "ann", "unit": "unit-1"}, {"value": "ann", "note": "x" * 1001}):
        assert researcher.post(page, page, **(fields | wrong)).status_code == 422, wrong


def test_owners_manage_accounts_and_every_change_is_logged(admin: Any) -> None:
    owner, page = admin.visit("owner"), "/admin/accounts"
    assert owner.post("/admin/accounts/add", page, name="zoë", role="viewer", password="long enough").status_code == 303
    zoe = admin.visit()
    assert zoe.sign_in("zoë", "long enough").status_code == 303
    assert owner.post("/admin/accounts/role", page, name="zoë", role="researcher").status_code == 303
    assert "Stop the study" in zoe.http.get(f"/admin/study/{admin.pairwise.id}").text
    assert owner.post("/admin/accounts/password", page, name="zoë", password="another one!").status_code == 303
    assert zoe.http.get("/admin/").headers["location"] == "../admin/signin"  # the reset ended the session
    assert owner.post("/admin/accounts/delete", page, name="zoë").status_code == 303
    assert zoe.sign_in("zoë", "another one!").status_code == 401
    log = owner.http.get("/admin/audit").text
    for words in ("added an account", "changed a role", "reset a password", "deleted an account"):
        assert words in log
    assert "another one!" not in log
    for wrong in (
        ("add", {"name": "x", "role": "viewer", "password": "short"}),
        ("add", {"name": "owner", "role": "viewer", "password": "long enough"}),
        ("add", {"name": "x\ny", "role": "viewer", "password": "long enough"}),
        ("add", {"name": "x", "role": "king", "password": "long enough"}),
        ("role", {"name": "nobody", "role": "viewer"}),
        ("role", {"name": "owner", "role": "viewer"}),  # the only owner
        ("delete", {"name": "owner"}),
    ):
        assert owner.post(f"/admin/accounts/{wrong[0]}", page, **wrong[1]).status_code in (404, 409, 422), wrong
    assert [account.name for account in admin.accounts.list()] == ["owner", "researcher", "viewer"]


def test_people_change_their_own_password(admin: Any) -> None:
    viewer, page = admin.visit("viewer"), "/admin/accounts"
    assert viewer.post("/admin/password", page, current="wrong", password="brand new one").status_code == 403
    current = {"current": "correct horse battery", "password": "brand new one"}
    assert viewer.post("/admin/password", page, **current).headers["location"] == "../admin/signin"
    assert viewer.http.get("/admin/").status_code == 303
    assert admin.visit().sign_in("viewer", "brand new one").status_code == 303


@pytest.mark.parametrize("nonsense", ["%00", "%ff", "a" * 300, "..%2f..", "'%20OR%201=1--", "🦜"])
def test_nonsense_in_addresses_and_forms_is_never_a_server_error(shared_admin: Any, nonsense: str) -> None:
    owner = shared_admin.visit("owner")
    study, assignment = shared_admin.pairwise.id, shared_admin.pairwise.assignments[0]
    for path in (
        f"/admin/study/{nonsense}",
        f"/admin/study/{nonsense}/live",
        f"/admin/study/{nonsense}/assignments/{assignment}",
        f"/admin/study/{study}/assignments/{nonsense}",
        f"/admin/study/{study}/assignments?participant={nonsense}&before={nonsense}",
        f"/admin/study/{study}/export.{nonsense}",
        f"/admin/study/{study}/export.csv?history={nonsense}",
        f"/admin/audit?before={nonsense}",
        f"/admin/accounts?done={nonsense}",
        f"/admin/setup?token={nonsense}",
        f"/admin/{nonsense}",
    ):
        assert owner.http.get(path).status_code < 500, path
    csrf = owner.csrf()
    for path in ("accounts/add", "accounts/role", "accounts/password", "accounts/delete", f"study/{study}/state"):
        fields = dict.fromkeys(("name", "role", "password", "state"), nonsense)
        assert owner.http.post(f"/admin/{path}", data={"csrf": csrf} | fields).status_code < 500, path
    fields = dict.fromkeys(("unit", "target", "question", "value", "note"), nonsense)
    assert owner.http.post(f"/admin/study/{study}/adjudicate", data={"csrf": csrf} | fields).status_code == 422
