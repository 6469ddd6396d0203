"""The two stages at work side by side, one thread each: ids on one core, sound on another.

What fails in one request ends that request only.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from ....errors import EngineFault, KaikouError
from ..device import cores
from ..frontend.prompt_cache import CachedPrompt, PromptCache
from ..model import Model, TwoHalves
from .audio_worker import AudioWorker
from .chunk_schedule import LatencyProfile
from .lm_worker import LMWorker
from .request_state import RequestState
from .scheduler import PREPARED_WITHIN_S, PrefillJob, Scheduler, as_engine_error

log = logging.getLogger(__name__)
CLOSING_S = 30.0  # for the piece that is being made


class EngineRunner:
    """on_break(reason): called once when a stage itself has failed; then nobody can speak any
    more.
    """

    def __init__(
        self,
        model: Model,
        voices: PromptCache,
        profile: LatencyProfile,
        on_break: Callable[[KaikouError], None] = lambda error: None,
    ):
        self.scheduler, self.profile, self._device, self._on_break = (
            Scheduler(),
            profile,
            model.device_config.device,
            on_break,
        )
        self._ids_per_s, self._title = model.spec.ids_per_s, model.model_spec.title
        self.lm_worker = LMWorker(self.scheduler, model.lm, profile, self._end_request)
        self.audio_worker = AudioWorker(self.scheduler, model, voices, profile, self._end_request)
        self._halved: Sequence[TwoHalves] = (
            (model.guidance, model.vocoder) if self._device == "cpu" else ()
        )
        self._beside = self._second_core(model)
        self.lm_worker.gives_way = self._beside is not None
        if self._device == "cuda":
            torch.cuda.synchronize()  # the weights are there before other streams read them
        self._threads = [
            threading.Thread(
                target=self._run, args=(stage,), name=f"cosyvoice-{stage.name}", daemon=True
            )
            for stage in (self.lm_worker, self.audio_worker)
        ]
        self._threads.append(
            threading.Thread(target=self.scheduler.end_left, name="cosyvoice-leaving", daemon=True)
        )
        for thread in self._threads:
            thread.start()

    def _second_core(self, model: Model) -> ThreadPoolExecutor | None:
        """The language model leaves most of its core idle: half of the flow and of the vocoder is
        computed there.
        """
        if not self._halved or cores() < 2:
            return None
        pool = ThreadPoolExecutor(
            1, "cosyvoice-half", lambda: torch.set_num_threads(model.device_config.threads)
        )
        for part in self._halved:
            part.beside = pool
        return pool

    @property
    def speed(self) -> float:
        """Seconds of sound a second, of all requests together: the slower stage decides.

        0 before anything was measured.
        """
        slower = max(self.lm_worker.s_per_id, self.audio_worker.s_per_id)
        return 1 / (slower * self._ids_per_s) if slower else 0.0

    def prepare(self, voice: CachedPrompt) -> None:
        """Blocks until the voice is computed. Listeners go first for a while."""
        if voice.is_ready:
            return
        order = PrefillJob(voice, time.monotonic() + PREPARED_WITHIN_S)
        with self.scheduler.lock:
            if self.scheduler.fault is not None:
                raise self.scheduler.fault.copy()
            self.scheduler.orders.append(order)
            self.scheduler.wake()
        order.done.wait()
        if order.error is not None:
            raise order.error

    def close(self, fault: KaikouError) -> None:
        """Everybody's request ends with `fault`. Idempotent."""
        self.scheduler.stop(fault)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(CLOSING_S)
        if self._beside is not None:
            self._beside.shutdown(wait=False)
            for part in self._halved:
                if part.beside is self._beside:
                    part.beside = None

    def _run(self, stage: LMWorker | AudioWorker) -> None:
        try:
            with self._own_queue(stage):
                while self.scheduler.fault is None:
                    stage.run_once()
        except BaseException as error:
            log.critical("the stage %s has failed", stage.name, exc_info=error)
            fault = EngineFault("engine_broken", title=self._title)
            self.scheduler.stop(fault)
            self._on_break(fault)

    def _own_queue(self, stage: LMWorker | AudioWorker) -> contextlib.AbstractContextManager:
        """On a GPU ids do not stand behind a whole solve of the flow: each stage has a stream, that
        of the ids goes first.
        """
        if self._device != "cuda":
            return contextlib.nullcontext()
        return torch.cuda.stream(torch.cuda.Stream(priority=-1 if stage is self.lm_worker else 0))

    def _end_request(self, request_state: RequestState | None, error: Exception) -> KaikouError:
        """Ends the request alone. Raises where the device itself does not answer any more."""
        fault = as_engine_error(error)
        if request_state is not None:
            with self.scheduler.lock:
                request_state.end(fault)
        if self._device == "cuda" and not isinstance(error, KaikouError):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        return fault
