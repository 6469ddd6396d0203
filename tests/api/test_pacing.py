"""A listener who gives no credit is served ahead of the clock up to a limit, and from there on in
pieces: not sample by sample as the clock moves.
"""

from __future__ import annotations

from tests.api.typist import Typist

ASK = {"voice": "starter-zh-high", "instructions": "seconds=12 chunk=1", "mode": "instruct"}


def test_a_plain_stream_goes_out_in_pieces(studio):
    """12 s that are made at once: ten of them go at once, two in quarters of a second."""
    with (
        studio.client() as http,
        http.stream(
            "POST", "/v1/audio/speech", json={"input": "hi", "response_format": "pcm", **ASK}
        ) as answer,
    ):
        pieces = [len(p) for p in answer.iter_raw()]
    assert sum(pieces) == 12 * 48000 and len(pieces) < 60, len(pieces)


def test_a_socket_without_credit_gets_pieces_too(studio):
    typist = Typist(studio)
    request = typist.start(**{**ASK, "instructions": "seconds=7 chunk=1"})
    typist.text("hi。")
    typist.send(type="end")
    reply = typist.hear(request=request)
    typist.close()
    assert len(reply.pcm) == 7 * 48000 and len(reply.frames) < 90, len(reply.frames)
