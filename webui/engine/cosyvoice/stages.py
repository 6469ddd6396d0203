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

from ...errors import EngineFault, KaikouError
from .board import PREPARED_WITHIN_S, Board, Order, named
from .device import cores
from .family import Model, TwoHalves
from .pace import Profile
from .sound_stage import SoundStage
from .stream import Utterance
from .token_stage import TokenStage
from .voices import LiveVoice, LiveVoices

log = logging.getLogger(__name__)
CLOSING_S = 30.0  # for the piece that is being made


class Stages:
    """on_break(reason): called once when a stage itself has failed; then nobody can speak any
    more.
    """

    def __init__(
        self,
        model: Model,
        voices: LiveVoices,
        profile: Profile,
        on_break: Callable[[KaikouError], None] = lambda error: None,
    ):
        self.board, self.profile, self._device, self._on_break = (
            Board(),
            profile,
            model.place.device,
            on_break,
        )
        self._ids_per_s, self._title = model.spec.ids_per_s, model.family.title
        self.tokens = TokenStage(self.board, model.lm, profile, self._failed)
        self.sound = SoundStage(self.board, model, voices, profile, self._failed)
        self._halved: Sequence[TwoHalves] = (
            (model.guidance, model.vocoder) if self._device == "cpu" else ()
        )
        self._beside = self._second_core(model)
        self.tokens.gives_way = self._beside is not None
        if self._device == "cuda":
            torch.cuda.synchronize()  # the weights are there before other streams read them
        self._threads = [
            threading.Thread(
                target=self._run, args=(stage,), name=f"cosyvoice-{stage.name}", daemon=True
            )
            for stage in (self.tokens, self.sound)
        ]
        self._threads.append(
            threading.Thread(target=self.board.end_left, name="cosyvoice-leaving", daemon=True)
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
            1, "cosyvoice-half", lambda: torch.set_num_threads(model.place.threads)
        )
        for part in self._halved:
            part.beside = pool
        return pool

    @property
    def speed(self) -> float:
        """Seconds of sound a second, of all requests together: the slower stage decides.

        0 before anything was measured.
        """
        slower = max(self.tokens.s_per_id, self.sound.s_per_id)
        return 1 / (slower * self._ids_per_s) if slower else 0.0

    def prepare(self, voice: LiveVoice) -> None:
        """Blocks until the voice is computed. Listeners go first for a while."""
        if voice.is_ready:
            return
        order = Order(voice, time.monotonic() + PREPARED_WITHIN_S)
        with self.board.lock:
            if self.board.fault is not None:
                raise self.board.fault.copy()
            self.board.orders.append(order)
            self.board.wake()
        order.done.wait()
        if order.error is not None:
            raise order.error

    def close(self, fault: KaikouError) -> None:
        """Everybody's request ends with `fault`. Idempotent."""
        self.board.stop(fault)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(CLOSING_S)
        if self._beside is not None:
            self._beside.shutdown(wait=False)
            for part in self._halved:
                if part.beside is self._beside:
                    part.beside = None

    def _run(self, stage: TokenStage | SoundStage) -> None:
        try:
            with self._own_queue(stage):
                while self.board.fault is None:
                    stage.turn()
        except BaseException as error:
            log.critical("the stage %s has failed", stage.name, exc_info=error)
            fault = EngineFault(
                f"{self._title} stopped working. It must be started again.",
                f"{self._title} 已停止工作，需要重新启动。",
                code="engine_broken",
            )
            self.board.stop(fault)
            self._on_break(fault)

    def _own_queue(self, stage: TokenStage | SoundStage) -> contextlib.AbstractContextManager:
        """On a GPU ids do not stand behind a whole solve of the flow: each stage has a stream, that
        of the ids goes first.
        """
        if self._device != "cuda":
            return contextlib.nullcontext()
        return torch.cuda.stream(torch.cuda.Stream(priority=-1 if stage is self.tokens else 0))

    def _failed(self, who: Utterance | None, error: Exception) -> KaikouError:
        """Ends the request alone. Raises where the device itself does not answer any more."""
        fault = named(error)
        if who is not None:
            with self.board.lock:
                who.end(fault)
        if self._device == "cuda" and not isinstance(error, KaikouError):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        return fault
