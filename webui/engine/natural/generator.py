"""Kokoro's waveform generator (iSTFTNet with adaptive norms), window by window: features of a
clause in, pieces of its sound out.

The published graph makes a clause in one go, since every norm looks at all of it. Here the norms
are told what they would see (`statistics`), so that each row depends only on the rows around it,
and sound can be given away while the rest is still being made. Rows are moments: 80 per second as
they come in, then 800, then 4,800; five samples each at last. Everything is float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from .convolution import Convolution, Scratch

ROWS_HZ = 80
STAGES = 2
FACTORS = (10, 6)  # rows out per row in, of the two stages
TAPS = (3, 7, 11)  # of the three blocks side by side in each stage
DILATIONS = (1, 3, 5)
BLOCKS = ("noise_res.0", "noise_res.1", *(f"resblocks.{i}" for i in range(6)))
CHANNELS = (256, 128)  # of the two stages
SHAPES = {  # norms and channels of each block
    name: (2 * len(DILATIONS), CHANNELS[int(name[-1]) // (1 if name[0] == "n" else len(TAPS))])
    for name in BLOCKS
}
HOP, SPECTRUM = 5, 11  # samples between spectra; lines of each
ROW_SAMPLES = HOP * FACTORS[0] * FACTORS[1]  # per row that comes in
_SLOPES = (0.1, 0.1, 0.01)  # of the leaky rectifiers before the stages and at the end
EPSILON = 1e-5  # of the norms
_AT_ONCE = 8192  # numbers: what is activated in one go stays in the first cache
_ACTIVATION = ("scales", "shifts", "sines")
WINDOW = 2 * (SPECTRUM - 1)  # samples that a spectrum spans


class Rows:
    """Rows that wait for their counterparts."""

    def __init__(self, n_channels: int):
        self._rows = np.zeros((0, n_channels), np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: np.ndarray) -> None:
        self._rows = np.concatenate((self._rows, rows))

    def take(self, n: int) -> np.ndarray:
        rows, self._rows = self._rows[:n], self._rows[n:]
        return rows


@dataclass(frozen=True)
class _Norm:
    """An adaptive norm, the activation after it, and the convolution after that. to_style: (128, 2
    * channels).
    """

    to_style: np.ndarray
    style_bias: np.ndarray
    alpha: np.ndarray  # of the activation, per channel
    convolution: Convolution
    bias: np.ndarray

    def affine(
        self, style: np.ndarray, mean: np.ndarray, variance: np.ndarray, offset: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(scale, shift) that bring rows, which lack `offset`, to the activation's argument: alpha
        * (norm(row + offset)).
        """
        gamma, beta = np.split(style @ self.to_style + self.style_bias, 2)
        scale = (1 + gamma) / np.sqrt(variance + EPSILON)
        shift = beta + (offset - mean) * scale
        return (scale * self.alpha).astype(np.float32), (shift * self.alpha).astype(np.float32)


class Generator:
    """The weights. Immutable; any number of clauses may be made with it at once."""

    def __init__(self, weights: Mapping[str, np.ndarray]):
        """weights: float32, as the model names them below decoder.generator.

        Raises KeyError where one is missing.
        """
        self.blocks = {name: _block(weights, name) for name in BLOCKS}
        thirds = np.float32(1 / len(TAPS))  # the mean of the blocks side by side, taken here
        self.ups = []  # (in, 2 * factor * out), bias
        for i in range(STAGES):
            kernel = weights[f"ups.{i}.weight"] * (thirds if i else 1)
            matrix = kernel.transpose(0, 2, 1).reshape(len(kernel), -1)
            self.ups.append((matrix, weights[f"ups.{i}.bias"]))
        self.noise = [
            (weights[f"noise_convs.{i}.weight"], weights[f"noise_convs.{i}.bias"])
            for i in range(STAGES)
        ]
        last = weights["conv_post.weight"] * thirds
        self.last = np.ascontiguousarray(last.transpose(2, 1, 0)), weights["conv_post.bias"]
        # four samples of hop in each window: the basis of the published graph leaves out this
        # factor
        self.basis = weights["stft.istft.stft.inverse_basis"].reshape(2 * SPECTRUM, WINDOW) * (
            WINDOW / HOP
        )


def _block(weights: Mapping[str, np.ndarray], name: str) -> list[_Norm]:
    """A residual block: three times two norms with their convolutions."""
    norms = []
    for i, dilation in enumerate(DILATIONS):
        for j in (1, 2):
            alpha = weights[f"{name}.alpha{j}.{i}"].reshape(-1)
            # z + sin(z)² is the activation times alpha: the convolution's kernel undoes it
            kernel = weights[f"{name}.convs{j}.{i}.weight"] / alpha[:, None]
            norms.append(
                _Norm(
                    weights[f"{name}.adain{j}.{i}.fc.weight"],
                    weights[f"{name}.adain{j}.{i}.fc.bias"],
                    alpha,
                    Convolution(kernel, dilation if j == 1 else 1),
                    weights[f"{name}.convs{j}.{i}.bias"],
                )
            )
    return norms


class _Sliding:
    """One norm with its convolution in one clause: what it has read and still needs."""

    def __init__(self, norm: _Norm, scale: np.ndarray, shift: np.ndarray, scratch: Scratch):
        self._convolution, self._scale, self._shift = norm.convolution, scale, shift
        self._scratch = scratch
        self._tail = np.zeros((norm.convolution.reach // 2, norm.convolution.n_in), np.float32)

    def push(self, rows: np.ndarray, is_end: bool) -> np.ndarray:
        """Rows out as far as they are sure, in scratch; all of them at the end, beyond which there
        is silence.
        """
        convolution, n_tail = self._convolution, len(self._tail)
        n_read = n_tail + len(rows)
        n = n_read + is_end * (convolution.reach // 2) - convolution.reach
        buffer = self._scratch.take(
            "read", max(convolution.n_rows(max(n, 0)), n_read), convolution.n_in
        )
        buffer[:n_tail] = self._tail
        activate(rows, self._scale, self._shift, buffer[n_tail:n_read], self._scratch)
        buffer[n_read:] = 0.0
        self._tail = buffer[max(n, 0) : n_read].copy()
        return convolution.apply(buffer, n, self._scratch) if n > 0 else buffer[:0]


def activate(
    rows: np.ndarray, scale: np.ndarray, shift: np.ndarray, out: np.ndarray, scratch: Scratch
) -> None:
    """z + sin(z)², where z = rows * scale + shift."""
    step = max(_AT_ONCE // rows.shape[1], 1)
    scales, shifts, sines = (scratch.take(name, step, rows.shape[1]) for name in _ACTIVATION)
    scales[:], shifts[:] = scale, shift  # whole rows of them: numpy is slow at short ones
    for i in range(0, len(rows), step):
        z = out[i : i + step]
        n = len(z)
        np.multiply(rows[i : i + step], scales[:n], out=z)
        z += shifts[:n]
        sine = np.sin(z, out=sines[:n])
        sine *= sine
        z += sine


class _Block:
    """A residual block in one clause."""

    def __init__(
        self,
        norms: list[_Norm],
        style: np.ndarray,
        statistics: np.ndarray,
        scratch: Scratch,
    ):
        """statistics: (6, 2, channels), mean and variance of what each norm reads."""
        self._layers = []
        carried = np.zeros(len(norms[0].bias), np.float32)  # biases that the rows still lack
        for i in range(0, len(norms), 2):
            first, second = norms[i : i + 2]
            self._layers.append(
                (
                    _Sliding(first, *first.affine(style, *statistics[i], carried), scratch),
                    _Sliding(
                        second, *second.affine(style, *statistics[i + 1], first.bias), scratch
                    ),
                    Rows(len(carried)),
                )
            )
            carried = carried + second.bias
        self.bias = carried  # to be added to what `push` gives
        self.reach = sum(norm.convolution.reach for norm in norms) // 2  # rows ahead that it reads

    def push(self, rows: np.ndarray, is_end: bool) -> np.ndarray:
        for first, second, waiting in self._layers:
            waiting.add(rows)
            change = second.push(first.push(rows, is_end), is_end)
            rows = waiting.take(len(change)) + change
        return rows


class _Upsampling:
    """A transposed convolution whose kernel is twice its stride."""

    def __init__(self, matrix: np.ndarray, bias: np.ndarray, factor: int):
        self._matrix, self._bias, self._factor, self._n_out = matrix, bias, factor, len(bias)
        self._late = np.zeros((factor, len(bias)), np.float32)  # what the last row adds to the next
        self._is_first = True

    def push(self, rows: np.ndarray, is_end: bool) -> np.ndarray:
        factor = self._factor
        products = (rows @ self._matrix).reshape(len(rows), 2, factor, self._n_out)
        late = np.concatenate((self._late[None], products[:, 1]))
        out = late[: len(rows)] + products[:, 0]
        self._late = late[-1]
        out = out.reshape(-1, self._n_out) + self._bias
        if is_end:
            out = np.concatenate((out, self._late[: factor // 2] + self._bias))
        if self._is_first and len(out):
            out, self._is_first = out[factor // 2 :], False
        return out


class Sound:
    """The sound of one clause, made piece by piece.

    All state of it is here, but for scratch, which belongs to the thread.
    """

    def __init__(
        self,
        generator: Generator,
        features: np.ndarray,
        source: np.ndarray,
        style: np.ndarray,
        statistics: Mapping[str, np.ndarray],
        scratch: Scratch,
    ):
        """features: (n, 512), ROWS_HZ; source: (n * 60 + 1, 22) spectra of the voice's source;
        style: (128,); statistics: see _Block, for each
        of BLOCKS.
        """
        self._features, self._generator = features, generator

        def block(name: str) -> _Block:
            return _Block(generator.blocks[name], style, statistics[name], scratch)

        self._noise = [block(f"noise_res.{i}") for i in range(STAGES)]
        self._blocks = [
            [block(f"resblocks.{len(TAPS) * i + j}") for j in range(len(TAPS))]
            for i in range(STAGES)
        ]
        self._ups = [_Upsampling(*generator.ups[i], FACTORS[i]) for i in range(STAGES)]
        self._sources = [_source_rows(generator, source, i) for i in range(STAGES)]
        self._at = [0] * STAGES  # source rows that were read
        self._harmonics = [Rows(s.shape[1]) for s in self._sources]
        self._outputs = [[Rows(s.shape[1]) for _ in TAPS] for s in self._sources]
        self._upsampled = [Rows(s.shape[1]) for s in self._sources]
        self._spectra = _Spectra(generator)

    def pieces(self, lengths: Iterator[int], check: Callable[[], None]) -> Iterator[np.ndarray]:
        """float32 (n,) each; in all len(features) * ROW_SAMPLES. lengths: rows of features to read
        for each piece; `check` is called between the steps of a piece, and may raise.
        """
        done = 0
        while done < len(self._features):
            n = next(lengths)
            end = min(done + n, len(self._features))
            yield self._piece(self._features[done:end], end == len(self._features), check)
            done = end

    def _piece(self, rows: np.ndarray, is_end: bool, check: Callable[[], None]) -> np.ndarray:
        for i in range(STAGES):
            rows = self._ups[i].push(np.maximum(rows, rows * np.float32(_SLOPES[i])), is_end)
            if i == STAGES - 1 and not self._at[i] and len(rows) > 1:
                rows = np.concatenate(
                    (rows[1:2], rows)
                )  # one row more, mirrored, so says the model
            waiting = self._upsampled[i]
            waiting.add(rows)
            self._read_source(i, len(waiting), check)
            rows = waiting.take(min(len(waiting), len(self._harmonics[i])))
            rows = rows + self._harmonics[i].take(len(rows))
            outputs = self._outputs[i]
            for block, out in zip(self._blocks[i], outputs, strict=True):
                check()
                out.add(block.push(rows, is_end))
            n = min(len(out) for out in outputs)
            rows = outputs[0].take(n) + outputs[1].take(n)
            rows += outputs[2].take(n)
            rows += sum(block.bias for block in self._blocks[i])
        check()
        return self._spectra.push(np.maximum(rows, rows * np.float32(_SLOPES[-1])), is_end)

    def _read_source(self, stage: int, n: int, check: Callable[[], None]) -> None:
        """Until there are n rows made of the source, or all of it is read."""
        block, rows, harmonics = self._noise[stage], self._sources[stage], self._harmonics[stage]
        while len(harmonics) < n and self._at[stage] < len(rows):
            check()
            begin = self._at[stage]
            end = begin + max(n - len(harmonics), 1) + (block.reach if not begin else 0)
            self._at[stage] = end = min(end, len(rows))
            out = block.push(rows[begin:end], end == len(rows))
            harmonics.add(out + block.bias)


def _source_rows(generator: Generator, source: np.ndarray, stage: int) -> np.ndarray:
    """The source's spectra at the stage's rate."""
    kernel, bias = generator.noise[stage]
    n_taps = kernel.shape[2]
    stride = FACTORS[1] if n_taps > 1 else 1
    pad = (n_taps - stride) // 2
    padded = np.pad(source, ((pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, n_taps, 0)[::stride]
    return windows.reshape(len(windows), -1) @ kernel.reshape(len(kernel), -1).T + bias


class _Spectra:
    """The last convolution, and its spectra added up to sound."""

    def __init__(self, generator: Generator):
        (self._kernel, self._bias), self._basis = generator.last, generator.basis
        n_taps, n_in, _ = self._kernel.shape
        self._reach = n_taps - 1
        self._tail = np.zeros((self._reach // 2, n_in), np.float32)
        self._late = np.zeros(WINDOW - HOP, np.float32)
        self._skip = WINDOW // 2  # the first spectrum's centre is the first sample

    def push(self, rows: np.ndarray, is_end: bool) -> np.ndarray:
        after = np.zeros((is_end * (self._reach // 2), rows.shape[1]), np.float32)
        buffer = np.concatenate((self._tail, rows, after))
        n = max(len(buffer) - self._reach, 0)
        self._tail = buffer[n:]
        spectra = np.repeat(self._bias[None], n, 0)
        for tap in range(self._reach + 1):
            spectra += buffer[tap : tap + n] @ self._kernel[tap]
        power, phase = np.exp(spectra[:, :SPECTRUM]), np.sin(spectra[:, SPECTRUM:])
        frames = np.concatenate((power * np.cos(phase), power * np.sin(phase)), 1) @ self._basis
        sound = np.zeros(n * HOP + len(self._late), np.float32)
        sound[: len(self._late)] = self._late
        for k in range(0, WINDOW, HOP):
            sound[k : k + n * HOP] += frames[:, k : k + HOP].reshape(-1)
        sound, self._late = sound[: n * HOP], sound[n * HOP :]
        if is_end:
            sound = np.concatenate((sound, self._late))[: -(WINDOW // 2)]
        skipped = min(self._skip, len(sound))
        self._skip -= skipped
        return sound[skipped:]


def one_pass(
    generator: Generator,
    features: np.ndarray,
    source: np.ndarray,
    style: np.ndarray,
    scratch: Scratch | None = None,
    check: Callable[[], None] = lambda: None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A clause in one go, as the published graph makes it: its sound, float32 (len(features) *
    ROW_SAMPLES,), and the statistics that its norms saw, which `Sound` wants to be told. Arguments
    as of `Sound`; `check` is called between the steps, and may raise.
    """
    scratch = scratch or Scratch()
    statistics: dict[str, np.ndarray] = {}

    def run(name: str, rows: np.ndarray) -> np.ndarray:
        norms, moments = generator.blocks[name], []
        for i in range(0, len(norms), 2):
            change = rows
            for norm in norms[i : i + 2]:
                check()
                moments.append((change.mean(0), change.var(0)))
                affine = norm.affine(style, *moments[-1], np.zeros_like(norm.bias))
                change = _Sliding(norm, *affine, scratch).push(change, True) + norm.bias
            rows = rows + change
        statistics[name] = np.array(moments, np.float32)
        return rows

    rows = features
    for i in range(STAGES):
        harmonics = run(f"noise_res.{i}", _source_rows(generator, source, i))
        rows = _Upsampling(*generator.ups[i], FACTORS[i]).push(
            np.maximum(rows, rows * np.float32(_SLOPES[i])), True
        )
        rows = np.concatenate((rows[1:2], rows))[-len(harmonics) :] + harmonics
        names = [f"resblocks.{len(TAPS) * i + j}" for j in range(len(TAPS))]
        rows = sum(run(name, rows) for name in names)
    check()
    rows = np.maximum(rows, rows * np.float32(_SLOPES[-1]))
    return _Spectra(generator).push(rows, True), statistics
