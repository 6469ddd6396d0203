"""Which of the drawn ids the flow hears: no pause longer than 200 ms.

What is left out stays in the language model's past.
"""

from __future__ import annotations

SILENT = frozenset(
    (1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323)
)  # silence and breath, from training
MAX_RUN = 5  # ids


class SilenceFilter:
    """Of one segment: is told every id as it is drawn, and whether the flow hears it is its
    answer.
    """

    def __init__(self):
        self._run = 0

    def __call__(self, speech_id: int) -> bool:
        self._run = self._run + 1 if speech_id in SILENT else 0
        return self._run <= MAX_RUN
