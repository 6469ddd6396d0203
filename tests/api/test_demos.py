"""Demo links over real sockets: what a guest may do, what ends a link, and that nothing else of the
studio can be reached by one.
"""

from __future__ import annotations

import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import segno
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.api.client import FRAME, Heard, Socket
from tests.api.test_http import clip, error
from tests.serve import running
from webui.studio import reachable

TEXT = "Hello there, dear guest."


@pytest.fixture(scope="module")
def house():
    """A locked studio, its keeper's browser, and a voice of the keeper's own."""
    with (
        running("--auth", "bob:secret", env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio,
        studio.client() as http,
    ):
        http.post("/login", data={"user": "bob", "password": "secret"})
        http.get("/")
        voice = http.post(
            "/v1/audio/voices",
            files={"audio_sample": clip(4)},
            data={"name": "Lin Wan", "consent": "me", "transcript": "the transcript of it"},
        ).json()["id"]
        yield studio, http, voice


def share(http, voice: str, **more) -> dict:
    answer = http.post(
        "/v1/demos", json={"voice": voice, "title": "A voice to try", "per_minute": 600, **more}
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


def say(guest, demo: dict, text: str = TEXT, **more):
    return guest.post(
        demo["path"] + "/v1/audio/speech", json={"input": text, "response_format": "pcm", **more}
    )


def row(http, demo: dict) -> dict:
    return next(d for d in http.get("/v1/demos").json()["data"] if d["id"] == demo["id"])


class Guest(Socket):
    """The page's socket as a link's guest opens it: no cookie, the link before every address."""

    def __init__(self, studio, http, demo: dict, token: str = ""):
        self.http, self.seq = http, 0
        self.token = token or http.post(demo["path"] + "/tts/session").json()["token"]
        self.ws = connect(
            studio.url.replace("http", "ws", 1) + demo["path"] + "/tts/ws",
            compression=None,
            max_size=None,
            proxy=None,
            legacy=True,
        )
        self.send(op="hello", v=1, token=self.token, locale="en")
        self.ready = self.recv()


# ---- what a guest may do -------------------------------------------------------------------------
def test_a_guest_speaks_with_the_links_voice_and_settings_over_both_ways(house):
    studio, http, voice = house
    demo = share(
        http, voice, mode="instruct", instructions="seconds=1.5", seed=7, sample="Say this"
    )
    keepers = http.post(
        "/v1/audio/speech",
        json={
            "input": TEXT,
            "voice": voice,
            "mode": "instruct",
            "instructions": "seconds=1.5",
            "seed": 7,
            "response_format": "pcm",
        },
    ).content
    with studio.client() as guest:
        page = guest.get(demo["path"])
        assert page.status_code == 200 and "A voice to try" in page.text and "Say this" in page.text
        over_http = say(
            guest,
            demo,
            voice="starter-zh-low",
            mode="zero_shot",
            instructions="seconds=9",
            seed=1,
            speed=2.0,
            model="no-such",
            transcript="x",
            source="draft-0",
            consent=True,
        )
        assert over_http.status_code == 200 and over_http.content == keepers, (
            "what the guest asked for changed something"
        )
        sock = Guest(studio, guest, demo)
        reply = sock.hear(
            sock.start({"input": TEXT, "voice": voice, "instructions": "seconds=9", "speed": 0.5})
        )
        assert bytes(reply.pcm) == keepers
        begin, end = reply.of("begin")[0], reply.of("end")[0]
        assert (
            begin["voice"] == over_http.headers["x-voice"] == "demo"
            and end["url"] is None
            and "code" not in end
        )
        sock.start({"input": TEXT}, credit=2400)
        sock.recv(), sock.send(op="cancel", seq=sock.seq)
        assert sock.hear(until=("cancelled", "end")).messages[-1]["op"] == "cancelled"
        sock.close()
    assert row(http, demo)["uses"] == 3 and row(http, demo)["characters"] == 3 * len(TEXT)
    assert not http.get("/tts/takes.zip").content.count(b"the transcript"), "a guest leaves no take"
    assert not [
        p
        for p in (studio.data_dir / "takes").rglob("take.json")
        if demo["id"] in p.read_text("utf-8")
    ]


def test_the_page_and_its_answers_tell_nothing_of_the_studio(house):
    studio, http, voice = house
    demo = share(http, voice)
    with studio.client() as guest:
        page, sound = guest.get(demo["path"]), say(guest, demo)
        public_text = page.text + json.dumps(dict(page.headers)) + json.dumps(dict(sound.headers))
        sock = Guest(studio, guest, demo)
        public_text += (
            json.dumps(sock.hear(sock.start({"input": TEXT})).messages)
            + json.dumps(sock.ready)
            + sock.token
        )
        sock.close()
        for secret in (
            voice,
            "Lin Wan",
            "the transcript",
            "user-bob",
            str(studio.data_dir),
            "kk_login",
        ):
            assert secret not in public_text, secret
        assert "set-cookie" not in page.headers and not guest.cookies, (
            "no cookie is needed, so it works in another site's frame"
        )
        assert (
            "frame-ancestors *" in page.headers["content-security-policy"]
            and page.headers["x-robots-tag"] == "noindex"
        )
    assert "frame-ancestors 'self'" in http.get("/").headers["content-security-policy"], (
        "only that page may be framed by others"
    )


def test_every_file_of_the_page_is_there_and_its_policy_lets_it_run(house):
    studio, http, voice = house
    demo = share(http, voice)
    with studio.client() as guest:
        page = guest.get(demo["path"]).text
        files = re.findall(r'(?:src|href)="(/[^"]+)"', page)
        version = json.loads(re.search(r'id="kk-data">(.*?)</script>', page, re.S).group(1))[
            "facts"
        ]["version"]
        files += [
            f"{demo['path']}/tts/static/{version}/player/{name}.js"
            for name in ("transport", "worklet", "sample_buffer")
        ]
        assert len(files) == 19 and all(guest.get(f).status_code == 200 for f in files), files
        assert "<script>" not in page, "inline code would need a weaker policy"


def test_a_title_and_a_sample_cannot_become_markup(house):
    studio, http, voice = house
    demo = share(
        http,
        voice,
        title="</script><script>alert(1)</script>",
        sample="<img src=x onerror=alert(1)>{data}{files}",
    )
    with studio.client() as guest:
        page = guest.get(demo["path"]).text
        assert "alert(1)</script>" not in page and "<img" not in page
        facts = json.loads(re.search(r'id="kk-data">(.*?)</script>', page, re.S).group(1))["facts"]
        assert facts["title"].startswith("</script>") and facts["sample"].endswith("{data}{files}")


def test_the_qr_code_holds_the_link(house):
    studio, http, voice = house
    demo = share(http, voice)
    assert demo["url"] == studio.url + demo["path"]
    svg = http.get(f"/v1/demos/{demo['id']}/qr.svg")
    assert svg.status_code == 200 and svg.headers["content-type"].startswith("image/svg+xml")
    qr_code = segno.make(demo["url"], error="m", micro=False)
    assert (
        re.findall(r' d="([^"]+)"', svg.text)[-1]
        == re.findall(r' d="([^"]+)"', qr_code.svg_inline(scale=4, border=4))[-1]
    )


def test_a_link_is_told_at_the_addresses_where_others_reach_it_and_its_qr_code_holds_only_these(
    house,
):
    _, http, voice = house
    demo = share(http, voice)
    assert demo["urls"] == [], "nobody else reaches a studio that listens on loopback"
    far = {"X-Forwarded-Host": "voice.example", "X-Forwarded-Proto": "https"}
    links = http.get("/v1/demos", headers=far).json()["data"]
    at = f"https://voice.example{demo['path']}"
    assert {d["id"]: d["urls"] for d in links}[demo["id"]] == [{"url": at, "interface": ""}]
    picture = f"/v1/demos/{demo['id']}/qr.svg"
    svg = http.get(picture, params={"url": at}, headers=far)
    assert svg.status_code == 200 and len(svg.text) > 500
    for elsewhere in ("https://evil.example/", at, demo["url"] + "/../.."):
        refused = http.get(picture, params={"url": elsewhere})
        assert refused.status_code == 422 and error(refused)["code"] == "bad_url"


def test_a_studio_on_the_network_tells_its_addresses_to_its_keeper_and_to_no_guest():
    with running("--host", "0.0.0.0", "--auth", "bob:secret") as studio, studio.client() as http:
        assert http.post("/v1/demos", json={"voice": "alloy"}).status_code == 401
        http.post("/login", data={"user": "bob", "password": "secret"})
        http.get("/")
        demo = share(http, "starter-zh-low")
        port = studio.url.rpartition(":")[2]
        assert demo["urls"] == [
            {"url": f"http://{at.address}:{port}{demo['path']}", "interface": at.name}
            for at in reachable("0.0.0.0")
        ]
        with studio.client() as guest:
            page = guest.get(demo["path"]).text
            assert not any(at["url"] in page for at in demo["urls"])
            assert guest.get(demo["path"] + "/v1/demos").status_code == 404
            assert guest.get("/v1/demos").status_code == 401
            for at in demo["urls"]:
                assert guest.get(at["url"]).status_code == 200


# ---- what ends a link ----------------------------------------------------------------------------
def refused(guest, demo: dict, status: int, code: str) -> None:
    """By every way in: the page, the session, the stream, the socket."""
    page = guest.get(demo["path"], headers={"Accept": "text/html"})
    assert page.status_code == status and "A voice to try" not in page.text
    for answer in (
        guest.post(demo["path"] + "/tts/session"),
        say(guest, demo),
        guest.get(demo["path"], headers={"Accept": "application/json"}),
    ):
        assert answer.status_code == status and error(answer)["code"] == code, answer.text
    with pytest.raises(InvalidStatus):
        connect(
            str(guest.base_url).replace("http", "ws", 1).rstrip("/") + demo["path"] + "/tts/ws",
            proxy=None,
            legacy=True,
        )


def test_an_edited_link_is_refused(house):
    studio, http, voice = house
    demo, other = share(http, voice), share(http, voice, days=300)
    head, end, mark = demo["path"].split(".")
    with studio.client() as guest:
        for path in (
            f"{head}.{int(end) + 86400}.{mark}",
            f"{head}.{end}.{mark[:-1]}{'0' if mark[-1] != '0' else '1'}",
            f"{head}.{end}.",
            f"{head}.{end}",
            head,
            f"{head}.{end}.{other['path'].split('.')[2]}",
            f"/d/{'0' * 24}.{end}.{mark}",
            "/d/x",
            f"{head}..{mark}",
            f"{demo['path']}%00",
            f"{demo['path']}é",
        ):
            refused(guest, {"path": path}, 404, "demo_gone")
        assert guest.get("/d/").status_code == 401 or guest.get("/d/").status_code == 404


def test_a_link_that_was_taken_back_is_refused_in_an_open_socket_too(house):
    studio, http, voice = house
    demo = share(http, voice)
    with studio.client() as guest:
        sock = Guest(studio, guest, demo)
        first = sock.hear(sock.start({"input": TEXT}))
        assert first.of("end")
        assert http.delete(f"/v1/demos/{demo['id']}").status_code == 204
        retry = sock.hear(sock.start({"input": TEXT}))
        assert retry.of("error")[0]["code"] == "demo_ended"
        resumed = sock.hear(
            sock.start({"input": TEXT}, job=first.of("begin")[0]["job"], **{"from": 0})
        )
        assert len(resumed.pcm) in (0, len(first.pcm)), "at most the sound that was already theirs"
        sock.close()
        refused(guest, demo, 403, "demo_ended")
        assert (
            row(http, demo)["state"] == "revoked"
            and http.delete(f"/v1/demos/{demo['id']}").status_code == 204
        )


def test_a_link_expires(house):
    studio, http, voice = house
    demo = share(http, voice, days=2.5 / 86400)
    with studio.client() as guest:
        assert guest.get(demo["path"]).status_code == 200
        time.sleep(max(0.0, demo["created_at"] + 4.1 - time.time()))
        refused(guest, demo, 403, "demo_expired")
    assert row(http, demo)["state"] == "expired"


def test_no_cap_can_be_passed_however_many_try_at_once(house):
    studio, http, voice = house
    uses = share(http, voice, max_uses=5, mode="instruct", instructions="seconds=0.1")
    chars = share(
        http, voice, max_chars=3 * len(TEXT) + 1, mode="instruct", instructions="seconds=0.1"
    )
    with studio.client() as guest, ThreadPoolExecutor(12) as crowd:
        for demo, n in ((uses, 5), (chars, 3)):
            answers = list(crowd.map(lambda _, demo=demo: say(guest, demo), range(24)))
            ok = [a for a in answers if a.status_code == 200]
            over = [
                a for a in answers if a.status_code == 403 and error(a)["code"] == "demo_used_up"
            ]
            assert len(ok) <= n and {a.status_code for a in answers} <= {200, 403, 429}
            while len(ok) < n:  # some met the limit of streams of one visitor, which costs no use
                ok.append(say(guest, demo))
                assert ok[-1].status_code == 200
            assert error(say(guest, demo))["code"] == "demo_used_up" and over is not None
            assert row(http, demo)["uses"] == n and row(http, demo)["state"] in ("used_up", "live")


def test_a_link_that_is_used_up_speaks_nothing_more_by_resuming(house):
    """From its first sample a text is another use, made or not; so is one that the guest had
    stopped.
    """
    studio, http, voice = house
    slow = {"mode": "instruct", "instructions": "seconds=30 rtf=0.5"}
    quick = {"mode": "instruct", "instructions": "seconds=0.5"}
    for settings, is_whole in ((quick, True), (slow, False)):
        demo = share(http, voice, max_uses=1, **settings)
        with studio.client() as guest:
            sock = Guest(studio, guest, demo)
            seq = sock.start({"input": TEXT})
            reply = sock.hear(seq) if is_whole else sock.hear(seq, until=("begin",))
            job = reply.of("begin")[0]["job"]
            if not is_whole:
                sock.send(op="cancel", seq=seq)
                sock.hear(seq)
            opened = studio.state()["opened"]
            for start in [0] * 12 if is_whole else [0, 1] * 6:
                retry = sock.hear(sock.start({"input": TEXT}, job=job, **{"from": start}))
                assert retry.of("error")[0]["code"] == "demo_used_up" and not retry.pcm
            assert studio.state()["opened"] == opened and row(http, demo)["uses"] == 1
            sock.close()


def test_a_guest_whose_connection_broke_goes_on_and_that_is_no_way_around_the_cap(house):
    studio, http, voice = house
    demo = share(http, voice, max_uses=1, mode="instruct", instructions="seconds=3")
    with studio.client() as guest:
        sock = Guest(studio, guest, demo)
        seq = sock.start({"input": TEXT}, credit=24000)
        reply = sock.hear(seq, until=("begin",))
        while len(reply.pcm) < 48000:
            message = sock.recv()
            reply.pcm += message[FRAME.size :] if isinstance(message, bytes) else b""
        job, n = reply.of("begin")[0]["job"], len(reply.pcm) // 2
        token, ends = sock.token, []
        sock.ws.socket.close()  # the network went away
        for _ in range(4):
            sock = Guest(studio, guest, demo, token)  # still the same visit
            rest = sock.hear(sock.start({}, job=job, **{"from": n}))
            ends.append(rest.messages[-1])
            if rest.of("end"):
                assert len(rest.pcm) // 2 == 3 * 24000 - n
                job = rest.of("begin")[0]["job"]
            sock.ws.socket.close()
        assert [e.get("code", "") for e in ends] == ["", "", "demo_used_up", "demo_used_up"]
    assert row(http, demo)["uses"] == 1


def test_a_charged_resume_is_one_more_use(house):
    studio, http, voice = house
    demo = share(http, voice, max_uses=2, mode="instruct", instructions="seconds=0.2")
    with studio.client() as guest:
        sock = Guest(studio, guest, demo)
        first = sock.hear(sock.start({"input": TEXT}))
        for is_heard in (True, False):
            job = first.of("begin")[0]["job"]
            second = sock.hear(sock.start({"input": TEXT}, job=job, **{"from": 0}))
            assert (second.pcm == first.pcm) == is_heard
        sock.close()
    assert row(http, demo)["uses"] == 2 and row(http, demo)["characters"] == 2 * len(TEXT)


def test_length_rate_and_nonsense_are_refused_and_cost_no_use(house):
    studio, http, voice = house
    demo = share(http, voice, max_text=40, per_minute=30)
    with studio.client() as guest:
        assert error(say(guest, demo, "x" * 41))["code"] == "too_long_text"
        assert error(say(guest, demo, "…"))["code"] == "no_text"
        assert guest.post(demo["path"] + "/v1/audio/speech", content=b"{").status_code == 422
        assert (
            guest.post(
                demo["path"] + "/v1/audio/speech", content=b'{"input":"' + b"x" * 70_000 + b'"}'
            ).status_code
            == 413
        )
        assert row(http, demo)["uses"] == 0
        answers = [say(guest, demo) for _ in range(12)]
        last = answers[-1]
        assert (
            answers[0].status_code == 200
            and last.status_code == 429
            and int(last.headers["retry-after"]) >= 1
            and error(last)["code"] == "rate_limited"
        )
        assert row(http, demo)["uses"] == sum(a.status_code == 200 for a in answers)


def test_a_link_ends_with_its_voice(house):
    studio, http, _ = house
    voice = http.post(
        "/v1/audio/voices",
        files={"audio_sample": clip(4)},
        data={"name": "short-lived", "consent": "me"},
    ).json()["id"]
    demo = share(http, voice)
    http.delete(f"/v1/audio/voices/{voice}")
    with studio.client() as guest:
        assert say(guest, demo).status_code == 404 and row(http, demo)["uses"] == 0


def test_a_guest_cannot_bring_a_reference_of_its_own(house):
    import base64

    studio, http, voice = house
    demo = share(http, voice, mode="instruct", instructions="seconds=0.5", seed=3)
    with studio.client() as guest:
        plain, with_clip = (
            say(guest, demo),
            say(
                guest,
                demo,
                ref_audio=base64.b64encode(clip(1)[:40_000]).decode(),
                ref_text="x",
                consent=True,
            ),
        )
        assert plain.status_code == 200 and (
            with_clip.status_code in (403, 422) or with_clip.content == plain.content
        )


def test_only_who_made_a_link_sees_it(house):
    studio, http, voice = house
    demo = share(http, voice)
    robot = http.post("/v1/keys", json={"name": "r", "scopes": ["speak", "voices", "jobs"]}).json()[
        "key"
    ]
    with studio.client() as program:
        assert (
            program.get("/v1/demos", headers={"Authorization": f"Bearer {robot}"}).status_code
            == 403
        )
    assert http.delete("/v1/demos/demo-000000000000000000000000").status_code == 404
    assert http.post("/v1/demos", json={"voice": "voice-" + "0" * 32}).status_code == 404
    for body, field in (
        ({"days": 0}, "days"),
        ({"days": 1e9}, "days"),
        ({"max_uses": 0}, "max_uses"),
        ({"max_text": 10**6}, "max_text"),
        ({"speed": 9.0}, "speed"),
        ({"mode": "convert"}, "mode"),
        ({"seed": -2}, "seed"),
    ):
        answer = http.post("/v1/demos", json={"voice": voice, **body})
        assert answer.status_code == 422 and error(answer)["param"] == field, body
    assert row(http, demo)["settings"]["mode"] == "auto"


# ---- what a guest cannot do ----------------------------------------------------------------------
GUESSES = [
    "",
    "/",
    "/config",
    "/gradio_api/info",
    "/gradio_api/queue/join",
    "/gradio_api/queue/data",
    "/gradio_api/upload",
    "/gradio_api/file=/etc/passwd",
    "/gradio_api/heartbeat/x",
    "/theme.css",
    "/info",
    "/login",
    "/v1/models",
    "/v1/openapi.json",
    "/openapi.json",
    "/docs",
    "/metrics",
    "/health/ready",
    "/health/live",
    "/tts/health",
    "/tts/model/fetch",
    "/tts/model/pause",
    "/tts/model/examine",
    "/tts/model/agree",
    "/tts/model/report",
    "/tts/takes.zip",
    "/tts/result/{take}.wav",
    "/tts/result/{take}.json",
    "/tts/draft/{draft}/audio",
    "/v1/audio/voices",
    "/v1/audio/voices/{voice}",
    "/v1/audio/voices/{voice}/sample",
    "/v1/audio/voices/demo/sample",
    "/v1/audio/voices/inspect",
    "/v1/audio/voice_consents",
    "/v1/audio/speech",
    "/v1/audio/speech/stream",
    "/v1/pronunciations",
    "/v1/pronunciations.tsv",
    "/v1/text/prepare",
    "/v1/keys",
    "/v1/demos",
    "/v1/demos/{demo}/qr.svg",
    "/v2/jobs",
    "/v2/synthesize/batch",
    "/inference_sft",
    "/inference_zero_shot",
    "/tts",
    "/tts/ws",
    "/tts/session",
    "/tts/cancel/{take}",
    "/tts/static/x/secret",
    "/tts/static/x/../secret",
    "/tts/static/x/voices.json",
    "/tts/static/x/access.sqlite",
    "/d/{token}",
    "/test/state2",
    "/.env",
    "/data/secret",
    "/robots.txt",
    "/favicon.ico",
    "/static/img/logo.svg",
    "/file=data/secret",
    "/proxy=http://127.0.0.1/",
    "/stream/x",
    "/queue/status",
    "/run/predict",
    "/api/predict",
]
OWN = {("POST", "/tts/session"), ("POST", "/v1/audio/speech"), ("POST", "/tts/cancel/{take}")}


def test_a_crawl_of_500_guessed_routes_finds_only_the_page_its_files_and_its_stream(house):
    studio, http, voice = house
    demo = share(http, voice)
    take = http.post(
        "/v1/audio/speech",
        json={"input": "The keeper's own words.", "voice": voice, "stream": False},
    ).headers["x-job-id"]
    names = {
        "take": take,
        "voice": voice,
        "draft": "draft-" + "0" * 32,
        "demo": demo["id"],
        "token": demo["path"][3:],
    }
    rng, guesses, n = random.Random(5), [], 0
    with studio.client() as guest:
        sock = Guest(studio, guest, demo)
        token = sock.token
        keys = [
            {},
            {"Cookie": f"kk_visit={token}; kk_login={token}"},
            {"Authorization": f"Bearer {token}"},
            {"Authorization": f"Bearer {demo['path'][3:]}"},
            {"X-Forwarded-Prefix": demo["path"], "X-Original-Url": demo["path"]},
        ]
        for prefix in ("", demo["path"]):
            for guess in GUESSES:
                for method in ("GET", "POST", "PUT", "DELETE"):
                    path, n = prefix + guess.format(**names), n + 1
                    answer = guest.request(
                        method,
                        path or "/",
                        headers=keys[rng.randrange(len(keys))],
                        json={"input": "x", "voice": voice} if method == "POST" else None,
                    )
                    if answer.status_code < 400:
                        guesses.append((method, guess if prefix else guess or "/", bool(prefix)))
                    else:
                        assert answer.status_code in (401, 403, 404, 405, 413, 422), (
                            method,
                            path,
                            answer.status_code,
                        )
                        assert voice not in answer.text and "Lin Wan" not in answer.text
        sock.close()
    assert n >= 500
    inside = {(m, g) for m, g, is_inside in guesses if is_inside}
    outside = {(m, g) for m, g, is_inside in guesses if not is_inside}
    assert inside == {*OWN, ("GET", "")}, (
        "below the link there is the page, and what it speaks with"
    )
    assert outside == {("GET", "/login"), ("GET", "/health/live"), ("GET", "/d/{token}")}, (
        "beside it there is what everyone has"
    )
    # a stream of the keeper's cannot be taken over or stopped, and the page's own socket does not
    # know the guest
    with studio.client() as guest:
        sock = Guest(studio, guest, demo)
        assert (
            sock.hear(sock.start({"input": TEXT}, job=take, **{"from": 0})).of("error")[0]["code"]
            == "stream_gone"
        )
        assert guest.post(f"{demo['path']}/tts/cancel/{take}").json() == {"cancelled": False}
        for path in ("/v1/audio/speech/stream", "/gradio_api/queue/data", "/tts/ws/", "/v2/jobs"):
            with pytest.raises(InvalidStatus):  # below the link there is one socket
                connect(
                    studio.url.replace("http", "ws", 1) + demo["path"] + path,
                    proxy=None,
                    legacy=True,
                )
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            ws = connect(
                studio.url.replace("http", "ws", 1) + "/tts/ws",
                proxy=None,
                legacy=True,
                additional_headers={"Cookie": f"kk_login={sock.token}"},
            )
            ws.recv(5)
        other = share(http, voice)
        ws = connect(
            studio.url.replace("http", "ws", 1) + other["path"] + "/tts/ws", proxy=None, legacy=True
        )
        ws.send(json.dumps({"op": "hello", "v": 1, "token": sock.token, "locale": "en"}))
        with pytest.raises(ConnectionClosed):  # the token of one link opens no other
            ws.recv(5)
        sock.close()


def test_a_link_below_a_sub_path_and_behind_a_proxy_knows_its_address():
    with running("--root-path", "/voice") as sub, sub.client() as http:
        demo = share(http, "starter-zh-high")
        assert demo["url"] == f"{sub.url}/voice{demo['path']}"
        with sub.client() as guest:
            page = guest.get("/voice" + demo["path"])
            facts = json.loads(re.search(r'id="kk-data">(.*?)</script>', page.text, re.S).group(1))[
                "facts"
            ]
            assert (
                facts["link"] == "/voice" + demo["path"]
                and guest.get(
                    re.search(r'href="(/voice/[^"]+css)"', page.text).group(1)
                ).status_code
                == 200
            )
            reply = Heard()
            for part in (
                guest.post(
                    "/voice" + demo["path"] + "/v1/audio/speech",
                    json={"input": TEXT, "response_format": "pcm"},
                ),
            ):
                reply.pcm += part.content
            assert np.abs(np.frombuffer(bytes(reply.pcm), "<i2")).max() > 100 and FRAME.size == 16
        proxied = http.get(
            "/v1/demos",
            headers={"X-Forwarded-Proto": "https", "X-Forwarded-Host": "studio.example"},
        ).json()["data"][0]["url"]
        assert proxied == f"https://studio.example/voice{demo['path']}"
