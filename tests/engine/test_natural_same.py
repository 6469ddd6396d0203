"""The natural voice says the same samples for the same seed: whatever came before, speaks beside
it, how many cores there are, and after a restart.
"""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from tests.engine import natural_setup as setup
from tests.engine.builtin_setup import ask
from webui.engine.espeak.engine import Speech
from webui.engine.natural.workers import NaturalLanes

pytestmark = setup.needs_weights
TEXT = "走吧，go on."
OTHERS = (
    "嗯",
    "Привет.",
    "はい",
    "I",
    "Да.",
    "네.",
)  # two for the network, four for the instant voice in the same process
N_REQUESTS = 50


def chunks(stream) -> list[tuple[int, bytes]]:
    return [(c.segment, c.samples.tobytes()) for c in stream]


def stream(text=TEXT, id="same", lane=0, **settings):
    request = ask(text, id, **{"voice_engine": "natural", "seed": 7, **settings})
    return setup.engine().stream(request, setup.prompt(), lane)


@pytest.fixture(scope="module")
def first():
    stream_chunks = chunks(stream())
    assert sum(len(samples) for _, samples in stream_chunks) > 4 * 12000
    return stream_chunks


def test_request_1_is_request_50_and_another_seed_is_another_take(first):
    """48 short ones in between, of other texts, seeds and languages, half of them on each lane."""

    def speak(lane):
        for n in range(lane, N_REQUESTS - 2, 2):
            assert chunks(stream(OTHERS[n % len(OTHERS)], f"n{n}", lane, seed=n))

    threads = [threading.Thread(target=speak, args=(lane,)) for lane in (0, 1)]
    [t.start() for t in threads]
    [t.join(300) for t in threads]
    assert chunks(stream()) == first
    assert chunks(stream(seed=8)) != first


def test_it_is_the_same_beside_two_others(first):
    """One on the same lane, taking turns with it, one on the other lane, at the same time."""
    beside = [stream("我们走吧。Now we go on.", f"o{lane}", lane, seed=1) for lane in (0, 1)]
    thread = threading.Thread(target=list, args=(beside[1],))
    thread.start()
    segments, own_stream = [], stream()
    for chunk in own_stream:
        segments.append((chunk.segment, chunk.samples.tobytes()))
        next(beside[0], None)
    beside[0].close()
    thread.join(120)
    assert segments == first


@pytest.mark.parametrize("n_threads", [1, 2])
def test_it_is_the_same_after_a_restart_with_one_and_two_threads(first, n_threads, monkeypatch):
    """As many cores, and what the environment offers to the libraries of numbers."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, str(n_threads))
    usual = os.sched_getaffinity(0)
    natural = NaturalLanes([setup.FOLDER], 1)
    try:
        os.sched_setaffinity(0, sorted(usual)[:n_threads])  # the worker begins with the same
        natural.start()
    finally:
        os.sched_setaffinity(0, usual)
    try:
        [lane] = natural.lanes
        request = ask(TEXT, seed=7)
        assert chunks(Speech(lane, 1, request, setup.prompt(), True)) == first
        whole = np.frombuffer(b"".join(samples for _, samples in first), np.float32)
        assert np.isfinite(whole).all()
    finally:
        natural.close()
