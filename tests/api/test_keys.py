"""API keys over HTTP: shown once, kept as a hash, bound by scope and rate, counted, revoked at
once; the door that the first one closes and the last one opens.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.api.client import Socket
from tests.api.test_http import clip, error
from tests.api.typist import Typist
from tests.conftest import ROOT
from tests.serve import running

ASK = {"input": "Hello there.", "voice": "alloy", "stream": False}


def bearer(secret: str) -> dict:
    return {"Authorization": f"Bearer {secret}"}


def make(http, *scopes: str, name: str = "robot", **more) -> dict:
    answer = http.post("/v1/keys", json={"name": name, "scopes": list(scopes) or ["speak"], **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def until(ask, is_good, limit_s: float = 20.0):
    end = time.monotonic() + limit_s
    while not is_good(actual := ask()) and time.monotonic() < end:
        time.sleep(0.05)
    return actual


@pytest.fixture(scope="module")
def bob():
    """A studio with a login and a key of the start, and a browser of bob's in it."""
    with (
        running(
            "--auth",
            "bob:secret",
            env={"KAIKOU_API_KEY": "k-123", "KAIKOU_STARTS_PER_MINUTE": "100000"},
        ) as studio,
        studio.client() as http,
    ):
        assert http.post("/login", data={"user": "bob", "password": "secret"}).status_code == 303
        yield studio, http


def test_a_key_is_shown_once_and_kept_as_a_hash(bob):
    studio, http = bob
    answer = http.post("/v1/keys", json={"name": "robot", "scopes": ["speak", "jobs"]})
    new_key = answer.json()
    assert len(new_key["key"]) >= 43 and answer.headers["cache-control"] == "no-store"
    listed = http.get("/v1/keys")
    assert new_key["key"] not in listed.text and new_key["id"] in listed.text
    listed_key = next(k for k in listed.json()["data"] if k["id"] == new_key["id"])
    assert (
        listed_key["scopes"] == ["speak", "jobs"]
        and listed_key["name"] == "robot"
        and listed_key["revoked_at"] is None
        and listed_key["usage"]["requests"] == 0
    )
    files = [p.read_bytes() for p in studio.data_dir.rglob("*") if p.is_file()] + [
        studio.log.read_bytes()
    ]
    assert not any(
        new_key["key"].encode() in data or new_key["key"][3:].encode() in data for data in files
    ), "the key itself lies somewhere"
    assert len({make(http)["key"] for _ in range(20)}) == 20


def test_scopes_let_a_key_do_what_they_name_and_nothing_else(bob):
    studio, http = bob
    ways = {
        "speak": ("POST", "/v1/audio/speech", {"json": ASK}),
        "voices": ("GET", "/v1/pronunciations", {}),
        "jobs": ("GET", "/v2/jobs", {}),
        "admin": ("GET", "/metrics", {}),
    }
    with studio.client() as program:
        for scope in ways:
            key = make(http, scope)["key"]
            for other, (method, path, more) in ways.items():
                answer = program.request(method, path, headers=bearer(key), **more)
                if scope in (other, "admin"):
                    assert answer.status_code == 200, (scope, other, answer.text)
                else:
                    assert answer.status_code == 403 and error(answer)["code"] == "scope", (
                        scope,
                        other,
                    )
            assert program.get("/v1/audio/voices", headers=bearer(key)).status_code == 200
            for path in (
                "/",
                "/v1/keys",
                "/v1/demos",
                "/tts/model/pause",
                "/tts/model/report?model=x",
            ):
                assert program.get(path, headers=bearer(key)).status_code in (
                    (200, 404) if scope == "admin" else (403,)
                ), (scope, path)


def test_wrong_revoked_and_no_key_are_refused_before_anything_else(bob):
    studio, http = bob
    new_key = make(http)
    with studio.client() as program:
        assert (
            program.post("/v1/audio/speech", json=ASK, headers=bearer(new_key["key"])).status_code
            == 200
        )
        assert http.delete(f"/v1/keys/{new_key['id']}").status_code == 204
        wrong = {}
        for name, secret in (
            ("revoked", new_key["key"]),
            ("wrong", new_key["key"][:-1] + ("A" if new_key["key"][-1] != "A" else "B")),
            ("short", "x"),
            ("long", "x" * 8000),
            ("odd", "ключ".encode().decode("latin-1")),
        ):
            answer = program.post(
                "/v1/audio/speech",
                json=ASK,
                headers=[(b"Authorization", b"Bearer " + secret.encode("latin-1"))],
            )
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer", (
                name
            )
            wrong[name] = answer.json()
        assert (
            wrong["revoked"] == wrong["wrong"]
            and wrong["wrong"]["error"]["code"] == "invalid_api_key"
        ), "a revoked key is as unknown as a wrong one"
        assert error(program.post("/v1/audio/speech", json=ASK))["code"] == "login_needed"
        assert (
            program.post("/v1/audio/speech", json=ASK, headers=bearer("k-123")).status_code == 200
        ), "a key of the start works on"
    assert http.delete(f"/v1/keys/{new_key['id']}").status_code == 204, "twice is as once"
    assert http.delete("/v1/keys/key-000000000000").status_code == 404


def test_a_keys_voices_takes_and_jobs_are_its_own(bob):
    studio, http = bob
    first, second, all_of_it = (
        make(http, *scopes)["key"]
        for scopes in (("speak", "voices", "jobs"), ("speak", "voices", "jobs"), ("admin",))
    )
    with studio.client() as program:

        def post_voice(headers):
            return program.post(
                "/v1/audio/voices",
                files={"audio_sample": clip(4)},
                data={"name": "mine", "consent": "me"},
                headers=headers,
            ).json()["id"]

        own_value, bobs = (
            post_voice(bearer(first)),
            http.post(
                "/v1/audio/voices",
                files={"audio_sample": clip(4)},
                data={"name": "bobs", "consent": "me"},
            ).json()["id"],
        )
        take = program.post(
            "/v1/audio/speech", json={**ASK, "voice": own_value}, headers=bearer(first)
        ).headers["x-job-id"]
        job = program.post(
            "/v2/synthesize/batch",
            json={"texts": ["a b c"], "voice": own_value, "async": True},
            headers=bearer(first),
        ).json()["id"]
        assert (
            until(
                lambda: program.get(f"/tts/result/{take}.wav", headers=bearer(first)),
                lambda a: a.status_code == 200,
            ).status_code
            == 200
        )
        unknown = {
            "/v1/audio/voices/": "voice-" + "0" * 32,
            "/tts/result/": "take-" + "0" * 32,
            "/v2/jobs/": "job-" + "0" * 32,
        }
        for path, own, tail in (
            ("/v1/audio/voices/", own_value, ""),
            ("/v1/audio/voices/", own_value, "/sample"),
            ("/tts/result/", take, ".wav"),
            ("/tts/result/", take, ".json"),
            ("/v2/jobs/", job, ""),
            ("/v2/jobs/", job, "/download"),
        ):
            other, missing = (
                program.get(path + i + tail, headers=bearer(second)) for i in (own, unknown[path])
            )
            assert (
                other.status_code == missing.status_code == 404 and other.json() == missing.json()
            ), "another's is as unknown as none"
        assert (
            program.post(
                "/v1/audio/speech", json={**ASK, "voice": own_value}, headers=bearer(second)
            ).status_code
            == 404
        )
        assert own_value not in program.get("/v1/audio/voices", headers=bearer(second)).text
        assert program.get(f"/v1/audio/voices/{bobs}", headers=bearer(second)).status_code == 404
        assert (
            program.get(f"/v1/audio/voices/{bobs}", headers=bearer(all_of_it)).status_code == 200
        ), "admin acts as who made it"
        assert own_value not in program.get("/v1/audio/voices", headers=bearer(all_of_it)).text


def test_each_key_has_its_own_rate(bob):
    studio, http = bob
    slow, other = make(http, per_minute=6)["key"], make(http)["key"]
    with studio.client() as program:
        answers = [program.get("/v1/models", headers=bearer(slow)) for _ in range(5)]
        assert [a.status_code for a in answers] == [200, 200, 429, 429, 429]
        assert (
            1 <= int(answers[-1].headers["retry-after"]) <= 10
            and error(answers[-1])["code"] == "rate_limited"
        )
        assert all(
            program.get("/v1/models", headers=bearer(other)).status_code == 200 for _ in range(5)
        )


def test_a_socket_is_no_way_around_a_keys_rate_or_its_end(bob):
    """Every start over an open socket is a request of the key, and none is heard once it is
    revoked.
    """
    studio, http = bob
    slow, short = make(http, per_minute=9), make(http)
    ask = {"voice": "alloy", "mode": "instruct", "instructions": "seconds=0.1"}

    def by_text(typist: Typist) -> str:
        typist.send(type="start", **ask, input="Hello there. ", credit=1 << 40)
        if (message := typist.recv())["type"] == "error":
            return message["error"]["code"]
        typist.send(type="end")
        return typist.hear().end["type"].rpartition(".")[2]

    def by_page(sock: Socket) -> str:
        end = sock.say({"input": "Hello there.", **ask}).messages[-1]
        return end.get("code", "done") if end["op"] == "error" else "done"

    typist = Typist(studio, bearer(slow["key"]))
    ends = [by_text(typist) for _ in range(5)]
    assert ends[:3] == ["done"] * 3 and ends[-1] == "rate_limited"
    typist.close()
    used = next(k["usage"] for k in http.get("/v1/keys").json()["data"] if k["id"] == slow["id"])
    assert used["requests"] == ends.count("done"), "those that were refused are no use of it"
    with studio.client(headers=bearer(short["key"])) as program:
        text, page = (
            Typist(studio, bearer(short["key"])),
            Socket(studio, program, headers=bearer(short["key"])),
        )
        assert [by_text(text), by_page(page)] == ["done", "done"]
        assert http.delete(f"/v1/keys/{short['id']}").status_code == 204
        assert [by_text(text), by_page(page)] == ["invalid_api_key"] * 2
        text.close(), page.close()


def test_use_is_counted_by_key(bob):
    studio, http = bob
    plain, boss = make(http, "speak"), make(http, "admin")
    with studio.client() as program:
        for key in (plain, boss):
            assert (
                program.post(
                    "/v1/audio/speech",
                    json={**ASK, "mode": "instruct", "instructions": "seconds=2"},
                    headers=bearer(key["key"]),
                ).status_code
                == 200
            )
        program.get("/v1/models", headers=bearer(plain["key"]))

    def usage() -> dict:
        return {k["id"]: k["usage"] for k in http.get("/v1/keys").json()["data"]}

    usage_by_key = until(usage, lambda u: u[boss["id"]]["audio_s"])
    assert {k: v for k, v in usage_by_key[plain["id"]].items() if k != "last_used_at"} == {
        "requests": 2,
        "characters": len(ASK["input"]),
        "audio_s": 2.0,
    }
    assert (
        usage_by_key[boss["id"]]["requests"] == 1
        and usage_by_key[boss["id"]]["characters"] == len(ASK["input"])
        and abs(usage_by_key[boss["id"]]["last_used_at"] - time.time()) < 60
    )


def test_the_first_key_closes_an_open_studio_and_the_last_one_opens_it():
    with running() as studio, studio.client() as owner, studio.client() as stranger:
        assert stranger.get("/v1/audio/voices").status_code == stranger.get("/").status_code == 200
        assert owner.get("/v1/models", headers=bearer("sk-anything")).status_code == 200, (
            "a program's made-up key is no harm where none is asked for"
        )
        sock = Socket(studio, owner)
        owner.post(
            "/v1/audio/voices",
            files={"audio_sample": clip(4)},
            data={"name": "of before", "consent": "me"},
        )
        boss, robot = make(owner, "admin"), make(owner, "speak")
        assert "of before" in owner.get("/v1/audio/voices").text, (
            "the browser that made it is still at home"
        )
        assert sock.say({"input": "Still here."}).of("end")
        sock.close()
        assert stranger.get("/v1/audio/voices").status_code == 401
        assert stranger.get("/", headers={"Accept": "text/html"}).headers["location"] == "/login"
        assert stranger.get("/v1/audio/voices", headers=bearer("sk-anything")).status_code == 401
        assert "API" in stranger.get("/login").text
        assert stranger.post("/login", data={"key": robot["key"]}).status_code == 401, (
            "the page does everything: so must its key"
        )
        assert stranger.post("/login", data={"key": boss["key"]}).status_code == 303
        assert "of before" in stranger.get("/v1/audio/voices").text
        owner.delete(f"/v1/keys/{boss['id']}")
        assert stranger.get("/v1/audio/voices").status_code == 401, (
            "a login with a key ends with the key"
        )
        owner.delete(f"/v1/keys/{robot['id']}")
        assert stranger.get("/v1/audio/voices").status_code == 200
        the_script_makes_lists_and_revokes_while_the_studio_runs(studio, stranger)


def script(data_dir, *argv: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "scripts/keys.py", "--data-dir", str(data_dir), *argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def the_script_makes_lists_and_revokes_while_the_studio_runs(studio, stranger):
    stranger.cookies.clear()
    process = script(studio.data_dir, "create", "--name", "nightly", "--scopes", "speak,jobs")
    assert process.returncode == 0, process.stderr
    key_id, secret = process.stdout.split()
    assert stranger.get("/v1/models").status_code == 401, "the running studio knows at once"
    assert stranger.get("/v1/models", headers=bearer(secret)).status_code == 200
    listed = script(studio.data_dir, "list").stdout
    assert key_id in listed and "nightly" in listed and secret not in listed
    assert script(studio.data_dir, "revoke", key_id).returncode == 0
    assert stranger.get("/v1/models").status_code == 200, "open again: nobody is asked"
    refused = script(studio.data_dir, "revoke", "key-000000000000")
    assert refused.returncode == 2 and len(refused.stderr.strip().splitlines()) == 2
    assert script(studio.data_dir, "create", "--name", "x", "--scopes", "all").returncode == 2


def test_wrong_fields_of_a_new_key_are_named(bob):
    _, http = bob
    for body, field in (
        ({}, "name"),
        ({"name": " "}, "name"),
        ({"name": "x" * 61}, "name"),
        ({"name": "x", "scopes": ["root"]}, "scopes.0"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "x", "per_minute": 0}, "per_minute"),
        ({"name": "x", "per_minute": 10**9}, "per_minute"),
        ({"name": "x", "per_minute": "many"}, "per_minute"),
    ):
        answer = http.post("/v1/keys", json=body)
        assert answer.status_code == 422 and error(answer)["param"] == field, body
