"""What to tell a creator about a clip: one sentence and one remedy for each warning, in both
languages. Measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..messages import Message, message


@dataclass(frozen=True)
class Advice:
    """code: the `w.*` string of the page; v: the measured value in it; k: a second one; tone:
    "warn" or "bad".
    """

    code: str
    tone: str
    v: float
    k: float | None = None

    @property
    def sentences(self) -> Message:
        """What is wrong."""
        return message(f"clip.{self.code}", v=self.v, k=self.k)

    def to_json(self) -> dict:
        en, zh = self.sentences
        fix, fix_zh = message(f"clip.{self.code}.fix")
        out = {"code": self.code, "tone": self.tone, "v": self.v, "fix": fix, "fix_zh": fix_zh}
        out |= {"message": en, "message_zh": zh}
        return out | ({} if self.k is None else {"k": self.k})


def worst_first(warnings: list[Advice]) -> tuple[Advice, ...]:
    return tuple(sorted(warnings, key=lambda w: (w.tone != "bad", CODES.index(w.code))))


# in the order of harm to a clone
CODES = (
    "no_speech",
    "too_short",
    "clipped",
    "noisy",
    "speakers",
    "narrow",
    "echo",
    "music",
    "cut_end",
    "cut_start",
    "transcript",
    "transcript_less",
    "first_track",
    "quiet",
    "too_long",
)
