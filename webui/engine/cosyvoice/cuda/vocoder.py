"""Streams of the vocoder over static buffers: what vocoder/stream.py is for one stream, here for
batches of equal windows, from replays alone.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ..vocoder import ContextWindow
from ..vocoder.dims import HARMONICS, MEL_BANDS
from ..vocoder.hift import HiftLayers
from .capture import Capture, EagerCapture, Table, Work, fit
from .flow_rows import UnitAllocator
from .staging import Download, Upload
from .vocoder_work import SLOT, START, VocoderBuffers, VocoderWork
from .windows import Window, check, cover


@dataclass(frozen=True)
class VocoderSizes:
    """lengths: of windows in frames (see windows.check), those of the generation when empty.
    batches: of streams; windows below `alone` only go one by
    one: they are rare.
    """

    lengths: tuple[int, ...] = ()
    batches: tuple[int, ...] = (1, 2, 4, 8)
    slots: int = 128
    alone: int = 50


class StaticWave:
    """One stream, as VocoderState; `push` of several at once is StaticVocoder.push_many."""

    def __init__(self, vocoder: StaticVocoder, seed: int | None):
        self.vocoder, self.seed = vocoder, seed
        (self.slot,) = vocoder.slots.take(1)
        self.close = weakref.finalize(self, vocoder.slots.give_back, [self.slot])
        # given; played; sent through the decoder
        self.frames = self.emitted = self.decoded_frames = 0
        self.closed = False

    def push(self, mel: Tensor, final: bool = False) -> Tensor:
        """mel (n, 80), the next frames -> float32 samples (m,) on the CPU that are final now."""
        return self.vocoder.push_many([(self, mel, final)])[0]


class StaticVocoder:
    """Used from one thread, on one stream. Call `prewarm` before the first stream."""

    def __init__(
        self,
        vocoder: HiftLayers,
        sizes: VocoderSizes | None = None,
        reach: ContextWindow | None = None,
        capture: Capture | None = None,
        work: type[VocoderWork] = VocoderWork,
    ):
        """reach: that of `work`, of the generation, when None."""
        sizes = sizes or VocoderSizes()
        self.sizes, self.reach = (
            sizes if sizes.lengths else replace(sizes, lengths=work.lengths),
            reach or work.reach,
        )
        check(self.sizes.lengths, self.reach)
        longest = self.sizes.lengths[-1]
        self._piece = longest - self.reach.left - self.reach.held  # frames taken in at once
        self.buffers = VocoderBuffers(
            vocoder,
            self.sizes.slots,
            self.sizes.batches[-1],
            longest,
            2 * longest + work.before + 1,
        )
        self.slots = UnitAllocator(self.sizes.slots, ("sound under way", "进行中声音"))
        self.table = Table(capture or EagerCapture())
        self._work, self._each = work(vocoder, self.buffers), vocoder.dims.frame_samples
        self._jobs, self._noise, self._waves = (
            Upload(self.buffers.jobs),
            Upload(self.buffers.noise),
            Download(self.buffers.waves),
        )

    def works(self) -> dict[Hashable, Work]:
        s = self.sizes
        keys = [
            (n, b)
            for n in reversed(s.lengths)
            for b in reversed(s.batches)
            if b == s.batches[0] or n >= s.alone
        ]
        return {key: partial(self._work, *key) for key in keys}

    @torch.inference_mode()
    def prewarm(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        self._jobs.array()[:] = 0
        self._jobs.send()
        self.table.fill(self.works(), on_progress)

    @torch.inference_mode()
    def begin(self, seed: int | None = 0) -> StaticWave:
        """seed decides the noise (None: none).

        Raises EngineFault `out_of_memory` when all places are taken.
        """
        wave = StaticWave(self, seed)
        start = self._work.start(seed)
        if start is None:
            self.buffers.cycles[wave.slot].zero_()
        else:
            self.buffers.cycles[wave.slot].copy_(start)
        return wave

    @torch.inference_mode()
    def push_many(self, asked: Sequence[tuple[StaticWave, Tensor, bool]]) -> list[Tensor]:
        """`push` of different streams: windows of one length share a replay."""
        out: list[list[Tensor]] = [[] for _ in asked]
        waiting = []
        for number, (wave, mel, final) in enumerate(asked):
            if wave.closed:
                raise ValueError("this stream has had its last call")
            wave.closed = final
            pieces = mel.reshape(-1, MEL_BANDS).split(self._piece)
            waiting.append(
                [
                    (number, wave, piece, final and i == len(pieces) - 1)
                    for i, piece in enumerate(pieces)
                ]
            )
        while round_ := [queue.pop(0) for queue in waiting if queue]:
            todo = [
                (number, wave, self._taken_in(wave, piece, last))
                for number, wave, piece, last in round_
            ]
            while windows := [
                (number, wave, window)
                for number, wave, left in todo
                if (window := next(left, None)) is not None
            ]:
                for number, samples in self._decode(windows):
                    out[number].append(samples)
        return [
            parts[0] if len(parts) == 1 else torch.cat([torch.zeros(0), *parts]) for parts in out
        ]

    def _taken_in(self, wave: StaticWave, mel: Tensor, final: bool):
        ring = self.buffers.mels[wave.slot]
        ring_index = wave.frames % self.buffers.ring
        fits = min(len(mel), self.buffers.ring - ring_index)
        if fits:
            ring[ring_index : ring_index + fits].copy_(mel[:fits])
        if len(mel) > fits:
            ring[: len(mel) - fits].copy_(mel[fits:])
        wave.frames += len(mel)
        return cover(wave.emitted, wave.frames, final, self.reach, self.sizes.lengths)

    def _decode(self, windows: list[tuple[int, StaticWave, Window]]) -> list[tuple[int, Tensor]]:
        by_length = defaultdict(list)
        for one in windows:
            by_length[one[2].length].append(one)
        out = []
        for length, group in by_length.items():
            at_once = (
                self.sizes.batches[-1] if length >= self.sizes.alone else self.sizes.batches[0]
            )
            for at in range(0, len(group), at_once):
                out += self._replayed(length, group[at : at + at_once])
        return out

    def _replayed(
        self, length: int, group: list[tuple[int, StaticWave, Window]]
    ) -> list[tuple[int, Tensor]]:
        batch, samples = fit(self.sizes.batches, len(group)), length * self._each
        jobs, noise = (
            self._jobs.array(),
            self._noise.array()[: batch * samples * HARMONICS].reshape(batch, samples, HARMONICS),
        )
        jobs[:] = 0
        for row, (_, wave, window) in enumerate(group):
            jobs[row, [SLOT, START]] = wave.slot, window.start
            drawn = self._work.noise(wave.seed, window.start * self._each, samples)
            noise[row] = 0 if drawn is None else drawn.numpy()
        noise[len(group) :] = 0
        self._jobs.send()
        self._noise.send(noise.size)
        self.table.play((length, batch))
        waves = torch.from_numpy(self._waves.start(batch * samples).take()).view(batch, samples)
        return [
            (number, self._given(wave, window, waves[row]))
            for row, (number, wave, window) in enumerate(group)
        ]

    def _given(self, wave: StaticWave, window: Window, samples: Tensor) -> Tensor:
        wave.emitted = window.end
        wave.decoded_frames += window.length
        given = samples[
            (window.begin - window.start) * self._each : (window.end - window.start) * self._each
        ]
        return self._work.risen(given, window.begin * self._each)
