"""The two stages over a small model with random weights: requests to say, ways to hear them, and a
language model that counts and can be held.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.engine_bench.build import random_model, random_voice
from scripts.small_model.sizes import SMALL
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.frontend.prompt_cache import PromptCache
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.token_sources import LMTokens
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES, ChunkSchedule
from webui.engine.cosyvoice.scheduler.request_state import RequestState
from webui.engine.cosyvoice.scheduler.runner import EngineRunner
from webui.errors import NotReady
from webui.messages import Message
from webui.types import SpeechRequest

RATE = 24000


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return random_model(SMALL, DeviceConfig("cpu", "fp32", "test"))


@pytest.fixture(scope="module")
def prompt():
    return random_voice(2.0, SMALL.codes)


class Watched:
    """The language model, counting; `gate(call)` may wait or raise before a call."""

    def __init__(self, lm):
        self.lm, self.dims, self.batches, self.threads, self.gate = (
            lm,
            lm.dims,
            [],
            set(),
            lambda kind: None,
        )

    def __getattr__(self, name):
        return getattr(self.lm, name)

    def step(self, x, past):
        self.gate("step")
        self.threads.add(threading.current_thread().name)
        return self.lm.step(x, past)

    def start(self, x, past, sampling):
        self.gate("start")
        self.threads.add(threading.current_thread().name)
        return self.lm.start(x, past, sampling)

    def decode(self, pasts, steps=1):
        self.gate("decode")
        self.threads.add(threading.current_thread().name)
        self.batches.append(len(pasts))
        return self.lm.decode(pasts, steps)


@pytest.fixture
def floor(model):
    """Stages of their own over the shared small model."""
    runners = []

    def make(profile: str = "balanced", first: int = 25, whole: bool = False):
        lm = Watched(model.lm)
        own = replace(model, lm=lm)
        broken = []
        stages = EngineRunner(own, PromptCache(own, 1 << 40), PROFILES[profile], broken.append)
        rig = SimpleNamespace(
            stages=stages,
            lm=lm,
            model=own,
            hops=ChunkSchedule(first, 25, PROFILES[profile].blocks, whole),
            broken=broken,
            first=first,
        )
        runners.append(stages)
        return rig

    yield make
    for stages in runners:
        stages.close(NotReady(Message("The test is over.", "测试结束。")))


def texts(n: int, seed: int) -> list[int]:
    return torch.randint(0, 256, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def say(
    floor, voice, seed: int, n_text: int = 6, most: int | None = None, segments: int = 1, **more
) -> RequestState:
    sources = []
    least, most = (2 * n_text, 20 * n_text) if most is None else (most, most)
    for index in range(segments):
        text = texts(n_text, 100 * seed + index)
        sources.append(
            LMTokens(
                floor.lm,
                lambda: voice.prefix(voice.prompt.text_ids),
                text,
                voice.prompt.speech_ids,
                SamplingRequest(seed + index, least, most),
            )
        )
    return utterance(floor, voice, sources, seed, **more)


def utterance(floor, voice, sources, seed: int, priority: int = 0) -> RequestState:
    request = SpeechRequest(f"r{seed}", "text", "v", seed=seed, priority=priority)
    return RequestState(
        floor.stages.scheduler, voice, request, sources, floor.hops, floor.stages.profile, RATE
    )


def whole(chunks) -> np.ndarray:
    return np.concatenate([c.samples for c in chunks])


def hear(request_state: RequestState) -> tuple[list[list[int]], np.ndarray]:
    """Ids and samples. The segments are looked at while they are still there."""
    segments, chunks = list(request_state.segments), list(request_state.chunks())
    return [list(segment.source.ids) for segment in segments], whole(chunks)


def until(is_so, limit_s: float = 20.0) -> bool:
    end = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)
    return is_so()
