"""The one thread that touches the language model: a step is one id for every request that has room,
and requests join and leave at any step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from torch import Tensor

from .board import Board
from .lm_seam import DrawingModel, LanguageModel, Past, Spoken
from .pace import Profile
from .stream import Segment, Utterance

log = logging.getLogger(__name__)
RUN_STEPS = 8  # taken at once by a model that draws: others wait so long to join
IN_HAND_S = 1.0  # a listener with this much sound can spare its turn to a first sound

Turn = list[tuple[Utterance, Segment]]


class TokenStage:
    """`turn()` is called for ever. `steps`, `rows`, `openings` count its work."""

    name = "tokens"

    def __init__(self, board: Board, lm: LanguageModel, profile: Profile, fail):
        """fail(utterance, error): an error of one request only; raises when it was more than
        that.
        """
        self._board, self._lm, self._profile, self._fail = board, lm, profile, fail
        self.gives_way = False  # whether the sound is made on this stage's core too
        self.steps = self.rows = self.openings = 0
        self.s_per_id = 0.0  # running mean of a step's share

    def turn(self) -> None:
        """Waits for work, then reads some openings, lets text that arrived go on, and steps all
        rows at once.
        """
        with self._board.lock:
            self._board.ids_wanted.wait_for(
                lambda: self._board.fault is not None or self._workable()
            )
            work = self._with_company()
        for who, segment in self._alone(work):
            self._go_on(who, segment)
        rows = [
            (who, segment)
            for who, segment in work
            if segment.source.is_row and not segment.source.is_joining
        ]
        if rows:
            self._step(self._pressing(rows))

    def _workable(self) -> Turn:
        speaking, first = self._board.speaking, self._board.first_made if self.gives_way else None
        if first is not None:  # its next ids are wanted a hop later, its listener waits now
            speaking = [who for who in speaking if who.is_first and who is not first]
        found = ((who, *who.writing()) for who in speaking)
        return [
            (who, segment)
            for who, segment, has_room in found
            if has_room and segment.source.can_step
        ]

    def _with_company(self) -> Turn:
        """The work, or in a moment's time more of it: only where no first sound waits and other
        rows will soon have room again.
        """
        work = self._workable()
        if self._profile.company_s and work and not any(who.is_first for who, _ in work):
            others = sum(
                who.is_waited_for and who.writing()[0] is not None for who in self._board.speaking
            )
            if others > len(work):
                self._board.ids_wanted.wait(self._profile.company_s)
                work = self._workable()
        return work

    def _alone(self, work: Turn) -> Turn:
        """Texts that arrive, and the most pressing openings."""
        joiners = sorted((w for w in work if w[1].source.is_joining), key=lambda w: w[0].rank())
        return [w for w in work if not w[1].source.is_row] + joiners[: self._profile.joins]

    def _pressing(self, rows: Turn) -> Turn:
        if not self._profile.is_first_alone or not any(who.is_first for who, _ in rows):
            return rows
        soon_s = time.monotonic() + IN_HAND_S
        return [(who, segment) for who, segment in rows if who.is_first or who.dry_s < soon_s]

    def _go_on(self, who: Utterance, segment: Segment) -> None:
        began, stage = time.perf_counter(), "prefill" if segment.source.is_joining else "tokens"
        self.openings += segment.source.is_joining
        try:
            segment.source.go_on()
        except Exception as error:  # whatever it was, it is this request's
            self._fail(who, error)
            return
        self._tell([(who, segment)], stage, time.perf_counter() - began)

    def _step(self, rows: Turn) -> None:
        began = time.perf_counter()
        pasts = [segment.source.past for _, segment in rows]
        rows, pasts = (
            [r for r, past in zip(rows, pasts, strict=True) if past is not None],
            [past for past in pasts if past is not None],
        )
        if not rows:
            return
        try:
            count, given = self._given(rows, pasts)
        except Exception as error:
            self._one_by_one(rows, error)
            return
        for (who, segment), row in zip(rows, given, strict=True):
            try:
                segment.source.draw(row)
            except Exception as error:
                self._fail(who, error)
        took = time.perf_counter() - began
        self.steps, self.rows, each = (
            self.steps + count,
            self.rows + count * len(rows),
            took / (count * len(rows)),
        )
        self.s_per_id += 0.05 * (each - self.s_per_id) if self.s_per_id else each
        self._tell(rows, "tokens", took)

    def _given(self, rows: Turn, pasts: list[Past]) -> tuple[int, Sequence[Tensor] | list[Spoken]]:
        """How many steps were taken, and what they gave each row: scores, or the ids themselves
        from a model that draws.
        """
        if not isinstance(self._lm, DrawingModel):
            return 1, self._lm.step_many([segment.source.last for _, segment in rows], pasts).cpu()
        with self._board.lock:
            count = max(1, min(RUN_STEPS, *(who.writing()[1] for who, _ in rows)))
        return count, self._lm.run(pasts, count).take()

    def _one_by_one(self, rows: Turn, error: Exception) -> None:
        """Together they failed: each steps alone, and only those fail that still do."""
        if len(rows) == 1:
            self._fail(rows[0][0], error)
            return
        log.warning("a step of %d requests failed (%s): one by one", len(rows), error)
        for who, segment in rows:
            self._go_on(who, segment)

    def _tell(self, rows: Turn, stage: str, seconds: float) -> None:
        with self._board.lock:
            for who, _ in rows:
                who.note(stage, seconds)
                if who.wants_sound():
                    self._board.sound_wanted.notify()
