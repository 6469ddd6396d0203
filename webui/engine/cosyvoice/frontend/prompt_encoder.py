"""A reference clip becomes a voice: speech ids, prompt mel and speaker vector, aligned once and
kept as bytes. Blind to files of users.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from onnxruntime.capi import onnxruntime_pybind11_state as ort_faults
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ....errors import BadInput, EngineFault
from ....messages import message
from ....types import Prompt
from .. import file_checks
from ..model_faults import model_fault
from .audio_features import (
    OUTPUT_HZ,
    TOKENIZER_HZ,
    kaldi_fbank,
    prompt_mel,
    resample,
    whisper_log_mel,
)

SPEAKER_ONNX, TOKENIZER_ONNX = "campplus.onnx", "speech_tokenizer_v2.onnx"
LISTENERS = {
    "speech_tokenizer_v1.onnx": 523e6,
    "speech_tokenizer_v2.onnx": 496e6,
    "speech_tokenizer_v3.onnx": 969e6,
}  # bytes, as published
SIZE_RANGE = 0.97, 1.06  # of that; sizes were told in MB, of whichever kind
MIN_HZ = 8_000
MIN_S, MAX_S = (
    0.96,
    30.0,
)  # below, nothing of a voice is left; above, the speech tokenizer was not trained
TAIL_S = 0.2  # of silence behind a clip: without it, speech begins with the sound the clip ends in
TOKENS_PER_TEXT_TOKEN = 3.0, 12.0  # of 25 speech tokens a second, in speech at a usual pace
TOKEN_HZ = 25
RATE_MARGIN = 0.3  # short clips are rounded to whole ids
SILENCE_RMS = 0.002  # loudest 20 ms, full scale 1
FRAMES_PER_ID = 2
Ids = TypeVar("Ids", bound=Sequence)
_ORT_FAULTS = tuple(
    v for v in vars(ort_faults).values() if isinstance(v, type) and issubclass(v, Exception)
)


@dataclass(frozen=True)
class PromptEncoderConfig:
    """How a generation hears a clip. engine: its name in prompts. network: the ONNX file that gives
    `ids_per_s` speech ids of `codes`. mel: samples (n,) at `mel_hz` -> (frames, 80). frames_per_id:
    of mel, both cut to one length; None: each keeps its own. tail_s: of silence that is put behind
    a clip; 0 gives the public code's prompt.
    """

    engine: str = "cosyvoice2"
    network: str = TOKENIZER_ONNX
    codes: int = 6561
    ids_per_s: int = 25
    mel_hz: int = OUTPUT_HZ
    mel: Callable[[Tensor], Tensor] = prompt_mel
    frames_per_id: int | None = FRAMES_PER_ID
    tail_s: float = TAIL_S


@dataclass(frozen=True)
class PromptFeatures:
    """speech_ids n, mel (1, 2n, 80) fp32 (of any length where a generation does not tie them),
    vector (1, 192) fp32, text_ids of the transcript (empty when there is none).
    """

    text_ids: tuple[int, ...]
    speech_ids: tuple[int, ...]
    mel: Tensor
    vector: Tensor

    def pack(self) -> bytes:
        ids = {
            "text_ids": torch.tensor(self.text_ids, dtype=torch.int32),
            "speech_ids": torch.tensor(self.speech_ids, dtype=torch.int32),
        }
        return save({**ids, "mel": self.mel.contiguous(), "vector": self.vector.contiguous()})

    @classmethod
    def of_speaker(
        cls, entry: Mapping[str, Tensor], frames_per_id: int | None = FRAMES_PER_ID
    ) -> PromptFeatures:
        """A ready speaker (speakers.read_speakers): a preset has its vector only, a saved clone
        everything.
        """
        ids = entry.get("flow_prompt_speech_token", torch.zeros(1, 0)).reshape(-1).int()
        mel = entry.get("prompt_speech_feat", torch.zeros(1, 0, 80)).float().reshape(1, -1, 80)
        ids, mel = aligned(ids, mel, frames_per_id)
        text = entry.get("prompt_text", torch.zeros(1, 0)).reshape(-1).int()
        return cls(tuple(text.tolist()), tuple(ids.tolist()), mel.contiguous(), entry["embedding"])

    @classmethod
    def unpack(cls, data: bytes, frames_per_id: int | None = FRAMES_PER_ID) -> PromptFeatures:
        """Raises EngineFault when the bytes are no voice of this engine."""
        try:
            table = load(data)
            features = cls(
                tuple(table["text_ids"].tolist()),
                tuple(table["speech_ids"].tolist()),
                table["mel"],
                table["vector"],
            )
        except (SafetensorError, KeyError, ValueError) as e:
            raise _spoiled() from e
        frames = (
            features.mel.shape[1]
            if frames_per_id is None and features.mel.dim() == 3
            else (frames_per_id or 0) * len(features.speech_ids)
        )
        if features.mel.shape != (1, frames, 80) or features.vector.shape != (1, 192):
            raise _spoiled()
        return features


class PromptTokenizer(Protocol):
    def typed(self, text: str) -> list[int]: ...


class NoPromptEncoder:
    """In the place of a PromptEncoder, in a directory without the network `missing`: it has ready
    speakers and clones nobody.
    """

    can_hear = False

    def __init__(self, config: PromptEncoderConfig, missing: str):
        self.config, self._missing = config, missing

    def make(self, *args, **named) -> Prompt:
        """Raises BadInput."""
        name = self._missing
        raise BadInput("no_cloning", name=name, param="voice")

    voice = speech_ids = make


class PromptEncoder:
    """The two ONNX networks and the tokenizer.

    Thread-safe: sessions may run from several threads.
    """

    can_hear = True

    def __init__(
        self, root: Path, tokenizer: PromptTokenizer, config: PromptEncoderConfig | None = None
    ):
        """Raises NotReady naming the ONNX file that is missing, no ONNX file, or another
        network.
        """
        self._tokenizer, self.config = tokenizer, config or PromptEncoderConfig()
        check_speech_tokenizer(root, self.config.network)
        self._listen = _session(root, self.config.network, inputs=2, axis=1, size=128)
        self._recognise = _session(root, SPEAKER_ONNX, inputs=1, axis=2, size=80)

    def make(
        self, samples: np.ndarray, rate: int, transcript: str = "", version: str = ""
    ) -> Prompt:
        """samples: float32 mono (n,) at `rate` Hz.

        Raises BadInput naming what is wrong with the clip.
        """
        voice = self.voice(samples, rate, transcript)
        notes = ("narrow_band",) if rate < TOKENIZER_HZ else ()
        data = voice.pack()
        return Prompt(
            self.config.engine, version, hashlib.sha256(data).hexdigest()[:32], data, notes
        )

    def voice(self, samples: np.ndarray, rate: int, transcript: str = "") -> PromptFeatures:
        """As `make`, unpacked."""
        how = self.config
        x = with_tail(checked(samples, rate), rate, how.tail_s)
        low, mel = resample(x, rate, TOKENIZER_HZ), how.mel(resample(x, rate, how.mel_hz))
        ids, mel = aligned(self._ids(low), mel[None], how.frames_per_id)
        text_ids = self._tokenizer.typed(transcript)
        return PromptFeatures(tuple(text_ids), tuple(ids), mel.contiguous(), self._vector(low))

    def speech_ids(self, samples: np.ndarray, rate: int) -> list[int]:
        """The ids of a clip whose words another voice shall speak (voice conversion).

        Raises BadInput.
        """
        return self._ids(resample(checked(samples, rate), rate, TOKENIZER_HZ))

    def _ids(self, low: Tensor) -> list[int]:
        feats = whisper_log_mel(low).numpy()
        name, most = self.config.network, self.config.codes - 1
        ids = _run(self._listen, name, feats, np.array([feats.shape[2]], np.int32)).reshape(-1)
        if (
            not len(ids)
            or not np.issubdtype(ids.dtype, np.integer)
            or ids.min() < 0
            or ids.max() > most
        ):
            raise model_fault(
                name, message("file.ids_up_to", most=most), message("file.other_values")
            )
        rate = len(ids) * TOKENIZER_HZ / len(low)
        if abs(rate / self.config.ids_per_s - 1) > RATE_MARGIN:  # the network of another generation
            expected = message("file.ids_per_second", ids_per_s=self.config.ids_per_s)
            raise model_fault(name, expected, message("file.count", count=rate))
        return ids.tolist()

    def _vector(self, low: Tensor) -> Tensor:
        out = _run(self._recognise, SPEAKER_ONNX, kaldi_fbank(low)[None].numpy())
        if out.shape != (1, 192) or not np.isfinite(out).all():
            raise model_fault(
                SPEAKER_ONNX,
                message("file.finite_192"),
                message("file.shape", shape=str(out.shape)),
            )
        return torch.from_numpy(out.astype(np.float32))


def aligned(ids: Ids, mel: Tensor, frames_per_id: int | None) -> tuple[Ids, Tensor]:
    """ids (n,), mel (1, frames, 80): both cut to n = min(frames // frames_per_id, ids), where a
    generation ties them to each other.
    """
    if frames_per_id is None:
        return ids, mel
    n = min(mel.shape[1] // frames_per_id, len(ids))
    return ids[:n], mel[:, : frames_per_id * n]


def checked(samples: np.ndarray, rate: int) -> Tensor:
    """The clip as a tensor, once it is finite, not silent, and of a length the networks know.

    Raises BadInput.
    """
    if rate < MIN_HZ:
        raise BadInput("low_rate", rate=rate, min_hz=MIN_HZ, param="reference")
    x = np.ascontiguousarray(samples, dtype=np.float32).reshape(-1)
    seconds = len(x) / rate
    if seconds > MAX_S:
        raise BadInput("too_long.clip", seconds=seconds, max_s=MAX_S, param="reference")
    if seconds < MIN_S:
        raise BadInput("too_short.prompt", seconds=seconds, param="reference")
    if not np.isfinite(x).all():
        raise BadInput("not_finite.clip", param="reference")
    window = rate // 50
    loudest = float(
        np.sqrt((x[: len(x) // window * window].reshape(-1, window) ** 2).mean(1).max())
    )
    if loudest < SILENCE_RMS:
        raise BadInput("silent.clip", param="reference")
    return torch.from_numpy(x)


def with_tail(samples: Tensor, rate: int, seconds: float) -> Tensor:
    """samples (n,) with silence behind them, as much of it as leaves no more than MAX_S
    (specification "First contact", section 1).
    """
    room = round(MAX_S * rate) - len(samples)
    return F.pad(samples, (0, max(0, min(round(seconds * rate), room))))


def fit_notes(n_text: int, n_speech: int, ids_per_s: int) -> list[tuple[str, str]]:
    """A warning (English, Chinese) where a transcript of `n_text` tokens is hardly what a clip of
    `n_speech` tokens says: the language model then drops words or repeats them. Many pauses, or
    very fast speech, are no fault, so nothing is refused.
    """
    if not n_text or not n_speech:
        return []
    ratio = n_speech * TOKEN_HZ / ids_per_s / n_text
    low, high = TOKENS_PER_TEXT_TOKEN
    if low <= ratio <= high:
        return []
    measured = message("note.tokens_per_token", ratio=ratio, low=low, high=high)
    return [
        message(
            "note.transcript_more" if ratio < low else "note.transcript_less", measured=measured
        )
    ]


def check_speech_tokenizer(root: Path, name: str) -> None:
    """Two generations' speech tokenizers take and give the same shapes and differ by twice their
    size only: raises NotReady for the wrong one.
    """
    size = (root / name).stat().st_size if (root / name).is_file() else 0
    of_size = [
        other
        for other, published in LISTENERS.items()
        if SIZE_RANGE[0] < size / published < SIZE_RANGE[1]
    ]
    if of_size and name in LISTENERS and name not in of_size:
        published = f"{LISTENERS[name] / 1e6:.0f} MB"
        raise model_fault(
            name,
            message("file.file_of_model", published=published),
            message("file.size_of_model", mb=size / 1e6, twin=of_size[0]),
        )


def _session(
    root: Path, name: str, inputs: int, axis: int, size: int
) -> onnxruntime.InferenceSession:
    expected = message("file.onnx_network")
    file_checks.head(root, name, expected)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # its faults become our sentence
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            str(root / name), options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except (*_ORT_FAULTS, RuntimeError, ValueError) as e:
        raise model_fault(name, expected, message("file.damaged_cut_or_other")) from e
    shapes = [i.shape for i in session.get_inputs()]
    first = shapes[0] if shapes else []
    if (
        len(shapes) != inputs
        or len(first) != 3
        or (isinstance(first[axis], int) and first[axis] != size)
    ):
        expected_shape = message("file.inputs_and_bands", inputs=inputs, size=size)
        raise model_fault(name, expected_shape, message("file.inputs_of_shape", shapes=str(shapes)))
    return session


def _run(session: onnxruntime.InferenceSession, name: str, *values: np.ndarray) -> np.ndarray:
    names = [i.name for i in session.get_inputs()]
    try:
        return session.run(None, dict(zip(names, values, strict=True)))[0]
    except _ORT_FAULTS as e:
        raise EngineFault("fault.cannot_hear_clip", name=name, param="reference") from e


def _spoiled() -> EngineFault:
    return EngineFault("voice_damaged", param="voice")
