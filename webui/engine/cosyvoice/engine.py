"""Any generation of CosyVoice as an Engine: loads in `start`, speaks on two stages that all streams
share, keeps nothing of a request outside its iterator.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from ...errors import EngineFault, KaikouError, NotReady
from ...messages import message
from ...types import Abilities, Chunk, Health, Prompt, Segmentation, SpeechRequest
from ..memory_pinning import MemoryLock
from .backend import to_backend
from .device import DeviceConfig, choose
from .directory_contents import check_files, with_end_of_prompt, with_reinforced
from .doctor.graphs import Note, load_compared
from .frontend.prompt_cache import CachedPrompt, PromptCache
from .llm.token_sources import FixedTokens, TokenSource
from .mapped_files import keep_in_memory
from .memory_plan import MemoryPlan, plan
from .model import Model
from .model_spec import ModelSpec
from .registry import model_spec_of
from .scheduler.chunk_schedule import latency_profile
from .scheduler.request_state import RequestState
from .scheduler.runner import EngineRunner

log = logging.getLogger(__name__)
Choice = TypeVar("Choice", int, str)
USUAL = "balanced"
# streams that may be stepped at once, on a CPU and on a GPU, where a model has places for so many
LANES = (
    8,
    32,
)
SEGMENTATION = Segmentation(80, 60, 20)  # the published front end's
WARM_TEXT = ("你好，我已经准备好了。", "Hello, I am ready to speak to you now.")
GRAPHS = (
    "auto",
    "off",
)  # recorded networks on a GPU: where they sound as the plain ones do, or not at all
WARM_MODES = ("cross_lingual", "instruct")  # each kind of prompt


class CosyVoiceEngine:
    """root: a model directory as published; which generation it is its files tell. device,
    precision: "auto" or a name of device.py.
    lock_memory: keep what the plan needs from others. profile: a name of
    scheduler/chunk_schedule.py. steps: of the flow's solver; first_hop: ids of the first sound; of
    those the generation has, 0 = as it was trained. reinforced: speak with the language model
    after reinforcement learning, where a generation has one. threads: of torch in each worker,
    0 = chosen from the machine. graphs: of GRAPHS.
    end_of_prompt: of a description, where a generation has several; "" is the usual one.
    Raises nothing until `start`.
    """

    def __init__(
        self,
        root: Path,
        device: str = "auto",
        precision: str = "auto",
        lock_memory: bool = False,
        *,
        profile: str = USUAL,
        steps: int = 0,
        first_hop: int = 0,
        threads: int = 0,
        reinforced: bool = False,
        graphs: str = "auto",
        end_of_prompt: str = "",
    ):
        self._root, self._device_options, self._locks = (
            root,
            (device, precision, threads),
            lock_memory,
        )
        self._profile, self._steps, self._first_hop, self._is_reinforced = (
            profile,
            steps,
            first_hop,
            reinforced,
        )
        self._graphs, self._end_of_prompt = graphs, end_of_prompt
        self._note: Note = None  # what it does not do as it should, in English and Chinese
        self.lock = MemoryLock()
        self._moving = threading.Lock()  # of `_health` and `_fault`
        self._fault: KaikouError | None = None  # why it speaks no more
        self._family: ModelSpec | None = None
        self._model: Model | None = None
        self._voices: PromptCache | None = None
        self._runner: EngineRunner | None = None
        self._running: dict[str, RequestState] = {}
        self._health = Health("starting", *message("health.about_to_load", title=self._title))
        self._rtf = 1.0
        self.first_chunk_s = 0.0
        self.plan: MemoryPlan | None = None

    @property
    def _title(self) -> str:
        return self._family.title if self._family is not None else "CosyVoice"

    def start(self) -> None:
        pace, model_spec = latency_profile(self._profile), model_spec_of(self._root)
        self._family = model_spec = (
            with_reinforced(model_spec, self._root) if self._is_reinforced else model_spec
        )
        model_spec = with_end_of_prompt(model_spec, self._end_of_prompt)
        self._steps, self._first_hop = (
            self._one_of("steps", self._steps, model_spec.steps),
            self._one_of("first_hop", self._first_hop, model_spec.first_hops),
        )
        graphs = self._one_of("graphs", self._graphs, GRAPHS)
        device_config = replace(choose(*self._device_options), graphs=graphs == "auto")
        log.info(
            "%s; profile %s, %d steps, first hop %d",
            device_config.describe(model_spec.title),
            pace.name,
            self._steps,
            self._first_hop,
        )
        if device_config.device == "cpu":
            torch.set_num_threads(device_config.threads)
        check_files(model_spec, self._root, device_config.precision)
        self.plan = plan(
            model_spec, model_spec.read_spec(self._root, self._steps), self._root, device_config
        )
        log.info("memory plan: %s", self.plan.describe())
        self.plan.check(model_spec.title)
        if self._locks:
            self._lock_memory(device_config)
        model = self._load(model_spec, device_config)
        self._hops = model.hops(self._first_hop, pace)
        self._voices, self._model = (
            PromptCache(model, model.voices_budget(self.plan), self._first_hop),
            model,
        )
        self._runner = EngineRunner(model, self._voices, pace, self._break)
        self._warm_up(model)
        self._move(Health("ready"))
        if self._fault is not None:
            raise self._fault.copy()

    def _load(self, model_spec: ModelSpec, device_config: DeviceConfig) -> Model:
        """On a GPU recorded networks are compared with plain ones before they are used."""

        def load(at: DeviceConfig) -> Model:
            return to_backend(model_spec.load(self._root, at, self._tell, self._steps), self._tell)

        if device_config.device != "cuda":
            return load(device_config)
        model, self._note = load_compared(load, device_config)
        return model

    def _one_of(self, name: str, value: Choice, allowed: Sequence[Choice]) -> Choice:
        """A setting that generations have different values for.

        Raises NotReady naming it and them.
        """
        if value and value not in allowed:
            raise NotReady(
                "bad_setting.engine", name=name, asked=value, title=self._title, known=allowed
            )
        return value or allowed[0]

    def _break(self, fault: KaikouError) -> None:
        """A stage has failed, or it is closed: nobody can speak any more, and everybody is told
        why.
        """
        with self._moving:
            self._fault = fault.copy()
            self._health = Health("broken", fault.en, fault.zh)

    def _move(self, health: Health) -> None:
        """On in its start. What is broken stays so."""
        with self._moving:
            if self._fault is None:
                self._health = health

    def _lock_memory(self, device_config: DeviceConfig) -> None:
        try:
            keep_in_memory(self.lock, self.plan, device_config, self._root, self._family.components)
        except NotReady as fault:  # slower under pressure, but it speaks
            log.warning("memory is not locked: %s", fault.en)

    def _tell(self, share: float, en: str, zh: str) -> None:
        self._move(Health("starting", en, zh, share))
        log.info("%.0f %%: %s", 100 * share, en)

    def _warm_up(self, model: Model) -> None:
        """A sentence in two languages and with each kind of prompt, long enough for every hop;
        measures first chunk and RTF.
        """
        self._tell(0.9, *message("progress.warm_up"))
        prompt = Prompt(
            model.model_spec.engine, self.prompt_version, "warm-up", model.warm_prompt().pack()
        )
        self.prepare(prompt)
        for mode in [mode for mode in WARM_MODES if mode in model.facts.modes] or model.facts.modes[
            :1
        ]:
            began, n_samples = time.perf_counter(), 0
            for chunk in self.stream(
                SpeechRequest(
                    "warm-up",
                    WARM_TEXT[0],
                    "warm-up",
                    mode,
                    instruction="开心",
                    segments=WARM_TEXT,
                    seed=1,
                ),
                prompt,
            ):
                self.first_chunk_s = (
                    time.perf_counter() - began if not chunk.number else self.first_chunk_s
                )
                n_samples += len(chunk.samples)
            self._rtf = (time.perf_counter() - began) / (n_samples / model.spec.sample_rate)
        self._voices.clear()
        log.info(
            "warm: first chunk %.0f ms, real-time factor %.2f, %.1f s of sound a second for all"
            " streams",
            1000 * self.first_chunk_s,
            self._rtf,
            self._runner.speed,
        )

    @property
    def version(self) -> str:
        """Settings that change what is heard are part of it, and so is what computes it."""
        model, settings = self._require_model(), (self._steps, self._first_hop, self._profile)
        model_spec = model.model_spec
        usual = (model_spec.steps[0], model_spec.first_hops[0], USUAL)
        suffix = "".join(f"-{s}" for s in settings) if settings != usual else ""
        ends = model_spec.ends_of_prompt
        suffix += (
            f"-end{ends.index(self._end_of_prompt)}" if self._end_of_prompt in ends[1:] else ""
        )
        return f"{model_spec.code}-{model.mark}{suffix}+{model.device_config.fingerprint}"

    @property
    def prompt_version(self) -> str:
        """A prompt is what the listening networks hear, on the host and in fp32 always: no setting
        and no device changes it.
        """
        model = self._require_model()
        return f"{model.model_spec.prompt_code}-{model.mark}"

    def _require_model(self) -> Model:
        if self._model is None:
            raise NotReady("notready.engine", title=self._title)
        return self._model

    def describe(self) -> Abilities:
        model, facts = self._require_model(), self._require_model().facts
        lanes = LANES[model.device_config.device != "cpu"]
        return Abilities(
            model.model_spec.engine,
            self.version,
            model.spec.sample_rate,
            facts.modes,
            facts.languages,
            lanes=min(lanes, model.streams or lanes),
            rtf=self._rtf,
            speed=self._runner.speed,
            tags=facts.tags,
            styles=facts.styles,
            presets=tuple(model.presets),
            text_in=facts.text_in,
            preset_modes=facts.preset_modes,
            told_clones=facts.told_clones,
            hears_only=True,
            streams=model.streams,
            prompt_version=self.prompt_version,
            note=self._note,
            segmentation=SEGMENTATION,
        )

    def encode(self, samples: np.ndarray, rate: int, transcript: str, language: str) -> Prompt:
        """The transcript is not part of a voice here: it travels with each request."""
        return self._require_model().prompt_encoder.make(samples, rate, "", self.prompt_version)

    def prepare(self, prompt: Prompt) -> None:
        """Runs the prompt through the flow once: seconds on a CPU, and the first click need not
        wait for them.
        """
        self._require_model()
        self._runner.prepare(self._voices.get(prompt))

    def preset(self, name: str) -> Prompt:
        """A ready speaker of the model directory.

        Raises EngineFault when there is none of that name.
        """
        voice = self._require_model().presets.get(name)
        if voice is None:
            raise EngineFault("fault.no_preset_voice", name=name[:60], param="voice")
        data = voice.pack()
        return Prompt(
            self._family.engine, self.prompt_version, hashlib.sha256(data).hexdigest()[:32], data
        )

    def stream(self, request: SpeechRequest, prompt: Prompt, lane: int = 0) -> Iterator[Chunk]:
        return self._run(
            request,
            prompt,
            lambda voice: self._require_model().prompt_builder(voice, request).build_lm_tokens(),
        )

    def convert(
        self, request: SpeechRequest, prompt: Prompt, samples: np.ndarray, rate: int, lane: int = 0
    ) -> Iterator[Chunk]:
        """The words of a source clip in the prompt's voice. samples: float32 mono (n,), at most 30
        s.
        """
        return self._run(
            request,
            prompt,
            lambda voice: [
                FixedTokens(self._require_model().prompt_encoder.speech_ids(samples, rate))
            ],
        )

    def stream_text(
        self, request: SpeechRequest, prompt: Prompt, pieces: Iterable[str]
    ) -> Iterator[Chunk]:
        """As `stream`, for a text that is still arriving; `pieces` may block, and sound comes out
        before it ends.
        """
        self._require_model()  # raises NotReady
        scheduler = self._runner.scheduler
        return self._run(
            request,
            prompt,
            lambda voice: [
                self._require_model()
                .prompt_builder(voice, request)
                .arriving(pieces, scheduler.lock, scheduler.ids_wanted.notify)
            ],
        )

    def _run(
        self,
        request: SpeechRequest,
        prompt: Prompt,
        sources: Callable[[CachedPrompt], Sequence[TokenSource]],
    ) -> Iterator[Chunk]:
        model, voices, stages = self._require_model(), self._voices, self._runner
        if prompt.engine != model.model_spec.engine:
            raise EngineFault("voice_other_engine", engine=prompt.engine[:40], param="voice")
        voice = voices.get(prompt)
        request_state = RequestState(
            stages.scheduler,
            voice,
            request,
            sources(voice),
            self._hops,
            stages.profile,
            model.spec.sample_rate,
        )
        self._running[request.id] = request_state
        try:
            yield from request_state.chunks()
        finally:
            if self._running.get(request.id) is request_state:
                del self._running[request.id]

    def notes(self, request: SpeechRequest) -> list[tuple[str, str]]:
        odd = self._require_model().tokenizer.unknown(request.text)
        tags = [message("note.unknown_tag", tag=tag) for tag in odd[:3]]
        return tags + self._require_model().model_spec.cautions(request)

    def check(self, request: SpeechRequest, prompt: Prompt) -> list[tuple[str, str]]:
        prompt_builder = self._require_model().prompt_builder(self._voices.get(prompt), request)
        prompt_builder.build_lm_tokens()
        return prompt_builder.fit_notes()

    def forget(self, fingerprint: str) -> None:
        voices = self._voices
        if voices is not None:
            voices.forget(fingerprint)

    def figures(self) -> dict[str, float]:
        """Of the two stages: steps so far and the rows in them; and the GPU memory that torch has
        taken.
        """
        runner = self._runner
        if runner is None:
            return {}
        is_cuda = torch.cuda.is_initialized()
        return {
            "lm_steps": runner.lm_worker.steps,
            "lm_rows": runner.lm_worker.rows,
            "audio_steps": runner.audio_worker.calls,
            "audio_rows": runner.audio_worker.pieces,
            **({"gpu_bytes": torch.cuda.memory_reserved()} if is_cuda else {}),
        }

    def cancel(self, request_id: str) -> None:
        request_state = self._running.get(request_id)
        if request_state is not None:
            request_state.cancel()

    def health(self) -> Health:
        return self._health

    def close(self) -> None:
        fault = NotReady("closed", title=self._title)
        self._break(fault)
        if self._runner is not None:
            self._runner.close(fault)
            self._voices.clear()
        self._model = self._voices = self._runner = None
        self.lock.release()
