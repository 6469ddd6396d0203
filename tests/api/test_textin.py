"""The text-in socket: sound by clause while the text is still written, flush, cancel, barge-in,
limits, and nothing left behind.
"""

from __future__ import annotations

import json
import random
import threading

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.api.test_http import clip
from tests.api.test_stream import grown_threads, idle, settle
from tests.api.typist import Typist
from tests.serve import running

TEXT = "你好，今天我们来听一听声音。Then he said hello, and it was 3:30. 好的，就这样吧"
SLOW = {"mode": "instruct", "instructions": "seconds=20 rtf=0.1"}  # each clause


@pytest.fixture
def typist(studio):
    text_socket = Typist(studio)
    yield text_socket
    text_socket.close()


@pytest.fixture(scope="module")
def builtin_studio():
    with running(engine="builtin", env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio:
        yield studio


# ---- sound while the text is written -------------------------------------------------------------
def test_the_first_sound_comes_after_the_first_clause_and_before_the_second_is_sent(builtin_studio):
    text_socket = Typist(builtin_studio)
    request = text_socket.start()
    text_socket.text("你好")
    with pytest.raises(TimeoutError):
        text_socket.recv(0.3)  # half a clause is no clause
    text_socket.text("，")
    reply = text_socket.hear(until="sound", request=request)
    assert [m["type"] for m in reply.messages] == [
        "speech.begin",
        "speech.sentence",
    ] and reply.messages[1]["text"] == "你好，"
    with pytest.raises(TimeoutError):
        while True:
            reply = text_socket.hear(until="sound", reply=reply, timeout=0.5)
    n_bytes = len(reply.pcm)
    assert n_bytes > 0.2 * 48000, "all of the clause"
    text_socket.text("今天天气真好。")
    reply = text_socket.hear(until=("speech.sentence",), reply=reply)
    assert reply.end["index"] == 1 and reply.end["start"] * 2 == n_bytes
    text_socket.send(type="end")
    done = text_socket.hear(reply=reply).end
    assert (
        done["type"] == "speech.audio.done"
        and done["samples"] * 2 == len(reply.pcm) > n_bytes + 24000
    )
    text_socket.close()


def test_in_pieces_it_is_the_same_samples_as_at_once(builtin_studio):
    text_socket, rng = Typist(builtin_studio), random.Random(4)
    whole = text_socket.say(TEXT)
    assert [m["text"] for m in whole.of("speech.sentence")][:2] == [
        "你好，",
        "今天我们来听一听声音。",
    ] and len(whole.of("speech.sentence")) >= 4
    for _ in range(4):
        cuts = sorted(rng.sample(range(1, len(TEXT)), 12))
        parts = [TEXT[a:b] for a, b in zip([0, *cuts], [*cuts, len(TEXT)])]
        reply = text_socket.say(*parts)
        assert reply.pcm == whole.pcm and reply.end["seed"] == 5
    assert text_socket.say(*TEXT).pcm == whole.pcm, "letter by letter"
    assert text_socket.say("", input=TEXT).pcm == whole.pcm, "and with the start"
    in_base64 = text_socket.say(TEXT, audio="base64")
    assert in_base64.pcm == whole.pcm
    assert text_socket.say(TEXT, seed=6).pcm != whole.pcm
    text_socket.close()


def test_one_clause_is_what_the_route_for_whole_texts_says(builtin_studio):
    text_socket = Typist(builtin_studio)
    params = {"voice": "starter-zh-high", "seed": 5, "response_format": "pcm", "speed": 3.0}
    reply = text_socket.say("今天", "天气真好。", speed=3.0)
    assert (
        httpx.post(
            builtin_studio.url + "/v1/audio/speech",
            json={**params, "input": "今天天气真好。"},
            timeout=60,
        ).content
        == reply.pcm
    )
    text_socket.close()


def test_the_take_has_the_whole_text_and_the_sound(studio, typist):
    reply = typist.say("你好，", "今天3.5度", "。再见", seed=77)
    end = reply.end
    assert (
        end["usage"]["input_tokens"] == len("你好，今天3.5度。再见")
        and end["usage"]["output_tokens"] > 0
    )
    with studio.client() as http:
        wav = http.get(end["url"])
        assert (
            wav.content[-len(reply.pcm) :] == reply.pcm and len(wav.content) - len(reply.pcm) < 400
        )
        assert http.get(f"/tts/result/{end['job']}.json").json()["samples"] == end["samples"]
        take = json.loads((studio.data_dir / "takes" / end["job"] / "take.json").read_text("utf-8"))
    assert take["request"]["text"] == "你好，今天3.5度。再见" and take["request"]["segments"] == [
        m["text"] for m in reply.of("speech.sentence")
    ]
    assert take["request"]["segments"][1] == "今天三点五度。", "read out by clause"


def test_flush_speaks_what_there_is(typist):
    typist.start()
    typist.text("没有标点的半句")
    with pytest.raises(TimeoutError):
        typist.recv(0.3)
    typist.send(type="flush")
    reply = typist.hear(until=("speech.sentence",))
    assert reply.end["text"] == "没有标点的半句"
    typist.send(type="flush")  # of nothing
    typist.text("，，。！")
    typist.send(type="flush")  # of nothing that is spoken
    typist.text("下半句")
    typist.send(type="end")
    assert [m["text"] for m in typist.hear(reply=reply).of("speech.sentence")] == [
        "没有标点的半句",
        "下半句",
    ]


def test_a_long_wait_for_the_writer_is_no_fault_of_the_engine():
    with running(env={"KAIKOU_STALL_S": "1", "KAIKOU_IDLE_S": "30"}) as small:
        text_socket = Typist(small)
        text_socket.start()
        text_socket.text("你好，")
        reply = text_socket.hear(until="sound")
        with pytest.raises(TimeoutError):
            while True:
                reply = text_socket.hear(until="sound", reply=reply, timeout=2.5)
        text_socket.text("再见。")
        text_socket.send(type="end")
        assert text_socket.hear(reply=reply).end["type"] == "speech.audio.done"
        assert "cv_underruns_total 0.0" in small.client().get("/metrics").text
        text_socket.close()


# ---- cancel, barge-in ----------------------------------------------------------------------------
def test_cancel_stops_at_once_and_tells_how_much_was_sent(studio, typist):
    request = typist.start(**SLOW)
    typist.text("你好，", "今天天气真好。", "再来一句吧。")
    reply = typist.hear(until="sound")
    typist.send(type="cancel")
    before = len(reply.frames)
    reply = typist.hear(reply=reply)
    assert reply.end == {
        "type": "speech.cancelled",
        "request": request,
        "samples": len(reply.pcm) // 2,
    }
    assert len(reply.frames) - before <= 30, "what was on its way, five seconds at most"
    typist.text("太晚了。")
    typist.send(type="flush")
    typist.send(type="end")
    typist.send(type="cancel")
    with pytest.raises(TimeoutError):
        typist.recv(0.3)
    state = settle(studio, idle)
    assert idle(state) and typist.say("好的。").end["type"] == "speech.audio.done"


def test_nothing_but_what_was_credited_goes_out_before_or_after_a_cancel(typist):
    typist.start(**SLOW, credit=4800)
    typist.text("你好，")
    reply = typist.hear(until="sound")
    while len(reply.pcm) < 9600:
        reply = typist.hear(until="sound", reply=reply)
    with pytest.raises(TimeoutError):
        typist.recv(0.3)
    typist.send(type="credit", upto=7200)
    while len(reply.pcm) < 14400:
        reply = typist.hear(until="sound", reply=reply)
    frames = len(reply.frames)
    typist.send(type="cancel")
    reply = typist.hear(reply=reply)
    assert reply.end["samples"] == 7200 and len(reply.frames) == frames, "not one chunk after it"


def test_a_new_start_silences_the_old_one(studio, typist):
    old = typist.start(**SLOW)
    typist.text("你好，一直说下去。")
    reply = typist.hear(until="sound", request=old)
    typist.send(type="start", voice="starter-en-low", seed=1)
    reply = typist.hear(reply=reply, request=old)
    assert reply.end["type"] == "speech.cancelled" and reply.end["samples"] * 2 == len(reply.pcm)
    assert typist.recv()["type"] == "speech.started"
    typist.text("Sure! ")
    typist.send(type="end")
    new = typist.hear(request=old + 1)
    assert (
        new.end["type"] == "speech.audio.done"
        and new.of("speech.begin")[0]["voice"] == "starter-en-low"
    )


def test_a_start_that_is_refused_silences_too(typist):
    old = typist.start(**SLOW)
    typist.text("你好，一直说下去。")
    reply = typist.hear(until="sound", request=old)
    typist.send(type="start", voice="nobody")
    reply = typist.hear(reply=reply, request=old)
    message = typist.recv()
    assert (
        reply.end["type"] == "speech.cancelled"
        and message["type"] == "error"
        and message["error"]["code"] == "voice_gone"
        and message["request"] is None
    )
    typist.send(type="text", delta="x")
    assert typist.recv()["error"]["code"] == "no_request"


# ---- what is refused -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"voice": "nobody"}, "voice_gone"),
        ({"voice": ""}, "no_voice"),
        ({"voice": "../../etc/passwd"}, "voice_gone"),
        ({"speed": 9}, "bad_speed"),
        ({"speed": "x"}, "bad_field"),
        ({"mode": "opera"}, "bad_field"),
        ({"mode": "convert", "source": "draft-x"}, "bad_mode"),
        ({"seed": 2**70}, "bad_seed"),
        ({"model": "gpt-9"}, "model_not_found"),
        ({"instructions": "x" * 1001}, "too_long_instruction"),
        ({"instructions": "\ud800"}, "bad_text"),
        ({"response_format": "mp3"}, "bad_format"),
        ({"credit": -1}, "bad_field"),
        ({"audio": "flac"}, "bad_field"),
        ({"ref_audio": "http://x/y.wav"}, "no_address"),
        ({"ref_audio": "/etc/passwd"}, "no_path"),
        ({"ref_audio": "AAAA"}, "consent"),
        ({"ref_audio": "AAAA" * 99, "consent": True}, "bad_audio"),
        ({"input": 5}, "bad_field"),
        ({"voice": {"id": 5}}, "voice_gone"),
    ],
)
def test_a_start_that_cannot_be_is_refused_before_the_first_word(typist, params, code):
    typist.send(type="start", **{"voice": "starter-zh-high", **params})
    message = typist.recv()
    assert (
        message["type"] == "error"
        and message["error"]["code"] == code
        and set(message["error"]) == {"message", "type", "param", "code"}
    ), message
    assert typist.say("好的。").end["type"] == "speech.audio.done", "the socket lives on"


def test_messages_that_mean_nothing_leave_the_request_as_it_is(typist):
    for message in (
        {"type": "text", "delta": "x"},
        {"type": "flush"},
        {"type": "end"},
        {"type": "credit", "upto": 5},
    ):
        typist.send(**message)
        assert typist.recv()["error"]["code"] == "no_request"
    typist.send(type="cancel")  # of nothing: it may have crossed the end
    request = typist.start()
    for message, code in (
        ({"type": "fly"}, "bad_type"),
        ({}, "bad_type"),
        ({"type": ["start"]}, "bad_type"),
        ({"type": "text"}, "bad_field"),
        ({"type": "text", "delta": 5}, "bad_field"),
        ({"type": "text", "delta": "a\ud800b"}, "bad_text"),
        ({"type": "text", "delta": "字" * 4097}, "too_long_text"),
        ({"type": "text", "delta": "字" * 100_000}, "too_long_text"),
        ({"type": "credit"}, "bad_field"),
        ({"type": "credit", "upto": True}, "bad_field"),
    ):
        typist.send(**message)
        error = typist.recv()
        assert error["error"]["code"] == code and error["request"] == request, message
    typist.text("", "你好", "，", "")
    typist.send(type="end")
    typist.send(type="end")
    reply = typist.hear()
    assert reply.end["type"] == "speech.audio.done" and [
        m["text"] for m in reply.of("speech.sentence")
    ] == ["你好，"]


def test_text_after_its_end_is_refused_while_it_is_spoken(typist):
    typist.start(**SLOW)
    typist.text("你好，")
    typist.send(type="end")
    typist.text("还有。")
    assert typist.hear(until=("error",)).end["error"]["code"] == "text_over"


def test_the_characters_of_a_request_are_counted(typist):
    typist.start(mode="instruct", instructions="seconds=0.1")
    typist.text(*("字" * 1023 + "。" for _ in range(4)))
    typist.text("字")
    reply = typist.hear(until=("error",))
    assert reply.end["error"]["code"] == "too_long_text" and reply.end["error"]["param"] == "delta"
    typist.send(type="end")
    reply = typist.hear(reply=reply)
    assert (
        reply.end["type"] == "speech.audio.done"
        and sum(len(m["text"]) for m in reply.of("speech.sentence")) == 4096
    )


@pytest.mark.parametrize(
    "deltas", [(), ("",), ("。。。", "！？"), (" \n ", "\t"), ("😀😀",), ("\ud83d",)]
)
def test_a_text_with_nothing_to_say_says_so(typist, deltas):
    reply = typist.say(*deltas)
    assert (
        reply.end["type"] == "speech.failed"
        and reply.end["error"]["code"] == "no_text"
        and reply.end["samples"] == 0
        and not reply.pcm
    )


@pytest.mark.parametrize("language", ["zh-CN,zh;q=0.9", "en"])
def test_refusals_are_in_the_language_of_who_asks(studio, language):
    text_socket = Typist(studio, {"Accept-Language": language})
    text_socket.send(type="start", voice="nobody")
    assert any(
        "\u4e00" <= c <= "\u9fff" for c in text_socket.recv()["error"]["message"]
    ) == language.startswith("zh")
    text_socket.close()


@pytest.mark.parametrize(
    ("garbage", "code", "closed"),
    [
        ("not json", "bad_json", 1008),
        ("[1]", "bad_json", 1008),
        ("[" * 100_000, "bad_json", 1008),
        ("1" * 6000, "bad_json", 1008),
        (b"\x00\xff", "no_binary", 1003),
        ('{"type":"text","delta":"' + "x" * (1 << 20) + '"}', "message_too_large", 1009),
        (3 << 20, None, 1009),
    ],
)
def test_what_is_no_message_closes_the_socket_and_says_why(studio, typist, garbage, code, closed):
    other = Typist(studio)
    other.start()
    message = {}
    with pytest.raises(
        ConnectionClosed
    ) as end:  # by whichever learns of it first, the sending or the reading
        # announced, and never sent: a reset for what lies unread may overtake the word that says
        # why
        if isinstance(garbage, int):
            other.ws.socket.sendall(b"\x81\xff" + garbage.to_bytes(8, "big") + bytes(4))
        else:
            other.ws.send(garbage)
        while True:
            message = other.recv()
    assert end.value.rcvd.code == closed and (code is None or message["error"]["code"] == code)
    assert typist.say("好的。").end["type"] == "speech.audio.done", "and nobody else notices"


def test_a_failure_in_mid_speech_is_told_and_the_next_one_works(typist):
    reply = typist.say("你好，", mode="instruct", instructions="seconds=5 fail=3")
    assert (
        reply.end["type"] == "speech.failed"
        and reply.end["error"]["code"] == "fault"
        and reply.end["samples"] * 2 == len(reply.pcm) > 0
    )
    assert typist.say("好的。").end["type"] == "speech.audio.done"


def test_who_falls_silent_is_not_waited_for():
    with running(env={"KAIKOU_IDLE_S": "0.6"}) as small:
        for begin in (
            lambda text_socket: None,
            lambda text_socket: text_socket.start(),
            lambda text_socket: (text_socket.start(), text_socket.text("半句")),
        ):
            text_socket = Typist(small)
            begin(text_socket)
            message = text_socket.hear(until=("error",), timeout=10).end
            assert message["error"]["code"] == "idle"
            with pytest.raises(ConnectionClosed):
                text_socket.recv()
        text_socket = Typist(small)
        reply = text_socket.say(
            "你好，", mode="instruct", instructions="seconds=3 first=2 rtf=1"
        )  # whoever listens may be silent, and need not hear anything yet
        assert reply.end["type"] == "speech.audio.done" and len(reply.pcm) == 144000
        text_socket.start(mode="instruct", instructions="seconds=20", credit=2400)
        text_socket.text("你好，")
        text_socket.send(type="end")
        assert text_socket.hear(until=("error",), timeout=10).end["error"]["code"] == "idle", (
            "who takes no sound is not waited for either"
        )
        assert idle(settle(small, idle))


def test_a_recording_may_come_along(typist):
    import base64

    sound = base64.b64encode(clip(4)).decode()
    reply = typist.say("你好，", ref_audio=sound, ref_text="hello", consent=True)
    assert reply.end["type"] == "speech.audio.done" and reply.of("speech.begin")[0][
        "voice"
    ].startswith("draft-")


def test_without_a_key_there_is_no_socket():
    with running("--auth", "bob:secret", env={"KAIKOU_API_KEY": "k-123"}) as closed:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Bearer k-123", "Origin": "http://elsewhere.example"},
        ):
            with pytest.raises(InvalidStatus) as refused:
                Typist(closed, headers)
            assert refused.value.response.status_code == 403
        with closed.client(headers={"Authorization": "Bearer k-123"}) as http:
            only_voices = http.post("/v1/keys", json={"name": "v", "scopes": ["voices"]}).json()[
                "key"
            ]
        with pytest.raises(InvalidStatus):
            Typist(closed, {"Authorization": f"Bearer {only_voices}"})
        text_socket = Typist(closed, {"Authorization": "Bearer k-123"})
        assert text_socket.say("你好。").end["type"] == "speech.audio.done"
        text_socket.close()


def test_streams_and_the_line_are_limited_as_everywhere():
    with running(env={"KAIKOU_MAX_STREAMS": "1", "KAIKOU_MAX_WAITING": "1"}) as small:
        talks = [Typist(small) for _ in range(3)]
        for first in talks:
            first.start(mode="instruct", instructions="seconds=3 rtf=0.5")
        talks[0].text("你好，")
        talks[0].send(type="end")
        talks[0].hear(until="sound")
        talks[1].text("你好，")
        talks[1].send(type="end")
        assert talks[1].recv()["type"] == "speech.queued"
        talks[2].text("你好，")
        refused = talks[2].hear().end
        assert (
            refused["type"] == "speech.failed"
            and refused["error"]["code"] == "busy"
            and refused["retry_after_s"] >= 1
        )
        talks[0].send(type="cancel")
        assert talks[1].hear().end["type"] == "speech.audio.done"
        assert idle(settle(small, idle))


# ---- who leaves ----------------------------------------------------------------------------------
def test_a_hundred_sockets_that_drop_at_random_moments_leave_nothing(studio):
    for _ in range(3):
        Typist(studio).close()
    before = settle(studio, idle)
    rng = random.Random(8)

    def leave(n: int, rounds: int) -> None:
        typist = Typist(studio)
        params = (
            SLOW if n % 3 else {"mode": "instruct", "instructions": "seconds=0.1"}
        )  # dropped in mid-speech, or while all is said and more text awaited
        moves = [
            lambda: typist.start(**params),
            lambda: typist.text("你好，今天"),
            lambda: typist.recv(),
            lambda: typist.text("天气真好。再说一句。"),
            lambda: typist.send(type="flush"),
            lambda: typist.hear(until="sound"),
            lambda: typist.send(type="end"),
            lambda: typist.recv(),
            lambda: typist.send(type="cancel"),
        ]
        for move in moves[:rounds]:
            move()
        typist.ws.socket.close() if n % 2 else typist.close()

    for _ in range(10):
        threads = [threading.Thread(target=leave, args=(n, rng.randrange(10))) for n in range(10)]
        [t.start() for t in threads]
        [t.join(60) for t in threads]

    def same(s):
        return idle(s) and s["finalised"] == s["opened"] and s["fds"] <= before["fds"] + 2

    after = settle(studio, same)
    assert (
        idle(after)
        and after["opened"] == after["finalised"] > before["opened"]
        and after["fds"] <= before["fds"] + 2
    )
    assert not grown_threads(before, after)
