"""Replicas killed, or the head stopped, under listeners: what each hears, and how long it waits."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from webui.cluster.remote import ClusterEngine
from webui.engine.base import Engine
from webui.errors import KaikouError
from webui.types import Prompt

from .fleet import TEXTS, pids_of, request

N_LISTENERS = 8
LISTEN_S = 0.05  # between two chunks of a listener, so that several streams are open at each kill
SLACK_S = 1.0  # sound that a listener has in hand
N_REPLICAS = 3
BETWEEN_S = 2.0  # at least, between two kills; the next one waits until all replicas are there


@dataclass
class Tally:
    """What became of the takes. waits_s: of the takes that lost a replica, from the last chunk
    before to the next one, or to the error.
    """

    whole: int = 0
    wrong: int = 0
    errors: int = 0
    replays: int = 0
    waits_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        waits = sorted(self.waits_s) or [0.0]
        return (
            f"{self.whole} whole takes, {self.wrong} with a wrong or repeated sample,"
            f" {self.errors} ended with an error, {self.replays} replays; the wait of who lost"
            f" a replica: p50 {waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s"
        )


def tally_of(
    local: Engine, prompt: Prompt, engine: ClusterEngine, disturb: Callable[[], None]
) -> Tally:
    """The listeners speak while `disturb` runs; each take is compared with the undisturbed one."""
    speech_request = request(1, *TEXTS * 4)
    undisturbed = np.concatenate([chunk.samples for chunk in local.stream(speech_request, prompt)])
    stop, lock, tally = threading.Event(), threading.Lock(), Tally()

    def listen() -> None:
        while not stop.is_set():
            stream = engine.stream(speech_request, prompt)
            chunks, waits_s, n_replays, failed = [], [], 0, 0
            while True:
                stream.slack_s = SLACK_S
                began_s = time.monotonic()
                try:
                    chunk = next(stream, None)
                except KaikouError as error:
                    print("ended with", error.code, error)
                    failed = 1
                wait_s = time.monotonic() - began_s
                if failed or stream.n_replays > n_replays:
                    waits_s.append(wait_s)
                    n_replays = stream.n_replays
                if failed or chunk is None:
                    break
                chunks.append(chunk.samples)
                stop.wait(LISTEN_S)
            is_whole = not failed and np.array_equal(np.concatenate(chunks), undisturbed)
            with lock:
                tally.whole += is_whole
                tally.errors += failed
                tally.wrong += not failed and not is_whole
                tally.replays += n_replays
                tally.waits_s += waits_s
            if failed:
                stop.wait(0.5)

    threads = [threading.Thread(target=listen) for _ in range(N_LISTENERS)]
    for thread in threads:
        thread.start()
    try:
        disturb()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return tally


def kill_replicas(engine: ClusterEngine, pid: int, n_kills: int) -> None:
    n_killed = 0
    while n_killed < n_kills:
        time.sleep(BETWEEN_S)
        replicas = pids_of(pid, b"ServeReplica")
        if len(replicas) == N_REPLICAS == engine.figures()["fleet_replicas"]:
            os.kill(replicas[n_killed % N_REPLICAS], signal.SIGKILL)
            n_killed += 1
            print(f"{n_killed} killed", flush=True)


def stop_head(pid: int, seconds: float) -> None:
    """Ray's head answers nobody for so long."""
    time.sleep(BETWEEN_S)
    heads = pids_of(pid, b"gcs_server")
    for head in heads:
        os.kill(head, signal.SIGSTOP)
    time.sleep(seconds)
    for head in heads:
        os.kill(head, signal.SIGCONT)
    print(f"{len(heads)} head stopped for {seconds:g} s")
    time.sleep(BETWEEN_S)
