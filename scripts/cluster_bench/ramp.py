"""More listeners, then fewer: how many replicas there are, and whether a stream breaks."""

from __future__ import annotations

import threading
import time
from collections import Counter

import numpy as np

from webui.cluster.remote import ClusterEngine
from webui.engine.base import Engine
from webui.errors import Busy, KaikouError
from webui.types import Prompt

from .fleet import TEXTS, request

STAGES = ((2, 20.0), (9, 40.0), (60, 15.0), (1, 90.0))  # (listeners, seconds)
LISTEN_S = 0.2  # between two chunks of a listener


def ramp(local: Engine, prompt: Prompt, engine: ClusterEngine) -> None:
    speech_request = request(1, *TEXTS * 4)
    undisturbed = np.concatenate([chunk.samples for chunk in local.stream(speech_request, prompt)])
    counts: Counter[str] = Counter()
    lock, n_listeners, over = threading.Lock(), [0], threading.Event()

    def listen(place: int) -> None:
        """Begins takes as long as there are more listeners than its place."""
        while not over.is_set():
            if place >= n_listeners[0]:
                over.wait(0.2)
                continue
            try:
                chunks = []
                for chunk in engine.stream(speech_request, prompt):
                    chunks.append(chunk.samples)
                    time.sleep(LISTEN_S)
                is_whole = np.array_equal(np.concatenate(chunks), undisturbed)
                outcome = "whole" if is_whole else "wrong"
            except Busy as error:
                outcome = f"refused, retry after {error.retry_after_s:g} s"
                over.wait(error.retry_after_s)
            except KaikouError as error:
                outcome = f"broken: {error.code}"
            with lock:
                counts[outcome] += 1

    threads = [
        threading.Thread(target=listen, args=(place,)) for place in range(max(n for n, _ in STAGES))
    ]
    for thread in threads:
        thread.start()
    began_s, n_before = time.monotonic(), 0
    for n_listeners[0], seconds in STAGES:
        print(f"{time.monotonic() - began_s:5.1f} s: {n_listeners[0]} listeners", flush=True)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            if (n_replicas := engine.figures()["fleet_replicas"]) != n_before:
                n_before = n_replicas
                print(f"{time.monotonic() - began_s:5.1f} s: {n_before} replicas", flush=True)
            time.sleep(0.2)
    over.set()
    for thread in threads:
        thread.join()
    print(dict(counts))
