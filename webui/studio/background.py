"""Work that nobody listens to: the same way as a listener's, but with no place in the line, bound
by no rate, and it leaves no take.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import NotAllowed
from .asked import BACKGROUND, asked_for, check_mode, heeded, with_fitting_mode
from .cast import Cast
from .job import UNLIMITED
from .trace import Trace
from .turns import Ready, Turns
from .wording import Wording


class Background:
    """`look_at_keys()` has noticed what another process did to them when it returns: a revoked
    key's work stops before its next piece.
    """

    def __init__(
        self, cast: Cast, wording: Wording, turns: Turns, look_at_keys: Callable[[], None]
    ):
        self._cast, self._wording, self._turns = cast, wording, turns
        self._look_at_keys = look_at_keys

    def job(
        self,
        owner: str,
        *,
        text_in: str,
        voice_id: str,
        mode: str = "auto",
        instruction: str = "",
        language: str = "auto",
        speed: float = 1.0,
        seed: int = 0,
        model: str = "auto",
    ) -> Ready:
        """Nothing sounds before `begin`; `end` it.

        Blocking. Raises BadInput, NotFound, NotAllowed, NotReady.
        """
        self._look_at_keys()
        trace, about = Trace(), self._cast.check_model(model)
        check_mode(mode, about)
        voice = self._cast.voice(owner, voice_id)
        if voice.draft:
            raise NotAllowed(
                "Save this clip as a voice first: only saved voices can be used in a batch.",
                "请先把这段录音存为音色：批量只能用已保存的音色。",
                code="draft_voice",
                param="voice",
            )
        mode, instruction, left_out = heeded(about, voice, mode, instruction)
        request, notes = self._wording.put(
            owner,
            asked_for(
                about, text_in, voice, mode, instruction, language, speed, seed, BACKGROUND, model
            ),
            about,
            trace,
        )
        request, fitting = with_fitting_mode(about, request)
        ready = self._cast.job(owner, voice, request, trace, kept_notes=fitting)
        ready.job.notes = [*left_out, *notes, *ready.job.notes]
        return ready

    def begin(self, ready: Ready) -> None:
        ready.job.credit = UNLIMITED
        self._turns.begin(ready)

    def end(self, ready: Ready) -> None:
        """Its sound was taken, or nobody wants it, or it never began. Idempotent."""
        self._turns.cancel(ready.job)
        if (
            ready.job.snapshot().state == "waiting"
        ):  # else its lane lets go of it, after its last step
            ready.job.lease.release()
