"""How many characters of the labelled sentences (tests/data/pinyin.tsv) the natural voice reads
rightly, tone included.
"""

from __future__ import annotations

import re
from pathlib import Path

from webui.engine.natural import pinyin

FILE = Path(__file__).resolve().parents[2] / "tests" / "data" / "pinyin.tsv"
HAN_RUN = re.compile("[\u3400-\u9fff]+")


def rows() -> list[tuple[str, str, str]]:
    """(kind, text, labels) of each labelled sentence."""
    lines = FILE.read_text("utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines if not line.startswith("#")]


def is_right(syllable: str, label: str) -> bool:
    """A label with two digits allows either tone: some light tones are a matter of taste."""
    return syllable[:-1] == label.rstrip("12345") and syllable[-1] in label.lstrip(
        "abcdefghijklmnopqrstuvwxyz"
    )


def readings(text: str) -> list[str]:
    return [s for run in HAN_RUN.findall(text) for w in pinyin.read(run) for s in w.syllables]


def counted() -> dict[tuple[str, int], tuple[int, int]]:
    """(kind, 0 or 1) -> (right, all).

    The tables were corrected by the errors in every first row only (0), never by those in the
    second (1).
    """
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    for i, (kind, text, labels) in enumerate(rows()):
        for syllable, label in zip(readings(text), labels.split(), strict=True):
            if label != "-":
                right, n = counts.get((kind, i % 2), (0, 0))
                counts[kind, i % 2] = right + is_right(syllable, label), n + 1
    return counts
