"""Japanese text to kana, when a converter happens to be installed.

It is optional; its absence is said in `script.cannot_read`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


@cache
def converter() -> Callable[[str], str] | None:
    """text -> text with its Han letters in hiragana, or None."""
    try:
        import pykakasi
    except ImportError:
        return None
    engine = pykakasi.kakasi()
    return lambda text: "".join(part["hira"] for part in engine.convert(text))
