"""Kokoro-82M as a function: phonemes, a style and how the pitch is moved -> samples. Blind to text, references and time.

The published graph has no pitch input. Two are added when it is loaded: everything after the pitch predictor reads F0 * scale + shift wherever
the predictor hears a voice. A serialised graph grows by appending to it, so this needs neither the onnx package nor a second file on disk.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import onnxruntime

from ...errors import Cancelled, NotReady
from .vocabulary import VOCABULARY

RATE_HZ = 24000
MIN_HZ, MAX_HZ = 50.0, 700.0  # of a moved pitch
VOICED_HZ = 20.0  # the predictor says less than this where there is no voice
_PITCH = b"/encoder/F0_proj/Conv_output_0"
_UNMOVED = b"/encoder/F0_proj/Conv_output_F"  # as long as the name it replaces


def tokens_of(phonemes: str) -> list[int]:
    """Numbers of the symbols; what the model has no symbol for is left out."""
    return [VOCABULARY[symbol] for symbol in phonemes if symbol in VOCABULARY]


class Network:
    """One session, a thread for each call. Thread-safe; keeps nothing of a call."""

    def __init__(self, path: Path):
        """Raises NotReady: the file is not the graph that it should be, or there is too little memory for it."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.enable_mem_pattern = False  # a plan of memory for each length costs some 90 MB
        try:
            self._session = onnxruntime.InferenceSession(
                with_pitch_inputs(path.read_bytes()), options, providers=["CPUExecutionProvider"]
            )
        except (MemoryError, OSError, ValueError, RuntimeError) as e:
            raise NotReady(
                "The natural voice could not be loaded, perhaps for want of memory; the instant voice speaks.",
                "自然音色没能载入（可能内存不够），先用即时音色。",
                code="natural_unloadable",
            ) from e

    def say(
        self,
        tokens: list[int],
        style: np.ndarray,
        speed: float = 1.0,
        f0_scale: float = 1.0,
        f0_shift_hz: float = 0.0,
        run: onnxruntime.RunOptions | None = None,
    ) -> np.ndarray:
        """style float32 (256,) -> samples float32 (n,) at RATE_HZ, with silence before and after. Raises Cancelled when another thread
        terminates `run`, between two operations of the graph."""
        try:
            [sound] = self._session.run(
                ["audio"],
                {
                    "tokens": np.array([[0, *tokens, 0]], np.int64),
                    "style": style.reshape(1, -1).astype(np.float32),
                    "speed": np.array([speed], np.float32),
                    "f0_scale": np.array([f0_scale], np.float32),
                    "f0_shift": np.array([f0_shift_hz], np.float32),
                },
                run,
            )
        except Exception as e:
            if run is not None and run.terminate:
                raise Cancelled() from e
            raise
        return sound.reshape(-1)


def with_pitch_inputs(model: bytes) -> bytes:
    """The serialised graph with the inputs f0_scale and f0_shift. Raises ValueError when it is another graph."""
    before, found, after = model.partition(_field(2, _PITCH))  # the output of the one node
    if not found or _field(2, _PITCH) in after:
        raise ValueError("the graph has no pitch predictor of that name")
    unmoved = _UNMOVED.decode()
    added = b"".join(
        [
            _node("Mul", [unmoved, "f0_scale"], "f0_scaled"),
            _node("Add", ["f0_scaled", "f0_shift"], "f0_shifted"),
            _node("Clip", ["f0_shifted", "f0_min", "f0_max"], "f0_held"),
            _node("Greater", [unmoved, "f0_voiced"], "f0_is_voiced"),
            _node("Where", ["f0_is_voiced", "f0_held", unmoved], _PITCH.decode()),
            *(
                _constant(name, value)
                for name, value in (("min", MIN_HZ), ("max", MAX_HZ), ("voiced", VOICED_HZ))
            ),
            *(_input(name) for name in ("f0_scale", "f0_shift")),
        ]
    )
    return b"".join([before, _field(2, _UNMOVED), after, _field(7, added)])


# ---- the few messages of the ONNX format that are needed (onnx.proto3: NodeProto, TensorProto, ValueInfoProto) ----
def _varint(n: int) -> bytes:
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + _varint(n >> 7)


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _node(operator: str, inputs: list[str], output: str) -> bytes:
    names = b"".join(_field(1, name.encode()) for name in inputs)
    return _field(1, names + _field(2, output.encode()) + _field(4, operator.encode()))


def _constant(name: str, value: float) -> bytes:
    is_float = _varint(2 << 3) + _varint(1)
    return _field(
        5, is_float + _field(8, f"f0_{name}".encode()) + _field(9, struct.pack("<f", value))
    )


def _input(name: str) -> bytes:
    is_float = _varint(1 << 3) + _varint(1)
    one = _field(1, _varint(1 << 3) + _varint(1))  # a dimension of length 1
    return _field(11, _field(1, name.encode()) + _field(2, _field(1, is_float + _field(2, one))))


__all__ = ["RATE_HZ", "Network", "tokens_of", "with_pitch_inputs"]
