"""The studio as one object: what the page and the API talk to.

Composes the use cases; decides nothing itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial

from .. import __version__, audio, text
from ..engine.base import Engine
from ..engine.manager import EngineManager
from ..errors import KaikouError, NotReady
from ..settings import Settings
from ..store import (
    AccessStore,
    BlobStore,
    ChoiceStore,
    ConsentStore,
    JobStore,
    PronunciationStore,
    TakeStore,
    VoiceStore,
    tighten,
)
from ..types import MAX_INSTRUCTION, MAX_TEXT, Voice
from .alignment import Alignments
from .background import Background
from .batch.events import LineEvents
from .batch.service import BatchService
from .choices import Choices
from .consents import Consents
from .doctor import Doctor
from .drafts import Drafts
from .intake import Intake
from .job_runner import JobRunner
from .keys import Keys
from .logins import Logins
from .metrics import SHARED, Metrics
from .model_library import ModelLibrary
from .prompt_cache import PromptCache, SharedPrompts
from .pronunciations import Pronunciations
from .request_builder import listed_names
from .scheduler_pool import SchedulerPool
from .share_links import ShareLinks, is_guest
from .speech_job import SpeechJob
from .synthesis import Synthesis
from .takes import Takes
from .text_normaliser import TextNormaliser
from .usage import Usage
from .voice_resolver import VoiceResolver
from .voices import Voices
from .word_times import WordAligner

log = logging.getLogger(__name__)
SWEEP_S = 600.0
ENGINE_CHANGE = "engine"  # what `changes` tells of: `status` may say something else now


class Studio:
    def __init__(self, settings: Settings, shared_prompts: SharedPrompts | None = None):
        paths, limits = settings.paths, settings.limits
        self.settings, self.version = settings, __version__
        self.metrics = Metrics()
        tighten(paths.data_dir)
        store = VoiceStore(paths.data_dir, paths.assets / "voices")
        self.changes = LineEvents()
        self.engine_manager = EngineManager(
            self._took_over, partial(self.changes.tell, ENGINE_CHANGE)
        )
        self.prompts = PromptCache(store, shared=shared_prompts)
        intake = Intake(limits.uploads_per_minute)
        self.drafts = Drafts(
            store,
            self._prepare,
            limits.max_draft_mb << 20,
            self.prompts.forget,
            limits.max_draft_mb_per_visitor << 20,
            intake,
        )
        label = f"AI-generated speech, Kaikou {__version__}" if settings.privacy.label_files else ""
        takes = TakeStore(paths.data_dir)
        self.takes = Takes(
            takes,
            Choices(ChoiceStore(paths.data_dir), takes.has_any),
            settings.privacy.keep_takes_days,
            limits.takes_per_visitor,
            label,
            has_logins=lambda: not settings.server.is_open or self.keys.auth_required(),
        )
        self.consents = Consents(ConsentStore(paths.data_dir), store, intake)
        self.voices = Voices(store, self.drafts, self.prompts, self.consents)
        self.pronunciations = Pronunciations(PronunciationStore(paths.data_dir))
        access, self.rights = AccessStore(paths.data_dir), LineEvents()
        self.keys = Keys(
            access, settings.server.api_keys, on_end=self._end_key, cell=settings.server.cell
        )
        self.share_links = ShareLinks(access, on_end=self.rights.tell, cell=settings.server.cell)
        self.logins = Logins(access, limits.logins_per_minute, self.rights.tell)
        self.usage = Usage(access)
        self.scheduler_pool = SchedulerPool(limits.stall_s, limits.max_streams)
        self.voice_resolver = VoiceResolver(
            self.engine_manager,
            self.scheduler_pool,
            self.voices,
            self.drafts,
            self.prompts,
            self.share_links,
            self.metrics,
        )
        self.job_runner = JobRunner(
            self.scheduler_pool, self.takes, self.metrics, self.usage, limits
        )
        normaliser = TextNormaliser(self.pronunciations, self.share_links)
        self.synthesis = Synthesis(
            self.voice_resolver,
            normaliser,
            self.job_runner,
            self.drafts,
            self.takes,
            self.share_links,
            self.metrics,
            limits.starts_per_minute,
        )
        self.alignments = Alignments(self.takes, self.pronunciations)
        self.word_aligner = WordAligner()
        background = Background(self.voice_resolver, normaliser, self.job_runner, self.keys.look)
        self.batch = BatchService(
            JobStore(paths.data_dir),
            BlobStore(paths.data_dir),
            self.voice_resolver,
            background,
            self.job_runner,
            self.scheduler_pool,
            label,
            settings.privacy.keep_takes_days,
        )
        self._closing = threading.Event()
        self.model_library: ModelLibrary | None = None  # where models speak, or may be fetched
        self.first_sound_ms: float | None = None  # measured at warm-up
        for name, description, read_value in (
            ("cv_streams_open", "Streams being made", lambda: self.scheduler_pool.n_open),
            (
                "cv_streams_waiting",
                "Requests in the line",
                lambda: self.job_runner.admission.n_waiting,
            ),
            (
                "cv_requests_refused",
                "Requests refused because the line was full",
                lambda: self.job_runner.admission.refused,
            ),
            ("cv_prompts_encoded", "Voices turned into prompts", lambda: self.prompts.n_encoded),
            (
                "cv_batch_lines_made",
                "Lines of batches made",
                lambda: self.batch.worker.synthesiser.n_made,
            ),
            (
                "cv_batch_lines_cached",
                "Lines of batches whose sound was there already",
                lambda: self.batch.worker.synthesiser.n_cached,
            ),
            (
                "cv_batch_lines_failed",
                "Lines of batches that failed for good",
                lambda: self.batch.worker.n_failed,
            ),
            ("cv_batch_jobs_open", "Batches that are being made", lambda: self.batch.n_open),
            ("cv_engine_ready", "1 when the engine speaks", lambda: self.is_ready()),
            ("cv_api_keys", "API keys that open something", lambda: self.keys.n_live),
            (
                "cv_demo_uses",
                "Texts spoken for the guests of demo links, of this run",
                lambda: self.share_links.n_uses,
            ),
            (
                "cv_demo_refusals",
                "Guests of demo links refused",
                lambda: sum(self.share_links.refused.values()),
            ),
            (
                "cv_batch_lines_tried_again",
                "Tries of batch lines in vain",
                lambda: self.batch.worker.n_tried_again,
            ),
        ):
            self.metrics.watch(name, description, read_value)
        unconfirmed = "Deleted voices whose prompts may still lie in the shared cache"
        for name, description in (*SHARED.items(), ("forgets_unconfirmed", unconfirmed)):
            read_figure = partial(self._shared_figure, name)
            self.metrics.watch(f"cv_shared_cache_{name}", description, read_figure)
        self.metrics.watch_engine(self.engine_manager.figures)
        self.metrics.watch_cache(
            "cv_text_cache",
            "Texts that were prepared before",
            text.cache_counts,
        )

    def _shared_figure(self, name: str) -> int:
        """0 where no cache is shared."""
        shared = self.prompts.shared
        return shared.figures()[name] if shared is not None else 0

    # ---- engine ----------------------------------------------------------------------------------
    def start(self, *makers: Callable[[], Engine]) -> threading.Thread:
        """Bring engines up in the background, one after the other; the page may open before the
        first is ready, and each takes over when it can.
        """
        threading.Thread(target=self._warm_rooms, name="warm", daemon=True).start()
        threading.Thread(target=self._sweep, name="sweep", daemon=True).start()
        threading.Thread(target=self._stop_batches, name="stop-batches", daemon=True).start()
        self.batch.start()
        self.usage.start()
        self.starting = self.engine_manager.start(*makers)
        return self.starting

    def set_models(self, model_library: ModelLibrary, doctor: Doctor | None = None) -> None:
        """The models there are. doctor: the one of that shelf; it makes way for whoever speaks."""
        self.model_library = self.voice_resolver.model_library = model_library
        if doctor is not None:
            self.scheduler_pool.on_open = doctor.make_way

    def is_idle(self) -> bool:
        """Nobody speaks, and nobody waits to."""
        return not self.scheduler_pool.n_open and not self.job_runner.admission.n_waiting

    def _warm_rooms(self) -> None:
        text.warm()
        self.pronunciations.as_read("local")  # opens and checks the file
        audio.warm_decoder()
        audio.warm_coder()

    def _took_over(self, engine: Engine) -> None:
        self.scheduler_pool.add_job(engine)
        self.voices.set_presets(engine.describe().presets)
        self.batch.worker.queue.poke()
        if self.model_library is not None:
            self.model_library.took_over()
        threading.Thread(
            target=self._warm_voices, args=(engine,), name="warm-voices", daemon=True
        ).start()

    def _warm_voices(self, engine: Engine) -> None:
        """Starter voices speak at the first click: their prompts are made now, once, and kept."""
        for voice in self.voices.list("-"):
            if voice.id.startswith("preset-"):
                continue
            try:
                self.voice_resolver.prompt("-", voice, engine).result()
            except (KaikouError, CancelledError) as error:
                log.info("starter voice %s is not ready: %s", voice.id, error)

    def _prepare(self, voice: Voice, clip) -> None:
        try:
            lease = self.engine_manager.lease()
        except NotReady:
            return  # it is made when the voice speaks
        future = self.prompts.begin(voice, lease.engine, clip, prepare=True)
        future.add_done_callback(lambda _: lease.release())

    def _end_key(self, key_id: str) -> None:
        """A key was revoked: whoever is inside by it is told, and what waits to be made for it is
        not made.
        """
        self.rights.tell(key_id)
        self._stop_batches()

    def _stop_batches(self) -> None:
        """Those of revoked keys.

        A key of scope admin works on its maker's batches, and these go on.
        """
        try:
            for key_id in self.keys.revoked():
                self.batch.cancel_all(key_id)
        except KaikouError as error:
            log.warning("batches of revoked keys could not be stopped: %s", error.code)

    def status(self) -> dict:
        """What the engine pill shows: state, words, abilities."""
        health, next_health = self.engine_manager.health(), self.engine_manager.next_health()
        status = {
            "state": health.state,
            "reason": health.reason,
            "reason_zh": health.reason_zh,
            "progress": health.progress,
            "version": self.version,
            "streams": self.scheduler_pool.n_open,
            "batch_lines": self.batch.worker.queue.n_speaking(),
            "waiting": self.job_runner.admission.n_waiting,
            "share": self.settings.server.share,
            "restarting": self.engine_manager.is_restarting(),
            "handing_over": self.engine_manager.is_handing_over(),
        }
        if next_health is not None and health.state in ("ready", "broken"):
            status["coming"] = {
                "state": next_health.state,
                "reason": next_health.reason,
                "reason_zh": next_health.reason_zh,
                "progress": next_health.progress,
            }
        if self.model_library is not None:
            status |= self._models()
        failure = self.engine_manager.failure()
        if failure is not None:
            status |= {
                "failure": failure.en,
                "failure_zh": failure.zh,
                "again": self.engine_manager.can_try_again(),
            }
        try:
            lease = self.engine_manager.lease()
        except KaikouError:
            return status
        about = lease.engine.describe()
        lease.release()
        return status | {
            "engine": about.name,
            "engine_version": about.version,
            "basic": about.basic,
            "rate": about.sample_rate,
            "modes": list(about.modes),
            "preset_modes": list(about.preset_modes),
            "told_clones": about.told_clones,
            "languages": list(about.languages),
            "styles": list(about.styles),
            "tags": list(about.tags),
            "rtf": round(about.rtf, 4),
            "voice_engines": {k: round(rtf, 4) for k, rtf in about.voice_engines.items()},
            "natural": about.natural,
            "voice_note": list(about.voice_note or ()),
            "note": list(about.note or ()),
        }

    def _models(self) -> dict:
        """models: as `Shelf.list`; title, next, failed: the model in charge, the one on its way,
        the one that failed last; model: the download that is shown.
        """
        model_library = self.model_library
        status = {
            "models": model_library.list(),
            "title": model_library.speaking,
            "next": model_library.loading,
            "failed": model_library.failed,
        }
        fetching = model_library.fetching()
        return status if fetching is None else status | {"model": fetching}

    def installed_names(self) -> list[str]:
        """Models of this disk, speaking or not."""
        return (
            [m.name for m in self.model_library.installed()]
            if self.model_library is not None
            else []
        )

    def engine_names(self) -> list[str]:
        """Engines that can speak now."""
        return list(self.model_names())[:1]

    def model_names(self) -> dict[str, bool]:
        """The engine that can speak now, and its voices where it has several -> whether a request
        can have it now.
        """
        try:
            lease = self.engine_manager.lease()
        except KaikouError:
            return {}
        lease.release()
        about = lease.engine.describe()
        return {about.name: True, **listed_names(about)}

    def about(self, job: SpeechJob) -> dict:
        """What a reader is told before the first sample."""
        seconds = (
            job.source.duration_s if job.source is not None else text.duration(job.request.segments)
        ) / (job.request.speed * job.tempo)
        return {
            "job": job.id,
            "rate": job.rate,
            "channels": 1,
            "seed": job.request.seed,
            "engine": job.engine,
            "voice": job.voice.id,
            "at": job.n_begun,
            "sentences": [] if is_guest(job.owner) else list(job.request.segments),
            "spans": text.sentence_spans(job.request.segments, text.measure(job.request.text)[1]),
            "predicted_s": round(seconds, 3),
            "voice_engine": job.request.voice_engine,
            "rtf": round(self.expected_rtf(job), 4),
        }

    def expected_rtf(self, job: SpeechJob) -> float:
        """Of the lanes, and at least of the voice that speaks on them."""
        return max(self.scheduler_pool.expected_rtf(), job.own_rtf)

    def header(self, job: SpeechJob, n_samples: int | None) -> bytes:
        """WAV header of a job's sound; None while its length is not known."""
        return audio.wav_header(job.rate, n_samples, self.takes.label_for(job.owner))

    def coder(self, job: SpeechJob, kind: str, is_whole: bool = False) -> audio.Encoder:
        """What turns a job's samples into a file of `kind`, one of CODED; the caller closes it.

        Blocking, for some milliseconds. Raises KaikouError.
        """
        return audio.Encoder(kind, job.rate, self.takes.label_for(job.owner), is_whole)

    def limits(self) -> dict:
        return {
            "max_text": MAX_TEXT,
            "max_instruction": MAX_INSTRUCTION,
            "max_clip_mb": audio.MAX_BYTES >> 20,
            "max_video_mb": audio.MAX_VIDEO_BYTES >> 20,
            "max_clip_s": 60,
        }

    def is_ready(self) -> bool:
        return self.engine_manager.health().state in ("ready", "busy")

    # ---- housekeeping ----------------------------------------------------------------------------
    def _sweep(self) -> None:
        """For as long as the studio runs: whatever one part of it meets, the others and the next
        round go on.
        """
        self._tidy(self.takes.sweep)
        while not self._closing.wait(SWEEP_S):
            for sweep in (
                self.takes.sweep,
                partial(self.batch.sweep, SWEEP_S),
                self.voices.sweep,
                self.consents.sweep,
            ):
                self._tidy(sweep)

    @staticmethod
    def _tidy(sweep: Callable[[], object]) -> None:
        try:
            sweep()
        except Exception:
            log.exception("housekeeping failed and is tried again later")

    def close(self) -> None:
        """End streams, engines and child processes. Idempotent."""
        self._closing.set()
        if self.model_library is not None:
            self.model_library.close()
        self.batch.close()
        self.scheduler_pool.close()
        self.job_runner.close()
        self.prompts.close()
        self.takes.close()
        self.pronunciations.close()
        self.usage.close()
        self.engine_manager.close()
        audio.close_decoder()
        audio.close_cleaner()
        audio.close_coder()
