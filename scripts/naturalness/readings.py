"""How many characters of the labelled sentences (tests/data/pinyin.tsv) the natural voice reads
rightly, tone included, and how many a dictionary of phrases alone.

    python -m scripts.naturalness.readings
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pypinyin import Style, lazy_pinyin

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


def counted(
    read: Callable[[str], list[str]] = readings,
) -> dict[tuple[str, int], tuple[int, int]]:
    """(kind, 0 or 1) -> (right, all). read(text): a syllable for each Han character.

    The tables were corrected by the errors in every first row only (0), never by those in the
    second (1).
    """
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    for i, (kind, text, labels) in enumerate(rows()):
        for syllable, label in zip(read(text), labels.split(), strict=True):
            if label != "-":
                right, n = counts.get((kind, i % 2), (0, 0))
                counts[kind, i % 2] = right + is_right(syllable, label), n + 1
    return counts


def pypinyin_alone(text: str) -> list[str]:
    """What the phrases of pypinyin give without our words, rules and corrections."""
    style = {"style": Style.TONE3, "neutral_tone_with_five": True, "v_to_u": False}
    return [s for run in HAN_RUN.findall(text) for s in lazy_pinyin(run, **style)]


def main() -> None:
    """One line for each kind and half of the labelled sentences: the share that is read rightly."""
    natural, alone = counted(), counted(pypinyin_alone)
    for (kind, half), (right, n) in sorted(natural.items()):
        row = f"{kind} {'held out' if half else 'seen':8} {n:5} characters"
        print(
            f"{row}  natural voice {right / n:.4f}  pypinyin alone {alone[kind, half][0] / n:.4f}"
        )


if __name__ == "__main__":
    main()
