"""A real consumer, a broker in a process of its own, a stand-in for the studio over HTTP: nothing
lost, nothing twice, the order of a book, and every bad day by name.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict

import pytest

from tests.kafka.conftest import QUICK, line
from webui.cluster.kafka.output import Folder, StoreUnusable
from webui.errors import Busy, LoginNeeded, NotReady


def dones(broker, n):
    return [json.loads(m.value()) for m in broker.read("voice-done", n)]


def deads(broker, n):
    return [(m, {k: v.decode() for k, v in m.headers()}) for m in broker.read("voice-dead", n)]


def sounds(folder):
    return sorted(p.name for p in (folder / "out").rglob("*") if p.is_file())


def test_books_become_sounds_in_their_order(broker, stand_in, consuming, tmp_path):
    broker.send((f"book-{n % 5}", line(n)) for n in range(40))
    with consuming() as running:
        messages = broker.read("voice-done", 40)
    words = [json.loads(m.value()) for m in messages]
    assert sorted(w["id"] for w in words) == list(range(40))
    by_book = defaultdict(list)
    for message, word in zip(messages, words, strict=True):
        by_book[message.key()].append(word["id"])
    assert len(by_book) == 5 and all(ids == sorted(ids) for ids in by_book.values())
    assert (
        len(sounds(tmp_path))
        == 40
        == len(set(stand_in.n_spoken))
        == sum(stand_in.n_spoken.values())
    )
    assert words[0]["seconds"] > 0 and words[0]["bytes"] > 1600 and words[0]["voice"] == "alloy"
    assert {len(texts) for texts in stand_in.batches} - set(range(1, 9)) == set(), "8 at most"
    assert sum(offset for offset, _ in broker.committed().values() if offset > 0) == 40
    assert running.meters.done._value.get() == 40


@pytest.mark.thorough
def test_a_second_delivery_is_announced_and_writes_nothing(broker, stand_in, consuming, tmp_path):
    broker.send([("book", line(1)), ("book", line(2)), ("book", line(1))])
    with consuming():
        dones(broker, 3)
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.wav")}
    with consuming(group="another"):  # reads all of it again
        words = dones(broker, 6)
    assert [w["id"] for w in words] == [1, 2, 1, 1, 2, 1]
    assert {p: p.stat().st_mtime_ns for p in files} == files and len(sounds(tmp_path)) == 2
    assert sum(stand_in.n_spoken.values()) <= 3, "the second consumer found everything"


def test_what_cannot_be_spoken_becomes_a_dead_letter_and_the_book_goes_on(
    broker, stand_in, consuming
):
    bad = [
        b"no JSON",
        {"id": 1, "text": "No seed.", "voice": "alloy", "seed": "x"},
        line(2, voice="nobody"),
        line(3, text="x" * 5001),
        None,
    ]
    broker.send([*(("book", value) for value in bad), ("book", line(9))])
    with consuming():
        assert [w["id"] for w in dones(broker, 1)] == [9]
        letters = deads(broker, 5)
    headers = [words for _, words in letters]
    assert [w["kaikou.code"] for w in headers] == [
        *("bad_line", "bad_line", "voice_gone", "too_long_text", "bad_line")
    ]
    assert [w["kaikou.attempts"] for w in headers] == ["0", "0", "1", "1", "0"]
    assert all(w["kaikou.en"] and w["kaikou.zh"] != w["kaikou.en"] for w in headers)
    assert [m.value() for m, _ in letters][:1] + [letters[4][0].value()] == [b"no JSON", None]
    assert {m.key() for m, _ in letters} == {b"book"}


@pytest.mark.thorough
def test_a_poison_message_dies_after_three_attempts_and_others_go_on(broker, stand_in, consuming):
    stand_in.failures["Poison."] = 99
    broker.send([("a", line(1, "Poison.")), ("a", line(2))])
    broker.send((f"book-{n}", line(100 + n)) for n in range(12))
    with consuming() as running:
        [(_, words)] = deads(broker, 1)
        assert {w["id"] for w in dones(broker, 13)} == {2, *range(100, 112)}
    assert (words["kaikou.attempts"], words["kaikou.code"]) == ("3", "fault")
    assert stand_in.failures["Poison."] == 96 and running.meters.retries._value.get() == 2


@pytest.mark.thorough
def test_attempts_are_remembered_by_the_broker(broker, stand_in, consuming):
    stand_in.failures["Poison."] = 99
    broker.send([("a", line(1, "Poison."))])
    with consuming() as running:
        while running.meters.retries._value.get() < 1:
            stand_in.arrived.wait(0.05)
    assert {'{"0":1}', '{"0":2}'} & {metadata for _, metadata in broker.committed().values()}
    with consuming():
        [(_, words)] = deads(broker, 1)
    assert words["kaikou.attempts"] == "3" and stand_in.failures["Poison."] == 96


@pytest.mark.parametrize(
    "refusal",
    [
        Busy(retry_after_s=1),
        pytest.param(NotReady("notready"), marks=pytest.mark.thorough),
        pytest.param(LoginNeeded("login_needed"), marks=pytest.mark.thorough),
    ],
    ids=["busy", "notready", "key"],
)
def test_while_the_studio_refuses_everything_waits_and_nothing_is_counted(
    broker, stand_in, consuming, refusal
):
    stand_in.refusal = refusal
    broker.send((f"book-{n % 3}", line(n)) for n in range(12))
    with consuming() as running:
        assert stand_in.refused.wait(10)
        in_hand = running.meters.in_hand._value.get()
        stand_in.refusal = None
        words = dones(broker, 12)
    assert sorted(w["id"] for w in words) == list(range(12)) and 0 < in_hand <= 16
    assert set(stand_in.n_spoken.values()) == {1} and running.meters.waits._value.get() > 0
    assert running.meters.retries._value.get() == 0 == running.meters.dead._value.get()


@pytest.mark.thorough
def test_a_studio_slower_than_the_groups_patience_keeps_its_partitions(broker, stand_in, consuming):
    """max.poll.interval is 3 s here, and the batch takes longer: the consumer polls meanwhile."""
    stand_in.gate.clear()
    broker.send([("book", line(1)), ("book", line(2))])
    quick = QUICK | {"max.poll.interval.ms": "3000"}
    with consuming(client=quick):
        assert stand_in.arrived.wait(10)
        broker.send([("book", line(3))])
        threading.Timer(4.5, stand_in.gate.set).start()
        assert [w["id"] for w in dones(broker, 3)] == [1, 2, 3]
    assert set(stand_in.n_spoken.values()) == {1}, "nobody else was given the partition"


@pytest.mark.thorough
def test_a_store_that_fails_is_tried_again_without_speaking_again(
    broker, stand_in, consuming, tmp_path
):
    class Failing(Folder):
        n_left = 3

        def keep(self, key, sound):
            self.n_left -= 1
            if self.n_left >= 0:
                raise StoreUnusable("store_unusable", path="s3://b", reason="SlowDown")
            return super().keep(key, sound)

    broker.send([("book", line(1)), ("book", line(2))])
    with consuming(output=Failing(tmp_path / "out")) as running:
        assert [w["id"] for w in dones(broker, 2)] == [1, 2]
    assert set(stand_in.n_spoken.values()) == {1} and running.meters.waits._value.get() > 0
    assert running.meters.dead._value.get() == 0


def test_what_is_in_hand_is_finished_before_it_leaves(broker, stand_in, consuming):
    stand_in.gate.clear()
    broker.send([("book", line(1))])
    with consuming() as running:
        assert stand_in.arrived.wait(10)
        running.consumer.stop()
        stand_in.gate.set()
        running.stop()
    assert [w["id"] for w in dones(broker, 1)] == [1]
    assert max(broker.committed().values()) == (1, "")


@pytest.mark.thorough
def test_what_takes_longer_than_the_grace_is_given_back(broker, stand_in, consuming):
    stand_in.gate.clear()
    broker.send([("book", line(1)), ("book", line(2))])
    with consuming(grace_s=0.0):
        assert stand_in.arrived.wait(10)
    assert max(broker.committed().values())[0] <= 0
    stand_in.gate.set()
    with consuming():
        assert [w["id"] for w in dones(broker, 2)] == [1, 2]


@pytest.mark.thorough
def test_a_broker_that_is_away_for_a_while_is_waited_for(broker, stand_in, consuming):
    stand_in.gate.clear()
    broker.send((f"book-{n % 3}", line(n)) for n in range(30))
    with consuming():
        assert stand_in.arrived.wait(10)
        broker.switch("down")
        stand_in.gate.set()
        threading.Timer(3.0, broker.switch, ["up"]).start()
        n = 30
        while {w["id"] for w in dones(broker, n)} != set(range(30)):
            n += 1  # some came twice: the group had lost this consumer meanwhile
    assert len(stand_in.n_spoken) == 30


@pytest.mark.thorough
def test_a_letter_that_is_too_large_for_the_broker_goes_without_its_value(
    broker, stand_in, consuming
):
    broker.send([("book", b"x" * 5000), ("book", line(2))])
    with consuming(client=QUICK | {"message.max.bytes": "3000"}):
        [(letter, words)] = deads(broker, 1)
        assert [w["id"] for w in dones(broker, 1)] == [2]
    assert letter.value() is None and words["kaikou.value"] == "left out"


@pytest.mark.thorough
def test_lines_of_different_models_go_in_requests_of_their_own(broker, stand_in, consuming):
    broker.send([("book", line(n, model="auto" if n < 2 else "builtin")) for n in range(4)])
    with consuming():
        assert [w["id"] for w in dones(broker, 4)] == [0, 1, 2, 3]
    assert all(len({int(t.split()[1][:-1]) < 2 for t in texts}) == 1 for texts in stand_in.batches)
