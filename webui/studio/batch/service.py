"""Batches as their owners see them: hand in, look, cancel, resume, retry, take away.

What is accepted here is on the disk. An account owns its jobs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import BadInput, KaikouError, NotAllowed, NotFound, NotReady
from ...messages import message
from ...store import BatchJob, BlobStore, JobStore, Line
from ...store.jobs import MAX_OPEN_JOBS, OVER
from ...types import CONVERT, MAX_TEXT, MODES, SpeechRequest
from ..background import Background
from ..drafts import account_of
from ..job_runner import JobRunner
from ..request_builder import known_language
from ..scheduler_pool import SchedulerPool
from ..voice_resolver import VoiceResolver
from ..zip_stream import in_format, zipped
from .synthesise import LineSynthesiser
from .worker import BatchWorker

log = logging.getLogger(__name__)
MAX_LINES = 10_000
MAX_NAME = 80
DAY_S = 86400.0
BATCH_LIMITS = {"lines": MAX_LINES, "text": MAX_TEXT, "jobs": MAX_OPEN_JOBS}


@dataclass(frozen=True)
class LineRequest:
    """One line as it was asked for. seed: -1 or None = from the job's."""

    text: str
    voice: str = ""
    mode: str = "auto"
    instruction: str = ""
    language: str = "auto"
    speed: float = 1.0
    seed: int | None = None
    model: str = ""  # "" = the batch's


class BatchService:
    def __init__(
        self,
        jobs: JobStore,
        sounds: BlobStore,
        voice_resolver: VoiceResolver,
        background: Background,
        job_runner: JobRunner,
        scheduler_pool: SchedulerPool,
        label: str,
        keep_days: int,
    ):
        self._jobs, self._sounds, self._voice_resolver = jobs, sounds, voice_resolver
        self.keep_days = max(1, keep_days)  # after its end
        self.worker = BatchWorker(
            jobs,
            sounds,
            LineSynthesiser(jobs, sounds, background, job_runner, label),
            scheduler_pool,
        )

    # ---- hand in ---------------------------------------------------------------------------------
    def submit(
        self,
        owner: str,
        asks: Sequence[LineRequest],
        *,
        seed: int | None = None,
        name: str = "",
        model: str = "auto",
    ) -> BatchJob:
        """Every line is looked at before anything is accepted.

        Raises BadInput with the line's number, NotFound (voice, model), Busy, StorageFull.
        """
        if not asks:
            raise BadInput("no_lines", param="texts")
        if len(asks) > MAX_LINES:
            raise BadInput(
                "too_many_lines.too_many", max_lines=MAX_LINES, n=len(asks), param="texts"
            )
        self._check_model(model)
        if seed is not None and not -1 <= seed < 2**63:
            raise BadInput("bad_seed", param="seed")
        account, seed = (
            account_of(owner),
            secrets.randbelow(2**31) if seed is None or seed < 0 else seed,
        )
        lines = self._lines(owner, asks, seed)
        job = self._jobs.add(
            account, " ".join(name.split())[:MAX_NAME], model or "auto", seed, lines
        )
        self.worker.queue.add(job.id, account)
        return job

    def _lines(self, owner: str, asks: Sequence[LineRequest], seed: int) -> list[Line]:
        counts: Counter[tuple] = Counter()
        voices: set[str] = set()
        models = {""}
        lines = []
        for n, ask in enumerate(asks, 1):
            try:
                if ask.voice not in voices:
                    self._check_voice(owner, ask.voice)
                    voices.add(ask.voice)
                if ask.model not in models:
                    self._check_model(ask.model)
                    models.add(ask.model)
                lines.append(_line(n, ask, seed, counts))
            except KaikouError as error:
                raise type(error)(
                    message("line", n=n, error=error), code=error.code, param=error.param
                ) from error
        return lines

    def _check_model(self, model: str) -> None:
        with suppress(NotReady):  # it is made as soon as there is an engine
            self._voice_resolver.check_model(model)

    def _check_voice(self, owner: str, voice_id: str) -> None:
        if self._voice_resolver.voice(owner, voice_id).draft:
            raise NotAllowed("draft_voice.batch", param="voice")

    @property
    def n_open(self) -> int:
        """Jobs that have lines to make."""
        return self.worker.queue.n_open

    # ---- look ------------------------------------------------------------------------------------
    def list(self, owner: str, limit: int = 50) -> list[BatchJob]:
        """Newest first."""
        return [self._as_it_is(job) for job in self._jobs.list(account_of(owner), limit)]

    def get(self, owner: str, job_id: str) -> BatchJob:
        """Raises NotFound; another's job is as unknown as none."""
        return self._as_it_is(self._jobs.get(account_of(owner), job_id))

    def _as_it_is(self, job: BatchJob) -> BatchJob:
        error = self.worker.queue.stopped(job.id)
        return (
            job
            if error is None or job.state != "running"
            else replace(job, state="paused", code=error.code, error=error.en, error_zh=error.zh)
        )

    def eta_s(self, job: BatchJob) -> float | None:
        """Seconds until it is done, at the pace of its last lines; None while that is not known."""
        if job.state != "running":
            return None
        return self.worker.queue.eta_s(
            job.id, sum(n for state, n in job.chars.items() if state not in OVER)
        )

    def lines(self, owner: str, job_id: str, start: int, count: int, state: str = "") -> list[Line]:
        return self._jobs.lines(self.get(owner, job_id).id, start, count, state)

    def ended(self, owner: str, job_id: str, start: int, count: int) -> tuple[str, list[Line]]:
        """The job's state, and its lines from number `start` on that are over, up to the first that
        is not. Raises NotFound.
        """
        state, lines = self._jobs.ended(account_of(owner), job_id, start, count)
        return (
            "paused"
            if state == "running" and self.worker.queue.stopped(job_id) is not None
            else state
        ), lines

    def line(self, owner: str, job_id: str, n: int) -> Line:
        """Raises NotFound while it has no sound."""
        lines = self._jobs.lines(self.get(owner, job_id).id, n, 1, "done")
        if not lines or lines[0].n != n or not self._sounds.has(lines[0].key):
            raise NotFound("no_sound.line")
        return lines[0]

    def sound(self, owner: str, job_id: str, n: int) -> Path:
        """The WAV of a line. Raises NotFound while it is not made."""
        return self._sounds.path(self.line(owner, job_id, n).key)

    def watch(self, job_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self.worker.watchers.add(job_id, wake)

    # ---- the whole as a zip ----------------------------------------------------------------------
    def zip(self, owner: str, job_id: str, kind: str = "wav") -> Iterator[bytes]:
        """What is made so far, in order, as files of `kind`, and a manifest of every line.

        Raises NotFound at once, not while it is read.
        """
        job = self.get(owner, job_id)
        return zipped(self._entries(job, kind))

    def _entries(self, job: BatchJob, kind: str) -> Iterator[tuple[str, bytes]]:
        rows, start = [], 1
        while page := self._jobs.lines(job.id, start, 200):
            for line in page:
                entry, row = self.entry(line, job.total, kind)
                rows.append(row)
                if entry is not None:
                    yield entry
            start = page[-1].n + 1
        yield self.manifest(job, rows)

    def entry(
        self, line: Line, total: int, kind: str = "wav"
    ) -> tuple[tuple[str, bytes] | None, dict]:
        """A line's file, if it has one, and its row of the manifest.

        One that cannot be written as `kind` is WAV, and its row says why.
        """
        name, data, problem = "", None, ""
        if line.state == "done":
            with suppress(FileNotFoundError, NotFound):
                path = self._sounds.path(line.key)
                ending, data, problem = in_format(path, kind)
                data = path.read_bytes() if data is None else data
                name = file_name(line, total, ending)
        row = {
            "line": line.n,
            "text": line.text,
            "voice": line.voice,
            "seed": line.seed,
            "model": line.model,
            "state": line.state,
            "file": name if data else None,
            "engine": line.engine or None,
            "seconds": round(line.samples / line.rate, 3) if line.rate else None,
            "segments": [
                {"spoken_text": text, "start_s": round(start / line.rate, 3)}
                for text, start in line.segments
            ],
            "attempts": line.attempts,
            "notes": [en for en, _ in line.notes],
            "error": {
                "code": line.code,
                "message": line.error,
                "sentences": {"en": line.error, "zh": line.error_zh},
            }
            if line.code
            else None,
            **({"format_error": problem} if problem else {}),
        }
        return ((name, data) if data else None), row

    def manifest(self, job: BatchJob, rows: list[dict]) -> tuple[str, bytes]:
        head = json.dumps(
            {"id": job.id, "name": job.name, "seed": job.seed, "total": job.total},
            ensure_ascii=False,
        )
        lines = ",\n ".join(json.dumps(row, ensure_ascii=False) for row in rows)
        return "manifest.json", f'{head[:-1]}, "lines": [\n {lines}\n]}}\n'.encode()

    # ---- change ----------------------------------------------------------------------------------
    def cancel(self, owner: str, job_id: str) -> BatchJob:
        """What is not made stays unmade, within one step of the engine. Idempotent."""
        job = self.get(owner, job_id)
        self._jobs.cancel(job.id)
        self.worker.halt(job.id)
        return self.get(owner, job_id)

    def cancel_all(self, account: str) -> None:
        """Of an account that nobody can come in by any more."""
        for job_id in self._jobs.unfinished_ids(account):
            self._jobs.cancel(job_id)
            self.worker.halt(job_id)

    def resume(self, owner: str, job_id: str) -> BatchJob:
        """A cancelled or paused job goes on where it was.

        Raises StorageFull when there is still no room, Busy as `submit` does.
        """
        job = self.get(owner, job_id)
        with self.worker.state_lock:
            self._jobs.resume(job.id, self.worker.queue.n_running(job.id))
            self.worker.queue.add(job.id, job.account)
        return self.get(owner, job_id)

    def retry(self, owner: str, job_id: str, n: int | None = None) -> BatchJob:
        """Failed lines, or the one, once more."""
        job = self.get(owner, job_id)
        if self._jobs.retry(job.id, n):
            self.worker.queue.add(job.id, job.account)
        return self.get(owner, job_id)

    def delete(self, owner: str, job_id: str) -> None:
        """The job, its lines, and every sound that no other line has.

        Raises StorageFull, Busy: then it is cancelled and still listed.
        """
        self._delete(self.get(owner, job_id).id)

    def _delete(self, job_id: str) -> None:
        self._jobs.cancel(job_id)
        self.worker.halt(job_id)
        self.worker.synthesiser.drop(job_id)

    def sweep(self, seconds: float) -> None:
        """Jobs that have been over for as long as takes are kept go, counted in the studio's own
        running time. `seconds`: since the last sweep.
        """
        self.worker.synthesiser.purge()
        for job_id in self._jobs.aged(seconds, self.keep_days * DAY_S):
            try:
                self._delete(job_id)
            except KaikouError as error:
                log.warning("job %s could not be removed yet: %s", job_id, error)

    # ---- with the studio -------------------------------------------------------------------------
    def start(self) -> None:
        self.worker.start()

    def close(self) -> None:
        self.worker.close()
        self._jobs.close()


def _line(n: int, ask: LineRequest, job_seed: int, counts: Counter[tuple]) -> Line:
    """Checked as speech is.

    Its seed comes from the job's and from what it says, so that lines added around it leave it as
    it is.
    """
    if ask.mode not in ("auto", *MODES) or ask.mode == CONVERT:
        raise BadInput("bad_mode.or_auto", mode=ask.mode[:40], modes=MODES, param="mode")
    content = (ask.text, ask.voice, ask.mode, ask.instruction)
    counts[content] += 1
    if ask.seed is None or ask.seed == -1:
        seed_input = json.dumps([job_seed, *content, counts[content]], ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        seed = int.from_bytes(hashlib.sha256(seed_input).digest()[:4]) >> 1
    else:
        seed = ask.seed
    language = known_language(ask.language)
    SpeechRequest(
        "line",
        ask.text,
        ask.voice,
        instruction=ask.instruction,
        language=language,
        speed=ask.speed,
        seed=seed,
    )  # raises BadInput
    return Line(
        n,
        ask.text,
        ask.voice,
        ask.mode,
        ask.instruction,
        language,
        ask.speed,
        seed,
        model=ask.model,
    )


def file_name(line: Line, total: int, kind: str = "wav") -> str:
    """0007_first-words.wav: in order, and safe on every file system."""
    words = re.sub(r"[^\w-]+", "-", line.text)[:24].strip("-_") or "line"
    return f"{line.n:0{max(4, len(str(total)))}d}_{words}.{kind}"
