"""What a message may be, what becomes of others, and what counts as an attempt."""

import json

import pytest

from webui.client.errors import Broken, ProxyFault, Unreachable
from webui.cluster.kafka.output import StoredSound
from webui.cluster.kafka.partition import Partition, attempts_of, metadata_of
from webui.cluster.kafka.task import task_of
from webui.errors import BadInput, Busy, EngineFault, LoginNeeded, NotAllowed, NotFound, NotReady


def task(value, offset=7, **further):
    raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return task_of("voice-raw", 2, offset, b"book", raw, **further)


GOOD = {"id": "a", "text": "Good morning.", "voice": "alloy"}


def test_the_content_alone_names_the_sound():
    first, again = task(GOOD), task({**GOOD, "id": 99, "chapter": 3}, offset=8)
    assert first.item.key == again.item.key and not first.is_settled
    assert first.item.ask.seed == again.item.ask.seed >= 0, "a seed of its content, in every try"
    for change in ({"text": "Good night."}, {"voice": "echo"}, {"seed": 5}, {"speed": 2}):
        assert task(GOOD | change).item.key != first.item.key


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        (None, "bad_line", None),
        (b"", "bad_line", None),
        (b"no JSON", "bad_line", None),
        (b"\xff\xfe", "bad_line", None),
        (b"[" * 100_000, "bad_line", None),
        ([GOOD], "bad_line", None),
        ("text", "bad_line", None),
        ({**GOOD, "id": None}, "bad_message", "id"),
        ({**GOOD, "id": True}, "bad_message", "id"),
        ({**GOOD, "id": ""}, "bad_message", "id"),
        ({**GOOD, "id": "x" * 201}, "bad_message", "id"),
        ({"id": 1, "voice": "alloy"}, "bad_line", "text"),
        ({**GOOD, "text": "  "}, "bad_line", "text"),
        ({**GOOD, "text": ["a"]}, "bad_line", "text"),
        ({**GOOD, "text": {"id": "a"}}, "bad_line", "text"),
        ({**GOOD, "text": "\ud800"}, "bad_line", "input"),
        ({**GOOD, "seed": "many"}, "bad_line", "seed"),
        ({**GOOD, "seed": 1.5}, "bad_line", "seed"),
        ({**GOOD, "speed": "NaN"}, "bad_line", "speed"),
        ({**GOOD, "model": True}, "bad_line", "model"),
    ],
)
def test_what_cannot_be_understood_is_dead_at_once(value, code, param):
    dead = task(value)
    assert dead.is_dead and dead.attempts == 0
    assert (dead.error.code, dead.error.param) == (code, param)
    letter, headers = dead.dead()
    words = dict(headers)
    raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    assert letter == raw, "as it came, to be sent again"
    assert words["kaikou.code"] == code.encode() and words["kaikou.attempts"] == b"0"
    assert words["kaikou.en"] and words["kaikou.zh"] and words["kaikou.offset"] == b"7"


def test_a_letter_that_died_twice_says_why_it_died_last():
    headers = [("trace", b"1"), ("kaikou.code", b"old")]
    _, own = task(b"no JSON", headers=headers).dead()
    assert [value for name, value in own if name == "kaikou.code"] == [b"bad_line"]
    assert ("trace", b"1") in own


def test_what_the_broker_finds_too_large_goes_without_its_value():
    dead = task(b"no JSON", headers=[("trace", b"x" * 1000)])
    dead.is_value_left_out = True
    value, headers = dead.dead()
    assert value is None and dict(headers)["kaikou.value"] == b"left out"
    assert "trace" not in dict(headers)


@pytest.mark.parametrize(
    ("error", "attempts", "is_dead"),
    [
        (Busy(), 0, False),
        (NotReady("notready"), 0, False),
        (Unreachable("timeout"), 0, False),
        (LoginNeeded("login_needed"), 0, False),
        (ProxyFault(), 0, False),
        (NotAllowed("scope.key", wanted=["speak"]), 0, False),
        (EngineFault(), 1, False),
        (Broken(), 1, False),
        (BadInput("bad_speed"), 1, True),
        (NotFound("voice_gone.deleted"), 1, True),
    ],
)
def test_a_studio_that_is_away_is_no_attempt(error, attempts, is_dead):
    tried = task(GOOD)
    tried.fail(error)
    assert (tried.attempts, tried.is_dead) == (attempts, is_dead)


def test_the_third_failure_is_the_last():
    tried = task(GOOD, attempts=1)
    tried.fail(EngineFault())
    assert not tried.is_dead
    tried.fail(EngineFault())
    assert tried.is_dead and dict(tried.dead()[1])["kaikou.attempts"] == b"3"


def test_attempts_go_to_the_broker_and_back():
    tasks = [task(GOOD, offset=n, attempts=n % 3) for n in range(5)]
    assert attempts_of(metadata_of(tasks)) == {1: 1, 2: 2, 4: 1}
    assert metadata_of([]) == "" and attempts_of("") == {} == attempts_of(None)
    for foreign in ("x", "[]", '{"a": 1}', '{"1": []}', "7"):
        assert attempts_of(foreign) == {}


def test_nothing_is_announced_before_what_stands_in_front_of_it():
    state = Partition()
    first, second, third = (task(GOOD, offset=n) for n in (10, 11, 12))
    for task_ in (first, second, third):
        state.add(task_)
    assert state.to_commit() is None
    second.stored_sound = StoredSound("file:///a.wav", 1, 0.1)
    assert state.settled_tasks() == [] and state.open_tasks() == [first, third]
    first.is_dead = True
    assert state.settled_tasks() == [first, second]
    state.drop_first()
    state.drop_first()
    assert state.to_commit() == (12, "")
    third.fail(EngineFault())
    assert state.to_commit() == (12, '{"12":1}')
    state.rest()
    assert state.is_resting and state.open_tasks() == [] and state.to_commit() is None
