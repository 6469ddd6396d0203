"""Batches and the disk: one that fills pauses a job with its name, and what it then met late, or at
that moment, stops nothing that goes on.
"""

from __future__ import annotations

import threading
import time

import pytest

from tests.unit import batch_desk
from tests.unit.batch_desk import ME, asks, lines, until
from webui.errors import EngineFault, NotFound, StorageFull
from webui.store import BlobStore
from webui.store.blob_store import Disk

engine, studio = batch_desk.engine, batch_desk.studio


class FullDisk(Disk):
    is_full = False
    gate = threading.Event()
    gate.set()

    def sync(self, path):
        if self.is_full:
            self.gate.wait(10)
            raise OSError(28, "No space left on device")
        super().sync(path)


def test_a_disk_that_fills_pauses_the_job_with_its_name(studio, engine):
    disk = FullDisk()
    studio.batch._sounds._disk = disk
    job = studio.batch.submit(ME, asks(2))
    until(studio, job, "done")
    disk.is_full = True
    full = studio.batch.submit(ME, asks(4, start=10))
    job_row = until(studio, full, "paused")
    assert (job_row.code, job_row.lines.get("failed")) == ("storage", None)
    end = time.monotonic() + 30  # the line beside it may still be at its file
    while list(studio.settings.paths.data_dir.glob("sounds/*/.new*")):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert len(list(studio.settings.paths.data_dir.glob("sounds/*/*.wav"))) == 2
    disk.is_full = False
    studio.batch.resume(ME, full.id)
    job_row = until(studio, full, "done")
    assert job_row.lines == {"done": 4} and all(x.attempts == 0 for x in lines(studio, full))


def test_a_line_that_met_the_full_disk_before_it_was_cleared_does_not_stop_the_job_again(
    studio, engine
):
    disk, engine.gate = FullDisk(), threading.Event()
    studio.batch._sounds._disk = disk
    job = studio.batch.submit(ME, asks(3))
    while len(engine.texts) < 2:
        time.sleep(0.01)
    disk.is_full, disk.gate = True, threading.Event()
    engine.gate.set()
    studio.batch.resume(ME, job.id)  # somebody made room meanwhile
    disk.gate.set()
    disk.is_full = False
    assert until(studio, job, "done").lines == {"done": 3}


def test_a_job_let_go_on_at_the_moment_it_is_stopped_goes_on(studio, monkeypatch):
    disk, pause, waiting = FullDisk(), studio.batch._jobs.pause, []
    studio.batch._sounds._disk = disk
    disk.is_full = True

    def slow(job_id, error):
        if not waiting:  # it is found that the job must stop; that is not yet written down
            disk.is_full = False
            waiting.append(threading.Thread(target=studio.batch.resume, args=(ME, job_id)))
            waiting[0].start()
            waiting[0].join(0.5)  # as long as it wants to wait; nothing hangs on how long that is
        pause(job_id, error)

    monkeypatch.setattr(studio.batch._jobs, "pause", slow)
    job = studio.batch.submit(ME, asks(3))
    assert until(studio, job, "done").lines == {"done": 3} and waiting
    waiting[0].join()


@pytest.mark.parametrize("requests", ["claim", "claim_again"])
def test_a_claim_that_met_the_full_disk_before_it_was_cleared_does_not_stop_the_job(
    studio, engine, monkeypatch, requests
):
    engine.faults["Line 2."] = [EngineFault()]  # which is claimed again
    store, calls = studio.batch._jobs, []
    claim = getattr(store, requests)

    def full(job_id, *more):
        if calls:
            return claim(job_id, *more)
        calls.append(1)
        studio.batch.resume(ME, job_id)  # somebody made room, and the error is still on its way
        raise StorageFull()

    monkeypatch.setattr(store, requests, full)
    job = studio.batch.submit(ME, asks(3))
    assert until(studio, job, "done").lines == {"done": 3} and calls


def test_a_pause_that_cannot_be_written_down_is_known_all_the_same(studio, monkeypatch):
    job = studio.batch.submit(ME, asks(1))
    until(studio, job, "done")

    def full(*_, **__):
        raise StorageFull()

    store = studio.batch._jobs
    broken = studio.batch.submit(ME, asks(3, start=20, instruction="seconds=0.4 rtf=0.5"))
    for name in ("claim", "mark_done", "pause", "release", "tried"):
        monkeypatch.setattr(store, name, full)
    assert until(studio, broken, "paused").code == "storage"
    monkeypatch.undo()
    studio.batch.resume(ME, broken.id)
    assert until(studio, broken, "done").lines == {"done": 3}


def test_a_sound_is_whole_or_not_there(tmp_path):
    class Breaks(Disk):
        def move(self, draft, final):
            raise OSError(5, "Input/output error")

    key, sounds = "a" * 64, BlobStore(tmp_path, Breaks())
    with pytest.raises(StorageFull):
        sounds.keep(key, b"x" * 10)
    assert not sounds.has(key) and not list(tmp_path.rglob(".new-*"))
    with pytest.raises(NotFound):
        sounds.path("../../etc/passwd")
