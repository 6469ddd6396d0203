"""One utterance of a fixed length, spoken in two ways with the same weights: as the studio does it,
and on the published code's schedule.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch

from scripts.published.v2 import SeamVocoder, Token2Wav, schedule
from webui.engine.cosyvoice.flow.dims import FRAMES_PER_ID, LOOKAHEAD_IDS
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt, PromptCache
from webui.engine.cosyvoice.frontend.prompt_encoder import PromptFeatures
from webui.engine.cosyvoice.llm.decode import StopCriteria
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.qwen2 import generate
from webui.engine.cosyvoice.llm.sampler import Sampler
from webui.engine.cosyvoice.llm.token_sources import LMTokens, TokenSource
from webui.engine.cosyvoice.scheduler import chunk_schedule
from webui.engine.cosyvoice.scheduler.request_state import RequestState
from webui.engine.cosyvoice.scheduler.runner import EngineRunner
from webui.engine.cosyvoice.v2 import CosyVoice2
from webui.errors import NotReady
from webui.types import SpeechRequest

IDS_PER_TEXT_ID = 6  # what speech has; random weights would end anywhere


@dataclass
class Run:
    """Seconds by this machine's clock; frames are the estimator's."""

    rate: int
    first_s: float = 0.0
    wall_s: float = 0.0
    samples: int = 0
    computed: int = 0
    emitted: int = 0
    underruns: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    first_stages: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.perf_counter)
    _played_out: float = 0.0

    def sound(self, count: int) -> None:
        """A chunk has arrived: it plays behind the one before, or at once when that one is over (an
        underrun).
        """
        now = time.perf_counter() - self._began
        if not self.samples:
            self.first_s, self._played_out, self.first_stages = now, now, dict(self.stages)
        elif now > self._played_out:
            self.underruns += 1
            self._played_out = now
        self._played_out += count / self.rate
        self.samples += count
        self.wall_s = now

    def spent(self, stage: str, seconds: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds

    @property
    def audio_s(self) -> float:
        return self.samples / self.rate


def script(count: int, seed: int) -> list[int]:
    """Text ids for so many speech ids."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (max(1, -(-count // IDS_PER_TEXT_ID)),), generator=random).tolist()


class Floor:
    """The studio's two stages over one model, with one voice computed."""

    def __init__(self, model: CosyVoice2, prompt: PromptFeatures, profile: str, first_hop: int):
        self.model, self.rate = model, model.spec.sample_rate
        self._pace = chunk_schedule.latency_profile(profile)
        self._hops = model.hops(first_hop, self._pace)
        self.voice = CachedPrompt(model, prompt, first_hop)
        self.stages = EngineRunner(
            model, PromptCache(model, 1 << 62, first_hop=first_hop), self._pace
        )
        began = time.perf_counter()
        self.stages.prepare(self.voice)
        self.voice_s = time.perf_counter() - began
        self._serial = itertools.count(1)

    def speak(self, count: int, seed: int) -> Run:
        """One request, from its beginning to its last chunk. Any thread."""
        run = Run(self.rate)
        request = SpeechRequest(f"bench-{next(self._serial)}", "bench", "bench", seed=seed)
        utterance = RequestState(
            self.stages.scheduler,
            self.voice,
            request,
            self.sources(request, count),
            self._hops,
            self._pace,
            self.rate,
        )
        for chunk in utterance.chunks():
            for stage, seconds in chunk.timings.items():
                run.spent(stage, seconds)
            run.sound(len(chunk.samples))
        run.computed, run.emitted = utterance.computed_frames, utterance.emitted_frames
        return run

    def sources(self, request: SpeechRequest, count: int) -> Sequence[TokenSource]:
        """What gives `count` speech ids."""
        model, prompt = self.model, self.voice.prompt
        return [
            LMTokens(
                model.lm,
                lambda: self.voice.prefix(prompt.text_ids),
                script(count, request.seed),
                prompt.speech_ids,
                SamplingRequest(request.seed, count, count, model.spec.rule),
            )
        ]

    def close(self) -> None:
        self.stages.close(NotReady("notready.bench_over"))


def recomputed(model: CosyVoice2, prompt: PromptFeatures, count: int, seed: int) -> Run:
    """The published schedule: prompt and history again on every hop, full attention in the last.

    Kinder than the published code: no waits between polls, no voice features per request, and our
    own kernels.
    """
    run = Run(model.spec.sample_rate)
    clock = time.perf_counter()

    def lap(stage: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        run.spent(stage, now - clock)
        clock = now

    text, dims = script(count, seed), model.spec.lm
    sampler = Sampler(seed, model.spec.rule, dims.forbidden_ids())
    source, ids = (
        generate(
            model.lm,
            model.lm.prefix(prompt.text_ids).fork(len(text) + len(prompt.speech_ids) + count + 2),
            text,
            prompt.speech_ids,
            StopCriteria(dims, sampler, 0, count),
        ),
        [],
    )
    speaker = Token2Wav(
        model.flow, model.vocoder, torch.tensor(prompt.speech_ids), prompt.mel, prompt.vector
    )
    vocoder = SeamVocoder(model.vocoder, seed)
    for call in schedule(count, len(prompt.speech_ids)):
        if not ids:
            ids.append(next(source))
            lap("prefill")
        ids += islice(source, call.n_ids - len(ids))
        lap("tokens")
        mel = speaker.mel(torch.tensor(ids), call).to(model.vocoder.conv_pre.weight)
        run.computed += FRAMES_PER_ID * (
            len(prompt.speech_ids) + call.n_ids - (0 if call.final else LOOKAHEAD_IDS)
        )
        run.emitted += mel.shape[2]
        lap("flow")
        wave = vocoder.push(vocoder.joined(mel), call.final).cpu()
        lap("vocoder")
        run.sound(len(wave))
    return run
