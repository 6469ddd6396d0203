"""What strangers put into a dictionary: each is kept as it is or refused in a sentence, and the
studio speaks on.
"""

from __future__ import annotations

import pytest

from tests.api.client import Socket
from tests.api.test_http import error

pytest_plugins = "tests.api.dictionary"  # lone, http
PATH = "/v1/pronunciations"

KEPT = [
    "'; DROP TABLE pronunciations; --", '" OR 1=1 --', "%", "_", "Robert'); DELETE FROM x",
    "(.*)+$", "[0-9]{9", "\\", "\\1\\g<0>", "^", "$$$", "a|b", "?", "😀", "👨‍👩‍👧", "❤️",
        "<script src=x>alert(1)",
    "../../etc/passwd", "=cmd|'/c calc'!A1", "{0.__class__}", "%s%n", "שלום", "مرحبا",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L", "ﷺ", "İ", "ß", "null", "true", "NaN", "ａｂｃ", "𠮷野家",
]  # fmt: skip
REFUSED = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "\x1b[2J",
    "\x7f",
    "\u200e\u200f\u202e",
    "[laughter]",
    "</strong>",
    "a [b] c",
    "<|endofprompt|>",
    "x" * 65,
    "x" * 900_000,
    "字" * 300_000,
]


def speaks(lone, http, text: str = "Still here.") -> list[str]:
    sock = Socket(lone, http)
    reply = sock.say({"input": text, "mode": "instruct", "instructions": "seconds=0.05"})
    sock.close()
    return reply.of("begin")[0]["sentences"]


def test_what_can_be_a_term_is_kept_to_the_letter(lone, http):
    for n, term in enumerate(KEPT):
        assert http.put(PATH, json={"term": term, "reading": f"word {n}"}).status_code == 200, term
    readings = {e["term"]: e["reading"] for e in http.get(PATH).json()["data"]}
    assert len(readings) == len(KEPT) and set(readings.values()) == {
        f"word {n}" for n in range(len(KEPT))
    }
    assert speaks(lone, http) == ["Still here."]
    assert speaks(lone, http, "Now (.*)+$ and 😀 or '; DROP TABLE pronunciations; -- done")[
        0
    ].startswith("Now word five and word thirteen or word zero done")
    for kind in ("tsv", "csv"):
        file = http.get(f"{PATH}.{kind}").content
        assert http.put(f"{PATH}.{kind}", content=file).json() == {
            "added": 0,
            "changed": 0,
        }, "out and in again is the same"
    for term in readings:
        assert http.delete(PATH, params={"term": term}).status_code == 204, term
    assert http.get(PATH).json()["data"] == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_cannot_be_a_term_gets_a_sentence(lone, http, language):
    head = {"Accept-Language": language}
    for bad in REFUSED:
        answer = http.put(PATH, json={"term": bad, "reading": "x"}, headers=head)
        assert answer.status_code in (413, 422), bad[:20]
        assert any("\u4e00" <= c <= "\u9fff" for c in error(answer)["message"]) == (
            language == "zh"
        )
        if bad not in ("x" * 65, "a [b] c"):
            assert http.put(PATH, json={"term": "x", "reading": bad}, headers=head).status_code in (
                413,
                422,
            ), bad[:20]
    assert (
        http.put(
            PATH,
            content=b'{"term": "\\ud800", "reading": "x"}',
            headers={"Content-Type": "application/json"},
        ).status_code
        == 422
    )
    broken = b'{"term": "x", "reading": "y", "was": {"term": "a\\ud800"}}'
    answer = http.put(PATH, content=broken, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, "half a character in the name of the old term"
    http.delete(PATH, params={"all": True})
    assert http.get(PATH).json()["data"] == [] and speaks(lone, http) == ["Still here."]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"term": 3, "reading": "x"}',
        b'{"term": "x"}',
        b'{"term": ["x"], "reading": {}}',
        b'{"term":"x","reading":"y","was":"z"}',
        b"\xff\xfe",
    ],
)
def test_a_body_that_is_not_an_entry(http, body):
    answer = http.put(PATH, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422 and error(answer)["code"] in ("bad_json", "bad_field")


def test_a_flood_is_cut(lone, http):
    for method, path in (("PUT", PATH), ("PUT", PATH + ".tsv"), ("POST", PATH + ".csv")):
        answer = http.request(method, path, content=b"a\tb\n" * (1 << 19))
        assert answer.status_code == 413 and error(answer)["code"] == "body_too_large"
    assert http.get(PATH).json()["data"] == [] and speaks(lone, http) == ["Still here."]


@pytest.mark.parametrize("language", ["x" * 10**5, "zh'; DROP", "..", "\x00", "e\u0301n", "1"])
def test_a_language_that_is_none(http, language):
    assert (
        error(http.put(PATH, json={"term": "x", "reading": "y", "language": language}))["code"]
        == "bad_language"
    )


def test_a_dictionary_that_swells_a_text_is_refused_in_words(lone, http):
    http.put(PATH, json={"term": "啊", "reading": "长" * 160})
    sock = Socket(lone, http, locale="zh")
    refusal = sock.say({"input": "啊" * 4096}).of("error")[0]
    sock.close()
    assert refusal["code"] == "too_long_text" and "词典" in refusal["text"]
    assert speaks(lone, http) == ["Still here."]
