"""Text before it is spoken: language by script, normalisation, sentences, event tags. Pure strings; no I/O, no torch."""

from .prepare import measure, prepare, warm
from .scripts import detect
from .tags import EVENTS, strip_tags, suggest, unknown_tags

__all__ = ["EVENTS", "detect", "measure", "prepare", "strip_tags", "suggest", "unknown_tags", "warm"]
