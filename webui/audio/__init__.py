"""Samples and bytes: decode, measure, cut, clean, stretch, encode.

Knows nothing of the web, of engines or of who is speaking.
"""

from .advice import Advice
from .clean import cleaner_children, cleaning_hurts, close_cleaner, denoise
from .clip import Clip
from .coder import (
    CODED,
    Coder,
    close_coder,
    coded,
    coded_hz,
    coder_children,
    coders_open,
    warm_coder,
)
from .edit import cut, joined, raise_level, trim_to_words
from .encode import from_s16, peaks, to_s16, wav_header
from .health import Report, check_transcript, inspect, measure
from .lead import LeadTrim
from .loudness import loudness_lufs
from .reader import (
    MAX_BYTES,
    MAX_S,
    MAX_VIDEO_BYTES,
    close_decoder,
    decode,
    decoder_children,
    warm_decoder,
)
from .resample import Resampler, resample
from .tempo import Tempo
from .windows import MAX_PROMPT_S, Window

__all__ = [
    "CODED",
    "MAX_BYTES",
    "MAX_PROMPT_S",
    "MAX_S",
    "MAX_VIDEO_BYTES",
    "Advice",
    "Clip",
    "Coder",
    "LeadTrim",
    "Report",
    "Resampler",
    "Tempo",
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
