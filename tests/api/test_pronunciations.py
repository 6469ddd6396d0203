"""The dictionary over HTTP, and that whatever speaks, speaks with it: the socket of the page and
/v1 alike.
"""

from __future__ import annotations

import re

from tests.api.client import Socket
from tests.api.test_http import error
from tests.serve import running

pytest_plugins = "tests.api.dictionary"  # lone, http
PATH = "/v1/pronunciations"


def entries(http) -> list[tuple]:
    return [(e["term"], e["reading"], e["language"]) for e in http.get(PATH).json()["data"]]


def sentences(lone, http, text: str, **fields) -> list[str]:
    sock = Socket(lone, http)
    begin = sock.say(
        {"input": text, "mode": "instruct", "instructions": "seconds=0.05", **fields}
    ).of("begin")[0]
    sock.close()
    return begin["sentences"]


def figure(http, name: str) -> float:
    return float(re.search(rf"^{re.escape(name)} (\S+)$", http.get("/metrics").text, re.M)[1])


def test_an_entry_is_made_changed_listed_and_deleted(http):
    answer = http.put(PATH, json={"term": " GPU ", "reading": "G P U"})
    assert answer.status_code == 200 and answer.json() == {
        "term": "GPU",
        "reading": "G P U",
        "language": "",
    }
    http.put(PATH, json={"term": "gpu", "reading": "jee", "language": "zh-CN"})
    assert entries(http) == [("GPU", "G P U", ""), ("gpu", "jee", "zh")]
    http.put(PATH, json={"term": "CPU", "reading": "C P U", "was": {"term": "Gpu"}})
    assert entries(http) == [("CPU", "C P U", ""), ("gpu", "jee", "zh")]
    dictionary = http.get(PATH).json()
    assert dictionary["limits"]["terms"] >= 1000 and dictionary["notice"] is None
    assert http.delete(PATH, params={"term": "GPU", "language": "zh"}).status_code == 204
    refusal = http.delete(PATH, params={"term": "GPU", "language": "zh"})
    assert refusal.status_code == 404 and error(refusal)["code"] == "term_gone"
    assert error(http.delete(PATH))["code"] == "bad_field" and entries(http) == [
        ("CPU", "C P U", "")
    ]
    assert http.delete(PATH, params={"all": True}).status_code == 204 and entries(http) == []


def test_out_and_in_as_files(http):
    for kind, mime in (("tsv", "text/tab-separated-values"), ("csv", "text/csv")):
        http.delete(PATH, params={"all": True})
        http.put(PATH, json={"term": "重庆", "reading": "崇庆, 不是 zhong", "language": "zh"})
        file = http.get(f"{PATH}.{kind}")
        assert (
            file.headers["content-type"].startswith(mime)
            and f"pronunciations.{kind}" in file.headers["content-disposition"]
        )
        assert http.put(
            f"{PATH}.{kind}", content=b"GPU,G P U" if kind == "csv" else b"GPU\tG P U"
        ).json() == {"added": 1, "changed": 0}
        assert entries(http) == [("GPU", "G P U", "")]
        assert http.post(f"{PATH}.{kind}", content=file.content).json() == {
            "added": 1,
            "changed": 0,
        }
        assert len(entries(http)) == 2
    assert error(http.get(f"{PATH}.exe"))["code"] == "bad_format"
    assert error(http.post(f"{PATH}.csv", content=b"a,b\nc"))["message"].startswith("Line 2")
    assert (
        "第 2 行"
        in error(http.post(f"{PATH}.csv", content=b"a,b\nc", headers={"Accept-Language": "zh"}))[
            "message"
        ]
        and len(entries(http)) == 2
    )


def test_the_socket_and_v1_speak_with_it(lone, http):
    http.put(PATH, json={"term": "GPU", "reading": "G P U"})
    http.put(PATH, json={"term": "重庆", "reading": "崇庆", "language": "zh"})
    assert sentences(lone, http, "One gpu, two GPUs.", language="en") == ["One G P U, two GPUs."]
    assert sentences(lone, http, "重庆的GPU[laughter]。") == ["崇庆的G P U 。"]
    assert sentences(lone, http, "重庆 in English", language="en") == ["重庆 in English"]
    ask = {
        "voice": "starter-zh-high",
        "seed": 3,
        "response_format": "pcm",
    }  # the tone lasts as long as its sentences
    read, plain = (
        len(http.post("/v1/audio/speech", json={**ask, "input": w}).content)
        for w in ("A GPU here.", "A G P U here.")
    )
    assert read == plain
    http.delete(PATH, params={"term": "GPU"})
    assert len(http.post("/v1/audio/speech", json={**ask, "input": "A GPU here."}).content) < read


def test_a_take_can_be_told_what_was_said(lone, http):
    """The record of a take holds the sentences as they were spoken: a dictionary that changed later
    takes nothing from it.
    """
    http.put(PATH, json={"term": "GPU", "reading": "G P U"})
    assert sentences(lone, http, "My GPU sings.") == ["My G P U sings."]
    records = [p.read_text("utf-8") for p in lone.data_dir.glob("takes/*/take.json")]
    assert any(
        '"text": "My GPU sings."' in r and '"segments": ["My G P U sings."]' in r for r in records
    )


def test_a_text_is_prepared_once_until_the_dictionary_changes(lone, http):
    text = "Every text is prepared once, GPU or not."
    http.put(PATH, json={"term": "GPU", "reading": "G P U"})
    counts = []
    for change in (
        None,
        None,
        {"term": "GPU", "reading": "jee"},
        None,
        {"term": "GPU", "reading": "G P U"},
    ):
        if change:
            http.put(PATH, json=change)
        before = figure(http, 'cv_text_cache_total{result="miss"}')
        sentences(lone, http, text)
        counts.append(figure(http, 'cv_text_cache_total{result="miss"}') - before)
    assert counts == [1, 0, 1, 0, 0]


def test_every_account_has_its_own(tmp_path):
    with running("--auth", "ann:one", "--auth", "bob:two", data_dir=tmp_path / "data") as studio:

        def as_user(name, word):
            client = studio.client()
            assert client.post("/login", data={"user": name, "password": word}).status_code == 303
            client.post("/tts/session")
            return client

        ann, bob = as_user("ann", "one"), as_user("bob", "two")
        ann.put(PATH, json={"term": "GPU", "reading": "ann's"})
        assert entries(bob) == [] and bob.delete(PATH, params={"term": "GPU"}).status_code == 404
        bob.delete(PATH, params={"all": True})
        assert entries(ann) == [("GPU", "ann's", "")]
        with studio.client() as stranger:
            for method, path in (
                ("GET", PATH),
                ("PUT", PATH),
                ("DELETE", PATH + "?all=true"),
                ("GET", PATH + ".tsv"),
                ("POST", PATH + ".csv"),
                ("PUT", PATH + ".csv"),
            ):
                assert stranger.request(method, path).status_code == 401
        ann.close(), bob.close()


def test_a_damaged_dictionary_is_told_to_the_listener_and_speech_goes_on(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "pronunciations.sqlite").write_bytes(b"not a database at all " * 400)
    with running(data_dir=data) as studio, studio.client() as http:
        for locale, word in (("zh", "损坏"), ("en", "damaged")):
            sock = Socket(studio, http, locale=locale)
            begin = sock.say(
                {"input": "Still speaking.", "mode": "instruct", "instructions": "seconds=0.1"}
            ).of("begin")[0]
            sock.close()
            assert any(word in note for note in begin["notes"])
        notice = http.get(PATH).json()["notice"]
        assert (data / notice["file"]).read_bytes().startswith(
            b"not a database"
        ) and "损坏" in notice["message_zh"]
        assert http.put(PATH, json={"term": "GPU", "reading": "G P U"}).status_code == 200
        sock = Socket(studio, http)
        assert sock.say({"input": "A GPU.", "mode": "instruct", "instructions": "seconds=0.1"}).of(
            "begin"
        )[0]["sentences"] == ["A G P U."]
        sock.close()
