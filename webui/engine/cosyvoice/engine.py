"""CosyVoice2 as an Engine: loads in `start`, speaks on two stages that all streams share, keeps nothing of a request outside its iterator."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from ...errors import EngineFault, KaikouError, NotReady
from ...types import CONVERT, MODES, Abilities, Chunk, Health, Prompt, SpeechRequest
from ..memory_lock import MemoryLock
from .device import MemoryPlan, Place, choose, cores, plan
from .flow.dims import EULER_STEPS
from .kept import keep
from .model import CosyVoice2, with_steps
from .pace import Hops, profile
from .prompt import ENGINE, VoicePrompt
from .script import Script
from .sources import Given, Source
from .spec import check_files, read_spec
from .stages import Stages
from .stream import Utterance
from .tokenizer import EVENT_TAGS
from .voices import LiveVoice, LiveVoices

log = logging.getLogger(__name__)
CODE = "2"  # raised when the same weights and seed give other samples
GRID = 25
STEPS, FIRST_HOPS = (10, 5), (25, 10)
DEFAULTS = (EULER_STEPS, GRID, "balanced")
LANES = (8, 32)  # streams that may be open at once, on a CPU and on a GPU; how many of them are let in is measured
LANGUAGES = ("zh", "yue", "en", "ja", "ko")
STYLES = ("sichuan", "yue", "dongbei", "shanghai", "tianjin", "henan", "shaanxi", "shandong", "minnan", "hunan", "happy", "sad", "angry", "calm", "surprise", "fear",
          "gentle", "whisper", "fast", "slow", "news", "story")
WARM_TEXT = ("你好，我已经准备好了。", "Hello, I am ready to speak to you now.")
NOT_LOADED = ("CosyVoice2 is not ready yet. You can use the built-in voice.", "CosyVoice2 还没准备好。可以先用内置音色。")


class CosyVoiceEngine:
    """root: a CosyVoice2-0.5B directory as published. device, precision: "auto" or a name of device.py. lock_memory: keep what the plan
    needs from others. profile: a name of pace.py. steps: of the flow's solver, 10 as published or 5. first_hop: ids of the first sound,
    25 as the model was trained or 10. threads: of torch in each stage, 0 = chosen from the machine. Raises nothing until `start`."""

    def __init__(self, root: Path, device: str = "auto", precision: str = "auto", lock_memory: bool = False, *, profile: str = "balanced", steps: int = EULER_STEPS,
                 first_hop: int = GRID, threads: int = 0):
        self._root, self._asked, self._locks = root, (device, precision, threads), lock_memory
        self._profile, self._steps, self._first_hop = profile, steps, first_hop
        self.lock = MemoryLock()
        self._model: CosyVoice2 | None = None
        self._voices: LiveVoices | None = None
        self._stages: Stages | None = None
        self._running: dict[str, Utterance] = {}
        self._health = Health("starting", "CosyVoice2 is about to load.", "即将载入 CosyVoice2。")
        self._rtf = 1.0
        self.first_chunk_s = 0.0
        self.plan: MemoryPlan | None = None

    def start(self) -> None:
        pace = profile(self._profile)
        if self._steps not in STEPS or self._first_hop not in FIRST_HOPS:
            raise NotReady(f"CosyVoice2 takes {STEPS} solver steps and first hops of {FIRST_HOPS} ids.", f"CosyVoice2 的求解步数可为 {STEPS}，首段可为 {FIRST_HOPS} 个编号。", code="bad_setting")
        place = choose(*self._asked)
        log.info("%s; profile %s, %d steps, first hop %d", place.words(), pace.name, self._steps, self._first_hop)
        if place.device == "cpu":
            torch.set_num_threads(place.threads)
        check_files(self._root, place.precision)
        self.plan = plan(with_steps(read_spec(self._root), self._steps), self._root, place)
        log.info("memory plan: %s", self.plan.words())
        self.plan.check()
        if self._locks:
            self._lock_memory(place)
        model = CosyVoice2.load(self._root, place, self._tell, self._steps)
        self._hops = Hops(self._first_hop, model.flow.dims.chunk_size, pace.blocks, place.device != "cpu" or cores() > 1)
        self._voices, self._model = LiveVoices(model, *model.voices_budget(self.plan), first_hop=self._first_hop), model
        self._stages = Stages(model, self._voices, pace, self._break)
        self._warm_up(model)
        self._health = Health("ready")

    def _break(self, fault: KaikouError) -> None:
        """A stage has failed: nobody can speak any more, and everybody is told why."""
        self._health = Health("broken", fault.en, fault.zh)

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
        self.prepare(prompt)
        for mode in ("cross_lingual", "instruct"):
            began, made = time.perf_counter(), 0
            for chunk in self.stream(SpeechRequest("warm-up", WARM_TEXT[0], "warm-up", mode, instruction="开心", segments=WARM_TEXT, seed=1), prompt):
                self.first_chunk_s = time.perf_counter() - began if not chunk.number else self.first_chunk_s
                made += len(chunk.samples)
            self._rtf = (time.perf_counter() - began) / (made / model.spec.sample_rate)
        self._voices.clear()
        log.info("warm: first chunk %.0f ms, real-time factor %.2f, %.1f s of sound a second for all streams", 1000 * self.first_chunk_s, self._rtf, self._stages.speed)

    @property
    def version(self) -> str:
        """Settings that change what is heard are part of it."""
        settings = (self._steps, self._first_hop, self._profile)
        return f"{CODE}-{self._loaded().mark}{''.join(f'-{s}' for s in settings) if settings != DEFAULTS else ''}"

    def _loaded(self) -> CosyVoice2:
        if self._model is None:
            raise NotReady(*NOT_LOADED)
        return self._model

    def describe(self) -> Abilities:
        model = self._loaded()
        return Abilities(ENGINE, self.version, model.spec.sample_rate, (*MODES, CONVERT), LANGUAGES, lanes=LANES[model.place.device != "cpu"], rtf=self._rtf,
                         speed=self._stages.speed, tags=EVENT_TAGS, styles=STYLES, presets=tuple(model.presets), text_in=True)

    def encode(self, samples: np.ndarray, rate: int, transcript: str, language: str) -> Prompt:
        """The transcript is not part of a voice here: it travels with each request."""
        return self._loaded().maker.make(samples, rate, "", self.version)

    def prepare(self, prompt: Prompt) -> None:
        """Runs the prompt through the flow once: seconds on a CPU, and the first click need not wait for them."""
        self._loaded()
        self._stages.prepare(self._voices.get(prompt))

    def preset(self, name: str) -> Prompt:
        """A ready speaker of the model directory. Raises EngineFault when there is none of that name."""
        voice = self._loaded().presets.get(name)
        if voice is None:
            raise EngineFault(f"The model has no preset voice “{name[:60]}”.", f"模型里没有预训练音色「{name[:60]}」。", param="voice")
        data = voice.pack()
        return Prompt(ENGINE, self.version, hashlib.sha256(data).hexdigest()[:32], data)

    def stream(self, request: SpeechRequest, prompt: Prompt, lane: int = 0) -> Iterator[Chunk]:
        return self._run(request, prompt, lambda voice: Script(self._loaded(), voice, request).drawn())

    def convert(self, request: SpeechRequest, prompt: Prompt, samples: np.ndarray, rate: int, lane: int = 0) -> Iterator[Chunk]:
        """The words of a source clip in the prompt's voice. samples: float32 mono (n,), at most 30 s."""
        return self._run(request, prompt, lambda voice: [Given(self._loaded().maker.speech_ids(samples, rate))])

    def stream_text(self, request: SpeechRequest, prompt: Prompt, pieces: Iterable[str]) -> Iterator[Chunk]:
        """As `stream`, for a text that is still arriving; `pieces` may block, and sound comes out before it ends."""
        return self._run(request, prompt, lambda voice: [Script(self._loaded(), voice, request).arriving(pieces, self._stages.board)])

    def _run(self, request: SpeechRequest, prompt: Prompt, sources: Callable[[LiveVoice], Sequence[Source]]) -> Iterator[Chunk]:
        model, voices, stages = self._loaded(), self._voices, self._stages
        voice = voices.get(prompt)
        utterance = Utterance(stages.board, voice, request, sources(voice), self._hops, stages.profile, model.spec.sample_rate)
        self._running[request.id] = utterance
        try:
            yield from utterance.chunks()
        finally:
            if self._running.get(request.id) is utterance:
                del self._running[request.id]

    def notes(self, request: SpeechRequest) -> list[tuple[str, str]]:
        odd = self._loaded().tokenizer.unknown(request.text)
        return [(f"Unknown tag {tag}: it would be read aloud.", f"不认识的标记 {tag}，会被读出来。") for tag in odd[:3]]

    def cancel(self, request_id: str) -> None:
        utterance = self._running.get(request_id)
        if utterance is not None:
            utterance.cancel()

    def health(self) -> Health:
        return self._health

    def close(self) -> None:
        fault = NotReady("CosyVoice2 was closed.", "CosyVoice2 已关闭。", code="closed")
        self._break(fault)
        if self._stages is not None:
            self._stages.close(fault)
            self._voices.clear()
        self._model = self._voices = self._stages = None
        self.lock.release()
