"""Counts of one consumer: for Prometheus, and as one line of the log."""

from __future__ import annotations

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

LINE_S = 10.0  # between two lines, and two looks at the lag
log = logging.getLogger(__name__)


class Meters:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make = {"registry": self.registry}
        self.done = Counter("cv_kafka_done", "Sounds stored and announced", **make)
        self.dead = Counter("cv_kafka_dead", "Dead letters", **make)
        self.retries = Counter("cv_kafka_retries", "Tries that failed and are repeated", **make)
        self.waits = Counter(
            "cv_kafka_waits", "Rests, the studio or the store being away or full", **make
        )
        self.in_hand = Gauge("cv_kafka_in_hand", "Messages read and not finished", **make)
        self.lag = Gauge("cv_kafka_lag", "Messages behind the end of this one's partitions", **make)
        self._due_at = 0.0
        self._line = ""

    def serve(self, host: str, port: int):
        """GET /metrics: the server and its thread. Raises OSError where the port is taken."""
        return start_http_server(port, host, self.registry)

    def is_due(self) -> bool:
        """True every LINE_S seconds: the lag is to be measured and `report` called."""
        now = time.monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + LINE_S
        return True

    def report(self) -> None:
        """One line of the log, where anything has changed."""
        names = ("lag", "in_hand", "done", "dead", "retries", "waits")
        values = {name: getattr(self, name).collect()[0].samples[0].value for name in names}
        line = ", ".join(f"{name} {value:.0f}" for name, value in values.items())
        if line != self._line:
            self._line = line
            log.info("%s", line)
