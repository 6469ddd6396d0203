"""Work that nobody listens to: the same way as a listener's, but with no place in the line, bound
by no rate, and it leaves no take.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import NotAllowed
from .job_runner import JobRunner, PreparedJob
from .request_builder import BACKGROUND, build_request, check_mode, choose_mode
from .speech_job import UNLIMITED
from .text_normaliser import TextNormaliser
from .timings import Timings
from .voice_resolver import VoiceResolver


class Background:
    """`look_at_keys()` has noticed what another process did to them when it returns: a revoked
    key's work stops before its next piece.
    """

    def __init__(
        self,
        voice_resolver: VoiceResolver,
        normaliser: TextNormaliser,
        job_runner: JobRunner,
        look_at_keys: Callable[[], None],
    ):
        self._voice_resolver, self._normaliser, self._job_runner = (
            voice_resolver,
            normaliser,
            job_runner,
        )
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
    ) -> PreparedJob:
        """Nothing sounds before `begin`; `end` it.

        Blocking. Raises BadInput, NotFound, NotAllowed, NotReady.
        """
        self._look_at_keys()
        trace, about = Timings(), self._voice_resolver.check_model(model)
        check_mode(mode, about)
        voice = self._voice_resolver.voice(owner, voice_id)
        if voice.draft:
            raise NotAllowed("draft_voice.batch", param="voice")
        request, notes = self._normaliser.normalise(
            owner,
            build_request(about, text_in, voice, language, speed, seed, BACKGROUND, model),
            about,
            trace,
        )
        reads_transcripts = self._voice_resolver.reads_transcripts()
        request, left_out, kept_notes = choose_mode(
            about, request, voice, mode, instruction, reads_transcripts
        )
        ready = self._voice_resolver.job(owner, voice, request, trace, kept_notes=kept_notes)
        ready.job.notes = [*left_out, *notes, *ready.job.notes]
        return ready

    def begin(self, ready: PreparedJob) -> None:
        ready.job.credit = UNLIMITED
        self._job_runner.begin(ready)

    def end(self, ready: PreparedJob) -> None:
        """Its sound was taken, or nobody wants it, or it never began. Idempotent."""
        self._job_runner.cancel(ready.job)
        if (
            ready.job.snapshot().state == "waiting"
        ):  # else its lane lets go of it, after its last step
            ready.job.lease.release()
