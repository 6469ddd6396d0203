"""The one thread that touches the language model: a step is one id for every request that has room,
and requests join and leave at any step.
"""

from __future__ import annotations

import logging
import time

from ..llm.interface import LanguageModel
from .chunk_schedule import LatencyProfile
from .request_state import RequestState, SegmentState
from .scheduler import Scheduler

log = logging.getLogger(__name__)
IN_HAND_S = 1.0  # a listener with this much sound can spare its turn to a first sound

Turn = list[tuple[RequestState, SegmentState]]


class LMWorker:
    """`turn()` is called for ever. `steps`, `rows`, `openings` count its work."""

    name = "tokens"

    def __init__(self, scheduler: Scheduler, lm: LanguageModel, profile: LatencyProfile, fail):
        """fail(utterance, error): an error of one request only; raises when it was more than
        that.
        """
        self._scheduler, self._lm, self._profile, self._fail = scheduler, lm, profile, fail
        self.gives_way = False  # whether the sound is made on this stage's core too
        self.steps = self.rows = self.openings = 0
        self.s_per_id = 0.0  # running mean of a step's share

    def run_once(self) -> None:
        """Waits for work, then reads some openings, lets text that arrived go on, and steps all
        rows at once.
        """
        with self._scheduler.lock:
            self._scheduler.ids_wanted.wait_for(
                lambda: self._scheduler.fault is not None or self._workable()
            )
            work = self._collect_batch()
        for request_state, segment in self._alone(work):
            self._go_on(request_state, segment)
        rows = [
            (request_state, segment)
            for request_state, segment in work
            if segment.source.is_row and not segment.source.is_joining
        ]
        if rows:
            self._step(self._select_next(rows))

    def _workable(self) -> Turn:
        speaking, first = (
            self._scheduler.speaking,
            self._scheduler.first_made if self.gives_way else None,
        )
        if first is not None:  # its next ids are wanted a hop later, its listener waits now
            speaking = [
                request_state
                for request_state in speaking
                if request_state.is_first and request_state is not first
            ]
        candidates = (
            (request_state, *request_state.next_decode_segment()) for request_state in speaking
        )
        return [
            (request_state, segment)
            for request_state, segment, has_room in candidates
            if has_room and segment.source.can_step
        ]

    def _collect_batch(self) -> Turn:
        """The work, or in a moment's time more of it: only where no first sound waits and other
        rows will soon have room again.
        """
        work = self._workable()
        if (
            self._profile.batch_wait_s
            and work
            and not any(request_state.is_first for request_state, _ in work)
        ):
            n_expected = sum(
                request_state.is_waited_for and request_state.next_decode_segment()[0] is not None
                for request_state in self._scheduler.speaking
            )
            if n_expected > len(work):
                self._scheduler.ids_wanted.wait(self._profile.batch_wait_s)
                work = self._workable()
        return work

    def _alone(self, work: Turn) -> Turn:
        """Texts that arrive, and the most pressing openings."""
        joiners = sorted((w for w in work if w[1].source.is_joining), key=lambda w: w[0].rank())
        return [w for w in work if not w[1].source.is_row] + joiners[: self._profile.joins]

    def _select_next(self, rows: Turn) -> Turn:
        if not self._profile.is_first_alone or not any(
            request_state.is_first for request_state, _ in rows
        ):
            return rows
        soon_s = time.monotonic() + IN_HAND_S
        return [
            (request_state, segment)
            for request_state, segment in rows
            if request_state.is_first or request_state.dry_s < soon_s
        ]

    def _go_on(self, request_state: RequestState, segment: SegmentState) -> None:
        began, stage = time.perf_counter(), "prefill" if segment.source.is_joining else "tokens"
        self.openings += segment.source.is_joining
        try:
            segment.source.prefill_or_step()
        except Exception as error:  # whatever it was, it is this request's
            self._fail(request_state, error)
            return
        self._tell([(request_state, segment)], stage, time.perf_counter() - began)

    def _step(self, rows: Turn) -> None:
        began = time.perf_counter()
        pasts = [segment.source.past for _, segment in rows]
        rows, pasts = (
            [r for r, past in zip(rows, pasts, strict=True) if past is not None],
            [past for past in pasts if past is not None],
        )
        if not rows:
            return
        with self._scheduler.lock:
            room = min(request_state.next_decode_segment()[1] for request_state, _ in rows)
        count = max(1, min(self._lm.max_steps, room))
        try:
            decoded = self._lm.decode(pasts, count)
        except Exception as error:
            self._one_by_one(rows, error)
            return
        for (request_state, segment), row in zip(rows, decoded, strict=True):
            try:
                segment.source.add(row)
            except Exception as error:
                self._fail(request_state, error)
        took = time.perf_counter() - began
        self.steps, self.rows, step_s = (
            self.steps + count,
            self.rows + count * len(rows),
            took / (count * len(rows)),
        )
        self.s_per_id += 0.05 * (step_s - self.s_per_id) if self.s_per_id else step_s
        self._tell(rows, "tokens", took)

    def _one_by_one(self, rows: Turn, error: Exception) -> None:
        """Together they failed: each steps alone, and only those fail that still do."""
        if len(rows) == 1:
            self._fail(rows[0][0], error)
            return
        log.warning("a step of %d requests failed (%s): one by one", len(rows), error)
        for request_state, segment in rows:
            self._go_on(request_state, segment)

    def _tell(self, rows: Turn, stage: str, seconds: float) -> None:
        with self._scheduler.lock:
            for request_state, _ in rows:
                request_state.note(stage, seconds)
                if request_state.can_run_audio():
                    self._scheduler.sound_wanted.notify()
