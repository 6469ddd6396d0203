"""What comes to the door with bad manners: header lines without end, bodies that drip, ranges that
lie, ids of others, and words that must not reach the log.
"""

from __future__ import annotations

import json
import re
import socket
import time
from contextlib import suppress

import httpx
import pytest

from tests.api.client import Socket
from tests.api.test_http import clip, error
from tests.api.test_stream import idle, settle
from tests.serve import running


@pytest.fixture(scope="module")
def strict():
    """Bodies must be there within a second; open, and its log is its own."""
    with running(env={"KAIKOU_BODY_S": "1", "KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio:
        yield studio


def raw(studio, data: bytes, *more: bytes, pause_s: float = 0.0, limit_s: float = 15.0) -> bytes:
    """What comes back to bytes sent as they are; `more`: sent one after the other with a pause
    between.
    """
    host, port = studio.url[7:].split(":")
    with socket.create_connection((host, int(port)), timeout=limit_s) as s:
        s.sendall(data)
        for part in more:
            time.sleep(pause_s)
            try:
                s.sendall(part)
            except OSError:
                break
        actual = b""
        try:
            while part := s.recv(65536):
                actual += part
                if (
                    b"\r\n\r\n" in actual
                    and re.search(rb"content-length: (\d+)", actual, re.I)
                    and len(actual.split(b"\r\n\r\n", 1)[1])
                    >= int(re.search(rb"content-length: (\d+)", actual, re.I)[1])
                ):
                    break
        except OSError:
            pass
    return actual


def head(studio, line: str, **headers) -> bytes:
    return "".join(
        f"{x}\r\n"
        for x in (
            f"{line} HTTP/1.1",
            f"Host: {studio.url[7:]}",
            *(f"{k}: {v}" for k, v in headers.items()),
        )
    ).encode()


def status_and_body(answer: bytes) -> tuple[int, str]:
    top, _, body = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), json.loads(body)["error"]["code"]


# ---- headers and bodies --------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path", ["/v1/models", "/", "/gradio_api/info", "/health/live", "/d/x/tts/session"]
)
def test_a_thousand_header_lines_are_refused(strict, path):
    many = b"".join(b"X-Filler-%d: x\r\n" % n for n in range(1000))
    assert status_and_body(raw(strict, head(strict, f"GET {path}") + many + b"\r\n")) == (
        431,
        "too_many_headers",
    )
    assert raw(
        strict, head(strict, "GET /health/live") + b"X-Long: " + b"x" * 60_000 + b"\r\n\r\n"
    ).split()[1] in (b"200", b"400", b"431")
    assert strict.client().get("/health/live").status_code == 200


def test_a_body_that_drips_is_ended_and_holds_nobody_else_up(strict):
    for path in ("/v1/audio/speech", "/gradio_api/queue/join", "/login"):
        slow = (
            head(
                strict,
                f"POST {path}",
                **{
                    "Content-Type": "application/x-www-form-urlencoded"
                    if path == "/login"
                    else "application/json",
                    "Content-Length": "500",
                },
            )
            + b"\r\n{"
        )
        began = time.monotonic()
        assert status_and_body(raw(strict, slow, *[b" "] * 6, pause_s=0.4)) == (408, "too_slow"), (
            path
        )
        assert time.monotonic() - began < 12, "it waited for the whole of it"
    chunked = (
        head(
            strict,
            "POST /v1/audio/speech",
            **{"Content-Type": "application/json", "Transfer-Encoding": "chunked"},
        )
        + b"\r\n1\r\n{\r\n"
    )
    assert status_and_body(raw(strict, chunked, *[b"1\r\n \r\n"] * 6, pause_s=0.4)) == (
        408,
        "too_slow",
    )
    assert idle(settle(strict, idle))


def test_a_large_body_that_keeps_coming_is_not_too_slow(strict):
    """A clip of 60 kB in two seconds: slower than the first second allows, quick enough for what
    has come.
    """
    data = clip(4)[:60_000].ljust(60_000, b"\0")
    body = (
        b'--y\r\nContent-Disposition: form-data; name="audio_sample"; filename="a.wav"\r\n\r\n'
        + data
        + b"\r\n--y--\r\n"
    )
    start = (
        head(
            strict,
            "POST /v1/audio/voices/inspect",
            **{"Content-Type": "multipart/form-data; boundary=y", "Content-Length": str(len(body))},
        )
        + b"\r\n"
    )
    step = len(body) // 5 + 1
    answer = raw(
        strict, start, *[body[i : i + step] for i in range(0, len(body), step)], pause_s=0.4
    )
    assert answer.split()[1] in (b"200", b"422") and b"too_slow" not in answer


def test_an_upload_that_stops_in_the_middle_leaves_nothing(strict):
    body = (
        b'--y\r\nContent-Disposition: form-data; name="audio_sample"; filename="a.wav"\r\n\r\n'
        + clip(4)[:20_000]
    )
    start = (
        head(
            strict,
            "POST /v1/audio/voices",
            **{"Content-Type": "multipart/form-data; boundary=y", "Content-Length": "100000"},
        )
        + b"\r\n"
    )
    assert status_and_body(raw(strict, start + body)) == (408, "too_slow")
    assert not (strict.data_dir / "voices").exists() or not list(
        (strict.data_dir / "voices").iterdir()
    )


@pytest.mark.parametrize("length", ["-1", "1e9", "99999999999999999999", "0x10", "5, 5"])
def test_a_length_that_lies_is_refused(strict, length):
    answer = raw(
        strict,
        head(
            strict,
            "POST /v1/keys",
            **{"Content-Length": length, "Content-Type": "application/json"},
        )
        + b"\r\n{}",
    )
    assert answer.split()[1] in (b"400", b"413", b"422", b"408"), answer[:200]


# ---- ranges --------------------------------------------------------------------------------------
RANGES = [
    "bytes=0-",
    "bytes=-1",
    "bytes=0-0",
    "bytes=5-2",
    "bytes=-0",
    "bytes=999999999-",
    "bytes=abc",
    "bytes=0-1,2-3",
    "bytes=" + ",".join(f"{n}-{n}" for n in range(900)),
    "items=0-1",
    "bytes=-99999999999999999999",
    "bytes=0-99999999999999999999",
    "bytes=",
    "bytes=--1",
    "bytes=0-1,",
    "bytes= 0 - 1",
    "bytes=1e3-",
    "bytes=" + ",".join(["0-"] * 900),
]


def test_ranges_of_a_take_are_the_bytes_asked_for_or_refused(strict):
    with strict.client() as http:
        sock = Socket(strict, http)
        url = sock.say({"input": "One tone.", "mode": "instruct", "instructions": "seconds=2"}).of(
            "end"
        )[0]["url"]
        sock.close()
        whole = http.get(url)
        assert whole.status_code == 200 and whole.headers["accept-ranges"] == "bytes"
        data = whole.content
        for wish in RANGES:
            answer = http.get(url, headers={"Range": wish})
            assert answer.status_code in (200, 206, 400, 416), wish
            assert len(answer.content) <= len(data) + 200_000, "a range made it grow"
            single = re.fullmatch(
                r"bytes (\d+)-(\d+)/(\d+)", answer.headers.get("content-range", "")
            )
            if answer.status_code == 206 and single:
                a, b, n = map(int, single.groups())
                assert answer.content == data[a : b + 1] and n == len(data), wish
            elif answer.status_code == 200:
                assert answer.content == data, wish
        many = http.get(url, headers={"Range": "bytes=" + ",".join(["0-"] * 900)})
        assert len(many.content) <= 2 * len(data), "900 times the whole"


# ---- ids, request id, log ------------------------------------------------------------------------
def test_another_visits_take_is_as_unknown_as_none(strict):
    with strict.client() as first_item, strict.client() as two:
        first = Socket(strict, first_item)
        take = first.say(
            {"input": "One tone.", "mode": "instruct", "instructions": "seconds=0.2"}
        ).of("end")[0]["job"]
        first.close()
        two.post("/tts/session")
        for tail in (".wav", ".json"):
            other, missing = (two.get(f"/tts/result/{t}{tail}") for t in (take, "take-" + "0" * 32))
            assert (
                other.status_code == missing.status_code == 404 and other.json() == missing.json()
            )
        assert (
            two.post(f"/tts/cancel/{take}").json()
            == two.post("/tts/cancel/take-0").json()
            == {"cancelled": False}
        )


def test_the_request_id_goes_in_comes_out_and_stands_in_the_log(strict):
    with strict.client() as http:
        own = "my.own-id_42"
        good = http.post(
            "/v1/audio/speech",
            json={"input": "Hello there.", "voice": "alloy", "stream": False},
            headers={"X-Request-Id": own},
        )
        bad = http.post(
            "/v1/audio/speech",
            json={"input": "", "voice": "alloy"},
            headers={"X-Request-Id": own + "-b"},
        )
        door = http.get(
            "/v1/models", headers={"X-Request-Id": own + "-c", "Origin": "https://evil.example"}
        )
        assert [a.headers["x-request-id"] for a in (good, bad, door)] == [
            own,
            own + "-b",
            own + "-c",
        ] and (good.status_code, bad.status_code, door.status_code) == (200, 422, 403)
        request_ids = [
            http.get("/v1/models", headers=h).headers["x-request-id"]
            for h in (
                {},
                {"X-Request-Id": "a b"},
                {"X-Request-Id": "x" * 65},
                {"X-Request-Id": "é".encode()},
                {"X-Request-Id": "a;b=c"},
            )
        ]
        assert (
            all(re.fullmatch(r"req-[0-9a-f]{16}", i) for i in request_ids)
            and len(set(request_ids)) == 5
        ), "what could forge a line of the log is not taken over"
        job = good.headers["x-job-id"]

        def lines() -> list[str]:
            return [x for x in strict.log.read_text("utf-8").splitlines() if f"request={own} " in x]

        end = time.monotonic() + 10
        while len(lines()) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert any(f"job={job} " in x and "chars=12 " in x for x in lines()) and any(
            "POST /v1/audio/speech status=200" in x for x in lines()
        )
        sock = Socket(strict, http, headers={"X-Request-Id": "socket-7"})
        sock.say({"input": "Hello there."})
        sock.close()
        end = time.monotonic() + 10
        while (
            "request=socket-7 WEBSOCKET /tts/ws status=101" not in strict.log.read_text("utf-8")
            and time.monotonic() < end
        ):
            time.sleep(0.05)
        text = strict.log.read_text("utf-8")
        assert "request=socket-7 WEBSOCKET /tts/ws status=101" in text and re.search(
            r"request=socket-7 job=take-", text
        )


SECRETS = {
    "text": "Xylophonzebra",
    "name": "Quastenflosser",
    "transcript": "Wolkenkuckucksheim",
    "instruction": "Tintenfischring",
    "term": "Grottenolm",
    "header": "Nacktmulle",
    "path": "Axolotlhaus",
    "title": "Schnabeligel",
    "key": "Brillenpinguin",
    "chinese": "秘密花园",
    "bad": "Pistolenkrebs",
}


def test_no_word_name_or_key_reaches_the_log(strict):
    s = SECRETS
    with strict.client() as http:
        http.post("/tts/session")
        voice = http.post(
            "/v1/audio/voices",
            files={"audio_sample": (f"{s['name']}.wav", clip(4))},
            data={"name": s["name"], "consent": s["name"], "transcript": s["transcript"]},
        ).json()["id"]
        for text in (s["text"], s["chinese"]):
            assert (
                http.post(
                    "/v1/audio/speech",
                    json={
                        "input": text,
                        "voice": voice,
                        "mode": "instruct",
                        "instructions": f"{s['instruction']} seconds=0.2",
                        "stream": False,
                    },
                ).status_code
                == 200
            )
        with suppress(httpx.RemoteProtocolError):  # ended before its end, as it must
            http.post(
                "/v1/audio/speech",
                json={
                    "input": s["text"],
                    "voice": voice,
                    "mode": "instruct",
                    "instructions": f"{s['instruction']} fail=0",
                },
            )
        http.post(
            "/v1/audio/speech",
            json={
                "input": s["text"],
                "voice": s["bad"],
                "model": s["bad"],
                "response_format": s["bad"],
                "language": s["bad"],
            },
        )
        http.post(
            "/v1/audio/speech",
            content=("{" + s["bad"]).encode(),
            headers={"Content-Type": "application/json"},
        )
        http.put("/v1/pronunciations", json={"term": s["term"], "reading": s["term"]})
        http.post(
            "/v2/synthesize/batch",
            json={"texts": [s["text"]], "voice": voice, "name": s["name"], "async": True},
        )
        http.post(
            "/v2/synthesize/batch",
            json={
                "requests": [
                    {
                        "input": s["text"],
                        "mode": "instruct",
                        "instructions": f"{s['instruction']} fail=0",
                    }
                ],
                "voice": voice,
            },
        )
        demo = http.post(
            "/v1/demos", json={"voice": voice, "title": s["title"], "sample": s["text"]}
        ).json()
        (
            http.get(demo["path"]),
            http.post(demo["path"] + "/v1/audio/speech", json={"input": s["text"]}),
            http.get(demo["path"] + "/" + s["path"]),
        )
        for path in (
            f"/v1/audio/voices/{s['path']}",
            f"/tts/result/{s['path']}.wav",
            f"/v2/jobs/{s['path']}",
            f"/{s['path']}",
            f"/v1/{s['path']}?q={s['path']}",
            f"/d/{s['path']}",
            f"/gradio_api/file={s['path']}",
        ):
            http.get(
                path,
                headers={
                    "X-Request-Id": f"a {s['header']}",
                    "User-Agent": s["header"],
                    "Referer": s["header"],
                    "Cookie": f"kk_visit={s['header']}",
                },
            )
        http.post(
            "/gradio_api/queue/join",
            json={"data": [s["text"]], "fn_index": 0, "session_hash": s["header"]},
        )
        http.post("/login", data={"user": s["name"], "password": s["key"], "key": s["key"]})
        sock = Socket(strict, http)
        sock.say(
            {
                "input": s["text"],
                "voice": voice,
                "mode": "instruct",
                "instructions": f"{s['instruction']} seconds=0.2",
            }
        )
        sock.say({"input": s["text"], "voice": s["bad"]})
        sock.send(op=s["bad"])
        sock.close()
        new_key = http.post("/v1/keys", json={"name": s["name"], "scopes": ["speak"]}).json()
        (
            http.get("/v1/models", headers={"Authorization": f"Bearer {new_key['key']}"}),
            http.get("/v1/models", headers={"Authorization": f"Bearer {s['key']}"}),
        )
        http.delete(f"/v1/keys/{new_key['id']}")
        assert idle(settle(strict, idle))
        visit = http.cookies["kk_visit"]
    log = strict.log.read_text("utf-8")
    assert log.count("\n") > 20
    leaks = {
        name: next(x for x in log.splitlines() if word in x)
        for name, word in {
            **s,
            "made": new_key["key"],
            "voice": voice,
            "link": demo["path"],
            "visit": visit,
            "data": str(strict.data_dir),
        }.items()
        if word in log
    }
    assert leaks == {}
    for line in log.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (INFO|WARNING|ERROR) [\w.]+ ", line), (
            f"not one line per record: {line[:200]} in {log[-6000:]}"
        )
    assert error(strict.client().get("/v1/audio/voices/x"))["code"] == "voice_gone"
