"""From the scores of single sounds to the figures of a voice, and the table of several.

Numbers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .tones import Tone, separation


@dataclass
class Score:
    """What the meters say of one sound; None, or nothing, where a meter was not asked or does not
    fit.
    """

    file: str
    reference: str = ""
    language: str = ""
    mos: float | None = None
    similarity: dict[str, float] = field(default_factory=dict)  # to each reference
    n_wrong: int | None = None  # words
    n_words: int = 0
    transcript: str = ""
    tones: list[Tone] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """No other reference is nearer."""
        return max(self.similarity, key=self.similarity.__getitem__) == self.reference


@dataclass(frozen=True)
class Figure:
    """value: None = not measured; n: of how many, where it is a share of these."""

    value: float | None
    n: int = 0

    def words(self) -> str:
        if self.value is None:
            return "-"
        return f"{self.value:.3f}" + (f" ({round(self.value * self.n)}/{self.n})" if self.n else "")


@dataclass(frozen=True)
class Row:
    """least, most: what is required of the natural voice."""

    key: str
    label: str
    least: float | None = None
    most: float | None = None

    def need(self) -> str:
        return (
            f">= {self.least:.3g}"
            if self.least is not None
            else f"<= {self.most:.3g}"
            if self.most is not None
            else ""
        )

    def is_missed(self, figure: Figure) -> bool:
        """Compared as it is printed: to three places."""
        if figure.value is None:
            return False
        value = round(figure.value, 3)
        return (self.least is not None and value < round(self.least, 3)) or (
            self.most is not None and value > round(self.most, 3)
        )


ROWS = (
    Row("mos zh", "DistillMOS 自然度, zh, mean 平均", least=4.2),
    Row("mos en", "DistillMOS 自然度, en, mean 平均", least=4.0),
    Row("lowest mos zh", "DistillMOS 自然度, zh, lowest 最低", least=3.4),
    Row("lowest mos en", "DistillMOS 自然度, en, lowest 最低", least=3.4),
    Row("similarity zh", "similarity 相似度, zh"),
    Row("similarity en", "similarity 相似度, en"),
    Row("others zh", "  to the other references 与其他参考, zh"),
    Row("others en", "  to the other references 与其他参考, en"),
    Row("right zh", "right speaker 认对说话人, zh", least=19 / 24),
    Row("right en", "right speaker 认对说话人, en", least=19 / 24),
    Row("word error en", "word error 词错率, en", most=0.06),
    Row("tones zh", "tone separation 声调可分, zh", least=0.62),
    Row("pinyin", "pinyin with tone 拼音带调", least=0.97),
)
VOICE = "natural"  # the column that the requirements are for


def figures(scores: Sequence[Score]) -> dict[str, Figure]:
    """Of one voice; only what was measured."""
    out: dict[str, Figure] = {}
    for language in ("zh", "en"):
        language_scores = [s for s in scores if s.language == language]
        mos = [s.mos for s in language_scores if s.mos is not None]
        if mos:
            out[f"mos {language}"] = Figure(float(np.mean(mos)))
            out[f"lowest mos {language}"] = Figure(min(mos))
        compared = [s for s in language_scores if s.similarity]
        if compared:
            out[f"similarity {language}"] = Figure(
                float(np.mean([s.similarity[s.reference] for s in compared]))
            )
            out[f"right {language}"] = share(sum(s.is_right for s in compared), len(compared))
            other_similarities = [
                v for s in compared for k, v in s.similarity.items() if k != s.reference
            ]
            out[f"others {language}"] = Figure(
                float(np.mean(other_similarities)) if other_similarities else None
            )
        read = [s for s in language_scores if s.n_wrong is not None]
        if read:
            out[f"word error {language}"] = share(
                sum(s.n_wrong or 0 for s in read), sum(s.n_words for s in read)
            )
        voices: dict[str, list[Tone]] = {}
        for s in language_scores:
            voices.setdefault(s.reference, []).extend(s.tones)
        if any(voices.values()):
            counts = [separation(tones) for tones in voices.values()]
            out[f"tones {language}"] = share(sum(r for r, _ in counts), sum(n for _, n in counts))
    return out


def share(part: int, n: int) -> Figure:
    return Figure(part / n, n) if n else Figure(None)


def missed(of_natural: Mapping[str, Figure]) -> list[str]:
    return [row.key for row in ROWS if row.key in of_natural and row.is_missed(of_natural[row.key])]


def table(columns: Mapping[str, Mapping[str, Figure]]) -> list[str]:
    """Lines to print: a row for each figure that was measured, a column for each voice, and what is
    required of the natural one.
    """
    has_need = VOICE in columns
    lines = [_line("", columns, "required of natural 要求" if has_need else "")]
    for row in ROWS:
        row_figures = [column.get(row.key, Figure(None)) for column in columns.values()]
        if any(f.value is not None for f in row_figures):
            need = row.need() if has_need else ""
            if need:
                figure = columns[VOICE].get(row.key, Figure(None))
                need += (
                    ""
                    if figure.value is None
                    else "  MISSED 未达到"
                    if row.is_missed(figure)
                    else "  ok"
                )
            lines.append(_line(row.label, [f.words() for f in row_figures], need))
    return lines


def _line(label: str, cells: Iterable[str], need: str) -> str:
    wide = sum(c >= "\u2e80" for c in label)  # Han takes two places
    line = label + " " * (44 - len(label) - wide)
    return (line + "".join(f"{cell:>18}" for cell in cells) + "   " + need).rstrip()
