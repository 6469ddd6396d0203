"""The one thread that runs flow and vocoder: a piece at a time, of whoever's listener would otherwise fall silent first."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from .board import Board, Order
from .flow.dims import LOOKAHEAD_IDS
from .stream import Segment, Utterance
from .vocoder import VocoderState
from .voices import LiveVoices

MIN_IDS = 8  # of a piece that tells something about speed


class SoundStage:
    """`turn()` is called for ever. `pieces` counts its work."""

    name = "sound"

    def __init__(self, board: Board, wave: Callable[[int], VocoderState], voices: LiveVoices, fail):
        """wave(seed): a new stream of the vocoder. fail(utterance, error): an error of one request only; raises when it was more than that."""
        self._board, self._wave, self._voices, self._fail = board, wave, voices, fail
        self.pieces = 0
        self.s_per_id = 0.0  # running mean of the work for what one id sounds

    def turn(self) -> None:
        with self._board.lock:
            self._board.sound_wanted.wait_for(lambda: self._board.fault is not None or self._most_pressing() is not None)
            job = self._most_pressing()
            segment = job.segments[job.sounding] if isinstance(job, Utterance) else None
        if isinstance(job, Order):
            self._prepare(job)
        elif job is not None:
            try:
                self._go_on(job, segment)
            except Exception as error:  # whatever it was, it is this request's
                self._fail(job, error)
            self._made(job)

    def _made(self, job: Utterance) -> None:
        with self._board.lock:
            if self._board.first_made is job:
                self._board.first_made = None
                self._board.ids_wanted.notify_all()

    def _most_pressing(self) -> Utterance | Order | None:
        ready = [(who.rank(), who) for who in self._board.speaking if who.wants_sound()]
        ready += [((0, order.due_s, order.due_s), order) for order in self._board.orders]
        return min(ready, key=lambda pair: pair[0], default=(None, None))[1]

    def _prepare(self, order: Order) -> None:
        try:
            self._voices.grow(order.voice)
        except Exception as error:
            order.error = self._fail(None, error)
        if order.error is not None or order.voice.is_ready:
            with self._board.lock:
                if order in self._board.orders:
                    self._board.orders.remove(order)
            order.done.set()

    def _go_on(self, who: Utterance, segment: Segment) -> None:
        if not who.voice.is_ready:
            began = time.perf_counter()
            self._voices.grow(who.voice)
            with self._board.lock:
                who.note("flow", time.perf_counter() - began)
            return
        with self._board.lock:
            if who.has_ended:
                return
            needed = who.needed(segment)
            is_over = segment.source.is_over and len(segment.source.ids) < needed
            known = segment.source.ids[: None if is_over else needed]
            if not segment.mels:
                who.begin_hop()
            self._board.first_made = who if who.is_first else None
        if segment.flow is None:
            segment.flow, segment.vocoder = who.voice.flow.begin(), self._wave((who.request.seed + segment.index) % 2**63)
        began, done = time.perf_counter(), segment.done
        if known:
            self._flow(who, segment, known, is_over)
        flowed = time.perf_counter()
        wave, is_hop = np.zeros(0, np.float32), is_over or segment.done == who.hops.end(segment.hop)
        if is_hop and known:
            wave = segment.vocoder.push(torch.cat(segment.mels), is_over).numpy()
            segment.mels = []
        sounded = time.perf_counter()
        self._count(sounded - began, segment.done - done)
        with self._board.lock:
            who.hop_cost("flow", flowed - began)
            who.hop_cost("vocoder", sounded - flowed)
            if is_hop and not who.has_ended:
                segment.hop += 1
                who.put(wave, segment, is_over)
                self._board.wake()

    def _count(self, seconds: float, ids: int) -> None:
        self.pieces += 1
        if ids > MIN_IDS:
            self.s_per_id += 0.1 * (seconds / ids - self.s_per_id) if self.s_per_id else seconds / ids

    def _flow(self, who: Utterance, segment: Segment, known: list[int], is_over: bool) -> None:
        computed, emitted = segment.flow.computed_frames, segment.flow.emitted_frames
        segment.mels.append(segment.flow.step(known, is_over))
        segment.done = len(known) - (0 if is_over else LOOKAHEAD_IDS)
        who.computed_frames += segment.flow.computed_frames - computed
        who.emitted_frames += segment.flow.emitted_frames - emitted
