"""The OpenAPI schema of the participants' API against the running app."""

import sys
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis import GenerationMode
from tests.web.study.conftest import Lab, chat_toml
from tests.web.test_schema import CHECKS, EXAMPLES

PREFIX = "/api/study/{study}"
STREAMS = {"live", "events"}
ROUTES = {
    f"{PREFIX}/{what}"
    for what in (
        "state consent language tutorial training next attention labels undo say events finish submit heartbeat "
        "withdraw join leave typing live"
    ).split()
}


def test_all_routes_are_in_the_schema(lab: Lab) -> None:
    described = httpx.get(f"{lab.url}/openapi.json").json()
    assert {path for path in described["paths"] if path.startswith("/api/study/")} == ROUTES


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("path", sorted(ROUTES - {f"{PREFIX}/{what}" for what in STREAMS}))
def test_responses_match_the_schema(lab: Lab, path: str, mode: GenerationMode) -> None:
    """Valid and invalid requests; half of them of a participant who chats, about their own task."""
    study = lab.open(chat_toml("interactive-likert", "one", min_turns=2))
    rater = lab.rater(study)
    assignment = rater.begin()["assignment"]
    schema: Any = schemathesis.openapi.from_url(f"{lab.url}/openapi.json")
    for result in schema.include(path=path).get_all_operations():
        operation = result.ok()
        made = 0

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode), existing=booleans())
        def check(case: Any, existing: bool) -> None:
            nonlocal made
            made += 1
            if existing:
                case.path_parameters |= {"study": study.id}
            if existing and isinstance(case.body, dict) and "assignment" in case.body:
                case.body |= {"assignment": assignment}
            case.call_and_validate(base_url=lab.url, checks=CHECKS, cookies=dict(rater.http.cookies))

        check()
        sys.stdout.write(f"{made} {mode.name.lower()} requests: {operation.method.upper()} {path}\n")
