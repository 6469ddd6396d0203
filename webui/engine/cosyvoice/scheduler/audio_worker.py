"""The one thread that runs flow and vocoder: a piece at a time, of whoever's listener would
otherwise fall silent first; pieces of one shape share their calls where the device gains by it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import torch

from ....types import part_seed
from ..frontend.prompt_cache import PromptCache
from ..model import Model
from .chunk_schedule import LatencyProfile
from .request_state import RequestState, SegmentState
from .scheduler import PrefillJob, Scheduler

log = logging.getLogger(__name__)
MIN_IDS = 8  # of a piece that tells something about speed
NEAR_IDS = 8  # a request short of so many is worth a moment's wait


@dataclass(eq=False)
class FlowBatchItem:
    """What is made for one request. ids: how many of them are new; wave: of the whole hop, once
    that is over.
    """

    request_state: RequestState
    segment: SegmentState
    token_ids: list[int]
    is_over: bool
    ids: int = 0
    wave: np.ndarray | None = None

    @property
    def is_hop(self) -> bool:
        return self.is_over or self.segment.done == self.request_state.hops.end(self.segment.hop)


class AudioWorker:
    """`turn()` is called for ever.

    `pieces` counts its work, `calls` how often the flow was asked for it.
    """

    name = "sound"

    def __init__(
        self,
        scheduler: Scheduler,
        model: Model,
        voices: PromptCache,
        profile: LatencyProfile,
        fail: Callable,
    ):
        """fail(utterance, error): an error of one request only; raises when it was more than
        that.
        """
        self._scheduler, self._model, self._voices, self._profile, self._fail = (
            scheduler,
            model,
            voices,
            profile,
            fail,
        )
        self.is_first_alone = model.device_config.device == "cpu"  # where company costs it time
        self.most = (
            min(model.max_batch_size, profile.cpu_rows)
            if self.is_first_alone
            else model.max_batch_size
        )
        self.pieces = self.calls = 0
        self.s_per_id = 0.0  # running mean of the work for what one id sounds

    def run_once(self) -> None:
        with self._scheduler.lock:
            self._scheduler.sound_wanted.wait_for(
                lambda: self._scheduler.fault is not None or self._select_next() is not None
            )
            job = self._select_next()
            jobs = self._collect_batch(job) if isinstance(job, RequestState) else []
        if isinstance(job, PrefillJob):
            self._prepare(job)
        elif jobs:
            try:
                self._make(jobs)
            finally:
                self._notify_lm(jobs)

    def _notify_lm(self, jobs: list[RequestState]) -> None:
        with self._scheduler.lock:
            if self._scheduler.first_made in jobs:
                self._scheduler.first_made = None
                self._scheduler.ids_wanted.notify_all()

    # ---- whose turn it is, with the lock held ----------------------------------------------------
    def _select_next(self) -> RequestState | PrefillJob | None:
        ready = [
            (request_state.rank(), request_state)
            for request_state in self._scheduler.speaking
            if request_state.can_run_audio()
        ]
        ready += [((0, order.due_s, order.due_s), order) for order in self._scheduler.orders]
        return min(ready, key=lambda pair: pair[0], default=(None, None))[1]

    def _collect_batch(self, lead: RequestState) -> list[RequestState]:
        """Those whose piece is made now; in a moment's time maybe more of them, where `lead` can
        wait and others of its shape are nearly there.
        """
        jobs = self._run_batch(lead)
        window = self._profile.batch_wait_s
        if (
            window
            and self._can_wait(lead, window)
            and len(jobs) < self.most
            and any(
                self._is_near(request_state, lead) for request_state in self._scheduler.speaking
            )
        ):
            self._scheduler.sound_wanted.wait(window)
            jobs = self._run_batch(lead) if lead.can_run_audio() else []
        return jobs

    def _run_batch(self, lead: RequestState) -> list[RequestState]:
        if not self._may_share(lead):
            return [lead]
        shape = self._shape(lead)
        candidates = [
            request_state
            for request_state in self._scheduler.speaking
            if request_state is not lead
            and request_state.can_run_audio()
            and self._may_share(request_state)
        ]
        fitting = [
            request_state
            for request_state in candidates
            if shape is not None and self._shape(request_state) == shape
        ]
        return [lead, *sorted(fitting, key=RequestState.rank)][: self.most]

    def _may_share(self, request_state: RequestState) -> bool:
        return (
            self.most > 1
            and request_state.voice.is_ready
            and not (request_state.is_first and self.is_first_alone)
        )

    def _can_wait(self, lead: RequestState, window: float) -> bool:
        return (
            self._may_share(lead) and not lead.is_first and lead.due_s() > time.monotonic() + window
        )

    def _is_near(self, request_state: RequestState, lead: RequestState) -> bool:
        """Its next piece has the shape of `lead`'s and waits for a few ids only."""
        if (
            request_state is lead
            or request_state.can_run_audio()
            or not request_state.is_waited_for
            or request_state.sounding >= len(request_state.segments)
            or not self._may_share(request_state)
        ):
            return False
        segment = request_state.segments[request_state.sounding]
        return request_state.needed(segment) - len(segment.source.ids) <= NEAR_IDS and self._shape(
            request_state
        ) == self._shape(lead)

    def _shape(self, request_state: RequestState) -> Hashable:
        segment = request_state.segments[request_state.sounding]
        n_ids, is_over = self._n_known(request_state, segment)
        return (segment.flow or request_state.voice.flow).shape(n_ids, is_over)

    def _n_known(self, request_state: RequestState, segment: SegmentState) -> tuple[int, bool]:
        """Ids that the next piece is told of, and whether no more will come."""
        needed, n_available = request_state.needed(segment), len(segment.source.ids)
        is_over = segment.source.is_over and n_available < needed
        return n_available if is_over else needed, is_over

    # ---- work ------------------------------------------------------------------------------------
    def _prepare(self, order: PrefillJob) -> None:
        try:
            self._voices.grow(order.voice)
        except Exception as error:
            order.error = self._fail(None, error)
        if order.error is not None or order.voice.is_ready:
            with self._scheduler.lock:
                if order in self._scheduler.orders:
                    self._scheduler.orders.remove(order)
            order.done.set()

    def _make(self, jobs: list[RequestState]) -> None:
        if not jobs[0].voice.is_ready:
            self._grow(jobs[0])
            return
        with self._scheduler.lock:
            pieces = [
                self._piece(request_state) for request_state in jobs if not request_state.has_ended
            ]
            self._scheduler.first_made = next(
                (piece.request_state for piece in pieces if piece.request_state.is_first), None
            )
        began = time.perf_counter()
        pieces = self._run_flow([piece for piece in pieces if self._is_begun(piece)])
        flowed = time.perf_counter()
        pieces = self._run_vocoder(pieces)
        sounded = time.perf_counter()
        self._count(sounded - began, len(pieces), sum(piece.ids for piece in pieces))
        with self._scheduler.lock:
            for piece in pieces:
                piece.request_state.hop_cost("flow", flowed - began)
                piece.request_state.hop_cost("vocoder", sounded - flowed)
                self._put(piece)

    def _grow(self, request_state: RequestState) -> None:
        began = time.perf_counter()
        try:
            self._voices.grow(request_state.voice)
        except Exception as error:  # whatever it was, it is this request's
            self._fail(request_state, error)
            return
        with self._scheduler.lock:
            request_state.note("flow", time.perf_counter() - began)

    def _piece(self, request_state: RequestState) -> FlowBatchItem:
        """With the lock held."""
        segment = request_state.segments[request_state.sounding]
        count, is_over = self._n_known(request_state, segment)
        if not segment.mels:
            request_state.begin_hop()
        return FlowBatchItem(request_state, segment, segment.source.ids[:count], is_over)

    def _is_begun(self, piece: FlowBatchItem) -> bool:
        segment, request_state = piece.segment, piece.request_state
        try:
            if segment.flow is None:
                seed = part_seed(request_state.request.seed, segment.index)
                segment.flow, segment.vocoder = (
                    request_state.voice.flow.begin(seed=seed),
                    self._model.new_wave_stream(seed),
                )
        except Exception as error:
            self._fail(request_state, error)
            return False
        return True

    def _run_flow(self, pieces: list[FlowBatchItem]) -> list[FlowBatchItem]:
        """Those whose mel is there.

        Where they fail together each is asked alone, and only those fail that still do.
        """
        batch = [piece for piece in pieces if piece.token_ids]
        if not batch:
            return pieces
        before = [
            (piece.segment.flow.computed_frames, piece.segment.flow.emitted_frames)
            for piece in batch
        ]
        try:
            self.calls += 1
            mels = self._model.flow_batch(
                [(piece.segment.flow, piece.token_ids, piece.is_over) for piece in batch]
            )
        except Exception as error:
            if len(pieces) > 1:
                log.warning(
                    "the flow failed for %d requests at once (%s): one by one", len(pieces), error
                )
                return [frames for piece in pieces for frames in self._run_flow([piece])]
            self._fail(batch[0].request_state, error)  # whatever it was, it is this request's
            return []
        for piece, mel, (computed, emitted) in zip(batch, mels, before, strict=True):
            segment, done = (
                piece.segment,
                len(piece.token_ids) - (0 if piece.is_over else piece.request_state.hops.ahead),
            )
            segment.mels.append(mel)
            piece.ids, segment.done = done - segment.done, done
            piece.request_state.computed_frames += segment.flow.computed_frames - computed
            piece.request_state.emitted_frames += segment.flow.emitted_frames - emitted
        return pieces

    def _run_vocoder(self, pieces: list[FlowBatchItem]) -> list[FlowBatchItem]:
        """Those with the sound of their hop, where it is over."""
        batch = [
            piece
            for piece in pieces
            if piece.is_hop and piece.segment.mels and not piece.request_state.has_ended
        ]
        try:
            waves = (
                self._model.vocode_batch(
                    [
                        (piece.segment.vocoder, torch.cat(piece.segment.mels), piece.is_over)
                        for piece in batch
                    ]
                )
                if batch
                else []
            )
        except Exception as error:
            for piece in batch:
                self._fail(piece.request_state, error)
            return [piece for piece in pieces if piece not in batch]
        for piece, wave in zip(batch, waves, strict=True):
            piece.wave, piece.segment.mels = wave.numpy(), []
        return pieces

    def _put(self, piece: FlowBatchItem) -> None:
        """With the lock held."""
        if piece.is_hop and not piece.request_state.has_ended:
            piece.segment.hop += 1
            piece.request_state.put(
                np.zeros(0, np.float32) if piece.wave is None else piece.wave,
                piece.segment,
                piece.is_over,
            )
            self._scheduler.wake()

    def _count(self, seconds: float, pieces: int, ids: int) -> None:
        self.pieces += pieces
        if ids > MIN_IDS:
            self.s_per_id += (
                0.1 * (seconds / ids - self.s_per_id) if self.s_per_id else seconds / ids
            )
