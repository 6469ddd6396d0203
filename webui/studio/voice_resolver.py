"""Who speaks: the engine and the voice that a request names, the prompt of the two, and a job with
both. Blind to whose turn it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from ..audio import Clip
from ..engine.base import Engine
from ..engine.manager import EngineManager
from ..errors import BadInput, KaikouError, NotAllowed, NotFound
from ..types import VOICE_ENGINES, Abilities, Prompt, SpeechRequest, Voice
from .continuation import Continuation
from .drafts import Drafts
from .job_runner import PreparedJob
from .metrics import Metrics
from .model_library import ModelLibrary
from .prompt_cache import PromptCache
from .request_builder import (
    OPENAI_MODELS,
    OPENAI_VOICES,
    PRESET,
    check_mode,
    listed_names,
    model_names,
)
from .scheduler_pool import SchedulerPool
from .share_links import ShareLinks, is_guest, share_link_settings
from .speech_job import SpeechJob
from .timings import Timings
from .voices import Voices


class VoiceResolver:
    def __init__(
        self,
        engine_manager: EngineManager,
        scheduler_pool: SchedulerPool,
        voices: Voices,
        drafts: Drafts,
        prompts: PromptCache,
        share_links: ShareLinks,
        metrics: Metrics,
    ):
        self._engine_manager, self._scheduler_pool, self._metrics = (
            engine_manager,
            scheduler_pool,
            metrics,
        )
        self._voices, self._drafts, self._prompts, self._share_links = (
            voices,
            drafts,
            prompts,
            share_links,
        )
        self.model_library: ModelLibrary | None = None  # where there are models that have names

    def voice(self, owner: str, voice_id: str) -> Voice:
        """Raises BadInput when none is given, NotFound when it is gone or another's.

        A guest has the one of the link, whatever is asked for.
        """
        if is_guest(owner):
            owner, voice_id = self._share_links.host(owner), self._share_links.of(owner).voice
        if not voice_id:
            raise BadInput("no_voice.chosen", param="voice")
        if voice_id.startswith("draft-"):
            return self._drafts.voice(owner, voice_id)
        return self._voices.get(owner, OPENAI_VOICES.get(voice_id, voice_id))

    def check_model(self, model: str) -> Abilities:
        """The engine that `model` means. Raises NotFound, NotReady."""
        lease = self._engine_manager.lease()
        about = lease.engine.describe()
        name = about.name
        lease.release()
        own = (name, *model_names(about, *VOICE_ENGINES))
        if model not in ("", "auto", *own, *OPENAI_MODELS) and not (
            self.model_library is not None and self.model_library.speaking == model
        ):
            raise self._not_speaking(model, (name, *listed_names(about)))
        return about

    def reads_transcripts(self) -> bool:
        """Whether the engine makes use of what is said in a clip. Raises NotReady."""
        lease = self._engine_manager.lease()
        try:
            return hasattr(lease.engine, "check")
        finally:
            lease.release()

    def _not_speaking(self, model: str, names: Sequence[str]) -> KaikouError:
        if (absent := self._engine_manager.absent(model)) is not None:
            return absent
        if self.model_library is not None and self.model_library.knows(model):
            return BadInput("model_idle", model=model, param="model")
        return NotFound(
            "model_not_found.here", model=model[:40], models=("auto", *names), param="model"
        )

    def resolve(
        self, owner: str, voice_id: str, mode: str, model: str, consent: bool, reference: bytes
    ) -> tuple[Abilities, Voice]:
        """The engine and the voice of a listener's request; `reference` is a recording that came
        along with it and goes before `voice_id`. Raises NotFound, NotReady, BadInput, TooLarge,
        NotAllowed (consent).
        """
        about = self.check_model(model)
        check_mode(mode, about)
        if reference and not consent:
            raise NotAllowed("consent.speaker", param="consent")
        voice = self.voice(owner, self._drafts.once(owner, reference).id if reference else voice_id)
        if voice.draft and not consent:
            raise NotAllowed("consent.checkbox", param="consent")
        return about, voice

    def job(
        self,
        owner: str,
        voice: Voice,
        request: SpeechRequest,
        trace: Timings,
        source: Clip | None = None,
        kept_notes: Sequence[tuple[str, str]] = (),
        beginning: Continuation | None = None,
    ) -> PreparedJob:
        """Holds a lease of the engine: whoever calls sees to its release.

        Blocking for as long as a voice's first prompt takes. kept_notes: what its take tells of how
        it was spoken.
        """
        lease = self._engine_manager.lease()
        try:
            engine = lease.engine
            about = engine.describe()
            prompt = self._wait_for_prompt(owner, voice, engine, trace)
            lease = self._prompts.hold(lease, prompt)
            self._still_there(voice, owner)
            notes = list(kept_notes)
            if request.mode == "zero_shot" and hasattr(engine, "check"):
                notes += engine.check(request, prompt)
            if about.voice_engines:
                request, more = engine.settle(request)
                notes += more
            own = min(max(request.speed, about.min_speed), about.max_speed)
            job = SpeechJob(
                request.id,
                replace(request, speed=own),
                owner,
                voice,
                about.sample_rate,
                about.name,
                about.version_of(request.voice_engine),
                tempo=round(request.speed / own, 4),
                beginning=beginning,
                source=source,
                trace=trace,
            )
            job.lease, job.voice_notes = lease, tuple(notes)
            job.notes = [*notes, *engine.notes(request)]
            own_rtf = about.voice_engines.get(request.voice_engine, 0.0)
            job.own_rtf = own_rtf if own_rtf > about.rtf else 0.0
            if is_guest(owner):
                job.voice = share_link_settings(voice, self._share_links.of(owner).title)
            return PreparedJob(job, self._scheduler_pool.of(engine), prompt)
        except BaseException:
            lease.release()
            raise

    def warm(self, owner: str, voice: Voice) -> None:
        """It will speak: have its prompt made. Nobody waits for it."""
        lease = self._engine_manager.lease()
        try:
            prompt_future = self.prompt(owner, voice, lease.engine)
            self._still_there(voice, owner)
        except BaseException:
            lease.release()
            raise
        prompt_future.add_done_callback(lambda _: lease.release())

    def prompt(self, owner: str, voice: Voice, engine: Engine) -> Future:
        if voice.draft:
            draft = self._drafts.get(owner, voice.id)
            return self._prompts.begin(voice, engine, lambda: self._drafts.reference(draft))
        if voice.id.startswith(PRESET):
            ready: Future = Future()
            ready.set_result(self._prompts.preset(engine, voice.name))
            return ready
        return self._prompts.begin(voice, engine, lambda: self._voices.clip(voice))

    def _still_there(self, voice: Voice, owner: str) -> None:
        """It may have been deleted while its prompt was asked for.

        Raises NotFound then, and nothing is kept of it.
        """
        try:
            if voice.draft:
                self._drafts.get(owner, voice.id)
            else:
                self._voices.get(voice.owner, voice.id)
        except NotFound:
            self._prompts.forget(voice.id)
            raise

    def _wait_for_prompt(self, owner: str, voice: Voice, engine: Engine, trace: Timings) -> Prompt:
        prompt_future = self.prompt(owner, voice, engine)
        is_hit = prompt_future.done()
        self._metrics.count_voice(is_hit)
        if is_hit:
            return prompt_future.result()
        began = time.perf_counter()
        prompt = prompt_future.result()
        trace.add("voice", time.perf_counter() - began)
        return prompt
