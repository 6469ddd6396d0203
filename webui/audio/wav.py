"""Samples to bytes and back: 16-bit PCM, the WAV header with its label, and the bars of a waveform.

No I/O.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

MADE_BY = "Kaikou"
ENDLESS = 0xFFFFFFFF


def to_s16(samples: np.ndarray) -> bytes:
    """float32 (n,) in -1..1 to little-endian int16.

    Halves go to the even neighbour; what lies outside is clipped; the same in every call.
    """
    scaled = np.asarray(samples, np.float32) * np.float32(
        32768
    )  # one array from here on: long ones cost more to find room for than to compute
    np.rint(scaled, out=scaled)
    return np.clip(scaled, -32768, 32767, out=scaled).astype("<i2").tobytes()


def from_s16(data: bytes) -> np.ndarray:
    """Little-endian int16 to float32 (n,); `to_s16` gives the same bytes back."""
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)


def wav_header(rate: int, n_samples: int | None, label: str = "") -> bytes:
    """Header of a mono 16-bit WAV of `n_samples`; None = length unknown (0xFFFFFFFF in both size
    fields). Samples begin at an even offset.

    label: what the sound is, kept inside the file as its comment (LIST/INFO ICMT), with ISFT naming
      the studio.
    """
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    info = _info(label) if label else b""
    n_bytes = ENDLESS if n_samples is None else n_samples * 2
    whole = ENDLESS if n_samples is None else 4 + len(fmt) + len(info) + 8 + n_bytes
    if whole > ENDLESS:
        raise ValueError("a WAV file holds at most 4 GiB")
    return (
        struct.pack("<4sI4s", b"RIFF", whole, b"WAVE")
        + fmt
        + info
        + struct.pack("<4sI", b"data", n_bytes)
    )


def read_wav_header(file: BinaryIO) -> tuple[int, str]:
    """Hz and label of a file that begins with a `wav_header`; leaves it at its first sample."""
    rate, label = 0, ""
    file.seek(12)
    while (head := file.read(8))[:4] not in (b"data", b""):
        body = file.read((size := int.from_bytes(head[4:], "little")) + size % 2)
        if head[:4] == b"fmt ":
            rate = int.from_bytes(body[4:8], "little")
        elif body[:8] == b"INFOICMT":
            length = int.from_bytes(body[8:12], "little")
            label = body[12 : 12 + length].rstrip(b"\0").decode("utf-8")
    return rate, label


def _info(label: str) -> bytes:
    chunks = b"".join(
        _chunk(name, text.encode("utf-8") + b"\0")
        for name, text in ((b"ICMT", label), (b"ISFT", MADE_BY))
    )
    return _chunk(b"LIST", b"INFO" + chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def peaks(samples: np.ndarray, n: int) -> list[float]:
    """`n` bars 0..1 for drawing: the greatest magnitude of each n-th part, relative to the loudest.

    Zeros when there is no sound.
    """
    if not len(samples):
        return [0.0] * n
    edges = np.linspace(0, len(samples), n + 1).astype(int)[:-1]
    bars = np.maximum.reduceat(np.abs(samples), np.minimum(edges, len(samples) - 1))
    return np.round(bars / max(float(bars.max()), 1e-9), 3).tolist()
