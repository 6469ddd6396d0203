"""Counts and histograms for /metrics. One registry per studio, names begin with cv_."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.21, 0.38, 0.75, 1.5, 3, 6, 12)


class Metrics:
    def __init__(self):
        self.registry = CollectorRegistry()
        make = {"registry": self.registry}
        self.first_byte_s = Histogram("cv_audio_first_byte_seconds", "From request to the first sound ready to send", buckets=SECONDS, **make)
        self.queue_s = Histogram("cv_queue_seconds", "Time spent in the waiting line", buckets=SECONDS, **make)
        self.text_s = Histogram("cv_text_seconds", "Normalising and splitting", buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.15), **make)
        self.stage_s = Counter("cv_engine_stage_seconds", "Engine time by stage", ["stage"], **make)
        self.sound_s = Counter("cv_audio_seconds", "Sound made", **make)
        self.work_s = Counter("cv_engine_work_seconds", "Lane time spent", **make)
        self.requests = Counter("cv_requests", "Requests by how they ended", ["end"], **make)

    def watch(self, name: str, what: str, read: Callable[[], float]) -> None:
        Gauge(name, what, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        return generate_latest(self.registry)
