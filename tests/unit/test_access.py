"""Keys, links and their use below HTTP: what lies on the disk, what another process sees, what a
clock that jumps and a broken file change.
"""

from __future__ import annotations

import sqlite3
import threading

import pytest

from webui.errors import BadInput, Busy, KaikouError, NotAllowed, NotFound, StorageFull
from webui.store import AccessStore
from webui.studio.keys import Keys
from webui.studio.share_links import ShareLinks
from webui.studio.usage import Usage, billing_id

ME, OTHER = "local/visit", "user-bob/visit"


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path):
    store = AccessStore(tmp_path)
    yield store
    store.close()


# ---- keys ----------------------------------------------------------------------------------------
def test_a_key_is_random_and_only_its_hash_is_written(store, tmp_path):
    keys = Keys(store)
    new_keys = [keys.create(ME, "a", ["speak"]) for _ in range(50)]
    assert len({secret for _, secret in new_keys}) == 50 and all(
        len(secret) == 46 for _, secret in new_keys
    ), "256 bits in base 64, after kk_"
    data = b"".join(p.read_bytes() for p in tmp_path.iterdir())
    assert not any(secret[3:].encode() in data for _, secret in new_keys)
    assert (
        all(keys.find(secret) == key for key, secret in new_keys)
        and keys.find(new_keys[0][1][:-1]) is None
    )


def test_asking_makes_no_file_and_no_key_means_an_open_door(store, tmp_path):
    keys = Keys(store)
    assert (
        not keys.auth_required()
        and keys.find("x") is None
        and keys.list(ME) == []
        and list(tmp_path.iterdir()) == []
    )


def test_what_another_process_makes_and_revokes_counts_at_once(store, tmp_path):
    local_keys, other_keys = Keys(store), Keys(AccessStore(tmp_path))
    key, secret = other_keys.create(ME, "a")
    assert local_keys.find(secret) == key and local_keys.auth_required()
    other_keys.revoke(ME, key.id)
    assert (
        local_keys.find(secret) is None
        and local_keys.by_id(key.id) is None
        and not local_keys.auth_required()
    )


def test_only_who_made_a_key_can_revoke_it(store):
    keys = Keys(store)
    key, secret = keys.create(ME, "a")
    for owner, key_id in ((OTHER, key.id), (ME, "key-unknown")):
        with pytest.raises(NotFound):
            keys.revoke(owner, key_id)
    assert keys.find(secret) and keys.list(OTHER) == []


def test_a_key_acts_for_itself_and_an_admin_key_for_its_maker(store):
    keys = Keys(store, fixed=["f" * 64])
    plain, _ = keys.create(OTHER, "a", ["speak", "voices", "jobs"])
    boss, _ = keys.create(OTHER, "b", ["admin"])
    assert (
        plain.account_id == plain.id
        and boss.account_id == "user-bob"
        and keys.by_id("key-ffffffffffff").account_id == "key-ffffffffffff"
    )
    assert (
        billing_id(f"{plain.id}/api") == plain.id
        and billing_id(f"user-bob/{boss.id}") == boss.id
        and billing_id(OTHER) == ""
        and billing_id("demo-1/guest") == "demo-1"
    )


def test_a_damaged_file_of_keys_does_not_open_the_door(store, tmp_path):
    keys = Keys(store)
    _, secret = keys.create(ME, "a")
    store.close()
    path = tmp_path / "access.sqlite"
    for tail in ("-wal", "-shm"):
        (tmp_path / f"access.sqlite{tail}").unlink(missing_ok=True)
    path.write_bytes(b"not a database " * 1000)
    keys = Keys(AccessStore(tmp_path))
    assert keys.auth_required() and keys.find(secret) is None
    reloaded_keys = Keys(AccessStore(tmp_path))
    assert reloaded_keys.auth_required(), "after a restart neither"
    _, new = reloaded_keys.create(ME, "b")
    assert reloaded_keys.find(new) and [
        p for p in tmp_path.iterdir() if p.name.startswith("access.damaged-")
    ], "nothing of it is deleted"


def test_a_rate_is_a_bucket_of_its_own(store):
    keys = Keys(store)
    slow, fast = keys.create(ME, "a", per_minute=3)[0], keys.create(ME, "b", per_minute=60_000)[0]
    keys.count(slow)
    with pytest.raises(Busy) as busy:
        keys.count(slow)
    assert busy.value.code == "rate_limited" and 1 <= busy.value.retry_after_s <= 20
    for _ in range(1000):
        keys.count(fast)


def test_keys_of_an_account_are_bounded(store, monkeypatch):
    monkeypatch.setattr("webui.studio.keys.MAX_LIVE", 3)
    keys = Keys(store)
    new_keys = [keys.create(ME, "a")[0] for _ in range(3)]
    with pytest.raises(BadInput):
        keys.create(ME, "a")
    keys.create(OTHER, "a")
    keys.revoke(ME, new_keys[0].id)
    keys.create(ME, "a")


# ---- use -----------------------------------------------------------------------------------------
def test_use_is_counted_with_what_is_not_written_yet_and_kept(store, tmp_path):
    clock = Clock()
    usage = Usage(store, clock)
    (
        usage.count_request("key-1"),
        usage.spoke("key-1/api", 10, 1.5),
        usage.spoke("local/visit", 99, 9.0),
    )
    assert (
        usage.of("key-1").requests == 1
        and usage.of("key-1").chars == 10
        and usage.of("local").requests == 0
    )
    usage.write()
    clock.now += 5
    usage.count_request("key-1"), usage.spoke("local/key-1", 5, 0.5)
    assert (
        usage.of("key-1").requests,
        usage.of("key-1").chars,
        usage.of("key-1").sound_s,
        usage.of("key-1").last_used_at,
    ) == (2, 15, 2.0, clock.now)
    usage.close()
    assert Usage(AccessStore(tmp_path)).of("key-1") == usage.of("key-1")


def test_use_that_cannot_be_written_is_written_later(store, monkeypatch):
    usage, full = Usage(store), [True]
    add = store.add_usage

    def maybe(rows):
        if full[0]:
            raise StorageFull()
        add(rows)

    monkeypatch.setattr(store, "add_usage", maybe)
    usage.count_request("key-1")
    usage.write()
    usage.count_request("key-1")
    assert usage.of("key-1").requests == 2
    full[0] = False
    usage.write()
    assert store.usage()["key-1"].requests == 2 == usage.of("key-1").requests


def test_use_counted_from_many_threads_is_whole(store):
    usage = Usage(store)

    def work():
        for n in range(200):
            usage.count_request("key-1")
            if n % 50 == 0:
                usage.write()

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    usage.close()
    assert store.usage()["key-1"].requests == 1600


# ---- links ---------------------------------------------------------------------------------------
def link(demos: ShareLinks, **more):
    return demos.create(ME, "voice-1", "T", {}, **{"per_minute": 600, **more})


def test_a_clock_that_is_set_back_does_not_bring_a_link_to_life_again(store):
    clock = Clock()
    demos = ShareLinks(store, clock)
    demo = link(demos, days=1)
    guest = f"{demo.id}/a"
    assert demos.enter(guest, "hello").id == demo.id
    clock.now += 86400
    with pytest.raises(NotAllowed) as ended:
        demos.enter(guest, "hello")
    assert ended.value.code == "demo_expired"
    clock.now -= 10 * 86400
    with pytest.raises(NotAllowed) as ended:
        ShareLinks(store, clock).enter(guest, "hello")
    assert ended.value.code == "demo_expired" and store.demo(demo.id).uses == 1


def test_a_use_that_came_to_nothing_is_given_back(store):
    demos = ShareLinks(store)
    demo = link(demos, max_uses=1, max_chars=5)
    demos.give_back(demos.enter(f"{demo.id}/a", "hello"), "hello")
    demos.enter(f"{demo.id}/a", "hello")
    with pytest.raises(NotAllowed):
        demos.enter(f"{demo.id}/a", "h")
    assert demos.n_uses == 1 and demos.refused["demo_used_up"] == 1


def test_of_many_guests_at_once_no_more_get_in_than_may(store):
    demos, results = ShareLinks(store), []
    demo = link(demos, max_uses=7)

    def come(n: int) -> None:
        try:
            demos.enter(f"{demo.id}/{n}", "hello")
            results.append(n)
        except KaikouError as error:
            assert error.code == "demo_used_up"

    threads = [threading.Thread(target=come, args=(n,)) for n in range(40)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert len(results) == 7 == store.demo(demo.id).uses


def test_a_guest_is_told_of_the_link_only_what_it_needs(store):
    demos = ShareLinks(store)
    demo = link(demos)
    assert demos.host(f"{demo.id}/a") == f"local/{demo.id}", (
        "the keeper's voices and words, not the keeper's visit"
    )
    with pytest.raises(NotFound):
        demos.of("demo-0/a")
    with pytest.raises(NotFound):
        demos.revoke(OTHER, demo.id)
    with pytest.raises(NotAllowed):
        demos.create(ME, "draft-1", "T", {})


def test_a_full_disk_makes_no_half_a_key(store, monkeypatch):
    keys = Keys(store)
    keys.create(ME, "a")

    def full(self, work, is_lasting=True):
        raise StorageFull()

    monkeypatch.setattr("webui.store.sqlite.Database.write", full)
    with pytest.raises(StorageFull):
        keys.create(ME, "b")
    assert [k.name for k in keys.list(ME)] == ["a"]
    with sqlite3.connect(store.root / "access.sqlite") as db:
        assert db.execute("SELECT count(*) FROM keys").fetchone()[0] == 1
