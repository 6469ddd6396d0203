"""The use case itself: whoever listens asks, and gets a job that was checked and waits for its
turn. Blind to what becomes of it then.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps

from ..audio import Clip
from ..errors import BadInput, Conflict, KaikouError
from ..store.folder_store import new_id
from ..types import CONVERT, Abilities, SpeechRequest, Voice, model_of
from .admission import Buckets
from .continuation import Continuation
from .conversion import source_of
from .drafts import Drafts
from .job_runner import JobRunner
from .metrics import Metrics
from .request_builder import build_request, choose_mode, late_notes
from .share_links import ShareLinks, is_guest
from .speech_job import SpeechJob
from .takes import Takes
from .text_normaliser import Preview, TextNormaliser
from .text_source import TextSource
from .timings import Timings
from .voice_resolver import VoiceResolver


def _count_refusals(way_in: Callable[..., SpeechJob]) -> Callable[..., SpeechJob]:
    """Refusals are counted where they pass."""

    @wraps(way_in)
    def run(self: Synthesis, *args, **named) -> SpeechJob:
        try:
            return way_in(self, *args, **named)
        except KaikouError as error:
            self._metrics.count_refusal(error)
            raise

    return run


class Synthesis:
    def __init__(
        self,
        voice_resolver: VoiceResolver,
        normaliser: TextNormaliser,
        job_runner: JobRunner,
        drafts: Drafts,
        takes: Takes,
        share_links: ShareLinks,
        metrics: Metrics,
        starts_per_minute: int,
    ):
        (
            self._voice_resolver,
            self._normaliser,
            self._job_runner,
            self._drafts,
            self._takes,
            self._share_links,
            self._metrics,
        ) = (
            voice_resolver,
            normaliser,
            job_runner,
            drafts,
            takes,
            share_links,
            metrics,
        )
        self._rate = Buckets(starts_per_minute)

    @_count_refusals
    def open(self, owner: str, *, text_in: str, **params) -> SpeechJob:
        """Everything that can be refused is refused here.

        Blocking for as long as a voice's first prompt takes; call it off the event loop.

        asked: the fields of `_open`. A guest of a demo link has no say in them. Raises BadInput,
          NotFound, NotAllowed (consent, link), Busy, NotReady.
        """
        if not is_guest(owner):
            return self._open(owner, text_in=text_in, **params)
        demo = self._share_links.enter(owner, text_in)
        fixed = {k: v for k, v in demo.fixed.items() if k != "sample"}
        try:
            return self._open(owner, text_in=text_in, voice_id=demo.voice, **fixed)
        except BaseException:
            self._share_links.give_back(demo, text_in)
            raise

    def _open(
        self,
        owner: str,
        *,
        text_in: str,
        voice_id: str,
        mode: str = "auto",
        instruction: str = "",
        language: str = "auto",
        speed: float = 1.0,
        seed: int = -1,
        model: str = "auto",
        consent: bool = False,
        transcript: str = "",
        source: str = "",
        recording: bytes = b"",
        reference: bytes = b"",
        text_source: TextSource | None = None,
    ) -> SpeechJob:
        """reference: a recording that came along, any file `audio.decode` reads; it goes before
        `voice_id`. recording: another, whose words are
        converted; it goes before `source`. text_source: the text goes on there; `text_in` is how it
        begins.
        """
        trace = Timings()
        if text_source is None:
            self._rate.check(owner)
        about, voice = self._voice_resolver.resolve(
            owner, voice_id, mode, model, consent, reference
        )
        seed = secrets.randbelow(2**31) if seed < 0 else seed
        transcript, dropped = self._words(owner, voice, transcript.strip())
        if mode == CONVERT:
            request = SpeechRequest(
                new_id("take"),
                text_in.strip() or "voice conversion",
                voice.id,
                mode,
                speed=speed,
                seed=seed,
            )
            return self._admit(
                owner,
                voice,
                request,
                trace,
                source_of(self._drafts, owner, source, recording, consent),
            )
        language = language if text_source is None else text_source.language
        request = build_request(about, text_in, voice, language, speed, seed, model=model)
        if text_source is None:
            request, notes = self._normaliser.normalise(owner, request, about, trace)
        else:
            request, notes = replace(request, segments=tuple(text_source.pieces)), text_source.notes
            text_source.late_notes = partial(late_notes, about)
        request, left_out, kept_notes = choose_mode(
            about,
            request,
            replace(voice, transcript=transcript),
            mode,
            instruction,
            self._voice_resolver.reads_transcripts(),
            is_text_whole=text_source is None,
            notes=dropped,
        )
        if text_source is None:
            request = self._takes.with_notice(owner, request)
        job = self._admit(owner, voice, request, trace, text_source=text_source, notes=kept_notes)
        job.notes = [] if is_guest(owner) else [*left_out, *notes, *job.notes]
        return job

    def _words(
        self, owner: str, voice: Voice, transcript: str
    ) -> tuple[str, list[tuple[str, str]]]:
        """What is said in the part of the clip that is used, and a note where the given transcript
        cannot be that.
        """
        if voice.draft and transcript:
            return self._drafts.get(owner, voice.id).words(transcript)
        return transcript or voice.transcript, []

    @_count_refusals
    def open_text_stream(
        self,
        owner: str,
        *,
        voice_id: str,
        mode: str = "auto",
        instruction: str = "",
        language: str = "auto",
        speed: float = 1.0,
        seed: int = -1,
        model: str = "auto",
        consent: bool = False,
        transcript: str = "",
        reference: bytes = b"",
        source: str = "",
        recording: bytes = b"",
    ) -> tuple[TextSource, Abilities]:
        """A text is going to be written: refuses what can be refused before its first word, and has
        the voice made ready. `open` it, with the same fields, `text_source`, and
        `text_source.first` for text, when that is no longer empty. Blocking. Raises as `open` does.
        """
        self._rate.check(owner)
        about, voice = self._voice_resolver.resolve(
            owner, voice_id, mode, model, consent, reference
        )
        if mode == CONVERT:
            raise BadInput("bad_mode.streamed_text", param="mode")
        request = build_request(about, "a", voice, language, speed, max(seed, 0))
        choose_mode(about, request, replace(voice, transcript=transcript), mode, instruction)
        self._voice_resolver.warm(owner, voice)
        return self._normaliser.arriving(owner, language, about), about

    def preview(
        self, owner: str, text_in: str, language: str = "auto", model: str = "auto"
    ) -> Preview:
        """What would be spoken of a text; nothing is. Raises BadInput, NotFound, NotReady."""
        return self._normaliser.preview(
            owner, text_in, language, self._voice_resolver.check_model(model)
        )

    @_count_refusals
    def resume(self, old: SpeechJob, start: int) -> SpeechJob:
        """The same request for a listener who comes back: `old` itself where it was made to its
        end, else spoken once more with its seed. To a guest that is one more use of the link,
        unless it goes on where a broken connection left it. Same refusals as `open`.
        """
        text = old.request.text
        demo = None
        if is_guest(old.owner):
            if old.playback.goes_on(start):
                self._share_links.check_rate(old.owner)
            else:
                demo = self._share_links.enter(old.owner, text)
        try:
            return old if old.snapshot().state in ("saving", "done") else self._again(old)
        except BaseException:
            if demo is not None:
                self._share_links.give_back(demo, text)
            raise

    def _again(self, old: SpeechJob) -> SpeechJob:
        self._rate.check(old.owner)
        self._check_engine(old.engine, old.rate, old.request)
        request = replace(old.request, speed=round(old.request.speed * old.tempo, 4))
        voice = self._voice_resolver.voice(old.owner, old.voice.id)
        beginning = old.so_far() if old.source is None else None
        job = self._go_on(old.owner, voice, request, beginning, old.voice_notes, old.source)
        job.playback, job.notes = old.playback, old.notes
        return job

    @_count_refusals
    def continue_take(self, owner: str, take_id: str) -> SpeechJob:
        """A stopped or failed take goes on with the sentence that broke, as it was asked for and
        with its seed: the same sound as if it had never stopped, as one job that begins with what
        is there. When it is over, its take is in the place of that one. Raises NotFound (take, its
        voice), Conflict (nothing to continue, or it would not be the same), Busy, NotReady.
        """
        self._rate.check(owner)
        take = self._takes.get_visible(owner, take_id)
        request, trace = take.request, Timings()
        if take.state == "done" or request.mode == CONVERT:
            raise Conflict("take_not_continued", param="continue_from")
        about = self._check_engine(take.engine, take.sample_rate, request)
        voice = self._voice_resolver.voice(owner, request.voice)
        normalised_request, notes = self._normaliser.normalise(owner, request, about, trace)
        if self._takes.with_notice(owner, normalised_request).segments != request.segments:
            raise Conflict("take_read_otherwise", param="continue_from")
        beginning = self._takes.beginning(take)
        job = self._go_on(owner, voice, request, beginning, take.voice_notes, trace=trace)
        job.notes = list(dict.fromkeys([*notes, *job.notes]))
        return job

    def _check_engine(self, engine: str, rate: int, request: SpeechRequest) -> Abilities:
        """Raises Conflict where not the same voice would speak on."""
        about = self._voice_resolver.check_model("auto")
        kind = request.voice_engine
        if (about.name, about.sample_rate) != (engine, rate) or (
            kind and kind not in about.voice_engines
        ):
            raise Conflict(
                "take_other_engine", engine=model_of(engine, kind), param="continue_from"
            )
        return about

    def _go_on(
        self,
        owner: str,
        voice: Voice,
        request: SpeechRequest,
        beginning: Continuation | None,
        notes: Sequence[tuple[str, str]],
        source: Clip | None = None,
        trace: Timings | None = None,
    ) -> SpeechJob:
        first = beginning.first_segment if beginning is not None else 0
        request = replace(request, id=new_id("take"), first_segment=first)
        job = self._admit(
            owner, voice, request, trace or Timings(), source, notes=notes, beginning=beginning
        )
        job.voice_notes = tuple(notes)  # the choice of a voice was made, and told, before
        return job

    def _admit(
        self,
        owner: str,
        voice: Voice,
        request: SpeechRequest,
        trace: Timings,
        source: Clip | None = None,
        text_source: TextSource | None = None,
        notes: Sequence[tuple[str, str]] = (),
        beginning: Continuation | None = None,
    ) -> SpeechJob:
        """notes: that a take keeps."""
        ready = self._voice_resolver.job(owner, voice, request, trace, source, notes, beginning)
        ready.job.text_source = text_source
        self._job_runner.submit(ready)
        return ready.job
