"""What is deleted is gone after a restart, and what cannot be deleted is told so, still listed and
whole.
"""

from __future__ import annotations

import errno
import os
import threading
from functools import partial

import pytest

from tests.api.test_http import clip
from tests.unit import batch_desk
from tests.unit.batch_desk import ME, asks, lines, until
from tests.unit.test_store import take, voice
from tests.unit.test_studio import speak
from webui.errors import NotFound, StorageFull
from webui.store import ConsentStore, JobStore, TakeStore, VoiceStore
from webui.types import Consent

engine, studio = batch_desk.engine, batch_desk.studio
CONSENT = Consent("consent-1", "Lin", "zh", 50.0, "local")


@pytest.fixture
def fault(monkeypatch):
    """fault(name, is_hit): the call `os.<name>` of a path for which `is_hit` says so fails, until
    `fault.end()`.
    """

    def begin(name, is_hit):
        real = getattr(os, name)

        def broken(path, *more, **how):
            if is_hit(*map(str, (path, *more))):
                raise OSError(errno.EIO, "Input/output error")
            return real(path, *more, **how)

        monkeypatch.setattr(os, name, broken)

    begin.end = monkeypatch.undo
    return begin


def voices(root):
    return VoiceStore(root, root / "none")


STORES = {
    "voice": (
        voices,
        lambda s: s.add(voice(), b"RIFF"),
        lambda s: s.delete(voice()),
        lambda s: s.list("local"),
        lambda s: s.reference(voice()),
    ),
    "consent": (
        ConsentStore,
        lambda s: s.add(CONSENT, b"RIFF"),
        lambda s: s.delete(CONSENT),
        lambda s: s.list("local"),
        lambda s: s.folder.read("consent-1", "recording.wav"),
    ),
    "take": (
        TakeStore,
        lambda s: s.add(take(1), b"RIFF"),
        lambda s: s.delete("take-1"),
        lambda s: s.list("local/a"),
        lambda s: s.wav_path(take(1)).read_bytes(),
    ),
}


@pytest.mark.parametrize("kind", STORES)
def test_what_cannot_be_removed_is_told_and_stays_listed_before_and_after_a_restart(
    tmp_path, fault, kind
):
    make, add, delete, listed, sound = STORES[kind]
    store = make(tmp_path)
    add(store)
    fault("replace", lambda path, to: "-1" in path)
    with pytest.raises(StorageFull) as exc_info:
        delete(store)
    assert exc_info.value.code == "storage_denied" and exc_info.value.zh
    assert listed(store) and sound(store) == b"RIFF", "it says it is there, and it is"
    assert listed(make(tmp_path)) == listed(store)
    fault.end()
    delete(store)
    assert listed(store) == listed(make(tmp_path)) == []


@pytest.mark.parametrize("kind", STORES)
def test_files_that_outlive_their_deletion_are_never_listed_and_go_later(tmp_path, fault, kind):
    make, add, delete, listed, _ = STORES[kind]
    store = make(tmp_path)
    add(store)
    fault("unlink", lambda path, *_: path.endswith((".wav", ".json")))
    delete(store)
    assert [p for p in tmp_path.rglob("*") if p.is_file()], "the fault was met"
    assert listed(store) == listed(make(tmp_path)) == []
    fault.end()
    store.sweep(lambda owner: 0.0, 1) if kind == "take" else store.purge()
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_what_is_left_of_a_deletion_goes_at_the_next_start(tmp_path, fault):
    for make, add, delete, *_ in STORES.values():
        store = make(tmp_path)
        add(store)
        fault("unlink", lambda path, *_: True)
        delete(store)
        fault.end()
        make(tmp_path)
    leftover_dir = tmp_path / "starters" / ".new-1"
    leftover_dir.mkdir(parents=True)
    voices(tmp_path)
    assert not leftover_dir.exists() and not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_one_take_that_cannot_be_removed_does_not_keep_the_others(tmp_path, fault):
    store = TakeStore(tmp_path, clock=lambda: 1e6)
    for n in (1, 2, 3):
        store.add(take(n), b"RIFF")
    fault("replace", lambda path, to: path.endswith("take-2"))
    assert store.sweep(lambda owner: 1.0, 9) == 2
    assert [t.id for t in store.list("local/a")] == ["take-2"]
    fault.end()
    assert store.sweep(lambda owner: 1.0, 9) == 1


@pytest.mark.parametrize("kind", ["voice", "consent"])
def test_a_change_that_is_under_way_when_it_is_deleted_brings_nothing_back(tmp_path, kind):
    make, add, delete, listed, _ = STORES[kind]
    store = make(tmp_path)
    add(store)
    put, deleting = store.folder.put, threading.Thread(target=delete, args=(store,))

    def slow(*args):
        put(*args)
        deleting.start()
        deleting.join(0.5)  # as long as it wants to wait; nothing hangs on how long that is

    store.folder.put = slow
    change = partial(store.change, voice(), name="New") if kind == "voice" else None
    (change or partial(store.rename, CONSENT, "New"))()
    deleting.join(20)
    assert listed(store) == listed(make(tmp_path)) == []
    with pytest.raises(NotFound):
        (change or partial(store.rename, CONSENT, "X"))()


def test_of_two_changes_of_a_voice_both_are_kept(tmp_path):
    store = voices(tmp_path)
    store.add(voice(), b"RIFF")
    store.change(voice(), name="New")
    assert store.change(voice(), transcript="words").name == "New"
    [now] = voices(tmp_path).list("local")
    assert (now.name, now.transcript) == ("New", "words")


# ---- with the studio -----------------------------------------------------------------------------
def sounds(studio) -> list:
    return sorted(p for p in (studio.settings.paths.data_dir / "sounds").rglob("*") if p.is_file())


def test_a_batch_goes_with_its_sounds_or_stays_with_all_of_them(studio, fault):
    job = studio.batch.submit(ME, asks(3))
    until(studio, job, "done")
    before, last = sounds(studio), lines(studio, job)[-1].key
    fault("replace", lambda path, to: last in path)
    with pytest.raises(StorageFull):
        studio.batch.delete(ME, job.id)
    assert sounds(studio) == before and studio.batch.get(ME, job.id).total == 3
    studio.batch.sweep(99 * 86400)  # told in the log, and tried again later
    assert sounds(studio) == before
    fault.end()
    fault("unlink", lambda path, *_: path.startswith(str(before[0].parents[1])))
    studio.batch.delete(ME, job.id)
    with pytest.raises(NotFound):
        studio.batch.get(ME, job.id)
    assert len(sounds(studio)) == 3 and not [p for p in sounds(studio) if p.suffix == ".wav"]
    fault.end()
    studio.batch.sweep(0)
    assert sounds(studio) == []


def test_a_batch_whose_rows_cannot_be_deleted_has_its_sounds_back(studio, monkeypatch):
    job = studio.batch.submit(ME, asks(2))
    until(studio, job, "done")
    before = sounds(studio)

    def full(job_id):
        raise StorageFull()

    monkeypatch.setattr(studio.batch._jobs, "delete", full)
    with pytest.raises(StorageFull):
        studio.batch.delete(ME, job.id)
    assert sounds(studio) == before and studio.batch.sound(ME, job.id, 1).is_file()


def test_a_sound_that_two_batches_have_stays_with_the_other(studio, tmp_path):
    first, other = (
        studio.batch.submit(ME, asks(2), seed=5),
        studio.batch.submit(ME, asks(3), seed=5),
    )
    until(studio, first, "done"), until(studio, other, "done")
    studio.batch.delete(ME, other.id)
    assert len(sounds(studio)) == 2 and studio.batch.sound(ME, first.id, 2).is_file()
    assert len(JobStore(tmp_path).own_keys(first.id)) == 2


def test_a_take_that_cannot_be_removed_is_listed_again_and_the_others_go(studio, fault):
    ids = [speak(studio)[0].id for _ in range(3)]
    for first in ids:
        studio.takes.delete(ME, first)
    fault("replace", lambda path, to: path.endswith(ids[0]))
    studio.takes.close()
    assert [t.id for t in studio.takes.list(ME)] == [ids[0]]


def test_a_restored_take_is_not_deleted_by_the_timer_that_was_already_on_its_way(studio):
    take_id = speak(studio)[0].id
    studio.takes.delete(ME, take_id)
    studio.takes.restore(ME, take_id)
    studio.takes._forget(take_id)
    assert studio.takes.get_visible(ME, take_id).id == take_id


def test_a_voice_that_cannot_be_removed_speaks_on(studio, fault):
    draft = studio.drafts.make(ME, clip(5))
    saved_voice = studio.drafts.save(ME, draft.id, "Lin", "", "me")
    fault("replace", lambda path, to: path.endswith(saved_voice.id))
    with pytest.raises(StorageFull):
        studio.voices.delete(ME, saved_voice.id)
    assert (
        saved_voice in studio.voices.list(ME)
        and speak(studio, voice_id=saved_voice.id)[1].state == "done"
    )
    assert studio.drafts.get(ME, draft.id), "nor did anything else of it go"
    fault.end()
    studio.voices.delete(ME, saved_voice.id)
    assert saved_voice not in studio.voices.list(ME)
