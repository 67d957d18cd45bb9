"""Who is kept out of the researchers' pages, and how. Every row of the table is a request that must be refused."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tertulia.store import AccountStore, Database
from tertulia.store.study_records import utc_now
from tertulia.web.admin.access import new_setup_token

PASSWORD = "correct horse battery"
Act = Callable[[Any], httpx.Response]


def state_path(admin: Any) -> str:
    return f"/admin/study/{admin.pairwise.id}/state"


def _stranger_reads(admin: Any) -> httpx.Response:
    return admin.visit().http.get(f"/admin/study/{admin.pairwise.id}")


def _stranger_polls(admin: Any) -> httpx.Response:
    return admin.visit().http.get(f"/admin/study/{admin.pairwise.id}/live")


def _stranger_exports(admin: Any) -> httpx.Response:
    return admin.visit().http.get(f"/admin/study/{admin.pairwise.id}/export.csv")


def _stranger_writes(admin: Any) -> httpx.Response:
    return admin.visit().http.post(state_path(admin), data={"state": "closed"})


def _rater_reads(admin: Any) -> httpx.Response:
    """A participant's token is no researcher's session, under whichever name it comes."""
    visitor = admin.visit()
    _, token = admin.studies.enroll(admin.pairwise.id, "prolific", "PROLIFIC-rater-1")
    visitor.http.cookies.set(f"tertulia_study_{admin.pairwise.id}", token)
    visitor.http.cookies.set("tertulia_admin", token)
    return visitor.http.get("/admin/audit")


def _rater_writes(admin: Any) -> httpx.Response:
    visitor = admin.visit()
    _, token = admin.studies.enroll(admin.pairwise.id, "prolific", "PROLIFIC-rater-1")
    visitor.http.cookies.set("tertulia_admin", token)
    return visitor.http.post(state_path(admin), data={"state": "closed"})


def _viewer_stops(admin: Any) -> httpx.Response:
    return admin.visit("viewer").post(state_path(admin), state="closed")


def _viewer_decides(admin: Any) -> httpx.Response:
    fields = {"unit": "unit-0", "target": "unit", "question": "quality", "value": "ann"}
    return admin.visit("viewer").post(f"/admin/study/{admin.pairwise.id}/adjudicate", **fields)


def _viewer_adds_an_account(admin: Any) -> httpx.Response:
    return admin.visit("viewer").post("/admin/accounts/add", name="mole", role="owner", password=PASSWORD)


def _researcher_becomes_an_owner(admin: Any) -> httpx.Response:
    return admin.visit("researcher").post("/admin/accounts/role", name="researcher", role="owner")


def _researcher_resets_a_password(admin: Any) -> httpx.Response:
    return admin.visit("researcher").post("/admin/accounts/password", name="owner", password=PASSWORD)


def _researcher_deletes_an_account(admin: Any) -> httpx.Response:
    return admin.visit("researcher").post("/admin/accounts/delete", name="viewer")


def _without_token(admin: Any) -> httpx.Response:
    return admin.visit("owner").http.post(state_path(admin), data={"state": "closed"})


def _with_forged_token(admin: Any) -> httpx.Response:
    return admin.visit("owner").http.post(state_path(admin), data={"state": "closed", "csrf": "0" * 64})


def _with_the_token_of_another_session(admin: Any) -> httpx.Response:
    other = admin.visit("owner").csrf()
    return admin.visit("owner").http.post(state_path(admin), data={"state": "closed", "csrf": other})


def _with_two_tokens(admin: Any) -> httpx.Response:
    owner = admin.visit("owner")
    return owner.http.post(state_path(admin), data={"state": "closed", "csrf": [owner.csrf(), "x"]})


def _from_a_foreign_origin(admin: Any) -> httpx.Response:
    owner = admin.visit("owner")
    form = {"state": "closed", "csrf": owner.csrf()}
    return owner.http.post(state_path(admin), data=form, headers={"Origin": "https://evil.example"})


def _from_a_sandboxed_page(admin: Any) -> httpx.Response:
    owner = admin.visit("owner")
    form = {"state": "closed", "csrf": owner.csrf()}
    return owner.http.post(state_path(admin), data=form, headers={"Origin": "null"})


def _from_another_site_by_fetch_metadata(admin: Any) -> httpx.Response:
    owner = admin.visit("owner")
    form = {"state": "closed", "csrf": owner.csrf()}
    return owner.http.post(state_path(admin), data=form, headers={"Sec-Fetch-Site": "cross-site"})


def _as_json(admin: Any) -> httpx.Response:
    owner = admin.visit("owner")
    return owner.http.post(state_path(admin), json={"state": "closed", "csrf": owner.csrf()})


def _too_large(admin: Any) -> httpx.Response:
    return admin.visit("owner").post(state_path(admin), state="closed", note="x" * 70_000)


def _with_too_many_fields(admin: Any) -> httpx.Response:
    return admin.visit("owner").post(state_path(admin), state="closed", **{f"f{n}": "" for n in range(60)})


def _by_get(admin: Any) -> httpx.Response:
    return admin.visit("owner").http.get(f"{state_path(admin)}?state=closed")


def _after_signing_out(admin: Any) -> httpx.Response:
    owner = admin.visit("owner")
    form, cookie = {"state": "closed", "csrf": owner.csrf()}, owner.http.cookies["tertulia_admin"]
    assert owner.post("/admin/signout").status_code == 303
    owner.http.cookies.set("tertulia_admin", cookie)
    return owner.http.post(state_path(admin), data=form)


def _with_an_expired_session(admin: Any) -> httpx.Response:
    owner = admin.visit("owner")
    form = {"state": "closed", "csrf": owner.csrf()}
    admin.expire_sessions()
    return owner.http.post(state_path(admin), data=form)


def _with_a_planted_cookie(admin: Any) -> httpx.Response:
    """Two cookies of the same name: one of them is not ours."""
    owner = admin.visit("owner")
    cookie = owner.http.cookies["tertulia_admin"]
    form = {"state": "closed", "csrf": owner.csrf()}
    headers = {"Cookie": f"tertulia_admin=planted; tertulia_admin={cookie}"}
    return httpx.post(f"{admin.url}{state_path(admin)}", data=form, headers=headers)


def _sign_in_without_token(admin: Any) -> httpx.Response:
    return admin.visit().http.post("/admin/signin", data={"name": "owner", "password": PASSWORD})


def _sign_in_from_a_foreign_origin(admin: Any) -> httpx.Response:
    visitor = admin.visit()
    form = {"csrf": visitor.csrf("/admin/signin"), "name": "owner", "password": PASSWORD}
    return visitor.http.post("/admin/signin", data=form, headers={"Origin": "https://evil.example"})


def _sign_in_with_a_wrong_password(admin: Any) -> httpx.Response:
    return admin.visit().sign_in("owner", "wrong")


def _sign_in_as_nobody(admin: Any) -> httpx.Response:
    return admin.visit().sign_in("nobody")


def _setup_although_there_are_accounts(admin: Any) -> httpx.Response:
    return admin.visit().http.get("/admin/setup?token=anything")


REFUSED: list[tuple[Act, int]] = [
    (_stranger_reads, 303),
    (_stranger_polls, 401),
    (_stranger_exports, 303),
    (_stranger_writes, 401),
    (_rater_reads, 303),
    (_rater_writes, 401),
    (_viewer_stops, 403),
    (_viewer_decides, 403),
    (_viewer_adds_an_account, 403),
    (_researcher_becomes_an_owner, 403),
    (_researcher_resets_a_password, 403),
    (_researcher_deletes_an_account, 403),
    (_without_token, 403),
    (_with_forged_token, 403),
    (_with_the_token_of_another_session, 403),
    (_with_two_tokens, 403),
    (_from_a_foreign_origin, 403),
    (_from_a_sandboxed_page, 403),
    (_from_another_site_by_fetch_metadata, 403),
    (_as_json, 422),
    (_too_large, 422),
    (_with_too_many_fields, 422),
    (_by_get, 405),
    (_after_signing_out, 401),
    (_with_an_expired_session, 401),
    (_with_a_planted_cookie, 401),
    (_sign_in_without_token, 403),
    (_sign_in_from_a_foreign_origin, 403),
    (_sign_in_with_a_wrong_password, 401),
    (_sign_in_as_nobody, 401),
    (_setup_although_there_are_accounts, 403),
]


class Clocked:
    """The server of the table, whose sessions a test can let expire."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def expire_sessions(self) -> None:
        past = (utc_now() - timedelta(seconds=1)).isoformat(sep=" ", timespec="microseconds")
        self.database.write(lambda c: c.exec_driver_sql("UPDATE account_sessions SET expires = ?", (past,)).rowcount)


@pytest.mark.parametrize(("act", "status"), REFUSED, ids=[act.__name__.strip("_") for act, _ in REFUSED])
def test_the_request_is_refused_and_changes_nothing(shared_admin: Any, act: Act, status: int) -> None:
    admin = Clocked(shared_admin)
    accounts, labels = admin.accounts.list(), list(admin.studies.rows(admin.pairwise.id))
    answer = act(admin)
    assert answer.status_code == status, answer.text
    if status == 303:
        assert answer.headers["location"].endswith("admin/signin")
    assert "unit-0" not in answer.text  # no word of what is inside
    assert admin.studies.get(admin.pairwise.id).state == "open"
    assert admin.accounts.list() == accounts
    assert list(admin.studies.rows(admin.pairwise.id)) == labels
    assert not [event for event in admin.studies.events(admin.pairwise.id) if event.what == "adjudication"]


def test_ten_wrong_passwords_lock_an_account_for_a_minute(admin: Any) -> None:
    visitor = admin.visit()
    answers = [visitor.sign_in("owner", f"guess {n}") for n in range(10)]
    assert {answer.status_code for answer in answers} == {401}
    assert {re.sub(r'value="[^"]*"', "", answer.text) for answer in answers} == {
        re.sub(r'value="[^"]*"', "", answers[0].text)
    }
    locked = visitor.sign_in("owner")  # the right password comes too late
    assert locked.status_code == 429
    assert 0 < int(locked.headers["retry-after"]) <= 60
    assert visitor.http.get("/admin/").status_code == 303


def test_an_unknown_name_is_answered_like_a_wrong_password_and_not_logged(admin: Any) -> None:
    visitor = admin.visit()
    unknown, known = visitor.sign_in("hunter2-secret"), visitor.sign_in("owner", "wrong")
    assert unknown.text.replace("hunter2-secret", "owner") == known.text
    log = admin.visit("owner").http.get("/admin/audit").text
    assert "hunter2-secret" not in log
    assert log.count("failed to sign in") == 2


def test_cookies_are_strict_hidden_from_scripts_and_secure_behind_tls(admin: Any) -> None:
    for headers, secure in (({}, False), ({"X-Forwarded-Proto": "https"}, True)):
        with httpx.Client(base_url=admin.url, headers=headers) as http:
            shown = http.get("/admin/signin")
            cookie = shown.headers["set-cookie"]
            csrf = re.search(r'name="csrf" value="([0-9a-f]{64})"', shown.text)
            assert csrf is not None
            form = {"csrf": csrf[1], "name": "owner", "password": PASSWORD}
            sent = {"Cookie": cookie.partition(";")[0]}
            signed = http.post("/admin/signin", data=form, headers=sent)
            assert signed.status_code == 303
            cookies = [cookie, *signed.headers.get_list("set-cookie")]
            assert len(cookies) == 3
            for value in cookies:
                assert "; HttpOnly; SameSite=Strict" in value
                assert value.endswith("; Secure") == secure


def test_a_password_for_the_page_opens_no_door_to_the_researchers(serve_admin: Any, tmp_path: Any) -> None:
    with serve_admin(tmp_path / "chat.db", password="open sesame") as admin:
        visitor = admin.visit()
        assert visitor.http.post("/signin", data={"password": "open sesame"}).status_code == 303
        assert visitor.http.get("/").status_code == 200
        assert visitor.http.get("/admin/").headers["location"] == "../admin/signin"
        researcher = admin.visit("researcher")  # who needs no password of the page
        assert researcher.http.get("/admin/").status_code == 200
        assert researcher.http.get("/api/conversations").status_code == 401


def test_the_link_for_the_first_account_works_once(serve_admin: Any, tmp_path: Any) -> None:
    token, digest = new_setup_token()
    with serve_admin(tmp_path / "chat.db", accounts=False, filled=False, setup_sha256=digest) as admin:
        visitor, page = admin.visit(), f"/admin/setup?token={token}"
        assert "tertulia account add" in visitor.http.get("/admin/signin").text
        assert visitor.http.get("/admin/setup?token=guess").status_code == 403
        assert visitor.http.get("/admin/setup").status_code == 403
        account = {"token": token, "name": "ada", "password": PASSWORD, "again": PASSWORD}
        csrf = visitor.csrf(page)
        for wrong, status in (
            ({"token": "guess"}, 403),
            ({"csrf": "0" * 64}, 403),
            ({"again": "different"}, 422),
            ({"password": "short", "again": "short"}, 422),
            ({"name": ""}, 422),
        ):
            answer = visitor.http.post("/admin/setup", data={"csrf": csrf} | account | wrong)
            assert answer.status_code == status, wrong
        assert admin.accounts.count() == 0
        assert visitor.http.post("/admin/setup", data={"csrf": csrf} | account).status_code == 303
        assert visitor.http.get("/admin/").status_code == 200
        assert admin.accounts.get("ada").role == "owner"
        other = admin.visit()
        other.csrf("/admin/signin")
        replayed = other.http.post("/admin/setup", data={"csrf": other.csrf("/admin/signin")} | account)
        assert replayed.status_code == 403
        assert other.http.get(page).status_code == 403
        admin.accounts.create("bob", PASSWORD, "owner")
        admin.accounts.delete("ada")
        assert other.http.get(page).status_code == 403
        assert token not in str(admin.database.read(lambda c: c.exec_driver_sql("SELECT * FROM account_events").all()))


@pytest.mark.timeout(90)
def test_the_server_prints_the_link_only_while_there_is_no_account(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'chat.db'}"
    for links in (1, 0):
        command = [sys.executable, "-m", "tertulia", "serve", "generic", "--port", "0", "--db", url]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"}
        ) as server:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "Serving" in line).split(" at ")[1].split(" ")[0]
            if links:
                link = server.stdout.readline().split(" at ")[1].strip()
                assert re.fullmatch(re.escape(address) + r"/admin/setup\?token=[\w-]{43}", link)
                assert httpx.get(link).status_code == 200
            server.terminate()
            assert server.stdout.read() == ""
        with Database.open(url) as database:
            AccountStore(database).create(f"ada {links}", PASSWORD, "owner")
