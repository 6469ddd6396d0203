"""What visitors chose for their takes holds after a restart, stays bounded, and housekeeping goes
on whatever a disk does.
"""

from __future__ import annotations

import threading

import pytest

from tests.unit.test_deletion import fault  # noqa: F401
from tests.unit.test_store import REQUEST, take
from webui.errors import NotAllowed, NotFound, StorageFull
from webui.settings import Paths, Settings
from webui.store import AccessStore, ChoiceStore, TakeStore
from webui.studio import Studio, choices, studio, usage
from webui.studio.choices import Choice, Choices
from webui.studio.takes import DAY_S, Takes
from webui.types import FOREVER_DAYS

ME, OTHER = "local/a", "local/b"


def takes_at(root, keep_days: int = 7, max_each: int = 200, **more) -> Takes:
    store = TakeStore(root, clock=lambda: 3 * DAY_S)
    return Takes(
        store, Choices(ChoiceStore(root), store.has_any), keep_days, max_each, "label", **more
    )


def test_choices_hold_after_a_restart(tmp_path):
    first = takes_at(tmp_path)
    first._store.add(take(1), b"RIFF")
    first._store.add(take(2, owner=OTHER), b"RIFF")
    first.keep(ME, 1), first.label(ME, False), first.notice(ME, True)
    # without `close`: the process is killed
    second = takes_at(tmp_path)
    assert second.days(ME) == 1 and second.days(OTHER) == 7
    assert second.label_for(ME) == "" and second.label_for(OTHER) == "label"
    assert len(second.with_notice(ME, REQUEST).segments) == 2
    assert second.with_notice(OTHER, REQUEST) is REQUEST
    assert second.sweep() == 1 and [t.id for t in second.list(OTHER)] == ["take-2"]
    second.label(ME, True), second.notice(ME, False)
    third = takes_at(tmp_path, keep_days=30)
    assert third.label_for(ME) == "label" and third.with_notice(ME, REQUEST) is REQUEST
    assert (third.days(ME), third.days(OTHER)) == (1, 30)
    third.keep(ME, 14)
    assert takes_at(tmp_path, keep_days=7).days(ME) == 7, "never longer than the studio keeps any"


def test_an_account_has_its_takes_and_its_term_in_every_browser(tmp_path):
    first, second = "user-bob/a", "user-bob/b"
    before = takes_at(tmp_path)
    for n, owner in enumerate((first, second, "user-ann/a"), 1):
        before._store.add(take(n, owner=owner), b"RIFF")
    before.keep(first, 1)  # in a visit, when each had takes of its own
    assert [t.id for t in before.list(second)] == ["take-2"]
    shared = takes_at(tmp_path, has_logins=lambda: True)
    assert [t.id for t in shared.list(first)] == [t.id for t in shared.list(second)]
    assert {t.id for t in shared.list(second)} == {"take-1", "take-2"}
    assert (shared.days(first), shared.days(second)) == (1, 7)
    assert shared.sweep() == 1 and [t.id for t in shared.list(first)] == ["take-2"], (
        "what was promised in that visit holds for what it made"
    )
    shared.keep(second, 30), shared.star(first, "take-2", True)
    assert (shared.days(first), shared.days(second), shared.days("user-ann/z")) == (7, 7, 7)
    storage = shared.storage(first)
    assert (storage["n_takes"], storage["n_bytes"], storage["is_account"]) == (
        1,
        2 * shared.get(first, "take-2").n_samples,
        True,
    )
    assert storage["free_bytes"] > 0
    with pytest.raises(NotFound):
        shared.get("user-ann/z", "take-2")
    shared.delete(second, "take-2")
    assert shared.storage(first)["n_takes"] == 0, "one that is deleted is not counted"
    shared.close()


def test_takes_stay_until_deleted_and_favourites_whatever_comes(tmp_path):
    takes = takes_at(tmp_path, FOREVER_DAYS, max_each=3)
    for n in range(1, 7):
        takes._store.add(take(n, at=-1e9 + n), b"RIFF")
    for n in (1, 2, 3):
        takes.star(ME, f"take-{n}", True)
    takes.star(ME, "take-3", True)
    with pytest.raises(NotAllowed, match="3 favourites"):
        takes.star(ME, "take-4", True)
    assert takes.sweep() == 3, "too many: the oldest without a star"
    assert [t.id for t in takes.list(ME)] == ["take-3", "take-2", "take-1"], "however old"
    takes._store.add(take(7, at=2.0), b"RIFF")
    assert takes.days(ME) == FOREVER_DAYS and takes.sweep() == 1


def test_a_page_that_says_its_choices_again_writes_nothing(tmp_path, monkeypatch):
    takes, writes = takes_at(tmp_path), []
    save = takes.choices._store.save
    monkeypatch.setattr(takes.choices._store, "save", lambda c: (writes.append(c), save(c)))
    for _ in range(5):
        takes.keep(ME, 1), takes.label(ME, True), takes.notice(ME, True)
    assert len(writes) == 2
    takes.sweep(), takes.close()
    assert len(writes) == 2


def test_choices_are_bounded_but_not_those_of_who_has_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "MAX_CHOICES", 20)
    takes = takes_at(tmp_path)
    for n in range(10):
        takes._store.add(take(n, owner=f"local/{n}"), b"RIFF")
    for n in range(200):
        takes.keep(f"local/{n}", 1)
    takes.label_for("local/190")  # used: others go before it
    for n in range(200, 209):
        takes.keep(f"local/{n}", 1)
    for now in (takes, takes_at(tmp_path)):
        owners = {owner for owner, choice in now.choices._choices.items() if choice.days == 1}
        assert owners == {f"local/{n}" for n in (*range(10), 190, *range(200, 209))}


def test_a_choice_that_cannot_be_written_holds_and_is_written_later(tmp_path, monkeypatch):
    takes = takes_at(tmp_path)

    def full(changes):
        raise StorageFull()

    with monkeypatch.context() as disk:
        disk.setattr(takes.choices._store, "save", full)
        takes.keep(ME, 1)
        assert takes.days(ME) == 1 and takes_at(tmp_path).days(ME) == 7
    takes.sweep()
    assert takes_at(tmp_path).days(ME) == 1


def test_a_damaged_file_of_choices_is_set_aside_and_what_is_known_written_anew(tmp_path):
    takes = takes_at(tmp_path)
    takes.keep(ME, 1)
    takes.choices._store.close()
    path = tmp_path / "choices.sqlite"
    path.write_bytes(b"no database " * 1000)
    takes.keep(OTHER, 0)
    assert [takes_at(tmp_path).days(o) for o in (ME, OTHER)] == [1, 0]
    assert list(tmp_path.glob("choices.damaged-*"))
    for tail in ("-wal", "-shm"):
        (tmp_path / f"choices.sqlite{tail}").unlink(missing_ok=True)
    path.write_bytes(b"no database " * 1000)
    assert takes_at(tmp_path).days(ME) == 7, "it starts all the same"


def test_many_choose_at_once_and_each_is_kept(tmp_path):
    takes, start = takes_at(tmp_path), threading.Barrier(8)

    def choose(n):
        start.wait()
        for k in range(10):
            takes.keep(f"local/{n}-{k}", 1), takes.notice(f"local/{n}-{k}", True)

    threads = [threading.Thread(target=choose, args=(n,)) for n in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert set(takes_at(tmp_path).choices._choices.values()) == {Choice(1, True, True)}
    assert len(takes_at(tmp_path).choices._choices) == 80


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), StorageFull(), ValueError()])
def test_housekeeping_outlives_whatever_it_meets(tmp_path, monkeypatch, error):
    monkeypatch.setattr(studio, "SWEEP_S", 0.01)
    own_studio = Studio(Settings(paths=Paths(data_dir=tmp_path, assets=tmp_path)))
    rounds = {name: threading.Semaphore(0) for name in ("takes", "batch", "voices", "consents")}
    for name, done in rounds.items():

        def sweep(*_, done=done):
            done.release()
            raise error

        monkeypatch.setattr(getattr(own_studio, name), "sweep", sweep)
    sweeping = threading.Thread(target=own_studio._sweep, daemon=True)
    sweeping.start()
    try:
        for done in rounds.values():
            for _ in range(3):
                assert done.acquire(timeout=20)
    finally:
        own_studio._closing.set()
        sweeping.join(20)
        monkeypatch.undo()
        own_studio.close()


def test_retention_goes_on_after_a_disk_fault(tmp_path, fault):  # noqa: F811
    """The whole way: one take's files cannot be moved in one round, and go in the next."""
    takes = takes_at(tmp_path)
    for n in (1, 2):
        takes._store.add(take(n), b"RIFF")
    takes.keep(ME, 1)
    fault("replace", lambda path, to: path.endswith("take-1"))
    assert takes.sweep() == 1
    fault.end()
    assert takes.sweep() == 1 and takes.list(ME) == []


def test_counting_use_outlives_whatever_the_disk_does(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "WRITE_S", 0.01)
    counts, failed, writes = usage.Usage(AccessStore(tmp_path)), [], threading.Event()
    add = counts._store.add_usage

    def once_in_vain(used):
        if not failed:
            failed.append(1)
            raise OSError(5, "Input/output error")
        add(used)
        writes.set()

    monkeypatch.setattr(counts._store, "add_usage", once_in_vain)
    counts.count_request("key-1")
    counts.start()
    assert writes.wait(20)
    counts.close()
    assert counts.of("key-1").requests == 1
