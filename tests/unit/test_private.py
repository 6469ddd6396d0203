"""The data folder is for the user who runs the studio alone: what is made in it, and what an older
studio left open.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.test_http import clip
from tests.conftest import ROOT
from tests.engine.fake import FakeEngine
from tests.unit.batch_desk import asks, until
from tests.unit.test_studio import ME, speak
from webui.api.auth import Sessions
from webui.settings import Paths, Server, Settings
from webui.store import TakeStore
from webui.store.model_dirs import remember
from webui.studio import Studio


@pytest.fixture
def loose_umask():
    """The worst that a process may be started with."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(root: Path) -> dict[str, str]:
    """Everything from `root` on down that group or others may use, links left out."""
    every = [root, *root.rglob("*")]
    return {
        str(p.relative_to(root)): oct(stat.S_IMODE(p.lstat().st_mode))
        for p in every
        if not p.is_symlink() and p.lstat().st_mode & 0o077
    }


def studio_at(data: Path) -> Studio:
    studio = Studio(Settings(paths=replace(Paths(), data_dir=data)))
    studio.start(FakeEngine).join(20)
    return studio


def test_after_a_full_day_nothing_in_the_data_folder_is_open_to_others(tmp_path, loose_umask):
    data = tmp_path / "new" / "data"
    studio = studio_at(data)
    try:
        Sessions(data, Server(), studio.keys, studio.logins)
        consent = studio.consents.add(ME, clip(4), "Lin", "en")
        voice, _ = studio.voices.add(ME, clip(5), "Lin", consent=consent.id)
        assert speak(studio, voice_id=voice.id)[1].state == "done"
        until(studio, studio.batch.submit(ME, asks(2)), "done")
        studio.pronunciations.put(ME, "GPU", "G P U")
        studio.keys.create(ME, "robot")
        studio.share_links.create(ME, voice.id, "Lin", {})
        studio.takes.keep(ME, 1)
        studio.usage.count_request("key-1")
        studio.usage.write()
        remember(data, "CosyVoice2-0.5B")
        during = open_to_others(data)
    finally:
        studio.close()
    names = {p.relative_to(data).parts[0].partition(".")[0] for p in data.rglob("*")}
    assert {"voices", "takes", "consents", "sounds", "jobs", "access", "secret", "model"} <= names
    assert list(data.rglob("*.prompt")), "what is made in the background is there too"
    assert during == open_to_others(data) == {}


def test_a_script_makes_its_files_as_closed_as_the_studio_does(tmp_path):
    data = tmp_path / "data"
    data.mkdir(0o755)
    for name in ("create", "list"):
        more = ["--name", "robot"] if name == "create" else []
        subprocess.run(
            [sys.executable, "scripts/keys.py", "--data-dir", str(data), name, *more],
            cwd=ROOT,
            check=True,
            capture_output=True,
            umask=0,
        )
    assert (data / "access.sqlite").is_file() and open_to_others(data) == {}


@pytest.fixture
def old_tree(tmp_path):
    """As a studio before this one left it."""
    data = tmp_path / "data"
    for folder in ("takes/take-1", "voices/voice-1", "sounds/aa"):
        (data / folder).mkdir(parents=True)
    for name in ("takes/take-1/take.wav", "voices/voice-1/reference.wav", "access.sqlite-wal"):
        (data / name).write_bytes(b"x")
    (data / "sounds/aa/tool").write_bytes(b"x")
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.name == "tool" else 0o644)
    return data


def test_a_folder_that_lay_open_is_closed_at_the_start(old_tree, tmp_path):
    outside = tmp_path / "elsewhere.txt"
    outside.write_bytes(b"x")
    outside.chmod(0o644)
    (old_tree / "link").symlink_to(outside)
    Studio(Settings(paths=replace(Paths(), data_dir=old_tree))).close()
    assert open_to_others(old_tree) == {}
    assert stat.S_IMODE((old_tree / "sounds/aa/tool").stat().st_mode) == 0o700
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644, "what a link leads to is not ours"


@pytest.mark.parametrize("how", ["another's", "no modes"])
def test_a_folder_whose_modes_cannot_be_changed_is_used_with_one_line_in_the_log(
    old_tree, monkeypatch, caplog, how
):
    def chmod(path, mode, **_):
        if how == "another's":
            raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", chmod)
    monkeypatch.setattr(Path, "chmod", chmod)
    Studio(Settings(paths=replace(Paths(), data_dir=old_tree))).close()
    lines = [r for r in caplog.records if "other users" in r.getMessage()]
    assert len(lines) == 1 and lines[0].getMessage().startswith("11 entries")
    assert TakeStore(old_tree).folder.has("take-1", "take.wav")


def test_a_folder_that_users_share_is_not_taken_from_them(tmp_path, caplog):
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    Studio(Settings(paths=replace(Paths(), data_dir=shared))).close()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert sum("users share" in r.getMessage() for r in caplog.records) == 1
