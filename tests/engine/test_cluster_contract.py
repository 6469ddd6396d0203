"""An engine whose streams are spoken by a replica elsewhere keeps the contract of every engine: the
tone engine, and CosyVoice2 with small random weights.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

from tests.engine.contract import EngineContract, ask, hum_reference, tone_reference, whole
from tests.engine.fake import FakeEngine
from tests.engine.fleet import STALL_S, joined, served
from tests.engine.tensors import voices_kept
from tests.serve import ROOT, free_port, running
from webui.cluster.replica import Replica


@pytest.fixture(scope="module")
def tone():
    engine = FakeEngine(lanes=3)
    engine.start()
    replica = Replica(engine, STALL_S)
    with served(replica) as port, joined(port) as cluster:
        yield engine, replica, cluster
    engine.close()


def wait_forgotten(cluster):
    """Until every replica has confirmed what was to be forgotten."""
    end = time.monotonic() + 20
    while cluster.n_unconfirmed and time.monotonic() < end:
        time.sleep(0.01)
    assert not cluster.n_unconfirmed


class TestClusterFake(EngineContract):
    def stored_prompts(self, engine):
        wait_forgotten(engine)
        return dict(self.local_engine.prompts), len(self.replica.prompts)

    @pytest.fixture
    def engine(self, tone):
        self.local_engine, self.replica, cluster = tone
        return cluster

    @pytest.fixture
    def reference(self):
        return tone_reference()

    @pytest.fixture
    def prompt(self, engine, reference):
        return engine.encode(*reference)


@pytest.fixture(scope="module")
def cosyvoice(small_model):
    from webui.engine.cosyvoice.engine import CosyVoiceEngine

    engine = CosyVoiceEngine(small_model, device="cpu")
    engine.start()
    with served(Replica(engine, STALL_S)) as port, joined(port) as cluster:
        yield engine, cluster
    engine.close()


class TestClusterCosyVoice(EngineContract):
    def stored_prompts(self, engine):
        wait_forgotten(engine)
        return voices_kept()

    @pytest.fixture
    def engine(self, cosyvoice):
        self.local_engine, cluster = cosyvoice
        return cluster

    @pytest.fixture
    def reference(self):
        return hum_reference()

    @pytest.fixture
    def prompt(self, engine, reference):
        return engine.encode(*reference)

    def test_the_replica_makes_the_samples_of_an_engine_in_the_studio(self, engine, prompt):
        assert np.array_equal(
            whole(engine.stream(ask(), prompt)), whole(self.local_engine.stream(ask(), prompt))
        )


def test_a_studio_speaks_through_a_fleet():
    local_engine = FakeEngine(lanes=2)
    local_engine.start()
    with (
        served(Replica(local_engine, STALL_S)) as port,
        running(engine=f"ray://127.0.0.1:{port}") as studio,
        studio.client() as client,
    ):
        body = {"input": "Hello there.", "voice": "alloy", "response_format": "pcm"}
        answer = client.post("/v1/audio/speech", json=body)
        assert answer.status_code == 200 and answer.headers["X-Engine"] == "fake"
        assert len(answer.content) > 24000 and local_engine.opened == 1
    local_engine.close()


@contextlib.contextmanager
def program(port, *flags):
    """The fleet of one machine, as docs/cluster.md starts it; 0 when it ended as it should."""
    argv = [sys.executable, "-m", "webui.cluster", "serve", "--without-ray", "--port", str(port)]
    process = subprocess.Popen([*argv, *flags], cwd=ROOT, env={**os.environ, "KAIKOU_NATURAL": "0"})
    try:
        with httpx.Client() as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"http://127.0.0.1:{port}/about").status_code == 200:
                        break
                assert process.poll() is None
                time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_a_studio_speaks_through_a_fleet_of_the_built_in_voice():
    """Which reads no transcript: what an engine need not have is not asked of it."""
    port = free_port()
    with (
        program(port, "--engine", "builtin"),
        running(engine=f"ray://127.0.0.1:{port}") as studio,
        studio.client() as client,
    ):
        body = {"input": "Hello there.", "voice": "alloy", "response_format": "pcm"}
        for mode in ("zero_shot", "cross_lingual"):
            answer = client.post("/v1/audio/speech", json=body | {"mode": mode})
            assert answer.status_code == 200, answer.text
            assert answer.headers["X-Engine"] == "builtin" and len(answer.content) > 24000


def test_a_studio_without_its_fleet_ends_with_a_sentence():
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "webui",
            "--engine",
            "ray://127.0.0.1:1",
            "--port",
            str(free_port()),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 2 and "does not answer" in run.stderr and "语音集群" in run.stderr
