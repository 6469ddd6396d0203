"""A mel as sound without any trained vocoder: whether a mel is right can be heard, whatever the
vocoder does. It sounds hollow; it is a diagnostic.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from webui.engine.cosyvoice.flow.dims import MEL_BANDS
from webui.engine.cosyvoice.frontend.audio_features import log_mel, mel_bands

from .compare import ExportFault

ROUNDS, MOMENTUM = 60, 0.99
LOUD = -3.0  # natural log: bands within so much of the loudest one are compared
# mean difference in natural log of those bands: 0.07 to 0.09 for speech, above 0.2 for noise as mel
MOST = 0.15


class MelForm(NamedTuple):
    rate_hz: int
    window: int
    hop: int
    top_hz: float


FORMS = {
    "cosyvoice1": MelForm(22050, 1024, 256, 8000.0),
    "cosyvoice2": MelForm(24000, 1920, 480, 8000.0),
    "cosyvoice3": MelForm(24000, 1920, 480, 12000.0),
}


def read_mel(path: Path) -> Tensor:
    """(frames, 80) of a `.npy`, or of the tensor `mel` of a `.safetensors`. Raises ExportFault."""
    try:
        if path.suffix == ".npy":
            mel = torch.from_numpy(np.load(path, allow_pickle=False)).float()
        else:
            mel = load_file(path)["mel"].float()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ExportFault(f"{path.name} holds no mel: {error!r}") from error
    mel = mel.squeeze()
    if mel.dim() == 2 and mel.shape[1] != MEL_BANDS:
        mel = mel.T
    if mel.dim() != 2 or mel.shape[1] != MEL_BANDS or not mel.isfinite().all():
        raise ExportFault(f"{path.name} is no mel of {MEL_BANDS} bands: {list(mel.shape)}.")
    return mel


def sound(mel: Tensor, form: MelForm) -> Tensor:
    """(frames, 80) natural-log mel -> (frames * hop,), with phases that fit each other."""
    bands = mel_bands(form.rate_hz, form.window, MEL_BANDS, form.top_hz)
    magnitude = (torch.linalg.pinv(bands) @ mel.exp().T).clamp(min=0)
    window, side = torch.hann_window(form.window), (form.window - form.hop) // 2
    random = torch.Generator().manual_seed(0)
    phase = torch.polar(torch.ones(()), 6.2832 * torch.rand(magnitude.shape, generator=random))
    total, before = (len(mel) - 1) * form.hop + form.window, torch.zeros(())
    place = {"n_fft": form.window, "hop_length": form.hop, "window": window}
    for _ in range(ROUNDS):
        wave = _joined(magnitude * phase, total, form, window)
        now = torch.stft(wave, **place, center=False, return_complex=True)
        turned = now + MOMENTUM * (now - before)
        phase, before = turned / turned.abs().clamp(min=1e-9), now
    return _joined(magnitude * phase, total, form, window)[side : side + len(mel) * form.hop]


def _joined(spectrum: Tensor, total: int, form: MelForm, window: Tensor) -> Tensor:
    """Windows added up and divided by their weight, at the ends too."""
    frames = torch.fft.irfft(spectrum, dim=0) * window[:, None]
    weight = (window**2)[:, None].expand_as(frames)

    def added(columns: Tensor) -> Tensor:
        return torch.nn.functional.fold(
            columns[None], (1, total), (1, form.window), stride=(1, form.hop)
        ).reshape(-1)

    return added(frames) / added(weight).clamp(min=1e-3)


def difference(mel: Tensor, wave: Tensor, form: MelForm) -> float:
    """Mean of the natural-log difference between `mel` and that of `wave`, where it is loud."""
    again = log_mel(wave, *form)
    loud = mel > mel.max() + LOUD
    return float((again - mel)[loud].abs().mean())


def write(path: Path, out: Path, engine: str) -> float:
    """`out` as WAV; the difference. Raises ExportFault where the sound has another mel."""
    mel, form = read_mel(path), FORMS[engine]
    wave = sound(mel, form)
    soundfile.write(out, wave.numpy() / max(1.0, float(wave.abs().max())), form.rate_hz)
    far = difference(mel, wave, form)
    print(f"{out}: {len(wave) / form.rate_hz:.2f} s, mean difference of its mel {far:.2f}")
    if not far <= MOST:
        raise ExportFault(
            f"No sound has this mel (mean difference {far:.2f}, at most {MOST}): it is no"
            f" natural-log mel of {engine}."
        )
    return far
