"""Where the time of one request went, stage by stage: until its first sound, and in all.

Knows names and seconds, not what is done in them.

It lives in its Job. The lane's thread adds the engine's stages and the encoding, the event loop the
socket: no stage has two writers. A stage that did not happen is not there; a name that an engine
made up counts as "other", so that nothing grows without bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

ENGINE = (
    "prefill",
    "tokens",
    "flow",
    "vocoder",
    "phonemes",
    "espeak",
    "trunk",
    "generator",
    "analysis",
    "conversion",
    "synthesis",
)  # in the order in which they happen
STAGES = ("text", "voice", "queue", "wait", *ENGINE, "encode", "socket", "other")


class Timings:
    """Begins with the request.

    Stages: text (normalise and split), voice (its prompt was not ready), queue (the line at the
    door), wait (what else passed before the first sound: a busy lane, hand-overs), the engine's
    own, encode (speed, trim, 16 bit), socket (from the first sound until it was taken over, then
    each further sending).
    """

    def __init__(self):
        self.began_s = time.monotonic()
        self.first_s: float | None = None  # from the request to the first sound that can be sent
        # from the request until that sound was handed over to the socket
        self.sent_s: float | None = None
        self._whole: dict[str, float] = {}
        self._first: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        self._whole[stage] = self._whole.get(stage, 0.0) + seconds

    def engine(self, timings: Mapping[str, float]) -> None:
        """What a chunk cost, by the engine's own names."""
        for stage, seconds in timings.items():
            if isinstance(seconds, (int, float)) and math.isfinite(seconds) and seconds >= 0:
                self.add(stage if stage in ENGINE else "other", seconds)

    def note_first_sound(self) -> None:
        """The first sound is there. Called once, after its stages were added."""
        self.first_s = time.monotonic() - self.began_s
        self._first = dict(self._whole)
        self._first["wait"] = max(0.0, self.first_s - sum(self._first.values()))

    def add_sending(self, seconds: float) -> None:
        """Sound was handed over to the socket, which took `seconds`."""
        if self.sent_s is None and self.first_s is not None:
            self.sent_s = time.monotonic() - self.began_s
            seconds = self._first["socket"] = self.sent_s - self.first_s
        self.add("socket", seconds)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Around the handing over of sound to the socket."""
        began = time.perf_counter()
        yield
        self.add_sending(time.perf_counter() - began)

    def whole(self) -> dict[str, float]:
        """Seconds by stage, in the order of STAGES."""
        return _in_order(dict(self._whole))

    def to_dict(self) -> dict:
        """For JSON, milliseconds: first_ms, sent_ms (absent while unknown), first and whole by
        stage.
        """
        summary = {
            name: _ms(seconds)
            for name, seconds in (("first_ms", self.first_s), ("sent_ms", self.sent_s))
            if seconds is not None
        }
        first = _in_order(dict(self._first))
        return summary | {
            "first": {k: _ms(s) for k, s in first.items()},
            "whole": {k: _ms(s) for k, s in self.whole().items()},
        }


def _in_order(stages: dict[str, float]) -> dict[str, float]:
    return {name: stages[name] for name in STAGES if name in stages}


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 2)
