"""Fetching a model: only what is missing, taken up where it broke off, given up after bounded tries, stopped at will, on a disk that is full."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from tests.conftest import ROOT
from tests.unit.model_origin import BIG, SMALL, NoWait, fetcher, files, is_whole, model
from webui.errors import Busy, Cancelled, NotReady, StorageFull
from webui.store import models as store
from webui.store.models import ModelFetcher


def test_brings_what_is_missing_and_only_that(origin, tmp_path):
    seen = []
    fetcher(origin, tmp_path).fetch(seen.append)
    assert is_whole(tmp_path) and fetcher(origin, tmp_path).plan().is_complete
    done = [p.done for p in seen]
    assert done == sorted(done) and done[-1] == seen[-1].total == len(BIG) + len(SMALL)
    asked = len(origin.asked)
    fetcher(origin, tmp_path).fetch()
    assert len(origin.asked) == asked
    (tmp_path / "model.yaml").unlink()
    assert [s.path for s in fetcher(origin, tmp_path).plan().missing] == ["model.yaml"]
    fetcher(origin, tmp_path).fetch()
    assert len(origin.asked) == asked + 1 and is_whole(tmp_path)


def test_a_broken_connection_is_taken_up_where_it_ended(origin, tmp_path):
    origin.cuts = [1_500_000, 1_000_000]
    waits = NoWait()
    fetcher(origin, tmp_path).fetch(cancelled=waits)
    assert is_whole(tmp_path)
    assert origin.ranges_asked("big.pt") == [None, "bytes=1500000-", "bytes=2500000-"]
    assert waits.waits == [1.0, 2.0], (
        "a try that brought a megabyte starts the count again, one that brought less does not"
    )


def test_gives_up_after_bounded_tries_and_a_later_run_resumes(origin, tmp_path):
    origin.cuts = [2_000_000] + [0] * 20
    waits = NoWait()
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path).fetch(cancelled=waits)
    assert "part/big.pt" in fault.value.en and fault.value.code == "model_fetch"
    assert len(origin.ranges_asked("big.pt")) == 6 and waits.waits == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert (tmp_path / "part/big.pt.part").stat().st_size == 2_000_000 and not (
        tmp_path / "part/big.pt"
    ).exists()
    assert fetcher(origin, tmp_path).plan().bytes == len(BIG) - 2_000_000
    origin.cuts = []
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt")[-1] == "bytes=2000000-"


def test_a_server_without_ranges_sends_it_all_again(origin, tmp_path):
    origin.cuts, origin.ranges = [1_500_000], False
    fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert is_whole(tmp_path)


def test_a_finished_part_needs_no_request(origin, tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part/big.pt.part").write_bytes(BIG)
    (tmp_path / "part/big.pt.part.json").write_text(
        json.dumps({"size": len(BIG), "tag": "", "url": ""})
    )
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == []


def test_the_disk_is_looked_at_before_the_first_request(origin, tmp_path):
    with pytest.raises(StorageFull) as fault:
        fetcher(origin, tmp_path, free=store.ROOM_BYTES + 1000).fetch()
    assert (
        fault.value.code == "no_disk"
        and "GB" in fault.value.en
        and "GB" in fault.value.zh
        and origin.asked == []
    )
    fetcher(origin, tmp_path, free=store.ROOM_BYTES + len(BIG) + len(SMALL)).fetch()
    assert is_whole(tmp_path)


def test_a_disk_that_fills_up_on_the_way(origin, tmp_path):
    code = (
        "import resource, signal, sys; from pathlib import Path; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from tests.unit.model_origin import ModelFetcher, model; from webui.errors import StorageFull\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
        "try: ModelFetcher(Path(sys.argv[1]), sys.argv[2], model()).fetch()\n"
        "except StorageFull as fault: print(fault.en)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), origin.url],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert told.stdout.startswith("The disk is full: part/big.pt"), told.stderr
    assert 0 < (tmp_path / "part/big.pt.part").stat().st_size <= 1_000_000, (
        "what is there stays for the next time"
    )


def test_cancelled_in_a_file_and_taken_up_again(origin, tmp_path):
    stop = threading.Event()
    with pytest.raises(Cancelled):
        fetcher(origin, tmp_path).fetch(lambda p: stop.set() if p.done > 1_000_000 else None, stop)
    kept = (tmp_path / "part/big.pt.part").stat().st_size
    assert 0 < kept < len(BIG)
    fetcher(origin, tmp_path).fetch()
    assert is_whole(tmp_path) and origin.ranges_asked("big.pt") == [None, f"bytes={kept}-"]


def test_cancelled_while_it_waits_for_the_server(origin, tmp_path):
    stop = threading.Event()

    class Stopping(NoWait):
        def wait(self, timeout=None):
            self.set()
            return True

    origin.status = [503] * 9
    with pytest.raises(Cancelled):
        fetcher(origin, tmp_path).fetch(cancelled=Stopping())
    assert len(origin.asked) == 1 and not stop.is_set()


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (500, 6), (429, 6)])
def test_refusals_are_told_and_passing_ones_tried_again(origin, tmp_path, status, requests):
    origin.status = [status] * 20
    with pytest.raises(NotReady) as fault:
        fetcher(origin, tmp_path).fetch(cancelled=NoWait())
    assert (
        str(status) in fault.value.en
        and str(status) in fault.value.zh
        and len(origin.asked) == requests
        and files(tmp_path) == set()
    )


def test_nobody_at_the_address(tmp_path):
    with pytest.raises(NotReady):
        ModelFetcher(tmp_path, "http://127.0.0.1:9/x", model(), free_bytes=lambda p: 10**12).fetch(
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
