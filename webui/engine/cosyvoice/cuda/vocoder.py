"""The vocoder's hop as one function of static buffers: windows of equal length of several streams,
phases carried on the device. What vocoder/stream.py is for one stream, here for a batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..vocoder import STEADY, ContextWindow
from ..vocoder.causal_hift import F0_AHEAD, MEL_AHEAD
from ..vocoder.causal_stream import FADE_SAMPLES, risen
from ..vocoder.conv_tails import Tails
from ..vocoder.dims import FFT, FFT_HOP, HARMONICS, LIMIT, MEL_BANDS
from ..vocoder.f0 import REACH_FRAMES, full_precision
from ..vocoder.fixed_noise import fixed_noise
from ..vocoder.hift import HiftLayers
from ..vocoder.source import noise_at
from .capture import Capture, EagerCapture, Graphs, fit, upload


@dataclass(frozen=True)
class VocoderSizes:
    """lengths: of the windows that are recorded, in frames; the generation's when empty. batches:
    of streams.
    """

    lengths: tuple[int, ...] = ()
    batches: tuple[int, ...] = (1, 2, 4, 8)


class CapturedWave:
    """One stream, as VocoderState; `push` of several at once is CapturedVocoder.push_many."""

    def __init__(self, vocoder: CapturedVocoder, seed: int | None):
        self.vocoder, self.seed = vocoder, seed
        self.mel = vocoder.mels[0, :0]  # from frame `first` on
        self.first = 0
        self.start = 0  # of its last window
        self.cycles = vocoder.phases.new_zeros(1, HARMONICS)  # moved before frame `start` and on
        if (start_cycles := vocoder.network.m_source.start(seed)) is not None:
            self.cycles[0].copy_(start_cycles)
        self.emitted = self.decoded_frames = 0  # frames
        self.closed = False

    def push(self, mel: Tensor, final: bool = False) -> Tensor:
        """mel (n, 80), the next frames -> float32 samples (m,) on the CPU that are final now."""
        return self.vocoder.push_many([(self, mel, final)])[0]


class CapturedVocoder:
    """In the place of a vocoder. Here CosyVoice2's; other generations override what stands before
    `__init__`.

    before: frames in front of a window that its pitch depends on. reach: what must be around the
    frames that a window gives. lengths: of the windows of whole hops; others, of ends and of short
    utterances, begin earlier or are computed without a graph. Used from one thread, on one stream.
    """

    before, reach, lengths = REACH_FRAMES, STEADY, (20, 50, 70, 120, 220)

    def noise(self, seed: int, start: int, count: int) -> Tensor:
        """Of the samples start..start+count, (count, 9)"""
        return noise_at(seed, start, count)

    def pitch(self, mel: Tensor, is_there: Tensor) -> Tensor:
        """mel (batch, 80, n), is_there (batch, 1, n): not before the utterance -> f0 (batch, n)"""
        return self.network.f0_predictor(mel, is_there)

    def shaped(self, mel: Tensor, source: Tensor) -> Tensor:
        """mel (batch, 80, n), source (batch, 1, n * each) -> complex spectrum (batch, 9, n * each /
        4 + 1)
        """
        return self.network.shaped(mel, source)

    def risen(self, samples: Tensor, start: int) -> Tensor:
        """The wave from sample `start` on, as it is heard."""
        return samples

    def __init__(
        self,
        network: HiftLayers,
        sizes: VocoderSizes | None = None,
        capture: Capture | None = None,
        reach: ContextWindow | None = None,
    ):
        """reach: the generation's when None."""
        self.network, sizes = network, sizes or VocoderSizes()
        self.sizes = sizes if sizes.lengths else replace(sizes, lengths=self.lengths)
        self.reach, self.frame_samples = reach or self.reach, network.dims.frame_samples
        weight, batch, longest = (
            network.conv_pre.weight,
            self.sizes.batches[-1],
            self.sizes.lengths[-1],
        )
        self._piece = longest - self.reach.left - self.reach.right  # frames taken in at once
        if self._piece < 1:
            raise ValueError(f"no window of {longest} frames holds {self.reach}")

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(batch, *shape, dtype=dtype, device=weight.device)

        self.mels = zeros(self.before + longest, MEL_BANDS, dtype=weight.dtype)
        self.starts = zeros(dtype=torch.long)
        self.noises = zeros(longest * self.frame_samples, HARMONICS)
        self.phases = zeros(longest + 1, HARMONICS, dtype=torch.float64)  # before each frame
        self.waves = zeros(longest * self.frame_samples)
        self.graphs = Graphs("vocoder", self.windows, capture or EagerCapture())

    def record(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        sizes = [(n, b) for n in self.sizes.lengths for b in self.sizes.batches]
        self.graphs.record(sizes[::-1], on_progress)

    @torch.inference_mode()
    def windows(self, length: int, batch: int) -> None:
        """The first `batch` rows of the buffers -> their waves and phases."""
        starts, all_frames = self.starts[:batch], self.before + length
        ages = starts[:, None] - self.before + torch.arange(all_frames, device=starts.device)
        is_there, mel = (ages >= 0)[:, None], self.mels[:batch, :all_frames].mT
        with full_precision():
            f0 = self.pitch(mel * is_there, is_there)[:, self.before :].float()
        source, phases = self.network.m_source, self.phases[:batch]
        start_phase = phases[:, 0].clone()
        moved = source.moves(f0).cumsum(1) + start_phase[:, None]
        phases[:, 1 : length + 1].copy_(moved % 1.0)
        noise = self.noises[:batch, : length * self.frame_samples]
        excitation = source.excite(f0, noise, start_phase, (starts == 0)[:, None, None])
        spectrum = self.shaped(mel[..., self.before :].contiguous(), excitation.to(mel.dtype))
        wave = overlapped(spectrum, self.network.window).clamp(-LIMIT, LIMIT)
        self.waves[:batch, : length * self.frame_samples].copy_(wave)

    def stream(self, seed: int | None = 0) -> CapturedWave:
        """seed decides the noise (None: none)."""
        return CapturedWave(self, seed)

    @torch.inference_mode()
    def push_many(self, batch: Sequence[tuple[CapturedWave, Tensor, bool]]) -> list[Tensor]:
        """`push` of different streams: windows of one length share a replay."""
        pieces = []
        for wave, mel, final in batch:
            if wave.closed:
                raise ValueError("this stream has had its last call")
            wave.closed = final
            pieces.append(mel.reshape(-1, MEL_BANDS).to(self.mels).split(self._piece))
        out: list[list[Tensor]] = [[torch.zeros(0)] for _ in batch]
        most = self.sizes.batches[-1]
        for at in range(max(map(len, pieces))):
            windows = defaultdict(list)
            for (wave, _, final), parts, outputs in zip(batch, pieces, out, strict=True):
                if at < len(parts):
                    wave.mel = torch.cat([wave.mel, parts[at]])
                    length, ready = self._window(wave, final and at == len(parts) - 1)
                    if ready > wave.emitted:
                        windows[length].append((wave, ready, outputs))
            for length, group in windows.items():
                for first in range(0, len(group), most):
                    self._decode(length, group[first : first + most])
        return [torch.cat(parts) for parts in out]

    def _window(self, wave: CapturedWave, final: bool) -> tuple[int, int]:
        """Frames of the next window, which ends where the mel does, and where its sound is final.

        A window is never padded, because the vocoder hears where its input ends: it begins earlier,
        where a recorded length reaches no further back than the last window.
        """
        end = wave.first + len(wave.mel)
        ready = (
            end if final else end - (self.reach.right if wave.emitted else self.reach.first_right)
        )
        needed = end - max(0, wave.emitted - self.reach.left)
        recorded = (n for n in self.sizes.lengths if needed <= n <= end - wave.start)
        return next(recorded, needed), ready

    def _decode(self, length: int, group: list[tuple[CapturedWave, int, list[Tensor]]]) -> None:
        batch, samples = fit(self.sizes.batches, len(group)), length * self.frame_samples
        starts = [wave.first + len(wave.mel) - length for wave, _, _ in group]
        upload(self.starts[:batch], starts + [0] * (batch - len(group)))
        for row, ((wave, _, _), start) in enumerate(zip(group, starts, strict=True)):
            mel_slice = wave.mel[max(0, start - self.before - wave.first) :]
            end = self.before + length
            self.mels[row, end - len(mel_slice) : end].copy_(mel_slice)
            self.phases[row, 0].copy_(wave.cycles[start - wave.start])
            if wave.seed is None:
                self.noises[row].zero_()
            else:
                noise = self.noise(wave.seed, start * self.frame_samples, samples)
                upload(self.noises[row, :samples], noise)
        self.graphs(length, batch)
        waves = self.waves[: len(group), :samples].to("cpu", copy=True)
        for (wave, ready, outputs), start, row, phases in zip(
            group, starts, waves, self.phases, strict=False
        ):
            cut = slice(
                (wave.emitted - start) * self.frame_samples, (ready - start) * self.frame_samples
            )
            outputs.append(self.risen(row[cut], wave.emitted * self.frame_samples))
            first = max(0, start - self.before)
            wave.mel, wave.first = wave.mel[first - wave.first :], first
            wave.cycles, wave.start = phases[: length + 1].clone(), start
            wave.emitted, wave.decoded_frames = ready, wave.decoded_frames + length


class CapturedVocoderV1(CapturedVocoder):
    """The first generation's hops are longer; its phases are those of its source."""

    lengths = (86, 106, 172, 192, 364)


class CapturedCausalVocoder(CapturedVocoder):
    """The third generation's. Every window as if the utterance began there: what its first frames
    lack has died away before those that are given. That is more work than a past of every layer, by
    30 frames a window, and no memory.
    """

    before = 8  # four layers look back on two frames each
    reach = ContextWindow(
        left=30, right=6, first_right=6
    )  # the excitation is heard for 28.3 frames; of the wave half a window needs a frame more ahead
    lengths = (20, 50, 86, 136, 236)

    def noise(self, seed: int, start: int, count: int) -> Tensor:
        """The same in every utterance."""
        return fixed_noise().at(start, count)

    def pitch(self, mel: Tensor, is_there: Tensor) -> Tensor:
        return self.network.f0_predictor(F.pad(mel, (0, F0_AHEAD)), Tails(), is_there)

    def shaped(self, mel: Tensor, source: Tensor) -> Tensor:
        window = self.network.window
        spectrum = torch.stft(
            source[:, 0].to(window), FFT, FFT_HOP, window=window, return_complex=True
        )
        columns = torch.cat([spectrum.real, spectrum.imag], 1).to(mel.dtype)
        return self.network.shaped(F.pad(mel, (0, MEL_AHEAD)), columns, Tails())

    def risen(self, samples: Tensor, start: int) -> Tensor:
        return risen(samples, start, FADE_SAMPLES)


def overlapped(spectrum: Tensor, window: Tensor) -> Tensor:
    """The inverse of a centred STFT: complex (batch, 9, frames) -> (batch, 4 * (frames - 1)).
    torch.istft looks at a value on the host.
    """
    frames = spectrum.shape[2]
    length = FFT + FFT_HOP * (frames - 1)
    pieces = torch.fft.irfft(spectrum, FFT, dim=1) * window[:, None]
    weights = window.square()[None, :, None].expand(1, FFT, frames)

    def added(x: Tensor) -> Tensor:
        return F.fold(x, (1, length), (1, FFT), stride=(1, FFT_HOP))[
            :, 0, 0, FFT // 2 : length - FFT // 2
        ]

    return added(pieces) / added(weights)
