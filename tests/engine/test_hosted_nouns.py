"""Records, chunks and errors reach the other process as they were."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

from webui import errors
from webui.engine.remote.protocol import chunk_of, record_of, words_of, words_of_chunk
from webui.frames import pack, receive
from webui.messages import Message
from webui.types import Abilities, Chunk, Health, SpeechRequest

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.KaikouError)
]


def crossed(header, body=b""):
    """What the other process receives."""
    return receive(BytesIO(b"".join(pack(header, body))).read)


def test_nouns_cross_unchanged():
    for record in (
        SpeechRequest(
            "r",
            "你好 hello",
            "v",
            "instruct",
            "用四川话说",
            "zh",
            1.25,
            2**63 - 1,
            3,
            ("你好", "hello"),
            "said",
        ),
        Abilities("e", "1", 24000, ("zero_shot",), ("zh", "en"), 2, presets=("a",)),
        Health("starting", "Loading", "载入", 0.25),
    ):
        (words, _) = crossed(words_of(record))
        assert record_of(type(record), words) == record
    samples = np.random.default_rng(0).normal(0, 0.1, 4801).astype(np.float32)
    chunk = Chunk(3, samples, 960, 1, True, {"flow": 0.25})
    back = chunk_of(*crossed(*words_of_chunk(chunk)))
    assert np.array_equal(back.samples, samples) and back.samples.dtype == np.float32
    assert (back.number, back.start, back.segment, back.last, dict(back.timings)) == (
        3,
        960,
        1,
        True,
        {"flow": 0.25},
    )


@pytest.mark.parametrize("kind", KINDS)
def test_errors_cross_unchanged(kind):
    error = kind(
        Message("It failed.", "失败了。"), code="some_code", param="seed", retry_after_s=2.5
    )
    again = errors.error_from_dict(crossed({"error": error.to_dict()})[0]["error"])
    assert type(again) is kind and vars(again) == vars(error) and str(again) == "It failed."


def test_a_kind_that_is_not_of_the_list_crosses_as_the_nearest_one():
    class Own(errors.NotReady):
        pass

    assert Own().to_dict()["kind"] == "NotReady"
    for kind in ("Own", "SystemExit", "annotations", "Self", "Message", ""):
        error = errors.error_from_dict({"kind": kind, "en": "en", "zh": "zh"})
        assert type(error) is errors.EngineFault and error.en == "en" and error.code == "fault"
