"""The OpenAPI schema against the running app: generated requests, and only documented responses.

More requests than CI makes: TERTULIA_SCHEMA_EXAMPLES=100 pytest tests/web/test_schema.py -s
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis import GenerationMode

EXAMPLES = int(os.environ.get("TERTULIA_SCHEMA_EXAMPLES", "6"))
"""Requests per operation and mode."""
ROUTES = {
    "/healthz",
    "/readyz",
    "/api/bots",
    "/api/personas",
    "/api/conversations",
    "/api/conversations/{id}",
    "/api/conversations/{id}/messages",
    "/api/conversations/{id}/regenerate",
    "/api/conversations/{id}/edit",
    "/api/conversations/{id}/turns/{turn}/attempts",
    "/api/conversations/{id}/turns/{turn}/choose",
    "/api/conversations/{id}/turns/{turn}/evidence",
    "/api/conversations/{id}/turns/{turn}/why",
    "/api/search",
    "/api/conversations/{id}/stop",
    "/api/conversations/{id}/undo",
    "/api/conversations/{id}/events",
    "/api/conversations/{id}/export",
    "/api/me",
    "/v1/models",
    "/v1/models/{id}",
    "/v1/chat/completions",
}


@pytest.fixture(scope="module")
def url(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server without limits: they would keep most of the requests from the routes."""
    with serve(
        tmp_path_factory.mktemp("schema") / "chat.db", messages_per_minute=0, max_conversations=0, max_stored_bytes=0
    ) as address:
        yield address


def test_every_route_says_that_it_can_refuse_a_client(url: str) -> None:
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    operations = {f"{method} {path}": operation for path, each in paths.items() for method, operation in each.items()}
    limited = {name: each["responses"] for name, each in operations.items() if "/api/" in name or "/v1/" in name}
    assert len(limited) > len(ROUTES)
    assert [name for name, responses in limited.items() if not {"401", "429"} <= responses.keys()] == []


def test_all_routes_are_in_the_schema(url: str) -> None:
    described = httpx.get(f"{url}/openapi.json").json()
    assert {path for path in described["paths"] if not path.startswith("/api/study/")} == ROUTES
    assert "ValidationError" not in str(described)  # errors have our format or OpenAI's, never the framework's


CHECKS = (
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_headers_conformance,
    schemathesis.checks.response_schema_conformance,
)


@pytest.fixture(scope="module")
def schema(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("path", sorted(ROUTES))
def test_responses_match_the_schema(url: str, schema: Any, page: Any, path: str, mode: GenerationMode) -> None:
    """Valid and invalid requests; half of them to an existing conversation, so that they get beyond "not found"."""
    conversation = page.begin()
    page.say(conversation, "hi")
    for result in schema.include(path=path).get_all_operations():
        operation = result.ok()
        if mode.is_negative and not (operation.body or operation.query):  # any text is a valid id
            continue
        made = 0

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode), existing=booleans())
        def check(case: Any, existing: bool) -> None:
            nonlocal made
            made += 1
            if existing and "{id}" in path:
                case.path_parameters |= {"id": "echo" if path.startswith("/v1") else conversation}
            if existing and isinstance(case.body, dict) and {"bot", "model"} & set(case.body):
                case.body |= {"bot": "echo"} if "bot" in case.body else {"model": "echo"}
            case.call_and_validate(base_url=url, checks=CHECKS, cookies=dict(page.http.cookies))

        check()
        sys.stdout.write(f"{made} {mode.name.lower()} requests: {operation.method.upper()} {path}\n")
