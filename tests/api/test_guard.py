"""The door: Host, Origin, login, keys, body size; on Gradio's routes and ours alike."""

from __future__ import annotations

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.api.client import Socket
from tests.serve import running

ROUTES = [
    ("GET", "/"),
    ("GET", "/config"),
    ("GET", "/gradio_api/info"),
    ("POST", "/gradio_api/queue/join"),
    ("POST", "/gradio_api/upload"),
    ("POST", "/v1/audio/speech"),
    ("GET", "/v1/audio/voices"),
    ("POST", "/v1/audio/voices"),
    ("POST", "/tts/session"),
    ("GET", "/tts/result/take-0.wav"),
    ("POST", "/tts/cancel/take-0"),
    ("GET", "/metrics"),
    ("GET", "/tts/health"),
    ("GET", "/tts/takes.zip"),
    ("GET", "/v1/pronunciations"),
    ("PUT", "/v1/pronunciations"),
    ("DELETE", "/v1/pronunciations"),
    ("POST", "/v1/pronunciations.csv"),
    ("GET", "/v1/pronunciations.tsv"),
    ("POST", "/v1/text/prepare"),
    ("GET", "/tts"),
    ("GET", "/inference_sft"),
]


def ws_status(studio, **headers) -> int:
    try:
        connect(
            studio.url.replace("http", "ws", 1) + "/tts/ws",
            additional_headers=headers,
            proxy=None,
            legacy=True,
        ).close()
    except InvalidStatus as refused:
        return refused.response.status_code
    return 101


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_foreign_origin_or_host_gets_nothing(studio, method, path):
    with studio.client() as http:
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Host": "evil.example"},
            browser_says("cross-site", "no-cors", "image"),
            browser_says("same-site", "no-cors", "image"),
        ):
            answer = http.request(method, path, headers=headers)
            assert answer.status_code == 403, headers
            assert "access-control-allow-origin" not in answer.headers
            assert answer.json()["error"]["code"] in ("bad_origin", "bad_host")


def browser_says(site: str, mode: str, dest: str) -> dict:
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_on_another_site_may_be_followed(studio, site):
    """To the pages; into another site's frame come demo links alone.

    Another port of this host is another site.
    """
    with studio.client() as http:
        link = browser_says(site, "navigate", "document")
        assert [http.get(p, headers=link).status_code for p in ("/", "/login", "/d/none")] == [
            200,
            200,
            404,
        ]
        for dest in ("iframe", "frame", "embed", "object"):
            frame = browser_says(site, "navigate", dest)
            assert http.get("/d/none", headers=frame).status_code == 404
            for path in ("/", "/login"):
                answer = http.get(path, headers=frame)
                assert answer.status_code == 403
                assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
        assert http.post("/login", headers=link).status_code == 403
    with studio.client() as http:
        for own in ("same-origin", "none"):
            headers = browser_says(own, "cors", "empty")
            assert http.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/tts?text=Hi&text_lang=en&ref_audio_path=alloy",
        "/inference_sft?tts_text=Hi&spk_id=alloy",
        "/tts/takes.zip",
        "/gradio_api/info",
        "/d/none/tts/session",
    ],
)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("mode", "dest"),
    [
        ("no-cors", "image"),
        ("no-cors", "audio"),
        ("no-cors", "script"),
        ("cors", "empty"),
        ("websocket", "websocket"),
        ("navigate", "document"),
        ("navigate", "iframe"),
        ("navigate", "object"),
    ],
)
def test_no_page_of_another_port_or_site_makes_the_studio_act(studio, path, site, mode, dest):
    before = studio.state()["opened"]
    with studio.client() as http:
        answer = http.get(path, headers=browser_says(site, mode, dest))
        assert answer.status_code == 403 and answer.json()["error"]["code"] == "bad_origin"
    assert studio.state()["opened"] == before, "something was spoken"


@pytest.mark.parametrize(
    "name",
    [
        "[",
        "[::1",
        "[nothing]",
        "a b",
        "x" * 300,
        "127.0.0.1:x",
        "127.0.0.1/x",
        "evil.example@127.0.0.1",
    ],
)
def test_a_host_or_origin_that_cannot_be_is_refused_by_name(studio, locked, name):
    for place in (studio, locked):
        with place.client() as http:
            for headers in ({"Host": name}, {"Origin": f"http://{name}"}):
                answer = http.post(
                    "/v1/audio/speech", headers=headers, json={"input": "Hi.", "voice": "alloy"}
                )
                assert answer.status_code == 403 and answer.json()["error"]["code"] in (
                    "bad_host",
                    "bad_origin",
                ), (headers, answer.text)
    assert ws_status(studio, Origin=f"http://{name}") == 403


def test_a_foreign_origin_cannot_open_the_socket(studio):
    assert ws_status(studio, Origin="https://evil.example") == 403
    assert ws_status(studio, Origin=studio.url) == 101


def test_a_socket_without_our_token_is_closed(studio):
    from websockets.exceptions import ConnectionClosed

    ws = connect(studio.url.replace("http", "ws", 1) + "/tts/ws", proxy=None, legacy=True)
    ws.send('{"op":"hello","v":1,"token":"local/x.00"}')
    with pytest.raises(ConnectionClosed):
        ws.recv(5)


def test_a_big_body_is_cut_while_it_is_read(studio):
    with studio.client() as http:
        big = b"x" * (12 << 20)
        assert http.post("/tts/session", content=big).status_code == 413
        for path in ("/v1/audio/speech", "/v1/audio/voices", "/v1/audio/voices/inspect"):
            assert http.post(path, content=big).status_code == 413

            def endless():
                yield (
                    b'--y\r\nContent-Disposition: form-data; name="audio_sample";'
                    b' filename="x"\r\n\r\n'
                )
                for _ in range(900):
                    yield b"y" * (64 << 10)

            try:
                form = (
                    {"Content-Type": "multipart/form-data; boundary=y"} if "voices" in path else {}
                )
                assert http.post(path, content=endless(), headers=form).status_code == 413
            except httpx.TransportError:
                pass  # the server hung up on the flood: as good


@pytest.fixture(scope="module")
def locked():
    with running("--auth", "bob:secret", env={"KAIKOU_API_KEY": "k-123"}) as studio:
        yield studio


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_login_every_route_refuses(locked, method, path):
    with locked.client() as http:
        answer = http.request(method, path)
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "login_needed"
        page = (
            http.request(
                method, path, headers={"Accept": "text/html", "Cookie": "kk_login=bob.0000"}
            )
            if method == "GET"
            else None
        )
        assert page is None or (page.status_code == 303 and page.headers["location"] == "/login")


def test_login_opens_page_stream_and_api(locked):
    assert ws_status(locked) == 403
    with locked.client() as http:
        assert http.get("/health/live").status_code == 200
        assert http.get("/login").status_code == 200
        assert http.post("/login", data={"user": "bob", "password": "wrong"}).status_code == 401
        assert http.get("/", headers={"Accept": "text/html"}).status_code == 303
        assert http.post("/login", data={"user": "bob", "password": "secret"}).status_code == 303
        assert http.get("/", headers={"Accept": "text/html"}).status_code == 200
        sock = Socket(locked, http)
        assert sock.say({"input": "Hello there.", "seed": 1}).of("end")
        sock.close()


def test_an_api_key_speaks_and_a_wrong_one_does_not(locked):
    ask = {"input": "hi", "voice": "alloy"}
    with locked.client() as http:
        assert (
            http.post(
                "/v1/audio/speech", json=ask, headers={"Authorization": "Bearer k-123"}
            ).status_code
            == 200
        )
        assert (
            http.post(
                "/v1/audio/speech", json=ask, headers={"Authorization": "Bearer k-124"}
            ).status_code
            == 401
        )


def test_rate_limit_answers_429_with_retry_after():
    with running(env={"KAIKOU_STARTS_PER_MINUTE": "6"}) as slow, slow.client() as http:
        http.post("/tts/session")
        codes = [
            http.post("/v1/audio/speech", json={"input": "hi", "voice": "alloy", "stream": False})
            for _ in range(5)
        ]
        assert (
            [c.status_code for c in codes][:2] == [200, 200]
            and codes[-1].status_code == 429
            and int(codes[-1].headers["retry-after"]) >= 1
        )


def test_a_sub_path_works_with_and_without_stripping():
    with running("--root-path", "/voice") as sub, sub.client() as http:
        for path in ("/voice/v1/models", "/v1/models"):
            assert http.get(path).status_code == 200
        page = http.get("/voice/")
        assert (
            page.status_code == 200
            and "kk_visit" in page.headers["set-cookie"]
            and "Path=/voice" in page.headers["set-cookie"]
        )
