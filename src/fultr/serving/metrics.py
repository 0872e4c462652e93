"""What the service counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds; a ranking takes about one millisecond."""


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        of = self.registry
        self.requests = Counter("fultr_requests", "Requests answered", ["path", "status"], registry=of)
        self.seconds = Histogram(
            "fultr_request_seconds", "Time to answer", ["path"], buckets=BUCKETS, registry=of
        )
        self.rankings = Counter("fultr_rankings", "Rankings shown", ["policy"], registry=of)
        self.clicks = Counter("fultr_clicks", "Clicks sent, by what became of them", ["outcome"], registry=of)
        self.failures = Counter(
            "fultr_scoring_failures", "Requests that a policy could not rank", registry=of
        )
        self.lost = Counter(
            "fultr_unrecorded_rankings", "Rankings shown that could not be recorded", registry=of
        )
        self.store_errors = Counter("fultr_store_errors", "Failures to record events", registry=of)
        self.reloads = Counter("fultr_reloads", "Policy files that were replaced", ["result"], registry=of)
        self.waiting = Gauge("fultr_events_waiting", "Events that wait to be recorded", registry=of)
        self.disparity = Gauge(
            "fultr_disparity", "Disparity of pairs of groups as watched", ["pair", "bound"], registry=of
        )
        self.exposure = Gauge(
            "fultr_exposure_share", "Share of the exposure as watched", ["group"], registry=of
        )
        self.merit = Gauge("fultr_merit_share", "Share of the merit as watched", ["group"], registry=of)
        self.alarms = Gauge("fultr_alarms", "Alarms of the watch over events", registry=of)
        self.watched = Gauge(
            "fultr_watched_timestamp_seconds", "When events were watched last, since 1970", registry=of
        )

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        found = self._children.get((path, status))
        if found is None:
            found = self.requests.labels(path, status), self.seconds.labels(path)
            self._children[path, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def text(self) -> bytes:
        """Return all of it in the format of Prometheus."""
        return generate_latest(self.registry)
