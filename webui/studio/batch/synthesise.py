"""Makes the sound of one batch line, through the same way as a listener's, and sees to it that it
is on the disk before it is marked.

Blind to whose turn it is, and to what becomes of a line that fails.
"""

from __future__ import annotations

import hashlib
import json
import threading
import wave
from dataclasses import dataclass, field

from ... import audio
from ...errors import Cancelled, EngineFault
from ...store import BlobStore, JobStore, Line
from ..background import Background
from ..job_runner import JobRunner, PreparedJob


@dataclass
class LineTask:
    """A line that is being made."""

    line: Line
    account: str
    ready: PreparedJob | None = None
    is_cancelled: bool = False
    turn: int = 0  # which one it was of all turns
    woken: threading.Event = field(default_factory=threading.Event)  # there is news of it

    @property
    def key(self) -> tuple[str, int]:
        return self.line.job, self.line.n


class LineSynthesiser:
    """Thread-safe. `label`: what the files say of themselves."""

    def __init__(
        self,
        jobs: JobStore,
        sounds: BlobStore,
        background: Background,
        job_runner: JobRunner,
        label: str,
    ):
        self._jobs, self._sounds, self._background, self._job_runner, self._label = (
            jobs,
            sounds,
            background,
            job_runner,
            label,
        )
        self._change = threading.Condition()
        self._keys: set[str] = set()  # of sounds that are being made
        self._saving = (
            threading.Lock()
        )  # a sound and its mark go together, one line after the other
        self._closing = False
        self.n_made = self.n_cached = 0

    def make(self, task: LineTask) -> bool:
        """When this returns the line's sound is on the disk and marked; True when it was made now
        and not long ago. Raises what is wrong with it.
        """
        line = task.line
        ready = self._background.job(
            f"{task.account}/batch",
            text_in=line.text,
            voice_id=line.voice,
            mode=line.mode,
            instruction=line.instruction,
            language=line.language,
            speed=line.speed,
            seed=line.seed,
            model=line.model,
        )
        try:
            task.ready = ready
            key = sound_key(task.account, ready)
            self._alone_with(key, task)
            try:
                return self._bring(task, key)
            finally:
                with self._change:
                    self._keys.discard(key)
                    self._change.notify_all()
        finally:
            self._background.end(ready)

    def cancel(self, task: LineTask) -> None:
        """It ends with Cancelled, within one step of the engine."""
        task.is_cancelled = True
        if task.ready is not None:
            self._job_runner.cancel(task.ready.job)
        task.woken.set()
        with self._change:
            self._change.notify_all()

    def drop(self, job_id: str) -> None:
        """The job and the sounds that only it has, or nothing of it.

        Nothing is saved meanwhile. Raises StorageFull, Busy.
        """
        with self._saving, self._sounds.dropping(self._jobs.own_keys(job_id)):
            self._jobs.delete(job_id)

    def purge(self) -> None:
        """Take away what is left of dropped sounds."""
        with self._saving:
            self._sounds.purge()

    def close(self) -> None:
        """Lines in the air need not wait for the engine any more once they are grounded."""
        self._closing = True

    def _alone_with(self, key: str, task: LineTask) -> None:
        """Two lines that want the same sound: the second waits, and finds it."""
        with self._change:
            self._change.wait_for(lambda: key not in self._keys or task.is_cancelled)
            if task.is_cancelled:
                raise Cancelled()
            self._keys.add(key)

    def _bring(self, task: LineTask, key: str) -> bool:
        line, job = task.line, task.ready.job
        engine = f"{job.engine} {job.engine_version}"
        with self._saving:
            if self._sounds.has(key):
                self.n_cached += 1  # before anybody can see the line done
                with wave.open(str(self._sounds.path(key))) as wav:
                    self._jobs.mark_done(
                        line, key, wav.getnframes(), wav.getframerate(), engine, job.notes
                    )
                return False
        pcm = self._synthesise(task)
        segments = [(job.request.segments[i], start) for i, start in job.snapshot().marks]
        data = audio.wav_header(job.rate, len(pcm) // 2, self._label) + pcm
        with self._saving:
            self._sounds.keep(key, data)
            if not self._jobs.mark_done(
                line, key, len(pcm) // 2, job.rate, engine, job.notes, segments
            ) and not self._jobs.is_used(key):
                with self._sounds.dropping([key]):  # the job was deleted meanwhile
                    pass
            self.n_made += 1
        return True

    def _synthesise(self, task: LineTask) -> bytes:
        """s16le samples of the whole line."""
        job = task.ready.job
        job.listen(task.woken.set)
        try:
            self._background.begin(task.ready)
            while (snapshot := job.snapshot()).state not in (
                "saving",
                "done",
            ) and snapshot.error is None:
                if self._closing:
                    # an engine that is stuck must not keep the studio from ending
                    raise Cancelled()
                task.woken.wait()
                task.woken.clear()
        finally:
            job.listen(None)
            self._job_runner.reader_done(job)
        if snapshot.error is not None:
            raise snapshot.error
        if not snapshot.n_samples:
            raise EngineFault()
        return job.pcm(0, snapshot.n_samples)


def sound_key(account: str, ready: PreparedJob) -> str:
    """Everything that the sound of a line is made from, as one hash: what has the same need not be
    made again.
    """
    job, request = ready.job, ready.job.request
    made_from = [
        account,
        job.engine,
        job.engine_version,
        ready.prompt.fingerprint,
        request.text,
        request.segments,
        request.mode,
        request.instruction,
        request.language,
        request.transcript,
        request.speed,
        job.tempo,
        request.seed,
    ]
    return hashlib.sha256(
        json.dumps(made_from, ensure_ascii=False).encode("utf-8", "surrogatepass")
    ).hexdigest()
