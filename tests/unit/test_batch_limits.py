"""What a batch may hold, how long it will take, how it ages and how it leaves as one file; with
clocks that can be set.
"""

from __future__ import annotations

import io
import time
import zipfile

import pytest

from tests.unit import batch_desk
from tests.unit.batch_desk import ME, OTHER, asks, until
from webui.errors import BadInput, Busy
from webui.studio import ZipStream
from webui.studio.batch.eta import EtaEstimator
from webui.studio.batch.service import MAX_OPEN_JOBS

engine, studio = batch_desk.engine, batch_desk.studio


def test_too_many_open_jobs_are_refused_and_leave_no_trace(studio, engine):
    engine.gate.clear()
    jobs = [studio.batch.submit(ME, asks(1, start=n)) for n in range(MAX_OPEN_JOBS)]
    with pytest.raises(Busy) as exc_info:
        studio.batch.submit(ME, asks(1, start=999))
    assert (
        exc_info.value.code == "too_many_jobs" and len(studio.batch.list(ME, 200)) == MAX_OPEN_JOBS
    )
    studio.batch.submit(OTHER, asks(1))
    for job in jobs:
        studio.batch.delete(ME, job.id)
    engine.gate.set()
    assert studio.batch.list(ME) == []


def test_ten_thousand_lines_are_taken_and_one_more_is_not(studio, engine):
    engine.gate.clear()
    job = studio.batch.submit(ME, asks(10_000))
    assert studio.batch.get(ME, job.id).total == 10_000
    studio.batch.cancel(ME, job.id)
    for count in (0, 10_001):
        with pytest.raises(BadInput) as exc_info:
            studio.batch.submit(ME, asks(1) * count)
        assert exc_info.value.code == ("no_lines" if not count else "too_many_lines")
    studio.batch.delete(ME, job.id)


def test_the_pace_is_that_of_the_last_lines_and_of_no_wall_clock(monkeypatch):
    now = [100.0]
    pace = EtaEstimator(lambda: now[0])
    assert pace.eta_s(50) is None
    for _ in range(40):
        now[0] += 2
        pace.add(10)
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert pace.eta_s(50) == pytest.approx(10)
    for _ in range(40):
        now[0] += 1
        pace.add(10)
    assert pace.eta_s(50) == pytest.approx(5)


def test_a_wall_clock_that_jumps_changes_nothing(studio, monkeypatch):
    monkeypatch.setattr(studio.batch._jobs, "_clock", lambda: -5.0)
    job = studio.batch.submit(ME, asks(3))
    monkeypatch.setattr(studio.batch._jobs, "_clock", lambda: 4e9)
    later = studio.batch.submit(ME, asks(3, start=5))
    assert until(studio, job, "done").lines == until(studio, later, "done").lines == {"done": 3}
    assert [j.id for j in studio.batch.list(ME)] == [later.id, job.id]
    studio.batch.sweep(600)
    assert len(studio.batch.list(ME)) == 2, "jobs age by the time the studio has run"
    studio.batch.sweep((studio.batch.keep_days + 1) * 86400)
    assert studio.batch.list(ME) == [] and not list(
        studio.settings.paths.data_dir.glob("sounds/*/*.wav")
    )


def test_a_zip_that_leaves_in_pieces_can_be_read_from_its_front():
    zip_stream = ZipStream()
    pieces = [zip_stream.add(f"{n}.wav", bytes([n]) * 1000 * n) for n in range(1, 5)] + [
        zip_stream.end()
    ]
    assert all(len(p) > 1000 for p in pieces[:4])
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as z:
        assert z.testzip() is None and [i.file_size for i in z.infolist()] == [
            1000,
            2000,
            3000,
            4000,
        ]
        assert not any(i.flag_bits & 8 for i in z.infolist()), "sizes stand in front of each entry"
    second_zip = ZipStream()
    assert [second_zip.add(f"{n}.wav", bytes([n]) * 1000 * n) for n in range(1, 5)] + [
        second_zip.end()
    ] == pieces
