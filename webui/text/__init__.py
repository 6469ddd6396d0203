"""Text before it is spoken: language by script, normalisation, pronunciations, sentences, event tags. Pure strings; no I/O, no torch."""

from .clauses import Clause, Clauses
from .prepare import KEPT, measure, prepare, rewrite, warm
from .readings import (
    MAX_READING,
    MAX_TERM,
    NO_READINGS,
    Pronunciation,
    Readings,
    check,
    check_language,
    find_key,
)
from .scripts import detect
from .sentences import weight
from .tags import EVENTS, strip_tags, suggest, unknown_tags

__all__ = [
    "EVENTS", "KEPT", "MAX_READING", "MAX_TERM", "NO_READINGS", "Clause", "Clauses", "Pronunciation", "Readings", "check", "check_language", "detect", "find_key", "measure", "prepare", "rewrite",
    "strip_tags", "suggest", "unknown_tags", "warm", "weight",
]  # fmt: skip
