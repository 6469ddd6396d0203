"""Fetching a model from each kind of source: only what is missing, taken up where it broke off,
given up after bounded tries, stopped at will, on a disk that is full.
"""

from __future__ import annotations

import errno
import threading

import pytest

from tests.unit.model_origin import BIG, SMALL, NoWait, fetcher, files, is_whole, model
from webui.errors import Busy, Cancelled, NotReady, StorageFull
from webui.store import model_files as store
from webui.store import model_hub
from webui.store.model_files import ModelFetcher

UNFINISHED = "part/big.pt.incomplete"


def test_brings_what_is_missing_and_only_that(origin, tmp_path, source):
    progress = []
    fetcher(origin, tmp_path, source=source).fetch(progress.append)
    assert is_whole(tmp_path) and fetcher(origin, tmp_path).plan().is_complete
    done = [p.done for p in progress]
    assert done == sorted(done) and done[-1] == progress[-1].total == len(BIG) + len(SMALL)
    n_requests = len(origin.paths)
    fetcher(origin, tmp_path, source=source).fetch()
    assert len(origin.paths) == n_requests, "nobody is asked when everything is here"
    (tmp_path / "model.yaml").unlink()
    assert [s.path for s in fetcher(origin, tmp_path).plan().missing] == ["model.yaml"]
    fetcher(origin, tmp_path, source=source).fetch()
    assert is_whole(tmp_path) and len(origin.ranges_asked("big.pt")) == 1


def test_a_broken_connection_is_taken_up_where_it_ended(origin, tmp_path, source):
    origin.cuts = [1_500_000, 1_000_000]
    fetcher(origin, tmp_path, source=source).fetch(cancelled=NoWait())
    assert is_whole(tmp_path)
    first, *later = origin.ranges_asked("big.pt")
    starts = [int(range_header.removeprefix("bytes=").rstrip("-")) for range_header in later]
    assert first is None and len(starts) == 2
    for start, cut in zip(starts, (1_500_000, 2_500_000), strict=True):
        assert cut - 2 * model_hub.CHUNK_BYTES < start <= cut


def test_gives_up_after_bounded_tries_and_a_later_run_resumes(origin, tmp_path, source):
    origin.cuts = [2_000_000] + [0] * 40
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, source=source).fetch(cancelled=NoWait())
    assert "part/big.pt" in fault.value.en and fault.value.code == "model_fetch"
    assert 3 < len(origin.ranges_asked("big.pt")) < 20
    n_bytes = (tmp_path / UNFINISHED).stat().st_size
    assert 1_500_000 < n_bytes <= 2_000_000 and not (tmp_path / "part/big.pt").exists()
    assert fetcher(origin, tmp_path).plan().bytes == len(BIG) - n_bytes
    origin.cuts = []
    fetcher(origin, tmp_path, source=source).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt")[-1] == f"bytes={n_bytes}-"


def test_what_one_source_began_another_one_ends(origin, tmp_path):
    for source in ("hf-mirror", "modelscope"):
        stop = threading.Event()
        limit = {"hf-mirror": 1_000_000, "modelscope": 2_000_000}[source]
        with pytest.raises(Cancelled):
            fetcher(origin, tmp_path, source=source).fetch(
                lambda p, stop=stop, limit=limit: stop.set() if p.done > limit else None, stop
            )
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path)
    first, second, third = origin.ranges_asked("big.pt")
    assert (first, second[:6], third[:6]) == (None, "bytes=", "bytes=")


def test_a_server_without_ranges_sends_it_all_again(origin, tmp_path, source):
    origin.cuts, origin.ranges = [1_500_000], False
    fetcher(origin, tmp_path, source=source).fetch(cancelled=NoWait())
    assert is_whole(tmp_path)


@pytest.mark.parametrize("source", ["", "hf-mirror"])
def test_a_finished_part_needs_no_bytes(origin, tmp_path, source):
    (tmp_path / "part").mkdir()
    (tmp_path / UNFINISHED).write_bytes(BIG)
    fetcher(origin, tmp_path, source=source).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == []


def test_the_disk_is_looked_at_before_the_first_request(origin, tmp_path, source):
    with pytest.raises(StorageFull) as fault:
        fetcher(origin, tmp_path, free=store.ROOM_BYTES + 1000, source=source).fetch()
    assert (
        fault.value.code == "no_disk"
        and "GB" in fault.value.en
        and "GB" in fault.value.zh
        and origin.paths == []
    )
    free = store.ROOM_BYTES + len(BIG) + len(SMALL)
    fetcher(origin, tmp_path, free=free, source=source).fetch()
    assert is_whole(tmp_path)


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(errno.ENOSPC, "storage", "disk is full"), (errno.EACCES, "storage_denied", "rights")],
)
def test_a_disk_that_fills_up_on_the_way(origin, tmp_path, source, number, code, word):
    """Where a library writes, as the system would refuse it: after a megabyte, which stays for the
    next time.
    """

    def full(progress):
        if progress.done > 1_000_000:
            raise OSError(number, "no")

    with pytest.raises(StorageFull) as fault:
        fetcher(origin, tmp_path, source=source).fetch(full, NoWait())
    assert word in fault.value.en and "part/big.pt" in fault.value.zh
    assert fault.value.code == code and len(origin.ranges_asked("big.pt")) == 1
    assert 0 < (tmp_path / UNFINISHED).stat().st_size <= 1_000_000 + 2**20  # and a block
    fetcher(origin, tmp_path, source=source).fetch()
    assert is_whole(tmp_path)


def test_cancelled_in_a_file_and_taken_up_again(origin, tmp_path, source):
    stop = threading.Event()
    with pytest.raises(Cancelled):
        fetcher(origin, tmp_path, source=source).fetch(
            lambda p: stop.set() if p.done > 1_000_000 else None, stop
        )
    n_bytes = (tmp_path / UNFINISHED).stat().st_size
    assert 0 < n_bytes < len(BIG)
    fetcher(origin, tmp_path, source=source).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == [None, f"bytes={n_bytes}-"]


def test_cancelled_before_the_first_byte_asks_for_none(origin, tmp_path, source):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        fetcher(origin, tmp_path, source=source).fetch(cancelled=stop)
    assert [path for path, _ in origin.requests if "model.yaml" in path] == []


@pytest.mark.parametrize("status", [404, 403, 500, 429])
def test_refusals_are_told_and_tried_again_within_bounds(origin, tmp_path, source, status):
    origin.status = [status] * 60
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path, source=source).fetch(cancelled=NoWait())
    assert f"HTTP {status}" in fault.value.en and f"HTTP {status}" in fault.value.zh
    assert len(origin.paths) < 40 and files(tmp_path) == set()


def test_nobody_at_the_address(tmp_path, origin):
    with pytest.raises(NotReady):
        ModelFetcher(tmp_path, "http://127.0.0.1:9/x", model(), lambda p: 10**12).fetch(
            cancelled=NoWait()
        )


def test_one_fetch_at_a_time(origin, tmp_path):
    faults = []

    def second(progress):
        if not faults:
            try:
                fetcher(origin, tmp_path).fetch()
            except Busy as fault:
                faults.append(fault)

    fetcher(origin, tmp_path).fetch(second)
    assert len(faults) == 1 and is_whole(tmp_path)
