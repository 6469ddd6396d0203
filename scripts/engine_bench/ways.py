"""One utterance of a fixed length, spoken in two ways with the same weights: as the studio does it, and on the published code's schedule."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import torch

from webui.engine.cosyvoice.compat import SeamVocoder, Token2Wav, schedule
from webui.engine.cosyvoice.flow.dims import FRAMES_PER_ID, LOOKAHEAD_IDS
from webui.engine.cosyvoice.kv_cache import KvCache
from webui.engine.cosyvoice.lm import MAX_IDS_PER_TEXT_ID, generate
from webui.engine.cosyvoice.model import CosyVoice2
from webui.engine.cosyvoice.prompt import VoicePrompt
from webui.engine.cosyvoice.sampler import Sampler
from webui.engine.cosyvoice.stream import Utterance
from webui.engine.cosyvoice.voices import LiveVoice
from webui.types import SpeechRequest

IDS_PER_TEXT_ID = 6  # what speech has; random weights would end anywhere


@dataclass
class Run:
    """Seconds by this machine's clock; frames are the estimator's."""

    rate: int
    first_s: float = 0.0
    wall_s: float = 0.0
    first_cpu_s: float = 0.0  # of all threads: what a busy machine cannot stretch
    cpu_s: float = 0.0
    samples: int = 0
    computed: int = 0
    emitted: int = 0
    underruns: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    first_stages: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.perf_counter)
    _cpu_began: float = field(default_factory=time.process_time)
    _played_out: float = 0.0

    def sound(self, count: int) -> None:
        """A chunk has arrived: it plays behind the one before, or at once when that one is over (an underrun)."""
        now, self.cpu_s = time.perf_counter() - self._began, time.process_time() - self._cpu_began
        if not self.samples:
            self.first_cpu_s = self.cpu_s
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


def ids(model: CosyVoice2, cache: KvCache, prompt: VoicePrompt, count: int, seed: int) -> Iterator[int]:
    """Exactly `count` ids from the language model: stop ids are never drawn."""
    random = torch.Generator().manual_seed(seed)
    text = torch.randint(0, 256, (max(1, -(-count // IDS_PER_TEXT_ID)),), generator=random).tolist()
    dims = model.spec.lm
    assert len(text) * MAX_IDS_PER_TEXT_ID >= count
    sampler = Sampler(seed, model.spec.rule, range(dims.speech_codes, dims.speech_codes + 3))
    return islice(generate(model.lm, cache, text, prompt.speech_ids, sampler), count)


def cached(model: CosyVoice2, voice: LiveVoice, count: int, seed: int) -> Run:
    """The studio's way: the voice's state is kept, only new frames are computed, the vocoder carries on."""
    run = Run(model.spec.sample_rate)
    prompt = voice.prompt
    utterance = Utterance(model, voice, SpeechRequest("bench", "bench", "bench", seed=seed))
    for chunk in utterance.convert(ids(model, voice.prefix(prompt.text_ids).fork(), prompt, count, seed)):
        for stage, seconds in chunk.timings.items():
            run.spent(stage, seconds)
        run.sound(len(chunk.samples))
    run.computed, run.emitted = utterance.computed_frames, utterance.emitted_frames
    return run


def recomputed(model: CosyVoice2, voice: LiveVoice, count: int, seed: int) -> Run:
    """The published schedule: prompt and history again on every hop, full attention in the last. Kinder than the published code:
    no waits between polls, no voice features per request, and our own kernels."""
    run = Run(model.spec.sample_rate)
    prompt = voice.prompt
    clock = time.perf_counter()

    def lap(stage: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        run.spent(stage, now - clock)
        clock = now
    source, known = ids(model, model.lm.prefix(prompt.text_ids), prompt, count, seed), []
    speaker = Token2Wav(model.flow, model.vocoder, torch.tensor(prompt.speech_ids), prompt.mel, prompt.vector)
    vocoder = SeamVocoder(model.vocoder, seed)
    for call in schedule(count, len(prompt.speech_ids)):
        if not known:
            known.append(next(source))
            lap("prefill")
        known += islice(source, call.given - len(known))
        lap("tokens")
        mel = speaker.mel(torch.tensor(known), call).to(model.vocoder.conv_pre.weight)
        run.computed += FRAMES_PER_ID * (len(prompt.speech_ids) + call.given - (0 if call.final else LOOKAHEAD_IDS))
        run.emitted += mel.shape[2]
        lap("flow")
        wave = vocoder.push(vocoder.joined(mel), call.final).cpu()
        lap("vocoder")
        run.sound(len(wave))
    return run
