"""A disk that really refuses: a file system with no room left, or a limit of the system on a file's
size. What came is kept, and the fetch goes on from there once there is room.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.unit.model_origin import BIG, NoWait, fetcher, is_whole
from webui.errors import StorageFull

ROOM = 1 << 20  # bytes: less than the file needs
CHILD = f"""
import json, resource, sys
from tests.unit.model_origin import *
from webui.errors import StorageFull
base, root, source = sys.argv[1:]
store.SOURCES["modelscope"] = ModelScope(base, ("127.0.0.1",))
store.SOURCES["hf-mirror"] = HuggingFace(base, ("127.0.0.1",))
resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))
fetch = ModelFetcher(Path(root), source or base + "/models/some", model(), lambda path: 10**12)
try:
    fetch.fetch(cancelled=NoWait())
except StorageFull as fault:
    print(json.dumps([fault.code, fault.en, fault.zh]))
"""


@pytest.fixture
def disk(tmp_path):
    """A file system of ROOM bytes, where this user may make one. grow(): now the file has room."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    if not mount(f"size={ROOM}"):
        pytest.skip("only root may make a file system")
    yield folder, lambda: mount("remount", f"size={16 * ROOM}")
    subprocess.run(["umount", "-l", str(folder)], check=True)


def n_bytes_fetched(root) -> int:
    return (root / "part" / "big.pt.incomplete").stat().st_size


def test_a_disk_without_room_keeps_what_came(origin, disk, source):
    folder, grow = disk
    root = folder / "model"
    with pytest.raises(StorageFull) as fault:
        fetcher(origin, root, source=source).fetch(cancelled=NoWait())
    assert fault.value.code == "storage"
    assert "disk is full" in fault.value.en and "磁盘已满" in fault.value.zh
    n_bytes = n_bytes_fetched(root)
    assert 0 < n_bytes < len(BIG)
    assert grow()
    n_requests = len(origin.ranges_asked("big.pt"))
    fetcher(origin, root, source=source).fetch(cancelled=NoWait())
    assert is_whole(root)
    assert origin.ranges_asked("big.pt")[n_requests].startswith(f"bytes={n_bytes}-")


def test_a_limit_on_a_files_size_is_a_full_disk(origin, tmp_path, source):
    run = subprocess.run(
        [sys.executable, "-c", CHILD, origin.base, str(tmp_path / "model"), source],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    code, en, zh = json.loads(run.stdout)
    assert code == "storage" and "disk is full" in en and "磁盘已满" in zh
    assert 0 < n_bytes_fetched(tmp_path / "model") <= ROOM
    fetcher(origin, tmp_path / "model", source=source).fetch(cancelled=NoWait())
    assert is_whole(tmp_path / "model")
    assert origin.ranges_asked("big.pt")[-1].startswith("bytes=")
