"""Faster or slower speech at the same pitch, while it streams (WSOLA).

Blind to words; the result does not depend on how the input is cut.
"""

from __future__ import annotations

import numpy as np

FRAME_S, SEARCH_S = (
    0.030,
    0.009,
)  # two periods of a low voice; and one, to find the place where the waves match


class TimeStretch:
    """`push` sound, get the sound that is ready; `flush` once at the end. factor 2.0 = twice as
    fast. 1.0 passes everything through.
    """

    def __init__(self, rate: int, factor: float):
        if not 0.25 <= factor <= 4.0:
            raise ValueError("factor must be within 0.25..4")
        self.factor = factor
        self._hop = round(FRAME_S * rate / 2)
        self._reach = round(SEARCH_S * rate)
        rise = (
            np.sin(np.pi * (np.arange(self._hop) + 0.5) / (2 * self._hop)).astype(np.float32) ** 2
        )
        self._rise, self._fall = rise, rise[::-1].copy()
        self._buffer = np.zeros(0, np.float32)  # input not yet done with
        self._base = 0  # index of _buffer[0] in the whole input
        self._step = 0  # frames made
        self._tail_at = 0  # where in the input the sound goes on that was begun last
        self._n_in = self._n_out = 0

    def push(self, x: np.ndarray) -> np.ndarray:
        """x: float32 (n,). Returns float32 (m,), m may be 0."""
        x = np.asarray(x, np.float32)
        self._n_in += len(x)
        if self.factor == 1.0:
            return x
        self._buffer = np.concatenate([self._buffer, x])
        return self._make(None)

    def flush(self) -> np.ndarray:
        """What remains; the whole output then has round(input / factor) samples."""
        if self.factor == 1.0:
            return np.zeros(0, np.float32)
        total = round(self._n_in / self.factor)
        self._buffer = np.concatenate(
            [self._buffer, np.zeros(2 * self._hop + 2 * self._reach + self._hop * 8, np.float32)]
        )
        return self._make(total)

    def _make(self, total: int | None) -> np.ndarray:
        out = []
        while total is None or self._n_out < total:
            frame = self._next_frame(padded=total is not None)
            if frame is None:
                break
            if total is not None:
                frame = frame[: total - self._n_out]
            out.append(frame)
            self._n_out += len(frame)
        return np.concatenate(out) if out else np.zeros(0, np.float32)

    def _next_frame(self, padded: bool) -> np.ndarray | None:
        """One hop of output: the end of the sound begun last, cross-faded into the sound due
        now.
        """
        hop, due = self._hop, round(self._step * self._hop * self.factor)
        end = self._base + len(self._buffer)
        if max(due + self._reach, self._tail_at) + 2 * hop > end:
            if not padded:
                return None
            self._buffer = np.concatenate(
                [
                    self._buffer,
                    np.zeros(max(due + self._reach, self._tail_at) + 2 * hop - end, np.float32),
                ]
            )
        start = self._best_start(due) if self._step else 0
        old, new = self._view(self._tail_at, hop), self._view(start, hop)
        frame = new.copy() if not self._step else old * self._fall + new * self._rise
        self._tail_at, self._step = start + hop, self._step + 1
        self._drop(min(round(self._step * hop * self.factor) - self._reach, self._tail_at))
        return frame

    def _best_start(self, due: int) -> int:
        """The start within reach of `due` whose sound is most like the natural continuation of what
        was played last.
        """
        first = max(due - self._reach, 0)
        target = self._view(self._tail_at, 2 * self._hop).astype(np.float64)
        around = self._view(first, due + self._reach - first + 2 * self._hop).astype(np.float64)
        likeness = np.correlate(around, target, "valid")
        power = np.concatenate([[0.0], np.cumsum(around**2)])
        power = power[len(target) :] - power[: -len(target)]
        # silence matches nothing: stay at the due place rather than wander
        score = likeness / np.sqrt(power + 1e-6)
        best = int(np.argmax(score))
        return first + best if score[best] > 0 else due

    def _view(self, at: int, n: int) -> np.ndarray:
        return self._buffer[at - self._base : at - self._base + n]

    def _drop(self, before: int) -> None:
        n = min(max(before - self._base, 0), len(self._buffer))
        if n > 4 * self._hop:  # not at every frame: each drop copies what is kept
            self._buffer, self._base = self._buffer[n:].copy(), self._base + n
