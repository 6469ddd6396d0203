"""Text before it is spoken: language by script, normalisation, pronunciations, sentences, event
tags. Pure strings; no I/O, no torch.
"""

from .clause_stream import Clause, ClauseStream
from .language_detect import detect
from .marks import PREFIX, marked_language, without_marks, without_prompt_marks
from .pipeline import (
    cache_counts,
    duration,
    measure,
    prepare,
    rewrite,
    segment_languages,
    sentence_spans,
    warm,
)
from .pronunciation_dict import (
    MAX_READING,
    MAX_TERM,
    NO_READINGS,
    Pronunciation,
    Readings,
    check,
    check_language,
    find_key,
)
from .segments import Packer, close, pack, units
from .sentences import glue, weight
from .source_spans import source_spans
from .tags import EVENTS, strip_tags, suggest, unknown_tags

__all__ = [
    "EVENTS", "MAX_READING", "MAX_TERM", "NO_READINGS", "PREFIX", "Clause", "ClauseStream",
    "Packer", "Pronunciation", "Readings", "cache_counts", "check", "check_language", "close",
    "detect", "duration", "find_key", "glue", "marked_language", "measure", "pack", "prepare",
    "rewrite", "segment_languages", "sentence_spans", "source_spans", "strip_tags", "suggest",
    "units", "unknown_tags", "warm", "weight",
    "without_marks", "without_prompt_marks",
]  # fmt: skip
