"""POST /v1/text/prepare: what will be spoken of a text, told without speaking it."""

from __future__ import annotations

import pytest

from tests.api.client import Socket
from tests.api.test_http import error
from webui.api import permissions
from webui.types import MAX_TEXT

PATH = "/v1/text/prepare"
SMITH = "Dr. Smith paid $1,234.56 … https://example.com/a?b=1 now!"


def test_it_is_what_the_engine_will_be_given_and_nothing_is_spoken(studio):
    with studio.client() as http:
        before = studio.state()["opened"]
        for text in (SMITH, "<|en|>Hello. 我有3只猫。",
            "今天天气真不错，我们一起去公园散步吧。然后[laughter]回家。"):  # fmt: skip
            answer = http.post(PATH, json={"text": text})
            assert answer.status_code == 200
            assert studio.state()["opened"] == before
            sock = Socket(studio, http)
            ask = {"input": text, "mode": "instruct", "instructions": "seconds=0.05"}
            begin = sock.say(ask).of("begin")[0]
            sock.close()
            before = studio.state()["opened"]
            assert [s["text"] for s in answer.json()["segments"]] == begin["sentences"]
            assert answer.json()["seconds"] == begin["predicted_s"]


def test_sentences_characters_and_seconds_are_of_what_is_said(studio):
    with studio.client() as http:
        result = http.post(PATH, json={"text": SMITH}).json()
        assert (result["sentences"], result["characters"]) == (1, len(SMITH))
        assert result["seconds"] > 9 and "dollars" in result["segments"][0]["text"]
        mixed = http.post(PATH, json={"text": "我有3只猫。I have 3 cats."}).json()
        assert (
            mixed["segments"]
            == [
                {"text": "我有三只猫。", "language": "zh"},
                {"text": "I have three cats.", "language": "en"},
            ]
            and mixed["sentences"] == 2
        )
        cantonese_result = http.post(PATH, json={"text": "我有2只猫", "language": "yue"}).json()
        assert [s["language"] for s in cantonese_result["segments"]] == ["yue"]
        marked = http.post(PATH, json={"text": "<|jp|>はい。<|endofprompt|>", "language": "zh"})
        assert marked.json()["segments"] == [{"text": "はい。", "language": "ja"}]
        assert marked.json()["characters"] == 3


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"text": ""}, 422, "no_text"), ({"text": "。。。"}, 422, "no_text"),
        ({"text": "<|endofprompt|>"}, 422, "no_text"),
        ({"text": "字" * (MAX_TEXT + 1)}, 422, "too_long_text"),
        ({"text": "a\ud800"}, 422, "bad_text"), ({}, 422, "bad_field"),
        ({"text": 5}, 422, "bad_field"), ({"text": "a", "language": "xx"}, 422, "bad_language"),
        ({"text": "a", "model": "nobody"}, 404, "model_not_found"),
    ],
)  # fmt: skip
def test_what_speaking_would_refuse_is_refused(studio, body, status, code):
    import json

    with studio.client() as http:
        answer = http.post(PATH, content=json.dumps(body),
            headers={"Content-Type": "application/json"})  # fmt: skip
        assert answer.status_code == status and error(answer)["code"] == code, answer.text


def test_whoever_speaks_or_hands_in_batches_may_ask():
    assert permissions.needed("POST", PATH) == {"speak", "jobs"}
    assert permissions.needed("GET", PATH) == permissions.needed("POST", PATH + "/x") == frozenset()
