"""The OpenAPI schema against the running app: odd but valid requests, and no answer that it does not promise."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans

ROUTES = {
    "/healthz",
    "/api/bots",
    "/api/personas",
    "/api/conversations",
    "/api/conversations/{id}",
    "/api/conversations/{id}/messages",
    "/api/conversations/{id}/regenerate",
    "/api/conversations/{id}/stop",
    "/api/conversations/{id}/undo",
    "/api/conversations/{id}/events",
    "/api/conversations/{id}/export",
    "/api/me",
    "/v1/models",
    "/v1/models/{id}",
    "/v1/chat/completions",
}


def test_all_routes_are_in_the_schema(url: str) -> None:
    described = httpx.get(f"{url}/openapi.json").json()
    assert set(described["paths"]) == ROUTES
    assert "ValidationError" not in str(described)  # errors have our form or OpenAI's, never the framework's


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


@pytest.mark.parametrize("path", sorted(ROUTES))
def test_answers_are_as_promised(url: str, schema: Any, page: Any, path: str) -> None:
    """Half of the requests are sent to a conversation that exists, so that they come further than "not found"."""
    conversation = page.begin()
    page.say(conversation, "hi")
    for result in schema.include(path=path).get_all_operations():
        operation = result.ok()

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(), known=booleans())
        def check(case: Any, known: bool) -> None:
            if known and "{id}" in path:
                case.path_parameters = {"id": "echo" if path.startswith("/v1") else conversation}
            if known and isinstance(case.body, dict) and {"bot", "model"} & set(case.body):
                case.body |= {"bot": "echo"} if "bot" in case.body else {"model": "echo"}
            case.call_and_validate(base_url=url, checks=CHECKS, cookies=dict(page.http.cookies))

        check()
