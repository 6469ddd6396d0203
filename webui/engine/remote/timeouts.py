"""How long an engine's process may be silent, stand still or fail before something is done about
it. Numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """Seconds, counted in beats of the child and looks of the studio, not on a clock: a machine
    that slept, or both processes held up together, is not taken for a frozen engine.
    """

    beat_s: float = 0.5  # the child says this often that it lives, and the studio looks as often
    frozen_s: float = 10.0  # nothing heard at all
    still_s: float = 15.0  # work is asked of it and no thread of the engine has moved
    start_frozen_s: float = 60.0  # the same while it loads: reading weights may hold everything up
    start_still_s: float = 300.0  # converting a model is one long call of a library
    max_restarts: int = 3  # within window_s; the next failure is the last
    window_s: float = 600.0
    back_off_s: tuple[float, ...] = (
        0.0,
        1.0,
        4.0,
    )  # before the first, second, third restart of a window
    bye_s: float = 2.0  # to end in order when the studio closes

    def beats(self, seconds: float) -> int:
        return max(2, round(seconds / self.beat_s))
