"""The natural voice's weights on disk: assembled, checked, refused when they are not what they
should be. Small parts stand in for the real ones.
"""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from tests.conftest import ROOT
from webui.app import engine_makers
from webui.engine.natural import weights
from webui.errors import NotReady
from webui.settings import Settings

PARTS = (b"first part, ", b"second part")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two small packages in the place of the four; importing one fails the test."""
    for n, part in enumerate(PARTS):
        folder = tmp_path / "site" / f"small_part_{n}"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise AssertionError('imported')")
        (folder / "part.bin").write_bytes(part)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(weights, "SIZE_BYTES", len(b"".join(PARTS)))
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(b"".join(PARTS)).hexdigest())
    return ["small_part_0", "small_part_1"]


def refusal(code, folders, packages):
    with pytest.raises(NotReady) as error:
        weights.obtain(folders, packages)
    assert error.value.code == code and error.value.zh
    return error.value


def test_the_parts_become_one_file_and_no_draft_stays(packages, tmp_path):
    path = weights.obtain([tmp_path / "kept"], packages)
    assert path.read_bytes() == b"".join(PARTS)
    assert [p.name for p in path.parent.iterdir()] == [weights.FILE]
    assert weights.obtain([tmp_path / "kept"], ["absent"]) == path, "it needs its packages no more"


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1], lambda b: b.replace(b"p", b"q"), lambda b: b""]
)
def test_a_part_that_is_short_changed_or_empty_leaves_no_file(packages, tmp_path, change):
    part = tmp_path / "site" / "small_part_1" / "part.bin"
    part.write_bytes(change(part.read_bytes()))
    refusal("natural_damaged", [tmp_path / "kept"], packages)
    assert not list((tmp_path / "kept").iterdir())


def test_a_missing_part_is_named(packages, tmp_path):
    assert (
        "no-such-part"
        in refusal("natural_missing", [tmp_path], ["small_part_0", "no_such_part"]).en
    )
    (tmp_path / "site" / "small_part_1" / "part.bin").unlink()
    refusal("natural_missing", [tmp_path], packages)


def test_a_file_with_another_checksum_is_refused_by_name_and_left_alone(packages, tmp_path):
    path = weights.obtain([tmp_path / "kept"], packages)
    for wrong in (b"x" * weights.SIZE_BYTES, b"short"):
        path.write_bytes(wrong)
        assert str(path) in refusal("natural_damaged", [tmp_path / "kept"], packages).en
        assert path.read_bytes() == wrong


def test_the_checksum_is_read_once_for_each_identity_of_the_file(packages, tmp_path, monkeypatch):
    path = weights.obtain([tmp_path / "kept"], packages)
    n_read = []
    monkeypatch.setattr(
        weights, "blocks_of", lambda p: n_read.append(p) or iter([Path(p).read_bytes()])
    )
    weights.obtain([path.parent], packages)
    assert not n_read
    os.utime(path, ns=(1, 1))
    for _ in range(3):
        weights.obtain([path.parent], packages)
    assert n_read == [path]


def test_a_folder_that_cannot_be_written_leaves_it_to_the_next(packages, tmp_path):
    (tmp_path / "file").write_text("in the way")
    spare = tmp_path / "spare"
    assert weights.obtain([tmp_path / "file" / "below", spare], packages).parent == spare
    refusal("natural_storage", [tmp_path / "file" / "below"], packages)


def test_two_starts_at_once_write_one_whole_file(packages, tmp_path):
    """Both are in the middle of it at the same time."""
    barrier, paths = threading.Barrier(2), []

    def blocks():
        yield PARTS[0]
        barrier.wait(30)
        yield PARTS[1]
        barrier.wait(30)

    writers = [
        threading.Thread(target=lambda: paths.append(weights.write(blocks(), tmp_path / "kept")))
        for _ in range(2)
    ]
    [w.start() for w in writers]
    [w.join(30) for w in writers]
    assert paths == [tmp_path / "kept" / weights.FILE] * 2
    assert paths[0].read_bytes() == b"".join(PARTS)
    assert list(paths[0].parent.iterdir()) == [paths[0]]
    assert weights.obtain([paths[0].parent], ["absent"]) == paths[0]


def test_a_full_disk_leaves_no_half_file_and_says_so(packages, tmp_path, monkeypatch):
    def full(_):
        yield PARTS[0]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weights, "_blocks", full)
    assert "No space left" in refusal("natural_storage", [tmp_path / "kept"], packages).en
    assert not list((tmp_path / "kept").iterdir())


def test_the_file_is_kept_outside_the_packages():
    engine = engine_makers(Settings())[0]()
    try:
        folders = engine.natural._folders
        assert len(folders) == 2
        for folder in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()):
            assert not any(f.is_relative_to(folder) for f in folders)
    finally:
        engine.close()


def test_it_is_copied_from_a_folder_only_when_it_is_right(tmp_path):
    (tmp_path / "stick").mkdir()

    def command(folder):
        return [sys.executable, "scripts/fetch_models.py", "natural", "--dir", str(folder)]

    def script():
        return subprocess.run(
            [*command(tmp_path), "--source", str(tmp_path / "stick")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert script().returncode == 1
    (tmp_path / "stick" / weights.FILE).write_bytes(b"something else")
    refused = script()
    assert refused.returncode == 1 and "checksum" in refused.stderr and "校验和" in refused.stderr
    assert not list((tmp_path / "natural").iterdir())
    (tmp_path / "file").write_text("in the way")
    nowhere = subprocess.run(
        [*command(tmp_path / "file" / "below"), "--source", str(tmp_path / "stick")],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (
        nowhere.returncode == 1 and "Traceback" not in nowhere.stderr and "below" in nowhere.stderr
    )
    try:
        whole = weights.obtain([tmp_path / "whole"])
    except NotReady:
        pytest.skip("the packages of requirements-natural.txt are not installed")
    os.replace(whole, tmp_path / "stick" / weights.FILE)
    copied = script()
    assert copied.returncode == 0, copied.stderr
    assert (tmp_path / "natural" / weights.FILE).stat().st_size == weights.SIZE_BYTES
