"""Where sounds go: whole or not there, once, and every failure by name."""

import errno
import os
import threading
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from webui.client.atomic_files import Unwritable
from webui.client.audio import Sound
from webui.client.errors import Broken
from webui.cluster.kafka import output as module
from webui.cluster.kafka.output import Folder, ObjectStore, StoreUnusable, open_output
from webui.errors import BadInput, StorageFull

KEY = "ab" * 16
HEAD = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\xc0\x5d\0\0\x80\xbb\0\0\x02\0\x10\0data\0\0\0\0"
SOUND = Sound(b"\1\0" * 24000, 24000, HEAD)


class FarFileSystem(MemoryFileSystem):
    """A store whose put may be seen half: what is written there is recorded."""

    protocol = "far"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]
    paths: ClassVar[list[str]] = []

    def pipe_file(self, path, value, **_):
        self.paths.append(path)
        super().pipe_file(path, value)


fsspec.register_implementation("far", FarFileSystem, clobber=True)


@pytest.fixture(params=["folder", "file", "memory", "far"])
def place(request, tmp_path):
    addresses = {"folder": str(tmp_path / "out"), "file": (tmp_path / "out").as_uri()}
    return open_output(addresses.get(request.param, f"{request.param}://bucket/{tmp_path.name}"))


def test_a_sound_is_stored_once_and_found(place):
    assert place.find(KEY) is None
    sound_file = place.keep(KEY, SOUND)
    assert sound_file.seconds == 1.0 and sound_file.n_bytes == len(SOUND.wav())
    assert sound_file.url.endswith(f"/ab/{KEY}.wav") and place.find(KEY) == sound_file
    with fsspec.open(sound_file.url) as f:
        assert f.read() == SOUND.wav()


def test_where_a_put_may_be_seen_half_the_sound_is_moved_into_its_place(tmp_path):
    FarFileSystem.paths.clear()
    store = open_output(f"far://bucket/{tmp_path.name}")
    store.keep(KEY, SOUND)
    [paths] = FarFileSystem.paths
    assert paths.endswith(".part") and store.find(KEY) is not None
    assert [p for p in store._fs.find(f"/bucket/{tmp_path.name}") if p.endswith(".part")] == []


def test_a_second_writer_waits_and_writes_nothing(tmp_path):
    folder, inodes = Folder(tmp_path), []
    threads = [threading.Thread(target=folder.keep, args=(KEY, SOUND)) for _ in range(8)]
    for thread in threads:
        thread.start()
        inodes += [path.stat().st_ino for path in tmp_path.rglob(f"{KEY}.wav")]
    for thread in threads:
        thread.join()
    inodes += [path.stat().st_ino for path in tmp_path.rglob(f"{KEY}.wav")]
    assert len(set(inodes)) == 1 and list(tmp_path.rglob(".*")) == []


def test_what_a_killed_consumer_left_half_is_written_over(tmp_path):
    part = tmp_path / "ab" / f".{KEY}.wav.part"
    part.parent.mkdir()
    part.write_bytes(b"x" * 100_000)
    assert Folder(tmp_path).keep(KEY, SOUND).n_bytes == len(SOUND.wav())
    assert list(tmp_path.rglob(".*")) == []


def test_the_name_is_synced_also_where_another_life_has_renamed(tmp_path, monkeypatch):
    Folder(tmp_path).keep(KEY, SOUND)
    synced = []
    monkeypatch.setattr(module, "sync_folder", synced.append)
    Folder(tmp_path).find(KEY)
    assert synced == [tmp_path / "ab"]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StorageFull), (errno.EIO, Unwritable)])
def test_a_disk_that_fails_is_named_and_leaves_nothing(tmp_path, monkeypatch, number, kind):
    def fail(fd):
        raise OSError(number, os.strerror(number))

    folder = Folder(tmp_path)
    monkeypatch.setattr(module.os, "fsync", fail)
    with pytest.raises(kind):
        folder.keep(KEY, SOUND)
    monkeypatch.undo()
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert folder.keep(KEY, SOUND).seconds == 1.0


def test_whatever_a_driver_raises_is_named():
    class Driver:
        protocol = "s3"

        def info(self, path):
            raise RuntimeError("SlowDown")

        pipe_file = info

    store = ObjectStore(Driver(), "bucket", "s3://bucket")
    for ask in (lambda: store.find(KEY), lambda: store.keep(KEY, None)):
        with pytest.raises(StoreUnusable, match=r"bucket/ab/.*"):
            ask()


def test_a_file_that_is_no_sound_is_never_announced(tmp_path):
    (tmp_path / "ab").mkdir()
    for content in (b"", b"RIFF", b"something else entirely"):
        (tmp_path / "ab" / f"{KEY}.wav").write_bytes(content)
        with pytest.raises(Broken):
            Folder(tmp_path).find(KEY)


@pytest.mark.parametrize("url", ["nosuchscheme://bucket", "s3://bucket"])
def test_a_scheme_without_a_driver_is_refused_with_its_reason(url, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(BadInput, match="--out") as refused:
        open_output(url)
    assert refused.value.code == "bad_setting"
