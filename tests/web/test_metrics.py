"""The metrics, by what a real server shows after real requests."""

from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tertulia.store.timed import TimedDatabase
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def metrics(url: str, **headers: str) -> Values:
    answer = httpx.get(f"{url}/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def value(values: Values, name: str, **labels: str) -> float:
    return values[f"tertulia_{name}", tuple(sorted(labels.items()))]


def test_requests_replies_and_tokens_are_counted(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db") as url:
        page = visitor(url)
        conversation = page.begin("count")
        page.say(conversation, "3 0")
        page.say(conversation, "2 0")
        assert page.post(conversation, text="3 0 2", key="fails").status_code == 502
        page.http.get("/api/conversations/" + "0" * 32)
        page.http.get("/somewhere")
        shown = metrics(url)
    route = "/api/conversations/{id}/messages"
    assert value(shown, "requests_total", method="POST", route=route, status="200") == 2
    assert value(shown, "requests_total", method="POST", route=route, status="502") == 1
    assert value(shown, "requests_total", method="GET", route="/api/conversations/{id}", status="404") == 1
    assert value(shown, "requests_total", method="GET", route="unmatched", status="404") == 1
    assert value(shown, "request_seconds_count", route=route) == 3
    assert value(shown, "replies_total", bot="count", outcome="stop") == 2
    assert value(shown, "replies_total", bot="count", outcome="failed") == 1
    assert value(shown, "reply_seconds_count", bot="count") == 3
    assert value(shown, "tokens_total", bot="count", kind="prompt") == 14
    assert value(shown, "tokens_total", bot="count", kind="completion") == 5
    assert value(shown, "replies_in_flight", bot="count") == 0
    assert value(shown, "bot_ready", bot="echo") == 1


def test_replies_in_flight_and_queues_are_shown_while_they_last(
    serve: Any, visitor: Any, tmp_path: Path, eventually: Any
) -> None:
    with serve(tmp_path / "chat.db", max_batch=1, grace_seconds=0) as url:
        page = visitor(url)
        page.http.get("/")
        waiting = [page.begin("count") for _ in range(3)]
        for conversation in waiting:
            for name, _ in page.stream(conversation, text="300 0.02", key="k"):
                if name == "start":
                    break
        shown = metrics(url)
        assert value(shown, "replies_in_flight", bot="count") == 3
        assert value(shown, "queue_length", bot="count") == 2
        ready = httpx.get(f"{url}/readyz").json()["bots"]["count"]
        assert (ready["in_flight"], ready["queue"], ready["health"]) == (3, 2, "ok")
        for conversation in waiting:
            page.post(conversation, "stop")
        eventually(lambda: value(metrics(url), "replies_in_flight", bot="count") == 0)


def test_refusals_are_counted_by_limit(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", messages_per_minute=4) as url:
        page = visitor(url)
        page.http.get("/")
        conversation = page.begin()
        codes = [page.post(conversation, text="hi", key=str(n)).status_code for n in range(3)]
        assert codes == [200, 429, 429]
        assert value(metrics(url), "limits_hit_total", limit="messages") == 2


def test_commits_are_timed(visitor: Any, tmp_path: Path) -> None:
    with (
        TimedDatabase.open(f"sqlite:///{tmp_path / 'chat.db'}") as database,
        running(create_app({"generic": GenericBot()}, database)) as url,
    ):
        page = visitor(url)
        page.say(page.begin("generic"), "hello")
        shown = metrics(url)
    assert value(shown, "store_commit_seconds_count") >= 2  # the conversation, and the message with its reply
    assert value(shown, "store_commit_seconds_sum") > 0


def test_metrics_and_readiness_require_the_key_if_there_is_one(serve: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", api_key="secret") as url:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            assert httpx.get(f"{url}/metrics", headers=header).status_code == 401
            assert httpx.get(f"{url}/healthz", headers=header).json() == {"status": "ok"}
            assert httpx.get(f"{url}/readyz", headers=header).json() == {"status": "ready"}
        assert metrics(url, Authorization="bearer secret")
        shown = httpx.get(f"{url}/readyz", headers={"Authorization": "Bearer secret"}).json()
        assert shown["bots"]["echo"]["state"] == "ready"


def test_who_may_see_the_metrics_can_be_decided_elsewhere(tmp_path: Path) -> None:
    with TimedDatabase.open(f"sqlite:///{tmp_path / 'chat.db'}") as database:
        app = create_app(
            {"generic": GenericBot()}, database, config=ServeConfig(), may_inspect=lambda r: "x-operator" in r.headers
        )
        with running(app) as url:
            assert httpx.get(f"{url}/metrics").status_code == 401
            assert metrics(url, **{"X-Operator": "yes"})
