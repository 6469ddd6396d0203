"""Takes over HTTP: listed in pages, newest first, starred, and nobody's but their owner's."""

from __future__ import annotations

import io
import json
import time
import zipfile

import av
import pytest

from tests.api.test_http import error
from tests.serve import running

PATH = "/v1/audio/takes"
NEVER = "take-" + "0" * 32


@pytest.fixture(scope="module")
def own():
    """With a login and two keys, each of which has takes of its own."""
    with (
        running("--auth", "bob:secret", env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio,
        studio.client() as bob,
    ):
        assert bob.post("/login", data={"user": "bob", "password": "secret"}).status_code == 303
        keys = [
            bob.post("/v1/keys", json={"name": f"robot {n}", "scopes": [scope]}).json()["key"]
            for n, scope in enumerate(("speak", "speak", "voices"))
        ]
        yield studio, bob, keys


@pytest.fixture
def http(own):
    """Of a key that has spoken nothing yet."""
    studio, bob, _ = own
    key = bob.post("/v1/keys", json={"name": "new", "scopes": ["speak"]}).json()["key"]
    with studio.client(headers={"Authorization": f"Bearer {key}"}) as client:
        yield client


def say(http, n: int, **more) -> str:
    return http.post(
        "/v1/audio/speech",
        json={
            "input": f"Take {n}.",
            "voice": "alloy",
            "stream": False,
            "seed": n,
            "instructions": "seconds=0.2",
            **more,
        },
    ).headers["x-job-id"]


def wait_listed(http, ids: list[str]) -> list[str]:
    """The same, newest first, when all are in the list: a take is written after its last byte was
    sent.
    """
    end = time.monotonic() + 20
    while (
        len(listed := [t["id"] for t in http.get(PATH, params={"limit": 100}).json()["data"]])
        < len(ids)
        and time.monotonic() < end
    ):
        time.sleep(0.02)
    assert set(listed) == set(ids)
    return listed


def test_takes_are_listed_in_pages_and_tell_how_they_can_be_made_again(http):
    assert http.get(PATH).json() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }
    ids = []
    for n in range(5):
        ids.append(say(http, n, speed=1.25, language="en"))
        wait_listed(http, ids)  # one after the other, so that their order is known
    take_ids, after, pages = [], "", 0
    while pages < 10:
        page = http.get(PATH, params={"limit": 2, "after": after}).json()
        actual = [t["id"] for t in page["data"]]
        assert (page["first_id"], page["last_id"]) == (actual[0], actual[-1])
        take_ids, after, pages = take_ids + actual, page["last_id"], pages + 1
        if not page["has_more"]:
            break
    assert take_ids == ids[::-1] and pages == 3
    take = http.get(f"{PATH}/{ids[3]}").json()
    assert (
        take["input"],
        take["seed"],
        take["speed"],
        take["mode"],
        take["instructions"],
        take["language"],
    ) == ("Take 3.", 3, 1.25, "instruct", "seconds=0.2", "en")
    assert (
        take["voice"].startswith("starter-")
        and take["voice_name"]
        and take["engine"] == "fake"
        and take["starred"] is False
        and take["duration_s"] > 0
    )
    repeat_params = {
        k: take[k] for k in ("input", "voice", "mode", "instructions", "language", "speed", "seed")
    }
    sound = http.get(take["url"]).content
    assert (
        sound[-4000:]
        == http.post("/v1/audio/speech", json={**repeat_params, "stream": False}).content[-4000:]
    )


def test_a_star_is_put_and_taken_off(http):
    first, second = say(http, 1), say(http, 2)
    wait_listed(http, [first, second])
    assert http.patch(f"{PATH}/{first}", json={"starred": True}).json()["starred"] is True
    assert {t["id"]: t["starred"] for t in http.get(PATH).json()["data"]} == {
        first: True,
        second: False,
    }
    assert http.patch(f"{PATH}/{first}", json={"starred": True}).json()["starred"] is True, (
        "twice is as once"
    )
    assert (
        http.patch(f"{PATH}/{first}", json={"starred": False}).json()
        == http.get(f"{PATH}/{first}").json()
    )


def test_a_take_is_deleted_and_brought_back(own, http):
    """As the page does it: what is deleted is gone from the list at once, and for good later."""
    first, second = wait_listed(http, [say(http, 1), say(http, 2)])
    deleted = http.delete(f"{PATH}/{first}").json()
    assert deleted["deleted"] and deleted["storage"]["n_takes"] == 1
    assert [t["id"] for t in http.get(PATH).json()["data"]] == [second]
    assert error(http.patch(f"{PATH}/{first}", json={"starred": True}))["code"] == "take_gone"
    assert http.delete(f"{PATH}/{first}").status_code == 200, "twice is once"
    back = http.post(f"{PATH}/{first}/restore").json()
    assert not back["deleted"] and back["storage"]["n_takes"] == 2
    assert [t["id"] for t in http.get(PATH).json()["data"]] == [first, second]
    assert http.post(f"{PATH}/{NEVER}/restore").status_code == 404
    _, bob, _ = own
    assert bob.delete(f"{PATH}/{first}").status_code == 404, "nobody else's"


def test_anothers_takes_are_as_unknown_as_none(own, http):
    studio, bob, (_, other, voices) = own
    take_id = say(http, 1)
    wait_listed(http, [take_id])
    with studio.client(headers={"Authorization": f"Bearer {other}"}) as stranger:
        for client in (stranger, bob):
            assert client.get(PATH).json()["data"] == []
            for ask in (
                lambda i, c=client: c.get(f"{PATH}/{i}"),
                lambda i, c=client: c.patch(f"{PATH}/{i}", json={"starred": True}),
                lambda i, c=client: c.get(PATH, params={"after": i}),
            ):
                foreign, missing = ask(take_id), ask(NEVER)
                assert (
                    foreign.status_code == missing.status_code == 404
                    and foreign.json() == missing.json()
                    and error(missing)["code"] == "take_gone"
                )
    assert http.get(f"{PATH}/{take_id}").json()["starred"] is False
    with studio.client(headers={"Authorization": f"Bearer {voices}"}) as client:
        assert (
            error(client.get(PATH))["code"] == "scope"
            and client.patch(f"{PATH}/{take_id}", json={"starred": True}).status_code == 403
        )
    with studio.client() as nobody:
        assert nobody.get(PATH).status_code == 401


@pytest.mark.parametrize(
    ("how", "param"),
    [({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"limit": "x"}, "limit")],
)
def test_pages_have_bounds(http, how, param):
    answer = http.get(PATH, params=how)
    assert answer.status_code == 422 and error(answer)["param"] == param


@pytest.mark.parametrize("body", [{}, {"starred": "yes"}, {"starred": None}, {"starred": 1}])
def test_a_star_is_yes_or_no(http, body):
    answer = http.patch(f"{PATH}/{NEVER}", json=body)
    assert answer.status_code == 422 and error(answer)["param"] == "starred"


def test_a_take_that_was_stopped_is_continued_by_its_id(own, http):
    """One request, whose sound begins with what there is; nobody but its owner may."""
    _, bob, _ = own
    params = {
        "input": "The first of them. The second of them. The third of them.",
        "voice": "alloy",
        "mode": "instruct",
        "instructions": "seconds=6 chunk=0.5",
        "response_format": "pcm",
        "seed": 5,
    }
    whole = http.post("/v1/audio/speech", json={**params, "stream": False})
    params["instructions"] += " rtf=0.5"
    with http.stream("POST", "/v1/audio/speech", json=params) as answer:
        job, n = answer.headers["x-job-id"], 0
        for piece in answer.iter_bytes():
            n += len(piece)
            if n > 2 * 24000 * 3:
                break
    wait_listed(http, [job, whole.headers["x-job-id"]])
    take = http.get(f"{PATH}/{job}").json()
    assert (take["state"], take["stopped_at"]) == ("cancelled", 2) and 2 < take["duration_s"] < 6
    ask = {"input": "", "continue_from": job, "response_format": "pcm", "stream": False}
    refused = bob.post("/v1/audio/speech", json=ask)
    assert refused.status_code == 404 and error(refused)["code"] == "take_gone"
    on = http.post("/v1/audio/speech", json=ask)
    assert on.status_code == 200 and on.headers["x-seed"] == "5"
    assert on.content == whole.content
    continued_id = on.headers["x-job-id"]
    end, after = time.monotonic() + 20, [continued_id, whole.headers["x-job-id"]]
    while (ids := [t["id"] for t in http.get(PATH).json()["data"]]) != after:
        assert time.monotonic() < end, ids  # it comes to be in the place of the one that stopped
        time.sleep(0.02)
    assert error(http.post("/v1/audio/speech", json=ask))["code"] == "take_gone"
    refused = http.post("/v1/audio/speech", json={**ask, "continue_from": continued_id})
    assert refused.status_code == 409 and error(refused)["code"] == "take_not_continued"


def test_a_login_has_its_takes_in_every_browser(own):
    studio, bob, _ = own
    take_id = say(bob, 1)
    wait_listed(bob, [take_id])
    with studio.client() as other:
        assert other.post("/login", data={"user": "bob", "password": "secret"}).status_code == 303
        other.post("/tts/session")
        assert other.cookies["kk_visit"] and "kk_visit" not in bob.cookies
        assert [t["id"] for t in other.get(PATH).json()["data"]] == [take_id]
        assert other.patch(f"{PATH}/{take_id}", json={"starred": True}).status_code == 200
        assert other.get(f"/tts/result/{take_id}.wav").content[:4] == b"RIFF"
    assert bob.get(f"{PATH}/{take_id}").json()["starred"] is True


def test_a_browser_that_comes_back_gets_its_cookie_anew(own):
    _, bob, _ = own
    first = bob.post("/tts/session").headers["set-cookie"]
    second = bob.get("/").headers["set-cookie"]
    assert first == second and "Max-Age" in second


@pytest.mark.parametrize(
    ("kind", "media", "codec"),
    [
        ("mp3", "audio/mpeg", "mp3float"),
        ("flac", "audio/flac", "flac"),
        ("opus", "audio/ogg", "opus"),
    ],
)
def test_a_take_comes_in_the_format_that_is_asked_for(http, kind, media, codec):
    job_id = say(http, 7, instructions="seconds=1")
    wait_listed(http, [job_id])
    wav = http.get(f"/tts/result/{job_id}.wav").content
    answer = http.get(f"/tts/result/{job_id}.{kind}")
    assert answer.headers["content-type"] == media
    assert answer.headers["content-disposition"].endswith(f".{kind}")
    with av.open(io.BytesIO(answer.content)) as file:
        (sound,) = file.streams.audio
        assert sound.codec_context.name == codec
        tags = {k.lower(): v for k, v in {**file.metadata, **sound.metadata}.items()}
        assert tags["comment"].startswith("AI-generated") and tags["comment"].encode() in wav
        assert abs(sum(f.samples / f.sample_rate for f in file.decode(sound)) - 1.0) < 0.1
    with zipfile.ZipFile(
        io.BytesIO(http.get("/tts/takes.zip", params={"format": kind}).content)
    ) as z:
        (row,) = json.loads(z.read("manifest.json"))
        assert row["file"].endswith(f".{kind}") and len(z.read(row["file"])) == len(answer.content)


def test_a_format_that_is_not_made_here_has_a_sentence(http):
    answer = http.get("/tts/takes.zip", params={"format": "exe"})
    assert answer.status_code == 422 and error(answer)["code"] == "bad_format"
    assert http.get(f"/tts/result/{NEVER}.exe").status_code == 404
