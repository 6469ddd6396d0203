"""CosyVoice2 as an Engine: loads in `start`, speaks on one lane, keeps nothing of a request outside the iterator it returned."""

from __future__ import annotations

import hashlib
import logging
import os
import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ...errors import EngineFault, NotReady
from ...types import CONVERT, MODES, Abilities, Chunk, Health, Prompt, SpeechRequest
from ..memory_lock import MemoryLock
from .device import MemoryPlan, Place, choose, plan
from .kept import keep
from .model import CosyVoice2
from .prompt import ENGINE, VoicePrompt
from .spec import check_files, read_spec
from .stream import Utterance
from .tokenizer import EVENT_TAGS
from .voices import LiveVoices

log = logging.getLogger(__name__)
CODE = "1"  # raised when the same weights and seed give other samples
LANGUAGES = ("zh", "yue", "en", "ja", "ko")
STYLES = ("sichuan", "yue", "dongbei", "shanghai", "tianjin", "henan", "shaanxi", "shandong", "minnan", "hunan", "happy", "sad", "angry", "calm", "surprise", "fear",
          "gentle", "whisper", "fast", "slow", "news", "story")
WARM_TEXT = ("你好，我已经准备好了。", "Hello, I am ready to speak to you now.")
NOT_LOADED = ("CosyVoice2 is not ready yet. You can use the built-in voice.", "CosyVoice2 还没准备好。可以先用内置音色。")


class CosyVoiceEngine:
    """root: a CosyVoice2-0.5B directory as published. device, precision: "auto" or a name of device.py. lock_memory: keep what the plan
    needs from others. Raises nothing until `start`."""

    def __init__(self, root: Path, device: str = "auto", precision: str = "auto", lock_memory: bool = False):
        self._root, self._asked, self._locks = root, (device, precision), lock_memory
        self.lock = MemoryLock()
        self._model: CosyVoice2 | None = None
        self._voices: LiveVoices | None = None
        self._running: weakref.WeakValueDictionary[str, Utterance] = weakref.WeakValueDictionary()
        self._health = Health("starting", "CosyVoice2 is about to load.", "即将载入 CosyVoice2。")
        self._rtf = 1.0
        self.first_chunk_s = 0.0
        self.plan: MemoryPlan | None = None

    def start(self) -> None:
        place = choose(*self._asked)
        log.info("CosyVoice2 on %s in %s: %s", place.device, place.precision, place.why)
        if place.device == "cpu":
            torch.set_num_threads(os.cpu_count() or 1)
        check_files(self._root, place.precision)
        self.plan = plan(read_spec(self._root), self._root, place)
        log.info("memory plan: %s", self.plan.words())
        self.plan.check()
        if self._locks:
            self._lock_memory(place)
        model = CosyVoice2.load(self._root, place, self._tell)
        self._voices, self._model = LiveVoices(model, self.plan.voices_budget), model
        self._warm_up(model)
        self._health = Health("ready")

    def _lock_memory(self, place: Place) -> None:
        try:
            keep(self.lock, self.plan, place, self._root)
        except NotReady as fault:  # slower under pressure, but it speaks
            log.warning("memory is not locked: %s", fault.en)

    def _tell(self, share: float, en: str, zh: str) -> None:
        self._health = Health("starting", en, zh, share)
        log.info("%.0f %%: %s", 100 * share, en)

    def _warm_up(self, model: CosyVoice2) -> None:
        """A sentence in two languages and with each kind of prompt, long enough for every hop; measures first chunk and RTF."""
        self._tell(0.9, "Speaking a warm-up sentence", "正在试读一句")
        noise = torch.Generator().manual_seed(1)
        ids = tuple(torch.randint(0, model.spec.lm.speech_codes, (80,), generator=noise).tolist())
        voice = VoicePrompt((), ids, torch.randn(1, 160, 80, generator=noise) - 4, torch.randn(1, 192, generator=noise))
        prompt = Prompt(ENGINE, self.version, "warm-up", voice.pack())
        for mode in ("cross_lingual", "instruct"):
            began, made = time.perf_counter(), 0
            for chunk in self.stream(SpeechRequest("warm-up", WARM_TEXT[0], "warm-up", mode, instruction="开心", segments=WARM_TEXT, seed=1), prompt):
                self.first_chunk_s = time.perf_counter() - began if not chunk.number else self.first_chunk_s
                made += len(chunk.samples)
            self._rtf = (time.perf_counter() - began) / (made / model.spec.sample_rate)
        self._voices.clear()
        log.info("warm: first chunk %.0f ms, real-time factor %.2f", 1000 * self.first_chunk_s, self._rtf)

    @property
    def version(self) -> str:
        return f"{CODE}-{self._loaded().mark}"

    def _loaded(self) -> CosyVoice2:
        if self._model is None:
            raise NotReady(*NOT_LOADED)
        return self._model

    def describe(self) -> Abilities:
        model = self._loaded()
        return Abilities(ENGINE, self.version, model.spec.sample_rate, (*MODES, CONVERT), LANGUAGES, lanes=1, rtf=self._rtf, tags=EVENT_TAGS, styles=STYLES,
                         presets=tuple(model.presets))

    def encode(self, samples: np.ndarray, rate: int, transcript: str, language: str) -> Prompt:
        """The transcript is not part of a voice here: it travels with each request."""
        return self._loaded().maker.make(samples, rate, "", self.version)

    def prepare(self, prompt: Prompt) -> None:
        """Runs the prompt through the flow once: seconds on a CPU, and the first click need not wait for them."""
        self._loaded()
        self._voices.get(prompt)

    def preset(self, name: str) -> Prompt:
        """A ready speaker of the model directory. Raises EngineFault when there is none of that name."""
        voice = self._loaded().presets.get(name)
        if voice is None:
            raise EngineFault(f"The model has no preset voice “{name[:60]}”.", f"模型里没有预训练音色「{name[:60]}」。", param="voice")
        data = voice.pack()
        return Prompt(ENGINE, self.version, hashlib.sha256(data).hexdigest()[:32], data)

    def stream(self, request: SpeechRequest, prompt: Prompt, lane: int = 0) -> Iterator[Chunk]:
        return self._run(request, prompt, lambda u: u.chunks())

    def convert(self, request: SpeechRequest, prompt: Prompt, samples: np.ndarray, rate: int, lane: int = 0) -> Iterator[Chunk]:
        """The words of a source clip in the prompt's voice. samples: float32 mono (n,), at most 30 s."""
        def work(utterance: Utterance) -> Iterator[Chunk]:
            yield from utterance.convert(self._loaded().maker.speech_ids(samples, rate))
        return self._run(replace(request, segments=()), prompt, work)

    def stream_text(self, request: SpeechRequest, prompt: Prompt, pieces: Iterable[str]) -> Iterator[Chunk]:
        """As `stream`, for a text that is still arriving; `pieces` may block, and sound comes out before it ends."""
        return self._run(request, prompt, lambda u: u.arriving(pieces))

    def _run(self, request: SpeechRequest, prompt: Prompt, work) -> Iterator[Chunk]:
        model, voices = self._loaded(), self._voices

        def chunks() -> Iterator[Chunk]:
            try:
                utterance = Utterance(model, voices.get(prompt), request)
                self._running[request.id] = utterance
                yield from work(utterance)
            except torch.OutOfMemoryError as error:
                raise EngineFault("The device ran out of memory on this request. Try a shorter text.", "设备内存不足，这一条没有完成，请缩短文本。", code="out_of_memory") from error
        return chunks()

    def notes(self, request: SpeechRequest) -> list[tuple[str, str]]:
        odd = self._loaded().tokenizer.unknown(request.text)
        return [(f"Unknown tag {tag}: it would be read aloud.", f"不认识的标记 {tag}，会被读出来。") for tag in odd[:3]]

    def cancel(self, request_id: str) -> None:
        utterance = self._running.get(request_id)
        if utterance is not None:
            utterance.cancelled.set()

    def health(self) -> Health:
        return self._health

    def close(self) -> None:
        self._health = Health("broken", "CosyVoice2 was closed.", "CosyVoice2 已关闭。")
        if self._voices is not None:
            self._voices.clear()
        self._model = self._voices = None
        self.lock.release()
