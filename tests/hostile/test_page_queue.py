"""The page's own queue as an attacker uses it: files of the server, addresses, other visitors'
uploads, and too much of everything.

One attack is asked of every event of the mounted page, so that a new event is covered by being
there. The controls at the end leave the check out and plant an event: there the same attack must
succeed, or it would prove nothing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import gradio as gr
import httpx
import pytest
import uvicorn

from tests.api.test_http import clip, error
from tests.engine.fake import FakeEngine
from tests.serve import running
from webui import app as root
from webui import ui
from webui.settings import Paths, Settings
from webui.ui.middleware import MAX_EVENTS_EACH
from webui.ui.uploads import MAX_RAW_AGE_S, MAX_RAW_BYTES, MAX_RAW_EACH, Uploads


@pytest.fixture(scope="module")
def open_studio():
    with running(env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio:
        yield studio


@pytest.fixture
def visitor(open_studio):
    with open_studio.client() as client:
        client.post("/tts/session")
        yield client


@pytest.fixture
def secret(tmp_path) -> Path:
    path = tmp_path / "diary.wav"
    path.write_bytes(clip(4))
    return path


def file_data(path: str, **more) -> dict:
    return {"path": path, "meta": {"_type": "gradio.FileData"}, **more}


def events_of(http: httpx.Client) -> list[dict]:
    return http.get("/config").json()["dependencies"]


def join(http: httpx.Client, fn_index: int, data: list, **more) -> httpx.Response:
    body = {"fn_index": fn_index, "session_hash": uuid.uuid4().hex, "event_data": None, **more}
    return http.post("/gradio_api/queue/join", json={**body, "data": data})


def result(http: httpx.Client, session: str) -> dict:
    """What the queue says when the only event of this session is over."""
    with http.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as lines:
        for line in lines.iter_lines():
            message = json.loads(line.removeprefix("data: ")) if line else {}
            if message.get("msg") == "process_completed":
                return message
    raise AssertionError("the queue ended without a result")


def payloads(path: str) -> list[dict]:
    """Ways to hide a file's path in a request to join: where it belongs, nested, and in other
    fields.
    """
    file = file_data(path)
    return [
        {"data": [file]},
        {"data": [[file]], "event_data": None},
        {"data": [{"value": file}]},
        {"data": [{"a": [{"b": {**file, "is_stream": True}}]}]},
        {"data": [None], "event_data": {"op": "change", "file": file}},
        {"data": [None], "state": file},
        {"data": [None], "state": {"1": [file]}},
        {"data": [{"path": path}]},
    ]


def upload(http: httpx.Client, data: bytes, name: str = "clip.wav") -> httpx.Response:
    return http.post("/gradio_api/upload", files={"files": (name, data)})


# ---- files of the server -------------------------------------------------------------------------
def test_no_event_of_the_page_takes_a_path_that_was_not_uploaded(
    visitor, open_studio, secret, tmp_path
):
    pipe, sparse = tmp_path / "pipe.wav", tmp_path / "sparse.wav"
    os.mkfifo(pipe)
    with sparse.open("wb") as file:
        file.truncate(1_500_000_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/a.wav"
        paths = [
            str(secret),
            str(pipe),
            str(sparse),
            "/dev/zero",
            address,
            address.replace("http", "https"),
            f"file://{secret}",
            "../../etc/passwd",
            "",
        ]
        calls = [
            (event["id"], payload)
            for event in events_of(visitor)
            for path in paths
            for payload in payloads(path)[: None if path == str(secret) else 1]
        ]
        assert len({fn for fn, _ in calls}) > 15, "the page has more events than that"
        for fn_index, payload in calls:
            answer = join(visitor, fn_index, **payload)
            assert answer.status_code == 403, (fn_index, payload, answer.text)
            assert error(answer)["code"] == "foreign_file"
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):  # nobody knocked
            listener.accept()
    assert "diary" not in open_studio.log.read_text("utf-8", "replace")


def test_the_loop_answers_while_a_pipe_and_a_huge_file_are_named(visitor, tmp_path):
    """Neither is opened, so that an answer that is asked for meanwhile is not held up by
    anything.
    """
    pipe = tmp_path / "pipe.wav"
    os.mkfifo(pipe)
    for event in events_of(visitor):
        assert join(visitor, event["id"], [file_data(str(pipe))]).status_code == 403
    assert visitor.get("/health/live").status_code == 200
    with pytest.raises(OSError):  # no reader has opened it: ENXIO
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def test_an_upload_is_its_visitors_alone_and_lies_nowhere(open_studio, visitor):
    data = clip(4)
    [path] = upload(visitor, data).json()
    assert not Path(path).exists() and not Path(path).parent.parent.exists()
    address = f"/gradio_api/file={path}"
    assert visitor.get(address).status_code == 404, "nobody is given it back"
    [second_path] = upload(visitor, data).json()
    assert second_path != path, "the same bytes of two visitors never share a name"
    with open_studio.client() as other:
        other.post("/tts/session")
        for event in events_of(other):
            answer = join(other, event["id"], [file_data(path)])
            assert answer.status_code == 403 and error(answer)["code"] == "foreign_file"
    for path in ("/etc/passwd", "https://127.0.0.1/x", str(open_studio.data_dir / "secret")):
        assert visitor.get(f"/gradio_api/file={path}").status_code == 404


def clip_event(http: httpx.Client) -> int:
    """The event that makes a draft of the page's clip: an act of the health card."""
    config = http.get("/config").json()
    [card] = [c["id"] for c in config["components"] if c["props"].get("elem_id") == "kk-health"]
    [fn] = [e["id"] for e in config["dependencies"] if [card, "act"] in e["targets"]]
    return fn


def bring(http: httpx.Client, fn_index: int, path: str, **more) -> httpx.Response:
    return join(http, fn_index, [], event_data={"op": "clip", "path": path, "n": 1}, **more)


def made_draft(http: httpx.Client, path: str) -> dict:
    session = uuid.uuid4().hex
    answer = bring(http, clip_event(http), path, session_hash=session)
    assert answer.status_code == 200, answer.text
    return json.loads(result(http, session)["output"]["data"][0])


def test_a_clip_that_is_named_by_a_path_must_be_an_upload_of_this_visitor(
    open_studio, visitor, secret
):
    """It is named in the event's own words, where no file of Gradio's is looked for."""
    [path] = upload(visitor, clip(4)).json()
    with open_studio.client() as other:
        other.post("/tts/session")
        for named in (path, str(secret), "https://127.0.0.1/x", ""):
            answer = bring(other, clip_event(other), named)
            assert answer.status_code == 403 and error(answer)["code"] == "foreign_file", named
    assert made_draft(visitor, path)["id"].startswith("draft-")


def test_the_raw_upload_is_gone_when_its_draft_is_there(visitor):
    data = clip(4)
    [path] = upload(visitor, data).json()
    draft = made_draft(visitor, path)
    assert draft["id"].startswith("draft-")
    response = visitor.get(f"/tts/draft/{draft['id']}/audio?clean=0")
    assert response.status_code == 200 and response.content[:4] == b"RIFF"
    assert made_draft(visitor, path)["id"] == draft["id"], "asked again, it is decoded once"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"[1]", "application/json"),
        (b"[" * 200_000, "application/json"),
        (b"{", "application/json"),
        (b'{"fn_index": 1, "data": ["\xff"]}', "application/json"),
        (b'{"fn_index": 1, "data": []}', "text/plain"),
        (b'{"fn_index": [], "data": [], "session_hash": "x"}', "application/json"),
        (b'{"fn_index": 99999, "data": [], "session_hash": "x"}', "application/json"),
        (b'{"fn_index": 1, "data": 7, "session_hash": "x"}', "application/json"),
    ],
)
def test_what_is_no_event_is_refused(visitor, body, kind):
    answer = visitor.post("/gradio_api/queue/join", content=body, headers={"Content-Type": kind})
    assert 400 <= answer.status_code < 500, answer.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_never_reaches_an_event(visitor, number):
    for event in events_of(visitor):
        body = (
            f'{{"fn_index": {event["id"]}, "session_hash": "s", "data": [null], "event_data":'
            f' {{"first": [{number}]}}}}'
        )
        answer = visitor.post(
            "/gradio_api/queue/join",
            content=body,
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code == 422 and error(answer)["code"] == "bad_number"


UNUSED = [
    ("GET", "/gradio_api/proxy=https://127.0.0.1/"),
    ("POST", "/gradio_api/run/predict"),
    ("POST", "/gradio_api/api/predict"),
    ("POST", "/gradio_api/call/predict"),
    ("POST", "/gradio_api/process_recording"),
    ("POST", "/gradio_api/component_server"),
    ("POST", "/gradio_api/cancel"),
    ("POST", "/gradio_api/reset"),
    ("GET", "/gradio_api/deep_link"),
    ("GET", "/gradio_api/vibe-code"),
    ("GET", "/monitoring"),
    ("GET", "/gradio_api/stream/a/b/1/playlist.m3u8"),
    ("POST", "/gradio_api/stream/x"),
    ("GET", "/gradio_api/file//etc/passwd"),
    ("GET", "/gradio_api/upload_progress?upload_id=x"),
    ("GET", "/gradio_api/custom_component/a/b/c/d"),
]


@pytest.mark.parametrize(("method", "path"), UNUSED)
def test_routes_of_gradio_that_the_page_does_not_use_are_closed(visitor, method, path):
    answer = visitor.request(method, path, json={"data": [], "session_hash": "x"})
    assert answer.status_code == 404 and error(answer)["code"] == "not_found"


# ---- too much ------------------------------------------------------------------------------------
def test_one_visitor_has_so_many_events_in_the_queue_and_no_more(open_studio, visitor):
    """Also in one burst, where each request is looked at before any of the others is in the
    queue.
    """
    fn, start = clip_event(visitor), threading.Barrier(8)
    [path] = upload(visitor, clip(4)).json()
    answers: list[int] = []

    def ask() -> None:
        with open_studio.client(cookies=visitor.cookies) as own_client:
            start.wait()
            for _ in range(40):
                answers.append(bring(own_client, fn, path).status_code)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert answers.count(200) == MAX_EVENTS_EACH, "results that nobody fetched count too"
    assert set(answers) == {200, 429}
    with open_studio.client() as other:
        other.post("/tts/session")
        [path] = upload(other, clip(5)).json()
        assert made_draft(other, path)["id"].startswith("draft-"), "another is served meanwhile"


def test_a_visitor_whose_results_were_fetched_may_go_on(visitor):
    [path] = upload(visitor, clip(4)).json()
    for _ in range(2 * MAX_EVENTS_EACH):
        made_draft(visitor, path)


def test_uploads_that_nobody_reads_are_few_and_do_not_push_out_those_of_others():
    now = [0.0]
    uploads = Uploads(Path("/nowhere"), clock=lambda: now[0])
    other = uploads.add("b/1", "a.wav", b"theirs")
    own_client = [uploads.add("a/1", f"{n}.wav", b"mine") for n in range(3 * MAX_RAW_EACH)]
    assert uploads.get("b/1", other).data == b"theirs"
    present_paths = [path for path in own_client if held_by(uploads, "a/1", path)]
    assert present_paths == own_client[-MAX_RAW_EACH:]
    large = bytes(MAX_RAW_BYTES // 3)
    for n in range(2):
        uploads.add(f"c{n}/1", "a.wav", large)
    with pytest.raises(Exception, match="Many files"):
        uploads.add("d/1", "a.wav", large)
    now[0] += MAX_RAW_AGE_S + 1
    uploads.add("d/1", "a.wav", large)
    assert not held_by(uploads, "b/1", other), "nobody will ask for it any more"


def held_by(uploads: Uploads, owner: str, path: str) -> bool:
    try:
        return bool(uploads.get(owner, path).data)
    except Exception:
        return False


# ---- the controls --------------------------------------------------------------------------------
@contextmanager
def planted(tmp_path: Path, monkeypatch, is_guarded: bool):
    """A studio whose page has one event more, that hands out what it is given; with or without the
    check before it.
    """
    build, pages = ui.build, []

    def with_event(*args):
        blocks, *others = build(*args)
        pages.append(blocks)
        with blocks:
            file, out, button = gr.Audio(type="filepath"), gr.Textbox(), gr.Button()
            button.click(lambda path: Path(path).read_bytes().hex(), file, out)
        return blocks, *others

    monkeypatch.setattr(ui, "build", with_event)
    settings = replace(Settings(), paths=replace(Paths(), data_dir=tmp_path / "data"))
    if not is_guarded:
        monkeypatch.setattr(ui, "PageMiddleware", lambda app, *_: app)
    app, studio = root.build(settings, FakeEngine)
    if not is_guarded:
        pages[0].has_launched = False
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            port = listener.getsockname()[1]
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                http.post("/tts/session")
                yield http
        finally:
            server.should_exit = True
            thread.join()
            studio.close()


def leak(http: httpx.Client, secret: Path) -> list[int]:
    """The events that hand out the file, or tell anything of it."""
    leaking = []
    for event in events_of(http):
        session = uuid.uuid4().hex
        if not event["backend_fn"]:
            continue
        data = [file_data(str(secret)), *[None] * (len(event["inputs"]) - 1)]
        answer = join(http, event["id"], data[: len(event["inputs"])], session_hash=session)
        if answer.status_code == 200 and event["inputs"]:
            text = json.dumps(result(http, session))
            if secret.read_bytes()[:16].hex() in text or "draft-" in text:
                leaking.append(event["id"])
    return leaking


def test_control_without_the_check_the_attack_reads_the_file(tmp_path, monkeypatch, secret):
    with planted(tmp_path, monkeypatch, is_guarded=False) as http:
        # The page's own events ask for uploads by name, so that only the planted one is left.
        assert leak(http, secret) == [events_of(http)[-1]["id"]]


def test_control_a_planted_event_is_covered_by_the_check(tmp_path, monkeypatch, secret):
    with planted(tmp_path, monkeypatch, is_guarded=True) as http:
        assert leak(http, secret) == []
