"""Batches over HTTP: a zip in order while it is made, jobs that are watched, stopped, repaired and
taken away, and what strangers try.
"""

from __future__ import annotations

import io
import json
import socket
import time
import wave
import zipfile

import pytest

from tests.api.test_http import error
from tests.serve import running

SAY = {"mode": "instruct", "instructions": "seconds=0.3", "voice": "starter-en-mid"}


@pytest.fixture(scope="module")
def own():
    """Jobs belong to the account: a studio of its own, so that nobody else's are there."""
    with running(env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio:
        yield studio


@pytest.fixture
def http(own):
    with own.client() as client:
        yield client


def post(http, **body):
    return http.post("/v2/synthesize/batch", json={**SAY, **body})


def until(http, job: str, *states: str) -> dict:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        job_status = http.get(f"/v2/jobs/{job}").json()
        if job_status["state"] in states:
            return job_status
        time.sleep(0.02)
    raise AssertionError(job_status)


def unzipped(data: bytes) -> tuple[dict[str, bytes], dict]:
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None
        files = {n: z.read(n) for n in z.namelist()}
    return {n: d for n, d in files.items() if n != "manifest.json"}, json.loads(
        files["manifest.json"]
    )


def samples(wav: bytes) -> int:
    with wave.open(io.BytesIO(wav)) as w:
        return w.getnframes()


def test_a_zip_in_input_order_with_a_manifest(http):
    answer = post(http, texts=["One.", "Two.", "Three."], seed=3)
    assert (
        answer.status_code == 200
        and answer.headers["content-type"] == "application/zip"
        and answer.headers["x-seed"] == "3"
    )
    files, manifest = unzipped(answer.content)
    assert list(files) == ["0001_One.wav", "0002_Two.wav", "0003_Three.wav"] and all(
        samples(f) == 7200 for f in files.values()
    )
    assert [(r["line"], r["text"], r["state"], r["error"]) for r in manifest["lines"]] == [
        (n, t, "done", None) for n, t in enumerate(("One.", "Two.", "Three."), 1)
    ]
    job = answer.headers["x-job-id"]
    assert manifest["id"] == job and http.get(f"/v2/jobs/{job}").json()["state"] == "done"
    assert http.get(f"/v2/jobs/{job}/download").content == answer.content
    seeds = [r["seed"] for r in manifest["lines"]]
    assert len(set(seeds)) == 3
    assert [
        r["seed"]
        for r in unzipped(
            post(http, texts=["New first.", "One.", "Two.", "Three."], seed=3).content
        )[1]["lines"]
    ][1:] == seeds, "a line's seed stays when others are added"


def test_lines_leave_as_soon_as_those_before_them_are_there(own):
    """Told by where the bytes are, not by a clock: the first file has come while the last cannot
    have been made.
    """
    slow = [
        {"input": "First.", **SAY},
        {"input": "Last.", **SAY, "instructions": "seconds=30 rtf=1"},
    ]
    with (
        own.client() as http,
        http.stream("POST", "/v2/synthesize/batch", json={"requests": slow}) as answer,
    ):
        data, job = b"", answer.headers["x-job-id"]
        for block in answer.iter_raw():
            data += block
            if b"0001_First.wav" in data and len(data) > 7200 * 2:
                break
        assert own.client().get(f"/v2/jobs/{job}").json()["done"] == 1
    with own.client() as http:
        assert until(http, job, "cancelled")["done"] == 1, "a reader who leaves stops the rest"


def test_requests_have_their_own_settings_and_one_bad_line_loses_nothing(http):
    asks = [
        {"input": "Alpha.", "seed": 7},
        {"text": "Beta.", "instructions": "fail=0"},
        {"input": "Gamma.", "voice": {"id": "starter-zh-high"}, "speed": 2, "language": "en"},
    ]
    files, manifest = unzipped(post(http, requests=asks).content)
    assert list(files) == ["0001_Alpha.wav", "0003_Gamma.wav"]
    good, bad, other = manifest["lines"]
    assert good["seed"] == 7 and other["voice"] == "starter-zh-high"
    assert (bad["state"], bad["file"], bad["attempts"], bad["error"]["code"]) == (
        "failed",
        None,
        3,
        "fault",
    )
    job = manifest["id"]
    job_status = http.get(f"/v2/jobs/{job}").json()
    assert (
        job_status["state"],
        job_status["done"],
        job_status["failed"],
        job_status["total"],
        job_status["eta_s"],
    ) == (
        "done",
        2,
        1,
        3,
        None,
    )
    assert [
        x["line"]
        for x in http.get(f"/v2/jobs/{job}/lines", params={"state": "failed"}).json()["data"]
    ] == [2]
    assert http.post(f"/v2/jobs/{job}/retry", params={"line": 1}).json()["state"] == "done", (
        "a line that is done is not made again"
    )
    assert http.post(f"/v2/jobs/{job}/retry", params={"line": 2}).json()["state"] == "running"
    assert until(http, job, "done")["failed"] == 1


def test_a_job_is_accepted_watched_paged_and_deleted(http, own):
    answer = post(http, texts=[f"Line {n}." for n in range(25)], name="a name", **{"async": True})
    assert answer.status_code == 202 and answer.headers["location"].endswith(answer.json()["id"])
    job = answer.json()["id"]
    assert until(http, job, "done")["done"] == 25
    assert (
        http.get("/v2/jobs").json()["data"][0]["id"] == job
        and http.get("/v2/jobs").json()["data"][0]["name"] == "a name"
    )
    line_numbers, start = [], 1
    while start:
        page = http.get(f"/v2/jobs/{job}/lines", params={"start": start, "count": 10}).json()
        line_numbers, start = line_numbers + [x["line"] for x in page["data"]], page["next"]
    assert line_numbers == list(range(1, 26))
    response = http.get(f"/v2/jobs/{job}/lines/25.wav")
    assert response.status_code == 200 and samples(response.content) == 7200
    assert error(http.get(f"/v2/jobs/{job}/lines/26.wav"))["code"] == "no_sound"
    sounds = len(list(own.data_dir.glob("sounds/*/*.wav")))
    assert http.delete(f"/v2/jobs/{job}").status_code == 204
    assert len(list(own.data_dir.glob("sounds/*/*.wav"))) == sounds - 25
    assert error(http.get(f"/v2/jobs/{job}"))["code"] == "job_gone"


def test_cancel_and_resume(http):
    job = post(
        http,
        texts=[f"Slow {n}." for n in range(6)],
        instructions="seconds=0.5 rtf=1",
        **{"async": True},
    ).json()["id"]
    assert http.post(f"/v2/jobs/{job}/cancel").json()["state"] == "cancelled"
    assert http.post(f"/v2/jobs/{job}/cancel").status_code == 200
    assert http.post(f"/v2/jobs/{job}/resume").json()["state"] == "running"
    job_status = until(http, job, "done")
    assert (job_status["done"], job_status["failed"], job_status["cancelled"]) == (6, 0, 0)


def test_an_unchanged_line_is_never_made_twice(http):
    def count_made() -> float:
        return next(
            float(x.split()[1])
            for x in http.get("/metrics").text.splitlines()
            if x.startswith("cv_batch_lines_made ")
        )

    first = post(http, texts=["Same one.", "Same two."], seed=11)
    before = count_made()
    second = post(http, texts=["Same one.", "Between.", "Same two."], seed=11)
    assert count_made() == before + 1, "only the new line was made"
    old, new = unzipped(first.content)[0], unzipped(second.content)[0]
    assert (
        new["0001_Same-one.wav"] == old["0001_Same-one.wav"]
        and new["0003_Same-two.wav"] == old["0002_Same-two.wav"]
    )
    post(http, texts=["Same one."], seed=11, speed=1.5)
    assert count_made() == before + 2, "another speed is another sound"


BAD = {
    "no lines": ({"texts": []}, 422, "no_lines"),
    "nothing": ({}, 422, "no_lines"),
    "100,000 lines": ({"texts": ["x"] * 100_000}, 422, "too_many_lines"),
    "100,000 requests": ({"requests": [{}] * 100_000}, 422, "too_many_lines"),
    "both": ({"texts": ["a"], "requests": [{"input": "a"}]}, 422, "bad_field"),
    "a long line": ({"texts": ["ok", "x" * 4097]}, 422, "too_long_text"),
    "a silent line": ({"texts": ["ok", "…"]}, 422, "no_text"),
    "broken characters": ({"texts": ["a\ud800"]}, 422, ("bad_text", "bad_json")),
    "a number": ({"texts": [3]}, 422, "bad_field"),
    "an unknown voice": ({"texts": ["a"], "voice": "voice-0"}, 404, "voice_gone"),
    "no voice": ({"texts": ["a"], "voice": ""}, 422, "no_voice"),
    "a draft": ({"texts": ["a"], "voice": "draft-" + "0" * 32}, 404, None),
    "a path": ({"texts": ["a"], "voice": "../../etc/passwd"}, 404, None),
    "a mode": ({"texts": ["a"], "mode": "sing"}, 422, "bad_mode"),
    "conversion": ({"texts": ["a"], "mode": "convert"}, 422, "bad_mode"),
    "a seed": ({"texts": ["a"], "seed": 2**63}, 422, "bad_seed"),
    "a line's seed": ({"requests": [{"input": "a", "seed": -5}]}, 422, "bad_seed"),
    "a speed": ({"texts": ["a"], "speed": 9}, 422, "bad_speed"),
    "an endless speed": ({"texts": ["a"], "speed": 10**400}, 422, "bad_field"),
    "a null": ({"texts": ["a\0b"], "voice": "a\0"}, 404, None),
    "a model": ({"texts": ["a"], "model": "none"}, 404, "model_not_found"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_batch_that_cannot_be_made_is_refused_whole(http, kind):
    body, status, code = BAD[kind]
    before = http.get("/v2/jobs", params={"limit": 200}).json()["data"]
    data = json.dumps(
        {**{k: v for k, v in SAY.items() if k != "instructions"}, "async": True, **body}
    )
    answer = http.post(
        "/v2/synthesize/batch", content=data, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status and (
        code is None or error(answer)["code"] in ([code] if isinstance(code, str) else code)
    ), answer.text
    assert http.get("/v2/jobs", params={"limit": 200}).json()["data"] == before


def test_a_line_in_an_unknown_language_is_refused_before_anything_is_accepted(http):
    before = http.get("/v2/jobs").json()["data"]
    answer = http.post(
        "/v2/synthesize/batch",
        json={
            **SAY,
            "requests": [
                {"input": "One.", "language": "en-GB"},
                {"input": "Two.", "language": "klingon"},
            ],
        },
    )
    details = error(answer)
    assert (
        answer.status_code == 422
        and (details["code"], details["param"]) == ("bad_language", "language")
        and details["message"].startswith("Line 2:")
        and "yue" in details["message"]
    )
    assert http.get("/v2/jobs").json()["data"] == before


def test_the_faulty_line_is_named_in_both_languages(http):
    for language, words in (("en", "Line 2:"), ("zh", "第 2 行：")):
        answer = http.post(
            "/v2/synthesize/batch",
            json={**SAY, "texts": ["ok", "…"]},
            headers={"Accept-Language": language},
        )
        assert words in error(answer)["message"]


def test_broken_json_and_bodies_over_the_limit(http, own):
    assert error(http.post("/v2/synthesize/batch", content=b"{"))["code"] == "bad_json"
    assert error(http.post("/v2/synthesize/batch", content=b"[]"))["code"] == "bad_field"
    assert (
        http.post(
            "/v2/synthesize/batch", content=b'{"texts": ["' + b"x" * (16 << 20) + b'"]}'
        ).status_code
        == 413
    )
    host, port = own.url[7:].split(":")
    with socket.create_connection(
        (host, int(port))
    ) as s:  # no length is told: it is cut while it is read
        s.sendall(
            b"POST /v2/synthesize/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding:"
            b" chunked\r\n\r\n"
        )
        try:
            for _ in range(20):
                s.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        except OSError:
            pass
        assert b"413" in s.recv(4096)


def test_an_unknown_job_and_anothers_are_the_same():
    with (
        running("--auth", "ann:pw", "--auth", "bob:pw") as shop,
        shop.client() as ann,
        shop.client() as bob,
    ):
        for client, name in ((ann, "ann"), (bob, "bob")):
            assert client.post("/login", data={"user": name, "password": "pw"}).status_code == 303
        job = post(ann, texts=["Mine."]).headers["x-job-id"]
        for method, tail in (
            ("GET", ""),
            ("GET", "/lines"),
            ("GET", "/lines/1.wav"),
            ("GET", "/download"),
            ("POST", "/cancel"),
            ("POST", "/resume"),
            ("POST", "/retry"),
            ("DELETE", ""),
        ):
            other, unknown = (
                bob.request(method, f"/v2/jobs/{job}{tail}"),
                bob.request(method, f"/v2/jobs/job-{'0' * 32}{tail}"),
            )
            assert (other.status_code, other.json()) == (
                unknown.status_code,
                unknown.json(),
            ) and other.status_code == 404, (method, tail)
            assert shop.client().request(method, f"/v2/jobs/{job}{tail}").status_code == 401
        assert (
            bob.get("/v2/jobs").json()["data"] == []
            and ann.get(f"/v2/jobs/{job}").json()["state"] == "done"
        )


def test_strange_queries_are_named_errors(http):
    job = post(http, texts=["Here."]).headers["x-job-id"]
    for tail in (
        "/lines?start=0",
        "/lines?count=100000",
        "/lines?start=x",
        "/lines/0.wav",
        "/lines/x.wav",
        "/nothing",
        "/lines?start=99999999999999999999",
    ):
        answer = http.get(f"/v2/jobs/{job}{tail}")
        assert answer.status_code in (404, 422) and error(answer)
    assert (
        http.get(f"/v2/jobs/{'x' * 5000}").status_code == 404
        and http.get("/v2/jobs?limit=0").status_code == 422
    )


def test_listeners_go_first_and_keep_their_places(own):
    """While a batch keeps every lane busy, visitors find the door open, and nothing of the batch
    counts as waiting.
    """
    with own.client() as http:
        job = post(
            http,
            texts=[f"Busy {n}." for n in range(200)],
            instructions="seconds=1 rtf=1",
            **{"async": True},
        ).json()["id"]
        for n in range(5):
            assert (
                http.post("/v1/audio/speech", json={**SAY, "input": f"Now {n}."}).status_code == 200
            )
            state = own.state()
            assert state["admitted"] == 0 and state["waiting"] == 0 and state["open"] >= 1, state
        assert http.get(f"/v2/jobs/{job}").json()["done"] < 200
        http.post(f"/v2/jobs/{job}/cancel")


def test_a_full_disk_pauses_the_job_and_nothing_half_is_seen():
    with running(max_file_kb=400) as full, full.client() as http:
        asks = [
            {"input": "Small.", **SAY},
            {"input": "Large.", **SAY, "instructions": "seconds=12"},
            {"input": "Small too.", **SAY},
        ]
        job = http.post("/v2/synthesize/batch", json={"requests": asks, "async": True}).json()["id"]
        job_status = until(http, job, "paused")
        assert (
            job_status["error"]["code"] == "storage"
            and "disk is full" in job_status["error"]["message"].lower()
            and job_status["failed"] == 0
        )
        assert not list(full.data_dir.glob("sounds/*/.new-*"))
        files, manifest = unzipped(http.get(f"/v2/jobs/{job}/download").content)
        assert (
            all(samples(f) == 7200 for f in files.values())
            and manifest["lines"][1]["state"] == "waiting"
        )
        assert http.post(f"/v2/jobs/{job}/resume").status_code == 200
        assert until(http, job, "paused")["error"]["code"] == "storage", (
            "it tried, and there was still no room"
        )
        assert (
            http.post("/v1/audio/speech", json={**SAY, "input": "Still speaking."}).status_code
            == 200
        )


def test_a_restart_goes_on_where_it_was(tmp_path):
    asks = {
        "texts": [f"Line {n}." for n in range(12)],
        "instructions": "seconds=1 rtf=1",
        "async": True,
    }
    with running(data_dir=tmp_path) as first, first.client() as http:
        job = post(http, **asks).json()["id"]
        end = time.monotonic() + 30
        while (done := http.get(f"/v2/jobs/{job}").json()["done"]) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        first.process.kill()
        first.process.wait()
    with running(data_dir=tmp_path) as second, second.client() as http:
        assert 2 <= done < 12
        assert until(http, job, "done")["done"] == 12
        n_synthesised = next(
            float(x.split()[1])
            for x in http.get("/metrics").text.splitlines()
            if x.startswith("cv_batch_lines_made ")
        )
        assert n_synthesised <= 12 - done, "what was done stays done"
