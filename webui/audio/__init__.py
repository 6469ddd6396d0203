"""Samples and bytes: decode, measure, cut, clean, stretch, encode.

Knows nothing of the web, of engines or of who is speaking.
"""

from .clip import Clip
from .clip_report import ClipReport, check_transcript, inspect, measure
from .decoder import (
    MAX_BYTES,
    MAX_S,
    MAX_VIDEO_BYTES,
    close_decoder,
    decode,
    decoder_children,
    warm_decoder,
)
from .denoise import cleaner_children, cleaning_hurts, close_cleaner, denoise
from .edit import cut, joined, raise_level, trim_to_words
from .encoder import (
    CODED,
    Encoder,
    close_coder,
    coded,
    coded_hz,
    coder_children,
    coders_open,
    warm_coder,
)
from .loudness import loudness_lufs
from .reference_windows import MAX_PROMPT_S, Window
from .report_messages import Advice
from .resample import Resampler, resample
from .silence_trim import SilenceTrim
from .time_stretch import TimeStretch
from .wav import from_s16, peaks, to_s16, wav_header

__all__ = [
    "CODED",
    "MAX_BYTES",
    "MAX_PROMPT_S",
    "MAX_S",
    "MAX_VIDEO_BYTES",
    "Advice",
    "Clip",
    "ClipReport",
    "Encoder",
    "Resampler",
    "SilenceTrim",
    "TimeStretch",
    "Window",
    "check_transcript",
    "cleaner_children",
    "cleaning_hurts",
    "close_cleaner",
    "close_coder",
    "close_decoder",
    "coded",
    "coded_hz",
    "coder_children",
    "coders_open",
    "cut",
    "decode",
    "decoder_children",
    "denoise",
    "from_s16",
    "inspect",
    "joined",
    "loudness_lufs",
    "measure",
    "peaks",
    "raise_level",
    "resample",
    "to_s16",
    "trim_to_words",
    "warm_coder",
    "warm_decoder",
    "wav_header",
]
