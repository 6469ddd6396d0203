"""Disk: whole entries or none, a full disk leaves nothing, ids never become paths."""

from __future__ import annotations

import errno
import gc
import json
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from webui.errors import NotFound, StorageFull
from webui.store import Folder, TakeStore, VoiceStore
from webui.types import Prompt, SpeechRequest, Take, Voice

REQUEST = SpeechRequest("take-1", "hello", "voice-1", seed=3, segments=("hello",))


def voice(n: int = 1, owner: str = "local") -> Voice:
    return Voice(f"voice-{n}", f"V{n}", "en", "", "fp", 4.0, float(n), owner=owner)


def take(n: int, owner: str = "local/a", at: float = 0.0, **kw) -> Take:
    return Take(
        f"take-{n}", REQUEST, owner, "V", "fake", "1", 24000, 10, at, peaks=(0.1, 0.2), **kw
    )


@pytest.mark.parametrize(
    "entry",
    ["../x", "voice-../x", "", "voice-", "VOICE-1", "voice-1/..", "voice-é", "a" * 99, "voice-1\n"],
)
def test_an_id_that_is_not_ours_is_not_found(tmp_path, entry):
    with pytest.raises(NotFound):
        Folder(tmp_path).path(entry)


@pytest.mark.parametrize("step", ["mkdir", "write_bytes", "replace"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, step):
    store = TakeStore(tmp_path)
    store.add(take(1), b"RIFF")
    before = sorted(p.name for p in tmp_path.rglob("*"))

    def full(*a, **k):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as m:
        (
            m.setattr("webui.store.folder_store.os.replace", full)
            if step == "replace"
            else m.setattr(Path, step, full)
        )
        with pytest.raises(StorageFull):
            store.add(take(2), b"RIFF")
        if step != "mkdir":
            with pytest.raises(StorageFull):
                store.change(store.get("take-1", "local/a"), starred=True)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before
    assert [t.id for t in TakeStore(tmp_path).list("local/a")] == ["take-1"] and not store.get(
        "take-1", "local/a"
    ).starred


def test_a_real_full_disk(tmp_path):
    """A file larger than the process may write: the kernel's own refusal, in a child process."""
    import subprocess
    import sys

    code = (
        "import resource,signal,sys; from pathlib import Path; signal.signal(signal.SIGXFSZ,"
        " signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\nfrom"
        " tests.unit.test_store import *\nstore = TakeStore(Path(sys.argv[1]))\ntry:"
        " store.add(take(1), b'x' * 100000)\nexcept StorageFull: print('full', [p.name for p in"
        " Path(sys.argv[1]).rglob('*')])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout.strip() == "full ['takes']", process.stderr


def test_takes_survive_a_restart_and_belong_to_their_visit(tmp_path):
    TakeStore(tmp_path).add(take(1), b"RIFF1")
    second_store = TakeStore(tmp_path)
    assert second_store.get("take-1", "local/a") == take(1)
    assert second_store.wav_path(take(1)).read_bytes() == b"RIFF1"
    with pytest.raises(NotFound):
        second_store.get("take-1", "local/b")


def test_a_take_keeps_why_another_voice_spoke_and_one_of_an_earlier_version_has_none(tmp_path):
    why = take(1, voice_notes=(("It has no dialects.", "不会方言。"),))
    store = TakeStore(tmp_path)
    store.add(why, b"RIFF")
    assert TakeStore(tmp_path).get("take-1", "local/a") == why
    file = next(tmp_path.rglob("take.json"))
    record = json.loads(file.read_text("utf-8"))
    del record["voice_notes"], record["request"]["voice_engine"]
    file.write_text(json.dumps(record), "utf-8")
    assert TakeStore(tmp_path).get("take-1", "local/a") == take(1)


def test_takes_of_the_same_moment_keep_their_order(tmp_path):
    """Pages are cut from it: an order of its own at each look would show some twice and others
    never.
    """
    store = TakeStore(tmp_path)
    for n in (3, 1, 4, 2):
        store.add(take(n, at=5.0), b"RIFF")
    store.add(take(9, at=6.0), b"RIFF")
    assert store.ids("local/a") == ["take-9", "take-1", "take-2", "take-3", "take-4"]
    assert [t.id for t in store.get_many(["take-2", "take-8", "take-1"])] == [
        "take-2",
        "take-1",
    ], "what is gone is left out"


def test_what_a_take_costs_in_memory_is_a_line_of_the_index(tmp_path, monkeypatch):
    """A studio used for weeks has more takes than anybody looks at: 5 KB for each was most of what
    it grew by.
    """
    monkeypatch.setattr("webui.store.takes.AT_HAND", 20)
    store = TakeStore(tmp_path)

    def fill(numbers):
        for n in numbers:
            store.add(
                replace(
                    take(n),
                    owner=f"local/{n % 10}",
                    peaks=tuple(random.Random(n).random() for _ in range(160)),
                ),
                b"RIFF",
            )
        gc.collect()
        # pathlib interns names: when the interpreter's table of those doubles (megabytes) is no
        # matter of takes
        pathlib_filter = tracemalloc.Filter(False, "*/pathlib.py")
        traces = tracemalloc.take_snapshot().filter_traces([pathlib_filter])
        return sum(s.size for s in traces.statistics("filename"))

    tracemalloc.start()
    try:
        before, after = fill(range(200)), fill(range(200, 1200))
    finally:
        tracemalloc.stop()
    assert (after - before) / 1000 < 1000, "bytes for each take"
    assert sum(len(store.list(f"local/{n}")) for n in range(10)) == 1200


def test_a_take_that_is_not_at_hand_is_found_changed_and_deleted_as_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("webui.store.takes.AT_HAND", 2)
    store = TakeStore(tmp_path)
    for n in range(1, 7):
        store.add(take(n, at=float(n)), b"RIFF")
    assert store.get("take-1", "local/a") == take(1, at=1.0) and len(store.list("local/a")) == 6
    with pytest.raises(NotFound):
        store.get("take-1", "local/b")
    assert store.change(take(1), starred=True).starred
    assert [store.get(f"take-{n}", "local/a").starred for n in (2, 3, 4, 1)] == [
        False,
        False,
        False,
        True,
    ]
    store.delete("take-2")
    assert store.sweep(lambda owner: 1e12, 2) == 3 and "take-1" in [
        t.id for t in store.list("local/a")
    ], "what is starred goes last"
    with pytest.raises(NotFound):
        store.get("take-2", "local/a")
    next(tmp_path.rglob("take-1/take.json")).unlink()
    store.get("take-6", "local/a")
    assert [t.id for t in TakeStore(tmp_path).list("local/a")] == ["take-6"]


def test_a_thousand_takes_have_their_peaks_in_common(tmp_path):
    """The index of takes is in memory: a float for each of 160 peaks was most of it."""

    def peak_ids(store):
        return {id(p) for t in store.list("local/a") for p in t.peaks}

    store = TakeStore(tmp_path)
    for n in range(10):
        store.add(
            replace(take(n), peaks=tuple(round(0.001 * (7 * n + i), 3) for i in range(160))),
            b"RIFF",
        )
    peaks_by_id = {t.id: t.peaks for t in store.list("local/a")}
    assert peaks_by_id["take-3"] == tuple(round(0.001 * (21 + i), 3) for i in range(160))
    second_store = TakeStore(tmp_path)
    assert {t.id: t.peaks for t in second_store.list("local/a")} == peaks_by_id
    assert peak_ids(store) == peak_ids(second_store) and len(peak_ids(store)) == 160 + 7 * 9


def test_what_a_killed_process_left_is_swept(tmp_path):
    (tmp_path / "takes" / ".new-1").mkdir(parents=True)
    (tmp_path / "takes" / "take-9").mkdir()
    (tmp_path / "takes" / "take-9" / "take.json").write_text("{broken")
    assert (
        TakeStore(tmp_path).list("local/a") == [] and not (tmp_path / "takes" / ".new-1").exists()
    )


def test_retention_by_age_and_number_keeps_starred_ones(tmp_path):
    store = TakeStore(tmp_path, clock=lambda: 1000.0)
    for n in range(1, 6):
        store.add(take(n, at=n * 100.0, starred=n == 1), b"")
    store.add(take(9, owner="local/b", at=999.0), b"")
    assert store.sweep(lambda owner: 750.0, 3) == 2
    assert [t.id for t in store.list("local/a")] == ["take-5", "take-4", "take-1"] and store.list(
        "local/b"
    )


def test_voices_prompts_and_what_is_left_after_delete(tmp_path):
    store = VoiceStore(tmp_path, tmp_path / "none")
    store.add(voice(), b"RIFF")
    prompt = Prompt("fake", "1", "fp", b"\n{binary}\n", ("note",))
    store.keep_prompt(voice(), prompt)
    second_store = VoiceStore(tmp_path, tmp_path / "none")
    assert second_store.load_prompt(second_store.get("voice-1", "local"), "fake", "1") == prompt
    assert second_store.load_prompt(voice(), "fake", "2") is None
    with pytest.raises(NotFound):
        second_store.get("voice-1", "user-bob")
    second_store.delete(voice())
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_foreign_folder_among_the_voices_is_ignored(tmp_path):
    (tmp_path / "voices" / "voice-2").mkdir(parents=True)
    (tmp_path / "voices" / "voice-2" / "voice.json").write_text(json.dumps({"id": 5}))
    (tmp_path / "voices" / "Holiday photos").mkdir()
    assert VoiceStore(tmp_path, tmp_path / "none").list("local") == []
