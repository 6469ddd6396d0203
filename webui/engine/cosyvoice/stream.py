"""Everything one request remembers, and the loop that turns text ids into chunks: language model, flow, vocoder, a hop at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType

import numpy as np
import torch

from ...errors import Cancelled
from ...types import Chunk, SpeechRequest
from .flow import FlowState
from .lm import generate
from .model import CosyVoice2
from .prompt import check_fit
from .sampler import Sampler
from .text_stream import TextStream
from .tokenizer import instruction
from .vocoder import VocoderState
from .voices import LiveVoice

MIN_FIRST_IDS = 10  # a first hop shorter than 0.4 s would be heard out before the second is made
MAX_HOP_BLOCKS = 4  # hops grow 1, 2, 4 blocks of 25 ids, as published
SILENCE_S = 0.1  # what a segment gives for which the model found nothing to say


class Utterance:
    """One request. `chunks()` is its iterator; `cancelled` may be set from any thread and is looked at between two ids."""

    def __init__(self, model: CosyVoice2, voice: LiveVoice, request: SpeechRequest):
        self._model, self._voice, self._request = model, voice, request
        self.cancelled = threading.Event()
        self._number = self._start = 0
        self._spent: dict[str, float] = {}
        self.computed_frames = self.emitted_frames = 0

    def chunks(self) -> Iterator[Chunk]:
        segments = self._request.segments or (self._request.text,)
        for index, segment in enumerate(segments):
            yield from self._speak(self._ids(segment, index), index, index == len(segments) - 1)

    def convert(self, speech_ids: list[int]) -> Iterator[Chunk]:
        """Voice conversion: the ids of a source clip in place of the language model's."""
        yield from self._speak(lambda: iter(speech_ids), 0, True)

    def arriving(self, pieces: Iterable[str]) -> Iterator[Chunk]:
        """Text that comes piece by piece: speech begins while it still comes, 15 ids for every 5 (specification, 5.5)."""
        model, request = self._model, self._request
        prompt_text, prompt_speech = self._prompt()
        sampler = Sampler(request.seed, model.spec.rule, never=(model.lm.dims.reserved,))
        stream = TextStream(model.lm, model.lm.new_cache(), prompt_text, prompt_speech, sampler)
        text_ids = (i for piece in pieces for i in model.tokenizer.arriving(piece))
        yield from self._speak(lambda: stream.speak(text_ids), 0, True)

    def _prompt(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt text and prompt speech of the language model: they depend on the mode (specification, section 4)."""
        model, voice, request = self._model, self._voice, self._request
        if request.mode == "instruct" and request.instruction.strip():
            return tuple(model.tokenizer.encode(instruction(request.instruction))), ()
        if request.mode == "zero_shot" and voice.prompt.speech_ids:
            text = tuple(model.tokenizer.typed(request.transcript)) or voice.prompt.text_ids
            if text:
                check_fit(len(text), len(voice.prompt.speech_ids), len(voice.prompt.speech_ids) / model.spec.ids_per_s)
                return text, voice.prompt.speech_ids
        return (), ()

    def _ids(self, segment: str, index: int) -> Callable[[], Iterator[int]]:
        model, voice, request = self._model, self._voice, self._request
        text_ids = model.tokenizer.typed(segment)
        prompt_text, prompt_speech = self._prompt()
        sampler = Sampler((request.seed + index) % 2**63, model.spec.rule, never=(model.lm.dims.reserved, model.lm.dims.fill))

        def ids() -> Iterator[int]:
            cache = voice.prefix(prompt_text).fork(len(text_ids) + 1 + len(prompt_speech))
            return generate(model.lm, cache, text_ids, prompt_speech, sampler)
        return ids

    def _speak(self, source: Callable[[], Iterator[int]], segment: int, is_last: bool) -> Iterator[Chunk]:
        flow, vocoder = self._voice.flow.begin(), VocoderState(self._model.vocoder, (self._request.seed + segment) % 2**63)
        ids, known, blocks, is_over, has_sound = source(), [], 1, False, False
        try:
            while not is_over:
                want = self._want(flow, len(known), blocks)
                blocks = min(MAX_HOP_BLOCKS, 2 * blocks) if known else blocks
                is_over = not self._gather(ids, known, want)
                if is_over and not known:
                    break
                mel = self._timed("flow", flow.step, known, is_over)
                wave = self._timed("vocoder", vocoder.push, mel, is_over)
                if len(wave):
                    has_sound = True
                    yield self._chunk(wave.numpy(), segment, is_last and is_over)
        finally:
            self.computed_frames += flow.computed_frames
            self.emitted_frames += flow.emitted_frames
            flow.close()
        if not has_sound:
            yield self._chunk(np.zeros(int(SILENCE_S * self._model.spec.sample_rate), np.float32), segment, is_last)

    def _want(self, flow: FlowState, known: int, blocks: int) -> int:
        grid = self._model.flow.dims.chunk_size
        want = flow.wanted_ids + (blocks - 1) * grid
        return want + grid if not known and want < MIN_FIRST_IDS + 3 else want

    def _gather(self, ids: Iterator[int], known: list[int], want: int) -> bool:
        """Ids until there are `want`. False when the source has no more."""
        began = time.perf_counter()
        try:
            while len(known) < want:
                if self.cancelled.is_set():
                    raise Cancelled()
                nxt = next(ids, None)
                if nxt is None:
                    return False
                if not known:
                    self._note("prefill", time.perf_counter() - began)
                    began = time.perf_counter()
                known.append(nxt)
            return True
        finally:
            self._note("tokens", time.perf_counter() - began)

    def _timed(self, stage: str, work: Callable[..., torch.Tensor], *given) -> torch.Tensor:
        if self.cancelled.is_set():
            raise Cancelled()
        began = time.perf_counter()
        made = work(*given)
        self._note(stage, time.perf_counter() - began)
        return made

    def _note(self, stage: str, seconds: float) -> None:
        self._spent[stage] = self._spent.get(stage, 0.0) + seconds

    def _chunk(self, samples: np.ndarray, segment: int, is_last: bool) -> Chunk:
        spent, self._spent = MappingProxyType(self._spent), {}
        made = Chunk(self._number, np.ascontiguousarray(samples, np.float32), self._start, segment, is_last, spent)
        self._number += 1
        self._start += len(samples)
        return made
