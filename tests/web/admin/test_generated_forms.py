"""Forms that nobody's browser would send, by everybody: never an internal error, and nothing changes without the right.

`schemathesis` reads the schema of the API, in which these pages do not occur: so hypothesis makes the forms up.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.web.admin.conftest import AdminServer, serving

NEEDED = {
    "/admin/study/{study}/state": "researcher",
    "/admin/study/{study}/adjudicate": "researcher",
    "/admin/accounts/add": "owner",
    "/admin/accounts/role": "owner",
    "/admin/accounts/password": "owner",
    "/admin/accounts/delete": "owner",
    "/admin/password": "viewer",
    "/admin/signout": "viewer",
    "/admin/signin": "nobody",
    "/admin/setup": "nobody",
}
"""The form's address, and the role that it takes."""
RANKS = ("nobody", "viewer", "researcher", "owner")
ACTORS = RANKS[:3]  # an owner may change everything
SCRIPT = "<script>alert(1)</script>"
PASSWORD = "another good password"
COMPLETE: dict[str, dict[str, str]] = {
    "/admin/study/{study}/state": {"state": "closed"},
    "/admin/study/{study}/adjudicate": {"unit": "unit-0", "target": "unit", "question": "quality", "value": "ann"},
    "/admin/accounts/add": {"name": "mole", "role": "owner", "password": PASSWORD},
    "/admin/accounts/role": {"name": "viewer", "role": "owner"},
    "/admin/accounts/password": {"name": "owner", "password": PASSWORD},
    "/admin/accounts/delete": {"name": "researcher"},
    "/admin/setup": {"token": "t", "name": "mole", "password": PASSWORD, "again": PASSWORD},
}
"""Forms that do something if the right one sends them. (Not those that end a session: then the test would be over.)"""
FIELDS = ("state", "unit", "target", "question", "value", "note", "name", "role", "password", "current", "token")
VALUES = ("open", "closed", "draft", "unit-0", "unit", "quality", "ann", "tie", "viewer", "researcher", "owner", SCRIPT)
values = st.sampled_from(VALUES) | st.text(max_size=40) | st.binary(max_size=20)
names = st.sampled_from(FIELDS) | st.text(max_size=12)
forms = st.lists(st.tuples(names, values), max_size=8)


class Visit(NamedTuple):
    """Somebody's browser, and the token of their forms."""

    http: httpx.Client
    token: str


class Scene(NamedTuple):
    admin: AdminServer
    visits: dict[str, Visit]

    def state(self) -> list[Any]:
        """Everything that forms can change, without the log of failed attempts."""
        queries = (
            "SELECT name, role, password FROM accounts ORDER BY name",
            "SELECT id, state FROM studies ORDER BY id",
            "SELECT count(*) FROM study_events",
            "SELECT count(*) FROM account_events WHERE what != 'failed to sign in'",
            "SELECT count(*) FROM account_sessions",
        )
        return self.admin.database.read(lambda c: [c.exec_driver_sql(query).all() for query in queries])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with serving(tmp_path_factory.mktemp("forms") / "chat.db") as admin:
        visits = {}
        for actor in ACTORS:
            visitor = admin.visit(None if actor == "nobody" else actor)
            visits[actor] = Visit(visitor.http, visitor.csrf("/admin/signin" if actor == "nobody" else "/admin/"))
        yield Scene(admin, visits)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_generated_forms_change_nothing_without_the_right(scene: Scene, data: st.DataObject) -> None:
    actor = data.draw(st.sampled_from(ACTORS))
    path = data.draw(st.sampled_from(list(NEEDED)))
    study = data.draw(st.just(scene.admin.pairwise.id) | st.text(min_size=1, max_size=12))
    tokens = {"own": scene.visits[actor].token, "forged": "0" * 64, "none": None}
    tokens |= {other: visit.token for other, visit in scene.visits.items() if other != actor}
    kind = data.draw(st.sampled_from(list(tokens)))
    if path == "/admin/signout" and kind == "own":  # allowed, and the end of this test
        kind = "forged"
    fields = [*COMPLETE.get(path, {}).items(), *data.draw(st.just([]) | forms)]
    if tokens[kind] is not None:
        fields = [*((name, value) for name, value in fields if name != "csrf"), ("csrf", tokens[kind])]
    body = data.draw(st.just(urlencode(fields).encode()) | st.binary(max_size=60))
    before = scene.state()
    response = scene.visits[actor].http.post(
        path.replace("{study}", quote(study, safe="")),
        content=body,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert response.status_code < 500, response.text
    assert SCRIPT not in response.text
    if scene.state() != before:
        assert RANKS.index(actor) >= RANKS.index(NEEDED[path])
        assert kind == "own"


def test_the_list_of_forms_is_complete(scene: Scene) -> None:
    """Every address below /admin that takes a form is in the table."""
    pages = ["/admin/", "/admin/accounts", f"/admin/study/{scene.admin.pairwise.id}", "/admin/signin"]
    pages.append(f"/admin/study/{scene.admin.pairwise.id}/adjudicate")
    owner, shown = scene.admin.visit("owner").http, set()
    for page in pages:
        for part in owner.get(page).text.split("<form")[1:]:
            action = part.split('action="')[1].split('"')[0] if "action=" in part.split(">")[0] else page
            address = str(owner.build_request("GET", str(httpx.URL(f"{scene.admin.url}{page}").join(action))).url.path)
            shown.add(address.replace(scene.admin.pairwise.id, "{study}"))
    assert shown <= set(NEEDED), shown - set(NEEDED)
    assert set(NEEDED) - shown <= {"/admin/setup", "/admin/signin"}  # shown to nobody who has signed in
