"""The text-in socket with the big engine, which reads a text while it speaks: on a small random
model, in its own process.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from scripts.make_small_model import make
from tests.api.test_stream import idle, settle
from tests.api.typist import Typist
from tests.serve import running

FIRST = "The quick brown fox jumps over the lazy dog near the old river bank, "
REST = (
    "and then it runs ",
    "away into the deep, dark and very silent ",
    "forest. Nobody has ever seen ",
    "it again. ",
)


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make(root / "CosyVoice2-0.5B")
    with running(
        "--model-dir",
        str(root),
        engine="cosyvoice2",
        env={"KAIKOU_STARTS_PER_MINUTE": "100000", "KAIKOU_STALL_S": "20"},
    ) as studio:
        yield studio


def _parent(process: Path) -> str:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:  # it ended just now
        return ""


def silence(typist: Typist, reply, timeout: float = 1.5):
    with pytest.raises(TimeoutError):
        while True:
            reply = typist.hear(until="sound", reply=reply, timeout=timeout)
    return reply


def test_it_speaks_the_first_clause_before_the_second_is_sent_and_the_same_however_it_comes(big):
    typist = Typist(big)
    whole = typist.say(FIRST + "".join(REST))
    assert (
        whole.end["type"] == "speech.audio.done"
        and whole.of("speech.begin")[0]["engine"] == "cosyvoice2"
        and len(whole.of("speech.sentence")) == 1
    ), "one run: the model reads while it speaks"
    typist.start(credit=1 << 40)
    typist.text(FIRST)
    reply = typist.hear(until="sound", timeout=60)
    assert reply.of("speech.sentence")[0]["text"] == FIRST.strip()
    reply = silence(typist, reply)
    early = len(reply.pcm)
    typist.text(*REST)
    typist.send(type="end")
    reply = typist.hear(reply=reply, timeout=60)
    assert 0 < early < len(reply.pcm) and reply.pcm == whole.pcm
    assert typist.say(*FIRST, *REST).pcm == whole.pcm
    typist.close()


def test_flush_ends_what_was_said_and_the_next_begins_anew(big):
    typist = Typist(big)
    typist.start(credit=1 << 40)
    typist.text("Wait a moment please")
    typist.send(type="flush")
    reply = silence(typist, typist.hear(until="sound", timeout=60))
    assert len(reply.pcm) > 0
    typist.text("here it is. ")
    typist.send(type="end")
    reply = typist.hear(reply=reply, timeout=60)
    assert [m["index"] for m in reply.of("speech.sentence")] == [0, 1] and reply.end[
        "type"
    ] == "speech.audio.done"
    typist.close()


def test_cancel_while_it_waits_for_text_and_while_it_speaks(big):
    typist = Typist(big)
    for text in ("Hi you, ", FIRST, FIRST + "".join(REST)):
        request = typist.start()
        typist.text(text)
        reply = typist.hear(until=("speech.begin",), timeout=60)
        typist.send(type="cancel")
        reply = typist.hear(reply=reply, request=request)
        assert reply.end["type"] == "speech.cancelled" and reply.end["samples"] * 2 == len(
            reply.pcm
        )
    assert idle(settle(big, idle))
    assert typist.say("Good bye. ").end["type"] == "speech.audio.done"
    typist.close()


def test_sockets_that_drop_leave_nothing_in_either_process(big):
    def child_threads() -> int:
        pid = str(big.state()["pid"])
        children = [p for p in Path("/proc").glob("[0-9]*") if _parent(p) == pid]
        return sum(len(list((p / "task").iterdir())) for p in children)

    def leave(n: int, rounds: int) -> None:
        typist = Typist(big)
        moves = [
            lambda: typist.start(),
            lambda: typist.text("Hello my friend, "),
            lambda: typist.recv(),
            lambda: typist.text(FIRST),
            lambda: typist.recv(),
            lambda: typist.send(type="flush"),
            lambda: typist.text("More words"),
        ]
        for move in moves[:rounds]:
            move()
        typist.ws.socket.close() if n % 2 else typist.close()

    leave(1, 7)
    before, threads_before, rng = settle(big, idle), child_threads(), random.Random(2)
    for _ in range(3):
        threads = [threading.Thread(target=leave, args=(n, rng.randrange(8))) for n in range(8)]
        [t.start() for t in threads]
        [t.join(60) for t in threads]

    def is_idle(state):
        return (
            idle(state)
            and not {"engine-text", "lane-text"} & set(state["thread_names"])
            and state["fds"] <= before["fds"] + 2
        )

    after = settle(big, is_idle, 20.0)
    assert is_idle(after), after
    assert child_threads() <= threads_before + 2
    typist = Typist(big)
    assert typist.say("Good bye. ").end["type"] == "speech.audio.done"
    typist.close()
