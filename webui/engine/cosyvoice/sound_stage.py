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

from ...types import part_seed
from .board import Board, Order
from .family import Model
from .pace import Profile
from .stream import Segment, Utterance
from .voices import LiveVoice, LiveVoices

log = logging.getLogger(__name__)
MIN_IDS = 8  # of a piece that tells something about speed
NEAR_IDS = 8  # a request short of so many is worth a moment's wait


@dataclass(eq=False)
class Piece:
    """What is made for one request. ids: how many of them are new; wave: of the whole hop, once
    that is over.
    """

    who: Utterance
    segment: Segment
    known: list[int]
    is_over: bool
    ids: int = 0
    wave: np.ndarray | None = None

    @property
    def is_hop(self) -> bool:
        return self.is_over or self.segment.done == self.who.hops.end(self.segment.hop)


class SoundStage:
    """`turn()` is called for ever.

    `pieces` counts its work, `calls` how often the flow was asked for it.
    """

    name = "sound"

    def __init__(
        self, board: Board, model: Model, voices: LiveVoices, profile: Profile, fail: Callable
    ):
        """fail(utterance, error): an error of one request only; raises when it was more than
        that.
        """
        self._board, self._model, self._voices, self._profile, self._fail = (
            board,
            model,
            voices,
            profile,
            fail,
        )
        self.is_first_alone = model.place.device == "cpu"  # where company costs it time
        self.most = min(model.together, profile.cpu_rows) if self.is_first_alone else model.together
        self.pieces = self.calls = 0
        self.s_per_id = 0.0  # running mean of the work for what one id sounds

    def turn(self) -> None:
        with self._board.lock:
            self._board.sound_wanted.wait_for(
                lambda: self._board.fault is not None or self._most_pressing() is not None
            )
            job = self._most_pressing()
            jobs = self._with_company(job) if isinstance(job, Utterance) else []
        if isinstance(job, Order):
            self._prepare(job)
        elif jobs:
            try:
                self._make(jobs)
            finally:
                self._made(jobs)

    def _made(self, jobs: list[Utterance]) -> None:
        with self._board.lock:
            if self._board.first_made in jobs:
                self._board.first_made = None
                self._board.ids_wanted.notify_all()

    # ---- whose turn it is, with the lock held ----------------------------------------------------
    def _most_pressing(self) -> Utterance | Order | None:
        ready = [(who.rank(), who) for who in self._board.speaking if who.wants_sound()]
        ready += [((0, order.due_s, order.due_s), order) for order in self._board.orders]
        return min(ready, key=lambda pair: pair[0], default=(None, None))[1]

    def _with_company(self, lead: Utterance) -> list[Utterance]:
        """Those whose piece is made now; in a moment's time maybe more of them, where `lead` can
        wait and others of its shape are nearly there.
        """
        jobs = self._together(lead)
        window = self._profile.company_s
        if (
            window
            and self._can_wait(lead, window)
            and len(jobs) < self.most
            and any(self._is_near(who, lead) for who in self._board.speaking)
        ):
            self._board.sound_wanted.wait(window)
            jobs = self._together(lead) if lead.wants_sound() else []
        return jobs

    def _together(self, lead: Utterance) -> list[Utterance]:
        if not self._may_share(lead):
            return [lead]
        shape = self._shape(lead)
        others = [
            who
            for who in self._board.speaking
            if who is not lead and who.wants_sound() and self._may_share(who)
        ]
        fitting = [who for who in others if shape is not None and self._shape(who) == shape]
        return [lead, *sorted(fitting, key=Utterance.rank)][: self.most]

    def _may_share(self, who: Utterance) -> bool:
        return self.most > 1 and who.voice.is_ready and not (who.is_first and self.is_first_alone)

    def _can_wait(self, lead: Utterance, window: float) -> bool:
        return (
            self._may_share(lead) and not lead.is_first and lead.due_s() > time.monotonic() + window
        )

    def _is_near(self, who: Utterance, lead: Utterance) -> bool:
        """Its next piece has the shape of `lead`'s and waits for a few ids only."""
        if (
            who is lead
            or who.wants_sound()
            or not who.is_waited_for
            or who.sounding >= len(who.segments)
            or not self._may_share(who)
        ):
            return False
        segment = who.segments[who.sounding]
        return who.needed(segment) - len(segment.source.ids) <= NEAR_IDS and self._shape(
            who
        ) == self._shape(lead)

    def _shape(self, who: Utterance) -> Hashable:
        segment = who.segments[who.sounding]
        known, is_over = self._known(who, segment)
        return (segment.flow or who.voice.flow).shape(known, is_over)

    def _known(self, who: Utterance, segment: Segment) -> tuple[int, bool]:
        """Ids that the next piece is told of, and whether no more will come."""
        needed, there = who.needed(segment), len(segment.source.ids)
        is_over = segment.source.is_over and there < needed
        return there if is_over else needed, is_over

    # ---- work ------------------------------------------------------------------------------------
    def _used(self) -> set[LiveVoice]:
        with self._board.lock:
            return {who.voice for who in self._board.speaking} | {
                order.voice for order in self._board.orders
            }

    def _prepare(self, order: Order) -> None:
        try:
            self._voices.grow(order.voice, self._used())
        except Exception as error:
            order.error = self._fail(None, error)
        if order.error is not None or order.voice.is_ready:
            with self._board.lock:
                if order in self._board.orders:
                    self._board.orders.remove(order)
            order.done.set()

    def _make(self, jobs: list[Utterance]) -> None:
        if not jobs[0].voice.is_ready:
            self._grow(jobs[0])
            return
        self._voices.settle(self._used)
        with self._board.lock:
            pieces = [self._piece(who) for who in jobs if not who.has_ended]
            self._board.first_made = next(
                (piece.who for piece in pieces if piece.who.is_first), None
            )
        began = time.perf_counter()
        pieces = self._flowed([piece for piece in pieces if self._is_begun(piece)])
        flowed = time.perf_counter()
        pieces = self._sounded(pieces)
        sounded = time.perf_counter()
        self._count(sounded - began, len(pieces), sum(piece.ids for piece in pieces))
        with self._board.lock:
            for piece in pieces:
                piece.who.hop_cost("flow", flowed - began)
                piece.who.hop_cost("vocoder", sounded - flowed)
                self._put(piece)

    def _grow(self, who: Utterance) -> None:
        began = time.perf_counter()
        try:
            self._voices.grow(who.voice, self._used())
        except Exception as error:  # whatever it was, it is this request's
            self._fail(who, error)
            return
        with self._board.lock:
            who.note("flow", time.perf_counter() - began)

    def _piece(self, who: Utterance) -> Piece:
        """With the lock held."""
        segment = who.segments[who.sounding]
        count, is_over = self._known(who, segment)
        if not segment.mels:
            who.begin_hop()
        return Piece(who, segment, segment.source.ids[:count], is_over)

    def _is_begun(self, piece: Piece) -> bool:
        segment, who = piece.segment, piece.who
        try:
            if segment.flow is None:
                seed = part_seed(who.request.seed, segment.index)
                segment.flow, segment.vocoder = (
                    who.voice.flow.begin(seed=seed),
                    self._model.wave(seed),
                )
        except Exception as error:
            self._fail(who, error)
            return False
        return True

    def _flowed(self, pieces: list[Piece]) -> list[Piece]:
        """Those whose mel is there.

        Where they fail together each is asked alone, and only those fail that still do.
        """
        asked = [piece for piece in pieces if piece.known]
        if not asked:
            return pieces
        before = [
            (piece.segment.flow.computed_frames, piece.segment.flow.emitted_frames)
            for piece in asked
        ]
        try:
            self.calls += 1
            mels = self._model.flow_many(
                [(piece.segment.flow, piece.known, piece.is_over) for piece in asked]
            )
        except Exception as error:
            if len(pieces) > 1:
                log.warning(
                    "the flow failed for %d requests at once (%s): one by one", len(pieces), error
                )
                return [made for piece in pieces for made in self._flowed([piece])]
            self._fail(asked[0].who, error)  # whatever it was, it is this request's
            return []
        for piece, mel, (computed, emitted) in zip(asked, mels, before, strict=True):
            segment, done = (
                piece.segment,
                len(piece.known) - (0 if piece.is_over else piece.who.hops.ahead),
            )
            segment.mels.append(mel)
            piece.ids, segment.done = done - segment.done, done
            piece.who.computed_frames += segment.flow.computed_frames - computed
            piece.who.emitted_frames += segment.flow.emitted_frames - emitted
        return pieces

    def _sounded(self, pieces: list[Piece]) -> list[Piece]:
        """Those with the sound of their hop, where it is over."""
        asked = [
            piece
            for piece in pieces
            if piece.is_hop and piece.segment.mels and not piece.who.has_ended
        ]
        try:
            waves = (
                self._model.wave_many(
                    [
                        (piece.segment.vocoder, torch.cat(piece.segment.mels), piece.is_over)
                        for piece in asked
                    ]
                )
                if asked
                else []
            )
        except Exception as error:
            for piece in asked:
                self._fail(piece.who, error)
            return [piece for piece in pieces if piece not in asked]
        for piece, wave in zip(asked, waves, strict=True):
            piece.wave, piece.segment.mels = wave.numpy(), []
        return pieces

    def _put(self, piece: Piece) -> None:
        """With the lock held."""
        if piece.is_hop and not piece.who.has_ended:
            piece.segment.hop += 1
            piece.who.put(
                np.zeros(0, np.float32) if piece.wave is None else piece.wave,
                piece.segment,
                piece.is_over,
            )
            self._board.wake()

    def _count(self, seconds: float, pieces: int, ids: int) -> None:
        self.pieces += pieces
        if ids > MIN_IDS:
            self.s_per_id += (
                0.1 * (seconds / ids - self.s_per_id) if self.s_per_id else seconds / ids
            )
