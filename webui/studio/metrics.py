"""Counts and histograms for /metrics.

One registry per studio, names begin with cv_. Every label has a closed set of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..errors import Cancelled, KaikouError
from .speech_job import SpeechJob
from .timings import STAGES

SECONDS = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.21, 0.38, 0.75, 1.5, 3, 6, 12)
STAGE_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
RTF = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2, 3, 5, 10)
ENDS = ("done", "failed", "cancelled")
CODES = (
    "bad_input",
    "bad_mode",
    "bad_text",
    "no_text",
    "too_long_text",
    "too_long_instruction",
    "bad_speed",
    "bad_seed",
    "no_voice",
    "voice_gone",
    "too_short",
    "too_large",
    "not_allowed",
    "consent",
    "not_found",
    "model_not_found",
    "busy",
    "rate_limited",
    "too_many_streams",
    "notready",
    "stalled",
    "fault",
    "no_worker",
    "storage",
    "storage_denied",
    "draft_voice",
)
# figures of a cache of prompts that is shared with others
SHARED = {
    "found": "Prompts found in the shared cache",
    "missed": "Prompts that the shared cache did not have",
    "refused": "Values of the shared cache refused as damaged or forged",
    "failures": "Questions that the shared cache did not answer",
}
# name that an engine gives a figure -> name of the metric, what it says, labels; those whose name
# ends in _total only grow
FIGURES: dict[str, tuple[str, str, dict[str, str]]] = {
    "fleet_answering": ("cv_fleet_answering", "1 when the fleet answered the last question", {}),
    "fleet_replicas": ("cv_fleet_replicas", "Replicas of the fleet that answered last", {}),
    "fleet_streams_open": (
        "cv_fleet_streams_open",
        "Streams open in the fleet, of all studios",
        {},
    ),
    "fleet_streams_wanting": (
        "cv_fleet_streams_wanting",
        "Streams of the fleet whose listener wants sound now, of all studios",
        {},
    ),
    "fleet_capacity": ("cv_fleet_capacity", "Streams that the fleet carries at once", {}),
    "fleet_forgets_unconfirmed": (
        "cv_fleet_forgets_unconfirmed",
        "Deleted voices that some replica may still hold",
        {},
    ),
    "fleet_reissues": (
        "cv_fleet_reissues_total",
        "Streams given to another replica before their first sound",
        {},
    ),
    "fleet_replays": (
        "cv_fleet_replays_total",
        "Streams made again by another replica after their first sound",
        {},
    ),
    "fleet_prompt_misses": (
        "cv_fleet_prompt_misses_total",
        "Voices that had to be sent to a replica",
        {},
    ),
    **{
        f"shared_{name}": (f"cv_fleet_shared_cache_{name}_total", description, {})
        for name, description in SHARED.items()
    },
    **{
        f"{stage}_{part}": (f"cv_engine_{name}_total", description, {"stage": stage})
        for stage in ("lm", "audio")
        for part, name, description in (
            ("steps", "steps", "Steps of the model's stages"),
            ("rows", "rows", "Requests in the steps of the model's stages"),
        )
    },
    "gpu_bytes": ("cv_engine_gpu_bytes", "GPU memory taken by torch; 0 where there is none", {}),
}
OTHER = "other"
AREAS = ("speech", "voices", "jobs", "access", "demo", "page", OTHER)  # of the routes
STATUSES = (
    "2xx",
    "3xx",
    "4xx",
    "5xx",
    "none",
)  # none: the connection went away before there was an answer
REFUSALS = (
    "login_needed",
    "invalid_api_key",
    "scope",
    "rate_limited",
    "bad_host",
    "bad_origin",
    "too_many_headers",
    "body_too_large",
    "demo_gone",
    "demo_ended",
    "demo_expired",
    OTHER,
)  # at the door


class Metrics:
    def __init__(self):
        self.registry = CollectorRegistry()
        make = {"registry": self.registry}
        self._first_byte_s = Histogram(
            "cv_audio_first_byte_seconds",
            "From request to the first sound ready to send",
            buckets=SECONDS,
            **make,
        )
        self._queue_s = Histogram(
            "cv_queue_seconds", "Time spent in the waiting line", buckets=SECONDS, **make
        )
        stage_s = Histogram(
            "cv_stage_seconds",
            "Time of one request by stage",
            ["stage"],
            buckets=STAGE_SECONDS,
            **make,
        )
        self._stage_s = {
            stage: stage_s.labels(stage) for stage in STAGES if stage not in ("queue", "wait")
        }
        self._rtf = Histogram(
            "cv_rtf", "Lane time over sound made, of finished requests", buckets=RTF, **make
        )
        self._underruns = Counter(
            "cv_underruns", "Chunks made after a listener who plays at once had run dry", **make
        )
        self._sound_s = Counter("cv_audio_seconds", "Sound made", **make)
        self._work_s = Counter("cv_engine_work_seconds", "Lane time spent", **make)
        jobs = Counter("cv_jobs", "Accepted requests by how they ended", ["end"], **make)
        self._jobs = {end: jobs.labels(end) for end in ENDS}
        errors = Counter("cv_errors", "Requests refused or failed, by error code", ["code"], **make)
        self._errors = {code: errors.labels(code) for code in (*CODES, OTHER)}
        voices = Counter(
            "cv_voice_cache", "Was the voice's prompt there when a request came", ["result"], **make
        )
        self._voices = {hit: voices.labels("hit" if hit else "miss") for hit in (True, False)}
        answers = Counter(
            "cv_http_answers",
            "Requests by the area of their route and the kind of answer",
            ["area", "status"],
            **make,
        )
        self._answers = {
            (area, status): answers.labels(area, status) for area in AREAS for status in STATUSES
        }
        refusals = Counter(
            "cv_door_refusals", "Requests that the door did not let in, by code", ["code"], **make
        )
        self._refusals = {code: refusals.labels(code) for code in REFUSALS}

    def watch(self, name: str, description: str, read: Callable[[], float]) -> None:
        Gauge(name, description, registry=self.registry).set_function(read)

    def watch_cache(self, name: str, description: str, read: Callable[[], tuple[int, int]]) -> None:
        """A cache that counts for itself: `read()` gives its hits and misses so far."""
        self.registry.register(_Cache(name, description, read))

    def watch_engine(self, read: Callable[[], dict[str, float]]) -> None:
        """read(): what the engine in charge counts, by the names of FIGURES."""
        self.registry.register(_Engine(read))

    # ---- at the door -----------------------------------------------------------------------------
    def count_answer(self, area: str, status: int) -> None:
        """status: of HTTP; 0 when there was none."""
        kind = "2xx" if status == 101 else f"{status // 100}xx"
        self._answers[area if area in AREAS else OTHER, kind if kind in STATUSES else "none"].inc()

    def count_turned_away(self, error: KaikouError) -> None:
        self._refusals[error.code if error.code in self._refusals else OTHER].inc()

    # ---- what happens to a request ---------------------------------------------------------------
    def count_refusal(self, error: KaikouError) -> None:
        """No job came of a request."""
        self._errors[error.code if error.code in self._errors else OTHER].inc()

    def count_voice(self, is_hit: bool) -> None:
        self._voices[is_hit].inc()

    def observe_wait(self, waited_s: float) -> None:
        self._queue_s.observe(waited_s)

    def count_end(self, job: SpeechJob) -> None:
        """The engine is done with it, or it left the line. Once per job."""
        snapshot, trace = job.snapshot(), job.trace
        end = "done" if snapshot.state == "saving" else snapshot.state
        self._jobs.get(end, self._jobs["failed"]).inc()
        if snapshot.error is not None and not isinstance(snapshot.error, Cancelled):
            self.count_refusal(snapshot.error)
        if trace.first_s is not None and not job.is_background:
            self._first_byte_s.observe(trace.first_s)
        if end == "done":
            self._rtf.observe(snapshot.rtf)
        self._underruns.inc(job.underruns)
        self._sound_s.inc(job.made_s)
        self._work_s.inc(job.work_s)
        for stage, seconds in trace.whole().items():
            if stage in self._stage_s and stage != "socket":
                self._stage_s[stage].observe(seconds)

    def observe_reader(self, job: SpeechJob) -> None:
        """Its reader is done with it too. Once per job."""
        socket_s = job.trace.whole().get("socket")
        if socket_s is not None:
            self._stage_s["socket"].observe(socket_s)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Cache(Collector):
    def __init__(self, name: str, description: str, read: Callable[[], tuple[int, int]]):
        self._name, self._description, self._read = name, description, read

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._description, labels=["result"])
        for result, n in zip(("hit", "miss"), self._read()):
            family.add_metric([result], n)
        yield family


class _Engine(Collector):
    def __init__(self, read: Callable[[], dict[str, float]]):
        self._read = read

    def collect(self) -> Iterable[Metric]:
        figures, families = self._read(), {}
        for figure, (name, description, labels) in FIGURES.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = families.setdefault(name, kind(name, description, labels=list(labels)))
            family.add_metric(list(labels.values()), figures.get(figure, 0))
        return families.values()
