"""The use case itself: a checked request becomes a job, the job gets its turn, and its sound becomes a take."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import wraps

from .. import audio, text
from ..engine.base import Engine
from ..engine.resident import Resident
from ..errors import BadInput, Cancelled, KaikouError, NotAllowed, NotFound, StorageFull, TooLarge
from ..settings import Limits
from ..store.files import new_id
from ..types import CONVERT, Abilities, Prompt, SpeechRequest, Voice
from .admission import Admission, Buckets
from .arriving import Written
from .asked import BACKGROUND, OPENAI_MODELS, OPENAI_VOICES, PRESET, asked_for, check_mode, heeded
from .demos import Demos, is_guest, shown
from .drafts import Drafts
from .job import UNLIMITED, Job
from .lanes import Lanes
from .logline import line
from .metrics import Metrics
from .prompts import Prompts
from .pronunciations import Pronunciations
from .shelf import Shelf
from .takes import Takes
from .trace import Trace
from .usage import Usage
from .voices import Voices

log = logging.getLogger(__name__)
MIN_SOURCE_S, MAX_SOURCE_S = 1.0, 30.0


@dataclass(frozen=True)
class Quiet:
    """A job in the background, and where it will be made."""

    job: Job
    lanes: Lanes
    prompt: Prompt


def _counted(way_in: Callable[..., Job]) -> Callable[..., Job]:
    """Refusals are counted where they pass."""
    @wraps(way_in)
    def run(self: Speaker, *given, **named) -> Job:
        try:
            return way_in(self, *given, **named)
        except KaikouError as error:
            self._metrics.refused(error)
            raise
    return run


class Speaker:
    def __init__(self, resident: Resident, voices: Voices, drafts: Drafts, prompts: Prompts, takes: Takes, metrics: Metrics, limits: Limits,
                 pronunciations: Pronunciations, demos: Demos, usage: Usage):
        self._resident, self._voices, self._drafts, self._prompts, self._takes = resident, voices, drafts, prompts, takes
        self._metrics, self._limits, self._pronunciations, self._demos, self._usage = metrics, limits, pronunciations, demos, usage
        self._lanes: dict[Engine, Lanes] = {}
        self._rate = Buckets(limits.starts_per_minute)
        self.admission = Admission(self.capacity, lambda: sum(x.n_hungry for x in self._lanes.values()), limits.max_waiting, limits.max_streams_per_visitor)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="takes")
        self.shelf: Shelf | None = None  # where there are models that have names

    # ---- capacity ---------------------------------------------------------------------------------------
    def seat(self, engine: Engine) -> None:
        """An engine takes over: give it lanes. Those before it stay until their streams end, the last one's also for who just leased it."""
        kept = {e: lanes for i, (e, lanes) in enumerate(self._lanes.items(), 1) if lanes.n_open or i == len(self._lanes)}
        for lanes in [x for e, x in self._lanes.items() if e not in kept]:
            lanes.close()
        self._lanes = kept | {engine: Lanes(engine, self._limits.stall_s)}

    def capacity(self) -> int:
        if self._limits.max_streams:
            return self._limits.max_streams
        lanes = list(self._lanes.values())[-1:]
        return lanes[0].capacity if lanes else 2

    def expected_rtf(self) -> float:
        """What a stream that begins now may expect, shared with those already open."""
        return sum(x.expected_rtf for x in list(self._lanes.values())[-1:])

    @property
    def n_open(self) -> int:
        return sum(x.n_open for x in self._lanes.values())

    # ---- from request to job ----------------------------------------------------------------------------
    def voice(self, owner: str, voice_id: str) -> Voice:
        """Raises BadInput when none is given, NotFound when it is gone or another's. A guest has the one of the link, whatever is asked for."""
        if is_guest(owner):
            owner, voice_id = self._demos.host(owner), self._demos.of(owner).voice
        if not voice_id:
            raise BadInput("Record a clip first, or choose a saved voice.", "先录一段声音，或从音色库选一个。", code="no_voice", param="voice")
        if voice_id.startswith("draft-"):
            return self._drafts.voice(owner, voice_id)
        return self._voices.get(owner, OPENAI_VOICES.get(voice_id, voice_id))

    def check_model(self, model: str) -> Abilities:
        """The engine that `model` means. Raises NotFound, NotReady."""
        lease = self._resident.lease()
        about = lease.engine.describe()
        name = about.name
        lease.release()
        if model not in ("", "auto", name, *OPENAI_MODELS) and not (self.shelf is not None and self.shelf.speaking == model):
            raise self._not_speaking(model, name)
        return about

    def _not_speaking(self, model: str, name: str) -> KaikouError:
        if (absent := self._resident.absent(model)) is not None:
            return absent
        if self.shelf is not None and self.shelf.knows(model):
            return BadInput(f"{model} is installed, but another model speaks now. Change to it on the page, or leave the model out.",
                            f"{model} 已安装，但现在由别的模型朗读。请在页面上切换，或不指定模型。", code="model_idle", param="model")
        return NotFound(f"There is no model “{model[:40]}” here. Available: auto, {name}.", f"这里没有模型「{model[:40]}」，可用：auto、{name}。", code="model_not_found", param="model")

    @_counted
    def open(self, owner: str, *, text_in: str, **asked) -> Job:
        """Everything that can be refused is refused here. Blocking for as long as a voice's first prompt takes; call it off the event loop.

        asked: the fields of `_open`. A guest of a demo link has no say in them. Raises BadInput, NotFound, NotAllowed (consent, link), Busy, NotReady.
        """
        if not is_guest(owner):
            return self._open(owner, text_in=text_in, **asked)
        demo = self._demos.enter(owner, text_in)
        fixed = {k: v for k, v in demo.fixed.items() if k != "sample"}
        try:
            return self._open(owner, text_in=text_in, voice_id=demo.voice, **fixed)
        except BaseException:
            self._demos.give_back(demo, text_in)
            raise

    def _open(self, owner: str, *, text_in: str, voice_id: str, mode: str = "auto", instruction: str = "", language: str = "auto", speed: float = 1.0,
             seed: int = -1, model: str = "auto", consent: bool = False, transcript: str = "", source: str = "", recording: bytes = b"", reference: bytes = b"",
              written: Written | None = None) -> Job:
        """reference: a recording that came along, any file `audio.decode` reads; it goes before `voice_id`. recording: another, whose words are
        converted; it goes before `source`. written: the text goes on there; `text_in` is how it begins."""
        trace = Trace()
        if written is None:
            self._rate.check(owner)
        about, voice = self._chosen(owner, voice_id, mode, model, consent, reference)
        mode, instruction, left_out = heeded(about, voice, mode, instruction)
        seed = secrets.randbelow(2**31) if seed < 0 else seed
        transcript = transcript.strip() or voice.transcript
        if mode == CONVERT:
            request = SpeechRequest(new_id("take"), text_in.strip() or "voice conversion", voice.id, mode, speed=speed, seed=seed)
            return self._admit(owner, voice, request, trace, self._source(owner, source, recording, consent))
        request = asked_for(about, text_in, replace(voice, transcript=transcript), mode, instruction, language, speed, seed)
        request, notes = self._put_in_words(owner, request, about, trace) if written is None else (replace(request, segments=tuple(written.pieces)), written.notes)
        job = self._admit(owner, voice, request if written is not None else self._takes.with_notice(owner, request), trace, written=written)
        job.notes = [] if is_guest(owner) else [*left_out, *notes, *job.notes]
        return job

    def _chosen(self, owner: str, voice_id: str, mode: str, model: str, consent: bool, reference: bytes) -> tuple[Abilities, Voice]:
        """The engine and the voice that a request means. Raises NotFound, NotReady, BadInput, TooLarge, NotAllowed (consent)."""
        about = self.check_model(model)
        check_mode(mode, about)
        if reference and not consent:
            raise NotAllowed("Say that the speaker agreed: send consent: true along with the recording.", "请确认说话人已同意：带录音的请求须同时传 consent: true。", code="consent", param="consent")
        voice = self.voice(owner, self._drafts.once(owner, reference).id if reference else voice_id)
        if voice.draft and not consent:
            raise NotAllowed("Tick the consent box before saving or speaking.", "先勾选同意，才能保存或合成。", code="consent", param="consent")
        return about, voice

    @_counted
    def expect(self, owner: str, *, voice_id: str, mode: str = "auto", instruction: str = "", language: str = "auto", speed: float = 1.0, seed: int = -1, model: str = "auto",
               consent: bool = False, transcript: str = "", reference: bytes = b"", source: str = "", recording: bytes = b"") -> tuple[Written, Abilities]:
        """A text is going to be written: refuses what can be refused before its first word, and has the voice made ready. `open` it, with the
        same fields, `written`, and `written.first` for text, when that is no longer empty. Blocking. Raises as `open` does."""
        self._rate.check(owner)
        about, voice = self._chosen(owner, voice_id, mode, model, consent, reference)
        mode, instruction, _ = heeded(about, voice, mode, instruction)
        if mode == CONVERT:
            raise BadInput("A text that is still being written cannot be a conversion.", "边写边读不支持变声模式。", param="mode", code="bad_mode")
        asked_for(about, "a", replace(voice, transcript=transcript), mode, instruction, language, speed, max(seed, 0))
        lease = self._resident.lease()
        self.prompt(owner, voice, lease.engine).add_done_callback(lambda _: lease.release())
        readings, notes = self._pronunciations.spoken(owner)
        return Written(lambda clause, own: text.prepare(text.strip_tags(clause, about.tags), own, readings), language, notes), about

    def _put_in_words(self, owner: str, request: SpeechRequest, about: Abilities, trace: Trace) -> tuple[SpeechRequest, list[tuple[str, str]]]:
        """With the sentences to speak, and what a listener must know of them. Raises BadInput when there is nothing to say."""
        began = time.perf_counter()
        readings, notes = self._pronunciations.spoken(self._demos.host(owner) if is_guest(owner) else owner)
        segments = tuple(text.prepare(text.strip_tags(request.text, about.tags), request.language, readings))
        trace.add("text", time.perf_counter() - began)
        if not segments:
            raise BadInput("Write something to say first: the text has no letters or digits.", "先写点要说的话：文本里没有可读的字。", param="input", code="no_text")
        return replace(request, segments=segments), notes

    # ---- work that nobody listens to -----------------------------------------------------------------------
    @property
    def n_lanes(self) -> int:
        """Of the engine in charge; 0 while there is none."""
        return sum(x.n_lanes for x in list(self._lanes.values())[-1:])

    def quiet(self, owner: str, *, text_in: str, voice_id: str, mode: str = "auto", instruction: str = "", language: str = "auto", speed: float = 1.0,
              seed: int = 0, model: str = "auto") -> Quiet:
        """The same way as `open`, for work in the background: it has no place in the line, is bound by no rate and leaves no take. Nothing
        sounds before `begin_quiet`; end it with `cancel` or `quiet_over`. Blocking. Raises BadInput, NotFound, NotAllowed, NotReady."""
        trace, about = Trace(), self.check_model(model)
        check_mode(mode, about)
        voice = self.voice(owner, voice_id)
        if voice.draft:
            raise NotAllowed("Save this clip as a voice first: only saved voices can be used in a batch.", "请先把这段录音存为音色：批量只能用已保存的音色。", code="draft_voice", param="voice")
        mode, instruction, _ = heeded(about, voice, mode, instruction)
        request, _ = self._put_in_words(owner, asked_for(about, text_in, voice, mode, instruction, language, speed, seed, BACKGROUND), about, trace)
        return Quiet(*self._job(owner, voice, request, trace))

    def begin_quiet(self, quiet: Quiet) -> None:
        quiet.job.credit = UNLIMITED
        self._begin(quiet.job, quiet.lanes, quiet.prompt)

    def quiet_over(self, quiet: Quiet) -> None:
        """Its sound was taken, or it never began. Idempotent."""
        quiet.job.lease.release()

    # ---- admission -------------------------------------------------------------------------------------------
    def _source(self, owner: str, source: str, recording: bytes, consent: bool) -> audio.Clip:
        """What is converted: a recording that came along, or a clip of the visitor's. Raises BadInput, TooLarge, NotFound, NotAllowed (consent)."""
        param = "source_audio" if recording else "source"
        if not (recording or source):
            raise BadInput("Say what to convert: send the recording along as source_audio.", "请给出要变声的录音：随请求传 source_audio。", code="no_source", param="source_audio")
        if recording and not consent:
            raise NotAllowed("Say that the speaker agreed: send consent: true along with the recording.", "请确认说话人已同意：带录音的请求须同时传 consent: true。", code="consent", param="consent")
        clip = self._heard(recording) if recording else self._drafts.sound(self._drafts.get(owner, source), whole=True)
        seconds = clip.duration_s
        if seconds > MAX_SOURCE_S:
            raise TooLarge(f"The clip is {seconds:.0f} s long; {MAX_SOURCE_S:.0f} s at most for conversion.", f"这段音频长 {seconds:.0f} 秒，变声最多 {MAX_SOURCE_S:.0f} 秒。", param=param)
        if seconds < MIN_SOURCE_S:
            raise BadInput(f"The clip is {seconds:.1f} s long; conversion needs {MIN_SOURCE_S:.0f} s at least.", f"这段音频只有 {seconds:.1f} 秒，变声至少需要 {MIN_SOURCE_S:.0f} 秒。", code="too_short", param=param)
        return clip

    def _heard(self, recording: bytes) -> audio.Clip:
        """With a voice in it."""
        try:
            clip = audio.decode(recording)
            audio.inspect(clip)
        except KaikouError as error:
            error.param = "source_audio"
            raise
        return clip

    @_counted
    def again(self, old: Job) -> Job:
        """The same request once more, same seed: for a reader whose connection broke. Same refusals as `open`."""
        self._rate.check(old.owner)
        if is_guest(old.owner):
            self._demos.knock(old.owner)
        request = replace(old.request, id=new_id("take"), speed=round(old.request.speed * old.tempo, 4))
        return self._admit(old.owner, self.voice(old.owner, old.voice.id), request, Trace(), old.source)

    def _admit(self, owner: str, voice: Voice, request: SpeechRequest, trace: Trace, source: audio.Clip | None = None, written: Written | None = None) -> Job:
        job, lanes, prompt = self._job(owner, voice, request, trace, source)
        if written is not None:
            job.written = written
            written.listen(lambda was_waited_for: self._fed(job, was_waited_for))
        try:
            self.admission.enter(job, lambda job: self._begin(job, lanes, prompt))
        except BaseException:
            job.lease.release()
            raise
        return job

    def _job(self, owner: str, voice: Voice, request: SpeechRequest, trace: Trace, source: audio.Clip | None = None) -> tuple[Job, Lanes, Prompt]:
        """Holds a lease of the engine: whoever calls sees to its release."""
        lease = self._resident.lease()
        try:
            about = lease.engine.describe()
            prompt = self._wait_for_prompt(owner, voice, lease.engine, trace)
            if request.mode == "zero_shot" and request.transcript and hasattr(lease.engine, "check"):
                lease.engine.check(request, prompt)
            own = min(max(request.speed, about.min_speed), about.max_speed)
            job = Job(request.id, replace(request, speed=own), owner, voice, about.sample_rate, about.name, about.version, tempo=round(request.speed / own, 4), source=source, trace=trace)
            job.lease, job.notes = lease, lease.engine.notes(request)
            if is_guest(owner):
                job.voice = shown(voice, self._demos.of(owner).title)
            return job, self._lanes[lease.engine], prompt
        except BaseException:
            lease.release()
            raise

    def _wait_for_prompt(self, owner: str, voice: Voice, engine: Engine, trace: Trace) -> Prompt:
        coming = self.prompt(owner, voice, engine)
        is_hit = coming.done()
        self._metrics.voice(is_hit)
        if is_hit:
            return coming.result()
        began = time.perf_counter()
        prompt = coming.result()
        trace.add("voice", time.perf_counter() - began)
        return prompt

    def prompt(self, owner: str, voice: Voice, engine: Engine) -> Future:
        if voice.draft:
            draft = self._drafts.get(owner, voice.id)
            return self._prompts.begin(voice, engine, lambda: self._drafts.sound(draft))
        if voice.id.startswith(PRESET):
            ready: Future = Future()
            ready.set_result(engine.preset(voice.name))
            return ready
        return self._prompts.begin(voice, engine, lambda: self._voices.clip(voice))

    # ---- turn, end ----------------------------------------------------------------------------------------
    def _begin(self, job: Job, lanes: Lanes, prompt: Prompt) -> None:
        waited_s = time.monotonic() - job.born_s
        job.trace.add("queue", waited_s)
        if not job.is_background:
            self._metrics.begun(waited_s)
        job.move("running")
        lanes.add(job, prompt, self._end)

    def _end(self, job: Job) -> None:
        """Called by a lane when a job has made its last step, whatever the reason."""
        job.settle()
        job.lease.release()
        if not job.is_background:
            self.admission.done(job)
        self._metrics.ended(job)
        if job.snapshot().state == "saving" and is_guest(job.owner):
            job.saved(None, is_kept=False)
        elif job.snapshot().state == "saving" and not job.is_background:
            self._writer.submit(self._save, job)
        self._close(job, by_engine=True)

    def left(self, job: Job) -> None:
        """A reader has taken what it will take."""
        self._close(job, by_engine=False)

    def _close(self, job: Job, by_engine: bool) -> None:
        if not job.closed(by_engine):
            return
        self._metrics.read(job)
        self._usage.spoke(job.owner, len(job.request.text), job.produced / job.rate)
        log.info("%s", line(job))
        if job.is_background or is_guest(job.owner):
            return
        with contextlib.suppress(RuntimeError):  # the studio is closing and writes no more
            self._writer.submit(self._trace, job)

    def _trace(self, job: Job) -> None:
        with contextlib.suppress(NotFound, StorageFull):  # no take of it, or no room to say more of it
            self._takes.traced(job)

    def _save(self, job: Job) -> None:
        error: KaikouError | None = None
        try:
            self._takes.record(job)
        except KaikouError as problem:
            error = problem
        except OSError:
            error = StorageFull()
        job.saved(error)

    # ---- what a reader sends back ---------------------------------------------------------------------------
    def _fed(self, job: Job, was_waited_for: bool) -> None:
        if was_waited_for:
            job.fed()
        self._poke(job)

    def credit(self, job: Job, upto: int) -> None:
        if job.grant(upto):
            self._poke(job)

    def cancel(self, job: Job) -> None:
        """Idempotent. The engine stops within one step; a waiting job leaves the line at once."""
        if job.is_cancelled or job.is_over:
            return
        job.is_cancelled = True
        if job.written is not None:
            job.written.close()
        for engine in list(self._lanes):
            engine.cancel(job.request.id)
        if self.admission.leave(job):
            job.settle()
            job.fail(Cancelled())
            job.lease.release()
            self.admission.done(job)
            self._metrics.ended(job)
            self._close(job, by_engine=True)
        self._poke(job)

    def _poke(self, job: Job) -> None:
        for lanes in list(self._lanes.values()):
            lanes.poke()
        self.admission.next()

    def close(self) -> None:
        for lanes in self._lanes.values():
            lanes.close()
        self._writer.shutdown(wait=True)
