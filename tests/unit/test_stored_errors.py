"""The error of a job that ended is read by whoever takes the job up again: each of them has an
object of its own to raise.
"""

from __future__ import annotations

import gc
import weakref

from tests.unit.test_lanes import job
from webui.errors import EngineFault, StorageFull
from webui.studio.batch.queue import BatchQueue


class Load:
    """What a frame that raised would keep alive."""


def failed(speech_job, load: Load) -> None:
    try:
        raise EngineFault()
    except EngineFault as error:
        speech_job.fail(error)


def test_readers_of_a_failed_job_raise_an_error_each():
    speech_job, load = job("a"), Load()
    pinned = weakref.ref(load)
    failed(speech_job, load)
    del load
    gc.collect()
    assert pinned() is None, "the frame in which the job failed is still kept"
    lengths = set()
    for _ in range(1000):
        try:
            raise speech_job.snapshot().error
        except EngineFault as error:
            length, at = 0, error.__traceback__
            while at is not None:
                length, at = length + 1, at.tb_next
            lengths.add(length)
    assert lengths == {1} and speech_job.snapshot().state == "failed"


def test_the_reason_why_a_batch_stopped_keeps_no_frame():
    roster = BatchQueue(lambda: 0.0)
    roster.add("job", "local")
    load = Load()
    pinned = weakref.ref(load)

    def stop(load: Load) -> None:
        try:
            raise StorageFull()
        except StorageFull as error:
            roster.stop("job", error, turn=9)

    stop(load)
    del load
    gc.collect()
    assert pinned() is None and roster.stopped("job").code == "storage"
