"""Prometheus metrics: what `GET /metrics` shows.

Every app has a registry of its own. With `serve --workers N`, the processes share their values through files in the
folder that the environment variable PROMETHEUS_MULTIPROC_DIR names, and any of them can answer for all.
"""

import os
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from tertulia.core.reply import Reply

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_COMMIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """All metrics of one app."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": registry}
        live: dict[str, Any] = {"registry": registry, "multiprocess_mode": "livesum"}
        self.requests = Counter("tertulia_requests", "Requests", ["method", "route", "status"], **own)
        self.request_seconds = Histogram(
            "tertulia_request_seconds", "Time until the end of the response", ["route"], buckets=_SECONDS, **own
        )
        self.limits_hit = Counter("tertulia_limits_hit", "Requests refused by a limit", ["limit"], **own)
        self.connections_refused = Counter("tertulia_connections_refused", "Connections over an address's cap", **own)
        self.request_timeouts = Counter("tertulia_request_timeouts", "Half-sent requests that timed out", **own)
        self.bots_ready = Gauge("tertulia_bot_ready", "Processes in which the bot is ready", ["bot"], **live)
        self.in_flight = Gauge("tertulia_replies_in_flight", "Replies queued or being generated", ["bot"], **live)
        self.queue = Gauge("tertulia_queue_length", "Asks that wait for the bot", ["bot"], **live)
        self.replies = Counter("tertulia_replies", "Replies by outcome", ["bot", "outcome"], **own)
        self.reply_seconds = Histogram(
            "tertulia_reply_seconds",
            "Time from an ask to its reply, waiting included",
            ["bot"],
            buckets=_SECONDS,
            **own,
        )
        self.tokens = Counter("tertulia_tokens", "Tokens, as far as bots count them", ["bot", "kind"], **own)
        self.commit_seconds = Histogram(
            "tertulia_store_commit_seconds", "Time of a write until it is durable", buckets=_COMMIT_SECONDS, **own
        )
        # Looking up a metric by its labels takes longer than to count; there are only so many routes and bots.
        self._of_request = lru_cache(maxsize=4096)(self._request_metrics)
        self._of_reply = lru_cache(maxsize=4096)(self._reply_metrics)
        self._folder = os.environ.get(FOLDER_VARIABLE, "")
        if not self._folder:
            ProcessCollector(registry=registry)

    def on_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request whose response has ended."""
        count, time = self._of_request(method, route, status)
        count.inc()
        time.observe(seconds)

    def on_reply(self, bot: str, seconds: float, reply: Reply | None) -> None:
        """Count a reply that has ended; None if the bot failed or never started on it."""
        count, time = self._of_reply(bot, reply.finish if reply else "failed")
        count.inc()
        time.observe(seconds)
        if reply is not None and reply.usage is not None:
            self.tokens.labels(bot, "prompt").inc(reply.usage.prompt)
            self.tokens.labels(bot, "completion").inc(reply.usage.completion)

    def _request_metrics(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        return self.requests.labels(method, route, status), self.request_seconds.labels(route)

    def _reply_metrics(self, bot: str, outcome: str) -> tuple[Counter, Histogram]:
        return self.replies.labels(bot, outcome), self.reply_seconds.labels(bot)

    def render(self) -> bytes:
        """All values in Prometheus' text format; with several processes, those of all of them."""
        if not self._folder:
            return generate_latest(self._registry)
        merged = CollectorRegistry()
        MultiProcessCollector(merged, path=self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(merged)
